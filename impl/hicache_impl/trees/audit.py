"""Is a tree sound? Everything is computed again from the nodes alone, by nothing that the tree itself uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hicache_impl.keys import PrefixKey, chain_hashes
from hicache_impl.trees.components import DEVICE, HOST, TIERS, State
from hicache_impl.trees.node import Node

if TYPE_CHECKING:
    from hicache_impl.trees.core import RadixTree


def audit_tree(tree: RadixTree) -> list[str]:
    """One line for each thing that is wrong; empty when the tree is sound."""
    nodes = list(tree.nodes())
    problems: list[str] = []
    for node in nodes:
        problems += _audit_links(tree, node)
        problems += _audit_values(node)
        problems += _audit_references(tree, node)
        problems += _audit_slots(tree, node)
    problems += _audit_ownership(nodes)
    problems += _audit_slot_ownership(tree, nodes)
    problems += _audit_counters(tree, nodes)
    problems += _audit_orders(tree, nodes)
    return problems


def _audit_links(tree: RadixTree, node: Node) -> Iterator[str]:
    parent = node.parent
    if node.detached or parent is None:
        yield f"{node} is in the tree and detached"
        return
    if not node.pages or parent.children.get(node.pages[0]) is not node:
        yield f"{node} does not hang in {parent} by its first page"
    if node.hashes != chain_hashes(PrefixKey(tree.namespace, node.pages), tree.chain_parent(parent)):
        yield f"P21 {node}: the hashes are not the chain of its pages"
    if parent is not tree.root and node.last_access > parent.last_access:
        yield f"{node} was used after its parent {parent}"


def _audit_values(node: Node) -> Iterator[str]:
    parent = node.parent
    if node.device is None and node.host is None:
        yield f"{node} has no value"
    for name, value in (("device", node.device), ("host", node.host)):
        if value is not None and len(value) != len(node.pages):
            yield f"{node} has {len(value)} {name} pages"
    if parent is not None and node.device is not None and parent.device is None:
        yield f"{node} is on device, its parent {parent} is not"
    if parent is not None and node.host is not None and parent.host is None:
        yield f"P23 {node} is on host, its parent {parent} is not"


def _audit_references(tree: RadixTree, node: Node) -> Iterator[str]:
    if node.host_ref < 0 or node.lock_ref < 0:
        yield f"P14 {node} has host_ref {node.host_ref}, lock_ref {node.lock_ref}"
    if node.host_ref and node.host is None:
        yield f"P14 {node} is protected and has no host value"
    if node.lock_ref and node.device is None:
        yield f"{node} is locked and not on device"
    if node.lock_ref < sum(child.lock_ref for child in node.children.values()):
        yield f"{node} has fewer locks than its children"
    if (tree.protected.get(node.id) is node) != (node.host_ref > 0):
        yield f"P14 {node} has host_ref {node.host_ref}, the set of protected nodes says otherwise"


def _audit_slots(tree: RadixTree, node: Node) -> Iterator[str]:
    if node.slots_ref < 0 or (tree.held.get(node.id) is node) != (node.slots_ref > 0):
        yield f"{node} has slots_ref {node.slots_ref}, the set of held nodes says otherwise"
    for (name, tier), slots in node.slots.items():
        if (node.device if tier == DEVICE else node.host) is None:
            yield f"P20 {node} has slots of {name} on {tier}, and no pages"
        if not slots or not all(0 <= position < len(node) for position in slots):
            yield f"{node} has slots of {name} on {tier} at {sorted(slots)}"
        if isinstance(tree.components[name], State) and set(slots) != {len(node) - 1}:
            yield f"{node} has a state on {tier} at {sorted(slots)}, which is not its end"
    for name, component in tree.components.items():
        for tier, value in ((DEVICE, node.device), (HOST, node.host)):
            if component.beside_pages and len(node.slots_of(name, tier)) != len(value or ()):
                yield f"P20 {node} has pages on {tier} without {name} beside them"


def _audit_slot_ownership(tree: RadixTree, nodes: list[Node]) -> Iterator[str]:
    for name in tree.components:
        for tier in TIERS:
            slots = [slot for node in nodes for slot in node.slots_of(name, tier).values()]
            if len(set(slots)) != len(slots):
                yield f"P4 a slot of {name} on {tier} is in the tree twice"
            if tree.slots_resident[name, tier] != len(slots):
                counted = tree.slots_resident[name, tier]
                yield f"{name} on {tier}: the tree counts {counted} slots, its nodes have {len(slots)}"


def _audit_ownership(nodes: list[Node]) -> Iterator[str]:
    for name, values in (("device", [node.device for node in nodes]), ("host", [node.host for node in nodes])):
        owner: dict[int, Node] = {}
        for node, value in zip(nodes, values, strict=True):
            for page in value or ():
                if page in owner:
                    yield f"P4 {name} page {page} is in {owner[page]} and in {node}"
                owner[page] = node


def _audit_counters(tree: RadixTree, nodes: list[Node]) -> Iterator[str]:
    expected = {
        "device pages": (tree.device_pages_resident(), sum(len(node.device or ()) for node in nodes)),
        "host pages": (tree.host_pages_resident(), sum(len(node.host or ()) for node in nodes)),
        "host-only pages": (tree.host_only_pages, sum(len(node) for node in nodes if node.device is None)),
        "evictable host pages": (tree.evictable_host_pages(), _evictable_below(tree.root)[0]),
        "protected nodes": (
            len([node for node in tree.protected.values() if node is not tree.root]),
            sum(node.host_ref > 0 for node in nodes),
        ),
    }
    for name, (counted, found) in expected.items():
        if counted != found:
            yield f"{name}: the tree counts {counted}, its nodes have {found}"
    for node in (tree.root, *nodes):
        children = node.children.values()
        if node.protected_below != (node.host_ref > 0) + sum(child.protected_below for child in children):
            yield f"{node} counts {node.protected_below} protected nodes from itself down"
        if node.device_children != sum(child.device is not None for child in children):
            yield f"{node} counts {node.device_children} children on device"
        if node.host_children != sum(child.host is not None for child in children):
            yield f"{node} counts {node.host_children} children on host"


def _evictable_below(root: Node) -> tuple[int, bool]:
    """Host pages that evicting leaves again and again frees below `root`, and whether nothing of it stays.

    Post-order without recursion, because a long conversation makes a deep tree.
    """
    order: list[Node] = [root]
    for node in order:
        order.extend(node.children.values())
    freed: dict[int, tuple[int, bool]] = {}
    for node in reversed(order):
        below = [freed[child.id] for child in node.children.values()]
        pages = sum(count for count, _ in below)
        goes = node is not root and node.device is None and not node.host_ref and all(gone for _, gone in below)
        freed[node.id] = (pages + len(node) if goes else pages, goes)
    return freed[root.id]


def _audit_orders(tree: RadixTree, nodes: list[Node]) -> Iterator[str]:
    host_leaves = {
        node.id: node.last_access
        for node in nodes
        if node.device is None and node.host_ref == 0 and all(child.host is None for child in node.children.values())
    }
    device_leaves = {
        node.id: node.last_access
        for node in nodes
        if node.device is not None
        and node.lock_ref == 0
        and all(child.device is None for child in node.children.values())
    }
    if tree.host_order.ages() != host_leaves:
        yield f"P24 the host leaves are {host_leaves}, the tree would evict {tree.host_order.ages()}"
    for (name, tier), order in tree.slot_orders.items():
        evictable = {
            node.id: node.last_access
            for node in nodes
            if node.slots_of(name, tier) and not (node.lock_ref if tier == DEVICE else node.slots_ref)
        }
        if order.ages() != evictable:
            yield f"slots of {name} on {tier} may go from {evictable}, the tree would evict {order.ages()}"
    if tree.device_order.ages() != device_leaves:
        yield f"the device leaves are {device_leaves}, the tree would evict {tree.device_order.ages()}"
