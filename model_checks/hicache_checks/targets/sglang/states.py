"""States: what those layers of a hybrid model that have no keys and values know of a whole prefix.

Each takes a slot on the device and one on the host, and is stored under the name of the prefix's last page. A tree
finds no prefix at whose end there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from hicache_checks.targets.sglang import audit
from hicache_checks.targets.sglang.content import content
from hicache_checks.targets.sglang.surroundings import Settings
from hicache_checks.targets.sglang.tree import NodeSeen

if TYPE_CHECKING:
    from hicache_checks.targets.sglang.rank import Rank

POOL = "mamba"
"""What the releases call the pool of states; its name is a part of what stores call a state."""
ONE = 1
"""A state is as a page of one token."""
Prefix = Sequence[object]


class NoSlot(Exception):
    """P9: no slot is free for a state, and none can be made free."""


def stored_as(name: str) -> str:
    """What a store calls the state after the page of this name."""
    return f"{name}.{POOL}"


class NoStates:
    """Of a model that has none."""

    def taken(self, request: Settings) -> torch.Tensor | None:
        """The slot of a request, which it has or is given now. Raises NoSlot."""

    def adopt(self, request: Settings) -> None:
        """The release may have given a request its slot: some keep it with the request's other memory."""

    def give_back(self, request: Settings) -> None:
        """A request lets go of its slot."""

    def write(self, prefix: Prefix, slot: torch.Tensor | None) -> None:
        """The model's answer for a prefix."""

    def wrong(self, node: NodeSeen, prefix: Prefix) -> Iterator[str]:
        """Does the device hold another state after this node than that of the prefix? One line each, with the
        property first."""
        yield from ()

    def bytes_of(self, prefix: Prefix) -> torch.Tensor | None:
        """The state after a prefix as the release would store it."""

    def clear(self) -> None:
        """All slots are free."""

    def has_room(self) -> bool:
        """Is there a free slot on the host?"""
        return False

    def problems(self, nodes: Sequence[NodeSeen]) -> Iterator[str]:
        """At rest: what is wrong with slots and their bytes, one line each."""
        yield from ()

    def stored_problems(self, name: str, prefix: Prefix) -> Iterator[str]:
        """The same of what the store has after the page of this name."""
        yield from ()

    def unstored(self, nodes: Sequence[NodeSeen]) -> Iterator[str]:
        """States that the host has and the store has not, one line each."""
        yield from ()

    def unwritten(self, nodes: Sequence[NodeSeen]) -> Iterator[str]:
        """States that the device has, of prefixes that the host has without them, one line each."""
        yield from ()


