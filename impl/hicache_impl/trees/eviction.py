"""Which node goes first: least recently used, equal ages by node id, the same on every rank."""

from __future__ import annotations

import heapq

from hicache_impl.trees.components import DEVICE
from hicache_impl.trees.node import Node

_COMPACT_ABOVE = 64


def is_host_leaf(node: Node) -> bool:
    """May evict_host take it? (P24)"""
    return node.host is not None and node.device is None and not node.host_ref and not node.host_children


def is_device_leaf(node: Node) -> bool:
    """May evict_device take it?"""
    return node.device is not None and not node.lock_ref and not node.device_children


def has_evictable_slots(node: Node, component: str, tier: str) -> bool:
    """May evict_slots take what this component has in the node on this tier?"""
    return bool(node.slots_of(component, tier)) and not (node.lock_ref if tier == DEVICE else node.slots_ref)


class EvictionOrder:
    """The nodes that may be evicted now, oldest first.

    A heap with lazy deletion: an entry counts only while it is the node's latest one. So keeping a node's entry up to
    date costs O(log n), and nothing is ever searched.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._members: dict[int, tuple[int, Node]] = {}

    def __len__(self) -> int:
        return len(self._members)

    def ages(self) -> dict[int, int]:
        """last_access of each member as this order knows it, by node id."""
        return {node_id: age for node_id, (age, _) in self._members.items()}

    def update(self, node: Node, evictable: bool) -> None:
        """Note whether the node may be evicted, and its present age."""
        if not evictable:
            self._members.pop(node.id, None)
            return
        known = self._members.get(node.id)
        if known is not None and known[0] == node.last_access:
            return
        self._members[node.id] = (node.last_access, node)
        heapq.heappush(self._heap, (node.last_access, node.id))
        if len(self._heap) > _COMPACT_ABOVE + 2 * len(self._members):
            self._heap = [(age, node_id) for node_id, (age, _) in self._members.items()]
            heapq.heapify(self._heap)

    def oldest(self) -> Node | None:
        """The member to evict first, left in place; None when there is none."""
        while self._heap:
            age, node_id = self._heap[0]
            member = self._members.get(node_id)
            if member is not None and member[0] == age:
                return member[1]
            heapq.heappop(self._heap)
        return None
