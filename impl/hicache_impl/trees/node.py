"""One node of a prefix tree, and what the tree's calls return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


class TreeError(Exception):
    """A caller broke a rule of the tree; the tree is as it was before the call."""


Slots = Mapping[str, Mapping[int, int]]
"""By component: slots by page position, counted from the root."""


@dataclass(eq=False, slots=True)
class Node:
    """A run of pages below `parent`, with its values on device and on host (None: not there).

    `pages`, `hashes`, `device` and `host` have the same length. Read everything; change only through the tree, which
    keeps counters and eviction orders by it. When a node is split, this object stays the *lower* half, so whoever
    holds it keeps the whole prefix; page lists that are needed as they were must be copied before.

    `slots[component, tier]` maps positions, counted from the node's first page, to slots of the component's pool; a
    pair without slots is left out. `lock_ref` counts the locks of this node and of its descendants, `host_ref` the
    protections of this node alone, `protected_below` the nodes from this one down that are protected, `slots_ref`
    those who still read its slots on host. `last_access` is a counter, not a clock. `hits` counts how often it was
    inserted, for the write policy. A node that left the tree has `detached` set and no values.
    """

    id: int
    pages: tuple[bytes, ...]
    hashes: tuple[bytes, ...]
    parent: Node | None
    device: list[int] | None = None
    host: list[int] | None = None
    lock_ref: int = 0
    host_ref: int = 0
    protected_below: int = 0
    slots_ref: int = 0
    last_access: int = 0
    hits: int = 0
    children: dict[bytes, Node] = field(default_factory=dict)
    slots: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    device_children: int = 0
    host_children: int = 0
    detached: bool = False

    def __len__(self) -> int:
        """Pages of this node alone."""
        return len(self.pages)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        where = "+".join(name for name, value in (("device", self.device), ("host", self.host)) if value is not None)
        return f"Node({self.id}, {len(self.pages)} pages, {where or 'nowhere'})"

    def slots_of(self, component: str, tier: str) -> dict[int, int]:
        """This component's slots on this tier by position in the node; empty when there are none."""
        return self.slots.get((component, tier), {})


@dataclass(frozen=True)
class Match:
    """The longest known prefix of a key that serves: first what is on device, then what is on host only.

    `device_node` is the last node on device, `host_node` the last node of all (the same when there is no host-only
    part; the root when there is nothing). `host_node` need not be backed up: whoever anchors there must ask.

    The first `ready_pages` pages, down to `ready_node`, serve with what is on device alone: all of the device's pages,
    unless some component has less there.
    """

    device_pages: list[int]
    host_pages: list[int]
    device_node: Node
    host_node: Node
    ready_pages: int
    ready_node: Node


@dataclass(frozen=True)
class Inserted:
    """`new_nodes` top-down; `node` ends the key; `duplicate_pages` were not taken and are the caller's to free."""

    new_nodes: list[Node]
    node: Node
    duplicate_pages: list[int]


@dataclass(frozen=True)
class Published:
    """`known_pages` were not taken and are the caller's to free; `new` pages were, `adopted` of them by a device node.

    `node` ends the published prefix (the anchor when it is empty).
    """

    known_pages: list[int]
    new: int
    adopted: int
    node: Node
