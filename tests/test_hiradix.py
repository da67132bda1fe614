"""What the core of all trees does with pages, by example. What is beside the pages is in `test_trees.py`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hicache_impl.keys import PrefixKey, chain_hashes
from hicache_impl.trees.eviction import EvictionOrder
from hicache_impl.trees.hiradix import HiRadixTree, Node, TreeError
from tree_against_dictionary import insert_host, key_of, prefix_of

# --- by example ----------------------------------------------------------------------------------------------------


def test_an_empty_tree_matches_nothing_at_the_root() -> None:
    tree = HiRadixTree()
    match = tree.match(key_of(1, 2))
    assert (match.device_pages, match.host_pages) == ([], [])
    assert match.device_node is match.host_node is tree.root
    assert tree.evict_host(5, lambda node: None) == tree.evict_device(5, lambda node: None) == []
    assert tree.audit() == []


def test_match_splits_where_the_key_ends_and_the_held_node_stays_the_lower_half() -> None:
    tree = HiRadixTree()
    whole = tree.insert_device(key_of(1, 2, 3, 4), [10, 11, 12, 13]).node
    tree.set_host(whole, [20, 21, 22, 23])
    tree.lock_device(whole)
    tree.protect_host(whole)
    match = tree.match(key_of(1, 2, 9))
    upper = match.device_node
    assert match.device_pages == [10, 11]
    assert upper is not whole
    assert whole.parent is upper
    assert (upper.device, upper.host) == ([10, 11], [20, 21])
    assert (whole.device, whole.host) == ([12, 13], [22, 23])
    assert (upper.lock_ref, whole.lock_ref) == (1, 1), "the path stays locked"
    assert (upper.host_ref, whole.host_ref) == (0, 1), "the protection stays with the object"
    assert prefix_of(tree, whole) == key_of(1, 2, 3, 4).pages
    assert tree.audit() == []
    tree.unlock_device(whole)
    tree.unprotect_host(whole)
    assert tree.audit() == []


def test_match_tells_device_from_host_only() -> None:
    tree = HiRadixTree()
    first = tree.insert_device(key_of(1, 2), [10, 11]).node
    tree.set_host(first, [20, 21])
    second = tree.insert_device(key_of(1, 2, 3), [10, 11, 12]).node
    tree.set_host(second, [22])
    assert tree.evict_device(1, lambda node: None) == [12]
    match = tree.match(key_of(1, 2, 3, 4))
    assert (match.device_pages, match.host_pages) == ([10, 11], [22])
    assert (match.device_node, match.host_node) == (first, second)


def test_insert_device_returns_what_the_tree_has_but_not_its_own_pages() -> None:
    tree = HiRadixTree()
    tree.insert_device(key_of(1, 2), [10, 11])
    inserted = tree.insert_device(key_of(1, 2, 3), [10, 99, 12])
    assert inserted.duplicate_pages == [99], "page 10 is the tree's own"
    assert [node.device for node in inserted.new_nodes] == [[12]]
    assert tree.insert_device(key_of(1, 2, 3), [10, 11, 12]).new_nodes == []


def test_a_recomputed_host_only_node_adopts_the_device_pages() -> None:
    tree = HiRadixTree()
    insert_host(tree, key_of(1, 2, 3), [20, 21, 22])
    inserted = tree.insert_device(key_of(1, 2), [10, 11])
    assert inserted.duplicate_pages == []
    assert inserted.new_nodes == []
    assert (inserted.node.device, inserted.node.host) == ([10, 11], [20, 21])
    assert tree.evictable_host_pages() == 1
    assert tree.audit() == []


def test_insert_host_knows_adopts_and_adds() -> None:
    tree = HiRadixTree()
    insert_host(tree, key_of(1), [20])
    tree.insert_device(key_of(1, 2), [10, 11])
    key = key_of(1, 2, 3)
    published = tree.insert_host(tree.root, key.pages, chain_hashes(key), [30, 31, 32])
    assert published.known_pages == [30]
    assert (published.new, published.adopted) == (2, 1)
    assert published.node.host == [32]
    assert published.node.device is None
    assert tree.match(key).host_pages == [32]
    assert tree.audit() == []


def test_insert_host_below_an_anchor_that_was_split() -> None:
    tree = HiRadixTree()
    insert_host(tree, key_of(1, 2), [20, 21])
    anchor = tree.match(key_of(1, 2)).host_node
    tree.protect_host(anchor)
    insert_host(tree, key_of(1, 5), [22, 23])
    hashes = chain_hashes(PrefixKey("", key_of(3).pages), tree.chain_parent(anchor))
    published = tree.insert_host(anchor, key_of(3).pages, hashes, [24])
    assert prefix_of(tree, published.node) == key_of(1, 2, 3).pages
    assert tree.audit() == []


def test_evictable_counts_a_shared_ancestor_once() -> None:
    tree = HiRadixTree()
    for key, pages in ((key_of(1, 2, 2), [20, 21, 22]), (key_of(1, 3), [90, 23]), (key_of(1, 4), [91, 24])):
        insert_host(tree, key, pages)
    for key in (key_of(1, 2, 2), key_of(1, 3)):
        tree.protect_host(tree.match(key).host_node)
    assert tree.evictable_host_pages() == 1
    assert tree.evict_host(5, lambda node: None) == [24]
    assert tree.audit() == []


def test_insert_host_refuses_a_foreign_chain() -> None:
    tree = HiRadixTree()
    insert_host(tree, key_of(1), [20])
    with pytest.raises(TreeError, match="hashes"):
        tree.insert_host(tree.root, key_of(1, 2).pages, chain_hashes(key_of(5, 6)), [30, 31])
    assert tree.host_pages_resident() == 1
    assert tree.audit() == []


def test_a_namespace_has_a_tree_of_its_own() -> None:
    tree = HiRadixTree("lora")
    with pytest.raises(ValueError, match="namespace"):
        tree.match(key_of(1))
    with pytest.raises(ValueError, match="namespace"):
        tree.insert_device(key_of(1), [1])


def test_lengths_must_fit() -> None:
    tree = HiRadixTree()
    node = tree.insert_device(key_of(1, 2), [10, 11]).node
    for call in (
        lambda: tree.insert_device(key_of(1), [1, 2]),
        lambda: tree.insert_host(tree.root, key_of(1).pages, (), [1]),
        lambda: tree.set_host(node, [1]),
    ):
        with pytest.raises(ValueError, match=r"pages"):
            call()
    assert tree.audit() == []


def test_references_never_go_below_zero_and_hold_only_what_is_there() -> None:
    tree = HiRadixTree()
    node = tree.insert_device(key_of(1), [10]).node
    for call, reason in (
        (tree.protect_host, "no host value"),
        (tree.unprotect_host, "not protected"),
        (tree.unlock_device, "not locked"),
    ):
        with pytest.raises(TreeError, match=reason):
            call(node)
    insert_host(tree, key_of(2), [20])
    with pytest.raises(TreeError, match="no device value"):
        tree.lock_device(tree.match(key_of(2)).host_node)
    tree.protect_host(tree.root)
    tree.unprotect_host(tree.root)
    with pytest.raises(TreeError):
        tree.unprotect_host(tree.root)
    assert tree.audit() == []


def test_values_come_from_the_root_down() -> None:
    tree = HiRadixTree()
    parent = tree.insert_device(key_of(1), [10]).node
    child = tree.insert_device(key_of(1, 2), [10, 11]).node
    with pytest.raises(TreeError, match="before its parent"):
        tree.set_host(child, [21])
    tree.set_host(parent, [20])
    tree.set_host(child, [21])
    with pytest.raises(TreeError, match="already"):
        tree.set_host(child, [22])
    tree.evict_device(2, lambda node: None)
    with pytest.raises(TreeError, match="before its parent"):
        tree.set_device(child, [31])
    for node, page in zip(tree.path(child), (30, 31), strict=True):
        tree.set_device(node, [page])
    with pytest.raises(TreeError, match="already"):
        tree.set_device(child, [32])
    assert tree.match(key_of(1, 2)).device_pages == [30, 31]
    assert tree.audit() == []


def test_a_node_that_left_the_tree_is_of_no_use() -> None:
    tree = HiRadixTree()
    node = tree.insert_device(key_of(1), [10]).node
    tree.evict_device(1, lambda evicted: None)
    assert node.detached
    for call in (
        lambda: tree.lock_device(node),
        lambda: tree.protect_host(node),
        lambda: tree.set_host(node, [1]),
        lambda: tree.set_device(node, [1]),
        lambda: tree.insert_host(node, (), (), []),
    ):
        with pytest.raises(TreeError, match="left the tree"):
            call()


def test_insert_host_needs_a_backed_up_anchor() -> None:
    tree = HiRadixTree()
    node = tree.insert_device(key_of(1), [10]).node
    hashes = chain_hashes(key_of(2), tree.chain_parent(node))
    with pytest.raises(TreeError, match="not backed up"):
        tree.insert_host(node, key_of(2).pages, hashes, [20])


def test_path_from_a_node_that_is_not_above() -> None:
    tree = HiRadixTree()
    one = tree.insert_device(key_of(1), [10]).node
    two = tree.insert_device(key_of(1, 2), [10, 11]).node
    other = tree.insert_device(key_of(3), [12]).node
    assert tree.path(two) == [one, two]
    assert tree.path(two, below=one) == [two]
    assert tree.path(two, below=two) == []
    with pytest.raises(TreeError, match="is not above"):
        tree.path(two, below=other)


def test_the_least_recently_used_leaf_goes_first() -> None:
    tree = HiRadixTree()
    for token in (1, 2, 3):
        insert_host(tree, key_of(token, token), [10 * token, 10 * token + 1])
    tree.match(key_of(1, 1))
    assert tree.evict_host(3, lambda node: None) == [20, 21, 30, 31], "whole nodes"
    assert tree.evict_host(0, lambda node: None) == []
    assert tree.match(key_of(1, 1)).host_pages == [10, 11]


def test_on_evict_sees_the_node_before_it_changes() -> None:
    tree = HiRadixTree()
    node = tree.insert_device(key_of(1, 2), [10, 11]).node
    tree.set_host(node, [20, 21])
    seen: list[tuple[list[int] | None, list[int] | None]] = []
    record: Callable[[Node], None] = lambda evicted: seen.append((evicted.device, evicted.host))  # noqa: E731
    assert tree.evict_device(1, record) == [10, 11]
    assert tree.evict_host(1, record) == [20, 21]
    assert seen == [([10, 11], [20, 21]), (None, [20, 21])]
    assert list(tree.nodes()) == []
    assert tree.audit() == []


def test_an_eviction_that_is_interrupted_changes_nothing() -> None:
    tree = HiRadixTree()
    insert_host(tree, key_of(1), [20])

    def interrupt(node: Node) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tree.evict_host(1, interrupt)
    assert tree.host_pages_resident() == 1
    assert tree.audit() == []
    assert tree.evict_host(1, lambda node: None) == [20]


def test_evicting_costs_the_same_in_a_big_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = HiRadixTree()
    for token in range(3000):
        insert_host(tree, key_of(token % 50, token, 1), [3 * token, 3 * token + 1, 3 * token + 2])
    assert tree.audit() == []
    updates = 0
    original = EvictionOrder.update

    def counted(order: EvictionOrder, node: Node, evictable: bool) -> None:
        nonlocal updates
        updates += 1
        original(order, node, evictable)

    monkeypatch.setattr(EvictionOrder, "update", counted)
    monkeypatch.setattr(HiRadixTree, "nodes", pytest.fail)
    evicted: list[Node] = []
    tree.evict_host(600, evicted.append)
    assert len(evicted) == 300
    assert updates <= 4 * len(evicted)


def test_touching_again_and_again_does_not_grow_the_order() -> None:
    tree = HiRadixTree()
    insert_host(tree, key_of(1), [20])
    for _ in range(1000):
        tree.match(key_of(1))
    assert len(tree.host_order._heap) < 100
    assert tree.evict_host(1, lambda node: None) == [20]


# --- the audit can fail --------------------------------------------------------------------------------------------


def sound_tree() -> tuple[HiRadixTree, Node, Node, Node]:
    """A parent in both tiers, a child on device only, a sibling on host only."""
    tree = HiRadixTree()
    parent = tree.insert_device(key_of(1, 2), [10, 11]).node
    tree.set_host(parent, [20, 21])
    child = tree.insert_device(key_of(1, 2, 3), [10, 11, 12]).node
    insert_host(tree, key_of(1, 2, 4), [90, 91, 22])
    return tree, parent, child, tree.match(key_of(1, 2, 4)).host_node


DAMAGE: dict[str, tuple[str, Callable[[HiRadixTree, Node, Node, Node], object]]] = {
    "wrong_key": ("does not hang", lambda t, p, c, s: p.children.update({b"zzzz": p.children.pop(c.pages[0])})),
    "wrong_hash": ("P21", lambda t, p, c, s: setattr(c, "hashes", (b"x" * 32,))),
    "detached": ("detached", lambda t, p, c, s: setattr(c, "detached", True)),
    "younger_child": ("after its parent", lambda t, p, c, s: setattr(c, "last_access", 999)),
    "no_value": ("no value", lambda t, p, c, s: setattr(c, "device", None)),
    "length": ("2 device pages", lambda t, p, c, s: setattr(c, "device", [12, 13])),
    "device_gap": ("its parent .* is not", lambda t, p, c, s: setattr(p, "device", None)),
    "host_gap": ("P23", lambda t, p, c, s: setattr(p, "host", None)),
    "negative_ref": ("P14 .* host_ref -1", lambda t, p, c, s: setattr(s, "host_ref", -1)),
    "unlisted_ref": ("set of protected nodes", lambda t, p, c, s: setattr(s, "host_ref", 1)),
    "protected_nothing": ("no host value", lambda t, p, c, s: setattr(c, "host_ref", 1)),
    "locked_nothing": ("locked and not on device", lambda t, p, c, s: setattr(s, "lock_ref", 1)),
    "lost_lock": ("fewer locks", lambda t, p, c, s: setattr(c, "lock_ref", 1)),
    "page_twice": ("P4 host page 20", lambda t, p, c, s: setattr(s, "host", [20])),
    "counter": ("host-only pages", lambda t, p, c, s: setattr(t, "host_only_pages", 5)),
    "kept_counter": ("evictable host pages", lambda t, p, c, s: setattr(t, "_kept_pages", 1)),
    "protected_counter": ("1 protected nodes from", lambda t, p, c, s: setattr(p, "protected_below", 1)),
    "child_counter": ("children on host", lambda t, p, c, s: setattr(p, "host_children", 0)),
    "host_leaf_lost": ("P24", lambda t, p, c, s: t.host_order.update(s, False)),
    "host_leaf_extra": ("P24", lambda t, p, c, s: t.host_order.update(p, True)),
    "device_leaf_lost": ("device leaves", lambda t, p, c, s: t.device_order.update(c, False)),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_audit_sees(name: str) -> None:
    expected, damage = DAMAGE[name]
    tree, parent, child, sibling = sound_tree()
    assert tree.audit() == []
    damage(tree, parent, child, sibling)
    with pytest.raises(AssertionError, match=expected):
        assert tree.audit() == [], "\n".join(tree.audit())
