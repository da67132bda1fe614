"""The tree as it is seen: what the specification's chains stand for, taken from the events and checked for itself.

The specification knows the tree by a few words (`hicache_spec/tree.py`). Here they are answered by what an
implementation reported about its radix tree: which nodes it evicted, how many pages it could still evict, which
fetched pages it knew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hicache_checks.conformance.observation import Event


class Unexplained(Exception):
    """What was seen has no explanation; `property` says which rule it breaks, `related` what else was seen of it."""

    def __init__(self, property_: str, message: str, related: Iterable[Event] = ()) -> None:
        super().__init__(message)
        self.property = property_
        self.related = tuple(related)


class TreeSeen:
    """References on nodes, and what the events of the running step say about the tree. All numbers are pages."""

    def __init__(self) -> None:
        self._references: dict[int, int] = {}
        self._anchors: dict[int, int] = {}
        self._evicted: list[int] = []
        self._evictable = 0
        self._known = 0

    def words(self) -> Mapping[str, Callable[..., Any]]:
        """The helper functions of `hicache_spec.tree`, as an observer answers them."""
        return {
            "protect": lambda s, op: self.hold(self._anchors[op]),
            "unprotect": lambda s, op: self.let_go(self._anchors[op]),
            "resident_pages": lambda s: s.resident[0],
            "evictable_pages": lambda s: self._evictable + sum(self._evicted),
            "evict": self.evict,
            "known_pages": lambda s, op, pages: self._known,
            "attach": self._attach,
        }

    # ---- what the events say

    def anchor(self, slot: int, node: int) -> None:
        """The operation in this slot hangs under this node."""
        self._anchors[slot] = node

    def forget(self, slot: int) -> None:
        """The operation is gone."""
        del self._anchors[slot]

    def hold(self, node: int) -> None:
        """Somebody protects the host value of this node."""
        self._references[node] = self._references.get(node, 0) + 1

    def let_go(self, node: int) -> None:
        """Undo one `hold`. Raises Unexplained for one too many."""
        if self._references.get(node, 0) == 0:
            raise Unexplained("inv_anchors_protected_exactly", f"node {node} is not protected")
        self._references[node] -= 1
        if self._references[node] == 0:
            del self._references[node]

    def protected(self) -> list[int]:
        """Nodes with references, in order."""
        return sorted(self._references)

    def see_evictable(self, pages: int) -> None:
        """So many pages could still be evicted after the step."""
        self._evictable = pages

    def see_known(self, pages: int) -> None:
        """So many of the fetched pages were in the tree."""
        self._known = pages

    def see_evicted(self, node: int, pages: int) -> None:
        """The step evicts a node. Raises Unexplained if somebody protects it."""
        if node in self._references:
            raise Unexplained("inv_anchors_alive", f"node {node} is protected")
        self._evicted.append(pages)

    # ---- words that change the state

    def evict(self, s: Any, missing: int) -> None:
        """What was evicted leaves the tree: as much as was missing, and no node more than needed."""
        evicted, self._evicted = self._evicted, []
        pages = sum(evicted)
        if pages < missing:
            raise Unexplained("inv_pages_conserved", f"{pages} pages were evicted, {missing} were missing")
        if evicted and pages - evicted[-1] >= missing:
            raise Unexplained("step_eviction_is_needed", f"{pages} pages were evicted, {missing} were missing")
        s.resident[0] -= pages
        for r in range(len(s.free)):
            s.free[r] += pages

    def _attach(self, s: Any, op: int, pages: int) -> None:
        s.resident[0] += pages

    def evicted_for_nothing(self) -> bool:
        """Were pages evicted that no step asked for?"""
        return bool(self._evicted)