class States(NoStates):
    """Of the pools that a rank has for them."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._requests = rank.parts.requests
        pool = self._requests.mamba_pool
        self._allocator = getattr(self._requests, "mamba_allocator", pool)
        self._device: list[torch.Tensor] = [pool.mamba_cache.temporal, *pool.mamba_cache.conv]
        entries = rank.controller.mem_pool_host.entry_map
        self._host_pool = next(entry.host_pool for name, entry in entries.items() if name == POOL)
        self._host: list[torch.Tensor] = [self._host_pool.temporal_buffer, *self._host_pool.conv_buffer]
        self._slots = int(self._allocator.available_size())

    def taken(self, request: Settings) -> torch.Tensor:
        """See NoStates."""
        if request.mamba_pool_idx is None:
            slot = self._allocator.alloc(1)
            if slot is None:
                self._rank.evict(tokens=0, states=1)
                slot = self._allocator.alloc(1)
            if slot is None:
                raise NoSlot(f"P9 none of {self._slots} slots for states is free, and none can be evicted")
            request.mamba_pool_idx = slot[0]
        taken: torch.Tensor = request.mamba_pool_idx.unsqueeze(0).clone()
        return taken

    def adopt(self, request: Settings) -> None:
        """See NoStates."""
        if request.kv.mamba_pool_idx is not None:
            request.mamba_pool_idx, request.kv.mamba_pool_idx = request.kv.mamba_pool_idx, None

    def give_back(self, request: Settings) -> None:
        """See NoStates."""
        if request.mamba_pool_idx is not None:
            self._allocator.free(request.mamba_pool_idx.unsqueeze(0))
            request.mamba_pool_idx = None

    def write(self, prefix: Prefix, slot: torch.Tensor | None) -> None:
        """See NoStates."""
        if slot is not None:
            self._fill(self._on_device(int(slot)), prefix)

    def wrong(self, node: NodeSeen, prefix: Prefix) -> Iterator[str]:
        """See NoStates."""
        for slot in node.device_states or ():
            if not self._holds(self._on_device(slot), prefix):
                yield f"P6 the device's state after {list(prefix)} has other bytes"

    def bytes_of(self, prefix: Prefix) -> torch.Tensor:
        """See NoStates."""
        before = [part.clone() for part in self._on_host(0)]
        self._fill(self._on_host(0), prefix)
        flat: torch.Tensor = self._host_pool.get_data_page(0).clone()
        for part, value in zip(self._on_host(0), before, strict=True):
            part.copy_(value)
        return flat

    def has_room(self) -> bool:
        """See NoStates."""
        return int(self._host_pool.available_size()) > 0

    def clear(self) -> None:
        """See NoStates."""
        self._requests.clear()

    def problems(self, nodes: Sequence[NodeSeen]) -> Iterator[str]:
        """See NoStates."""
        held = [slot for node in nodes for slot in node.device_states or ()]
        lost = self._slots - int(self._allocator.available_size()) - len(held)
        if len(set(held)) != len(held):
            yield "P13 a device's state is held by two nodes"
        if lost:
            yield f"P4 {lost} slots for states of the device are neither free nor in the tree"
        free = [int(slot) for slot in audit.free_host_slots(self._host_pool)]
        kept = [slot for node in nodes for slot in node.host_states or ()]
        yield from audit.counted("host states", free, kept, range(self._host_pool.size), ONE)
        for node in nodes:
            yield from self._node(node)

    def stored_problems(self, name: str, prefix: Prefix) -> Iterator[str]:
        """See NoStates."""
        state = self._rank.shelf.pages.get(stored_as(name))
        if state is not None and not torch.equal(state.view(torch.uint8), self.bytes_of(prefix)):
            yield f"P30 the store does not hold the state after {list(prefix)}"

    def unstored(self, nodes: Sequence[NodeSeen]) -> Iterator[str]:
        """See NoStates."""
        for node in nodes:
            pages = audit.pages_of(node.prefix, self._rank.page)
            if node.host_states and pages and stored_as(self._rank.keys(pages)[-1]) not in self._rank.shelf.pages:
                yield f"P32 the host has the state after {list(pages)}, and the store does not"

    def unwritten(self, nodes: Sequence[NodeSeen]) -> Iterator[str]:
        """See NoStates."""
        for node in nodes:
            if node.device_states and node.host and not node.host_states:
                name = list(audit.pages_of(node.prefix, self._rank.page) or node.prefix)
                yield f"P32 the device has the state after {name}, the host has the pages only"

    def _node(self, node: NodeSeen) -> Iterator[str]:
        pages = audit.pages_of(node.prefix, self._rank.page)
        if pages is None:
            return
        prefix = audit.written_as(pages, audit.extra_of(node))(len(pages))
        if node.state_refs:
            yield f"P14 {node.state_refs} hold on to the state after {list(prefix)} at rest"
        yield from self.wrong(node, prefix)
        for slot in node.host_states or ():
            if not self._holds(self._on_host(slot), prefix):
                yield f"P6 the host's state after {list(prefix)} has other bytes"

    def _on_device(self, slot: int) -> list[torch.Tensor]:
        """The parts of a state: layers first."""
        return [part[:, slot] for part in self._device]

    def _on_host(self, slot: int) -> list[torch.Tensor]:
        return [part[slot][:, 0] for part in self._host]

    def _fill(self, parts: Sequence[torch.Tensor], prefix: Prefix) -> None:
        for part, value in zip(parts, self._content(parts, prefix), strict=True):
            part.copy_(value)

    def _holds(self, parts: Sequence[torch.Tensor], prefix: Prefix) -> bool:
        return all(torch.equal(*pair) for pair in zip(parts, self._content(parts, prefix), strict=True))

    def _content(self, parts: Sequence[torch.Tensor], prefix: Prefix) -> list[torch.Tensor]:
        return [content((POOL, place, *prefix), self._rank.number, part) for place, part in enumerate(parts)]
