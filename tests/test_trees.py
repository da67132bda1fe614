"""All trees: each against a dictionary, and what is beside the pages by example."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from hicache_impl.trees import TREES
from hicache_impl.trees.components import DEVICE, HOST, Component, Sidecar, State, Window
from hicache_impl.trees.core import RadixTree
from hicache_impl.trees.node import Node, TreeError
from hicache_impl.trees.unified import UnifiedTree
from tree_against_dictionary import insert_host, key_of, machine_for, prefix_of

DRAFT, WINDOW, STATE = Sidecar("draft"), Window("window", 2), State("state")
WITH: dict[str, tuple[str, tuple[Component, ...]]] = {
    "hiradix": ("hiradix", ()),
    "hiradix_with_a_sidecar": ("hiradix", (DRAFT,)),
    "hi_mamba": ("hi_mamba", (STATE,)),
    "hi_mamba_with_a_sidecar": ("hi_mamba", (DRAFT, STATE)),
    "unified_of_full_attention": ("unified", ()),
    "unified_with_a_window": ("unified", (WINDOW,)),
    "unified_with_all": ("unified", (DRAFT, WINDOW, STATE)),
}


@pytest.mark.heavy
@pytest.mark.parametrize("name", WITH)
def test_a_tree_against_a_dictionary(name: str) -> None:
    tree, components = WITH[name]
    how = settings(derandomize=True, deadline=None, max_examples=100, stateful_step_count=30, database=None)
    run_state_machine_as_test(machine_for(name, TREES[tree], components), settings=how)


# --- the same on all three -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH)
def test_match_is_the_same_where_everything_is_there(name: str) -> None:
    tree, components = WITH[name]
    full = TREES[tree](components=components)
    node = full.insert_device(key_of(1, 2, 3, 4), [10, 11, 12, 13]).node
    give(full, node, DEVICE)
    match = full.match(key_of(1, 2, 3, 4, 5))
    assert (match.device_pages, match.host_pages, match.ready_pages) == ([10, 11, 12, 13], [], 4)
    assert match.device_node is match.host_node is match.ready_node is node
    assert full.audit() == []


@pytest.mark.parametrize(
    ("tree", "component"), [("hiradix", WINDOW), ("hiradix", STATE), ("hi_mamba", WINDOW)], ids=lambda one: str(one)
)
def test_a_tree_has_no_place_for_what_it_does_not_know(tree: str, component: Component) -> None:
    with pytest.raises(ValueError, match=f"no place for {component.name}"):
        TREES[tree](components=[DRAFT, component])


def test_components_are_known_by_their_names() -> None:
    with pytest.raises(ValueError, match="two components"):
        UnifiedTree(components=[State("draft"), DRAFT])


# --- states --------------------------------------------------------------------------------------------------------


def give(tree: RadixTree, node: Node, tier: str, first: int = 100) -> dict[str, dict[int, int]]:
    """Slots for all that a prefix needs that ends in this node; returns them."""
    pages = len(prefix_of(tree, node))
    slots = {
        name: {position: first + 10 * i + position for position in component.needed(0, pages)}
        for i, (name, component) in enumerate(tree.components.items())
    }
    assert tree.attach(node, tier, slots) == {}
    return slots


def with_a_state(*tokens: int) -> tuple[RadixTree, Node]:
    """A tree with these pages on device, and one state at their end."""
    tree = TREES["hi_mamba"](components=[STATE])
    node = tree.insert_device(key_of(*tokens), [10 + i for i in range(len(tokens))]).node
    give(tree, node, DEVICE)
    return tree, node


def test_a_match_ends_where_there_is_a_state() -> None:
    tree, node = with_a_state(1, 2, 3)
    tree.insert_device(key_of(1, 2, 3, 4, 5), [10, 11, 12, 13, 14])
    match = tree.match(key_of(1, 2, 3, 4, 5))
    assert match.device_pages == [10, 11, 12]
    assert match.host_node is node
    assert tree.match(key_of(1, 2)).device_pages == [], "the state is that of three pages"


def test_a_split_leaves_the_state_with_the_lower_half() -> None:
    tree, node = with_a_state(1, 2, 3, 4)
    tree.insert_device(key_of(1, 2, 9), [10, 11, 19])
    upper = node.parent
    assert upper is not None
    assert (len(upper), upper.slots) == (2, {})
    assert node.slots == {("state", DEVICE): {1: 103}}
    assert tree.match(key_of(1, 2, 3, 4)).host_node is node
    assert tree.match(key_of(1, 2)).host_node is tree.root
    assert tree.audit() == []


def test_a_second_state_of_the_same_prefix_is_not_taken() -> None:
    tree, node = with_a_state(1, 2)
    assert tree.attach(node, DEVICE, {"state": {1: 55}}) == {"state": [55]}
    assert node.slots == {("state", DEVICE): {1: 101}}
    assert tree.slots_along(node, DEVICE) == {"state": {1: 101}}


def test_what_is_on_device_alone_may_serve_less() -> None:
    tree, node = with_a_state(1, 2)
    longer = tree.insert_device(key_of(1, 2, 3), [10, 11, 12]).node
    for step, page in ((node, 20), (longer, 22)):
        tree.set_host(step, list(range(page, page + len(step))))
    tree.attach(longer, HOST, {"state": {2: 77}})
    match = tree.match(key_of(1, 2, 3))
    assert match.device_pages == [10, 11, 12]
    assert match.host_node is longer
    assert (match.ready_pages, match.ready_node) == (2, node), "the state of three pages is on host only"


# --- windows -------------------------------------------------------------------------------------------------------


def test_a_window_is_the_last_pages() -> None:
    tree = UnifiedTree(components=[WINDOW])
    node = tree.insert_device(key_of(1, 2, 3, 4), [10, 11, 12, 13]).node
    tree.attach(node, DEVICE, {"window": {2: 52, 3: 53}})
    assert tree.match(key_of(1, 2, 3, 4)).device_pages == [10, 11, 12, 13]
    assert tree.match(key_of(1, 2, 3)).device_pages == [], "the second page has no slot any more"
    tree.attach(node, DEVICE, {"window": {1: 51}})
    match = tree.match(key_of(1, 2, 3))
    assert match.device_pages == [10, 11, 12]
    assert match.device_node.slots == {("window", DEVICE): {1: 51, 2: 52}}
    assert node.slots == {("window", DEVICE): {0: 53}}
    assert tree.match(key_of(1, 2, 3, 4)).device_node is node, "half of its window is in the upper half"
    assert tree.audit() == []


def test_a_prefix_shorter_than_the_window_needs_all_of_its_pages() -> None:
    tree = UnifiedTree(components=[Window("window", 3)])
    node = tree.insert_device(key_of(1, 2), [10, 11]).node
    tree.attach(node, DEVICE, {"window": {1: 51}})
    assert tree.match(key_of(1, 2)).device_pages == []
    tree.attach(node, DEVICE, {"window": {0: 50}})
    assert tree.match(key_of(1, 2)).device_pages == [10, 11]


@pytest.mark.parametrize(
    ("component", "present", "serves"),
    [
        (DRAFT, [True, True, False, True], [True, True, True, False, False]),
        (WINDOW, [True, False, True, True, False], [True, True, False, False, True, False]),
        (STATE, [False, True, False], [True, False, True, False]),
        (WINDOW, [], [True]),
    ],
)
def test_where_a_component_serves(component: Component, present: list[bool], serves: list[bool]) -> None:
    assert component.serves(present) == serves
    for end in range(len(serves)):
        assert serves[end] == all(present[i] for i in component.needed(0, end)), "one says what the other says"


# --- evicting what is beside the pages -----------------------------------------------------------------------------


def test_a_state_may_go_and_its_pages_stay() -> None:
    tree, node = with_a_state(1, 2)
    assert tree.evict_slots("state", DEVICE, 1) == [101]
    assert tree.match(key_of(1, 2)).device_pages == []
    assert node.device == [10, 11]
    assert tree.evict_slots("state", DEVICE, 1) == []
    assert tree.audit() == []


def test_the_slots_of_a_locked_node_stay_on_device() -> None:
    tree, node = with_a_state(1, 2)
    tree.lock_device(node)
    assert tree.evict_slots("state", DEVICE, 1) == []
    tree.unlock_device(node)
    assert tree.evict_slots("state", DEVICE, 1) == [101]


def test_pages_take_what_is_beside_them_along() -> None:
    tree = UnifiedTree(components=[DRAFT, WINDOW, STATE])
    node = tree.insert_device(key_of(1, 2, 3), [10, 11, 12]).node
    slots = give(tree, node, DEVICE)
    seen: dict[str, list[int]] = {}

    def on_evict(evicted: Node) -> None:
        seen.update({name: list(evicted.slots_of(name, DEVICE).values()) for name in tree.components})

    assert tree.evict_device(1, on_evict) == [10, 11, 12]
    assert seen == {name: list(given.values()) for name, given in slots.items()}
    assert node.slots == {}
    assert not +tree.slots_resident
    assert tree.audit() == []


def backed_up() -> tuple[RadixTree, Node]:
    """Four pages on host with a window of two, whose slots somebody reads."""
    tree = UnifiedTree(components=[WINDOW])
    insert_host(tree, key_of(1, 2, 3, 4), [20, 21, 22, 23])
    node = next(tree.nodes())
    tree.attach(node, HOST, {"window": {1: 51, 2: 52, 3: 53}})
    tree.protect_host(node)
    tree.hold_slots(node)
    return tree, node


def test_what_is_read_stays_also_in_the_upper_half_of_a_split() -> None:
    tree, node = backed_up()
    insert_host(tree, key_of(1, 2, 9), [90, 91, 29])
    upper = node.parent
    assert upper is not None
    assert upper.slots == {("window", HOST): {1: 51}}
    assert tree.evictable_slots("window") == 0
    assert tree.evict_slots("window", HOST, 9) == []
    tree.release_slots(node, 4)
    tree.unprotect_host(node)
    assert tree.evictable_slots("window") == 3
    assert sorted(tree.evict_slots("window", HOST, 9)) == [51, 52, 53]
    assert tree.audit() == []


def test_only_what_was_held_is_released() -> None:
    tree, node = backed_up()
    for pages in (3, 5):
        with pytest.raises(TreeError, match="not held"):
            tree.release_slots(node, pages)
    tree.release_slots(node, 4)
    with pytest.raises(TreeError, match="not held"):
        tree.release_slots(node, 4)


def test_a_slot_is_where_its_page_is() -> None:
    tree, node = with_a_state(1, 2)
    for position, tier, reason in ((2, DEVICE, "no position 2"), (-1, DEVICE, "no position"), (1, HOST, "not on host")):
        with pytest.raises(TreeError, match=reason):
            tree.attach(node, tier, {"state": {position: 9}})
    assert node.slots == {("state", DEVICE): {1: 101}}
    assert tree.audit() == []


# --- the audit can fail --------------------------------------------------------------------------------------------

DAMAGE: dict[str, tuple[str, Callable[[RadixTree, Node], object]]] = {
    "no_sidecar": ("without draft", lambda t, n: n.slots.pop(("draft", DEVICE))),
    "slots_without_pages": ("P20", lambda t, n: n.slots.update({("state", HOST): {2: 5}})),
    "outside": (r"at \[7\]", lambda t, n: n.slots.update({("window", DEVICE): {7: 5}})),
    "state_in_the_middle": ("not its end", lambda t, n: n.slots.update({("state", DEVICE): {1: 5}})),
    "slot_twice": ("P4 a slot of window", lambda t, n: n.slots.update({("window", DEVICE): {1: 5, 2: 5}})),
    "counter": ("counts 4 slots", lambda t, n: t.slots_resident.update({("draft", DEVICE): 1})),
    "held": ("set of held nodes", lambda t, n: setattr(n, "slots_ref", 1)),
    "order": ("slots of state on device", lambda t, n: t.slot_orders["state", DEVICE].update(n, False)),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_audit_sees(name: str) -> None:
    expected, damage = DAMAGE[name]
    tree = UnifiedTree(components=[DRAFT, WINDOW, STATE])
    node = tree.insert_device(key_of(1, 2, 3), [10, 11, 12]).node
    give(tree, node, DEVICE)
    assert tree.audit() == []
    damage(tree, node)
    with pytest.raises(AssertionError, match=expected):
        assert tree.audit() == [], "\n".join(tree.audit())
