"""Is a tree sound? Everything is computed again from the nodes alone, by nothing that the tree itself uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hicache_impl.keys import PrefixKey, chain_hashes
from hicache_impl.trees.node import Node

if TYPE_CHECKING:
    from hicache_impl.trees.hiradix import HiRadixTree


def audit_tree(tree: HiRadixTree) -> list[str]:
    """One line for each thing that is wrong; empty when the tree is sound."""
    nodes = list(tree.nodes())
    problems: list[str] = []
    for node in nodes:
        problems += _audit_links(tree, node)
        problems += _audit_values(node)
        problems += _audit_references(tree, node)
    problems += _audit_ownership(nodes)
    problems += _audit_counters(tree, nodes)
    problems += _audit_orders(tree, nodes)
    return problems


def _audit_links(tree: HiRadixTree, node: Node) -> Iterator[str]:
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


def _audit_references(tree: HiRadixTree, node: Node) -> Iterator[str]:
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


def _audit_ownership(nodes: list[Node]) -> Iterator[str]:
    for name, values in (("device", [node.device for node in nodes]), ("host", [node.host for node in nodes])):
        owner: dict[int, Node] = {}
        for node, value in zip(nodes, values, strict=True):
            for page in value or ():
                if page in owner:
                    yield f"P4 {name} page {page} is in {owner[page]} and in {node}"
                owner[page] = node


def _audit_counters(tree: HiRadixTree, nodes: list[Node]) -> Iterator[str]:
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


def _audit_orders(tree: HiRadixTree, nodes: list[Node]) -> Iterator[str]:
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
    if tree.device_order.ages() != device_leaves:
        yield f"the device leaves are {device_leaves}, the tree would evict {tree.device_order.ages()}"
