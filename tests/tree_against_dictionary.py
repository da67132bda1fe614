"""A tree against a dictionary: prefix -> pages and slots, one entry a page, no nodes, no splits, no orders.

Each call is made on two trees, whose page numbers differ as they do between ranks; both must do the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hicache_impl.keys import PrefixKey, chain_hashes
from hicache_impl.trees.components import DEVICE, HOST, TIERS, Component
from hicache_impl.trees.core import RadixTree
from hicache_impl.trees.node import Node

Prefix = tuple[bytes, ...]
TWIN_OFFSET = 1_000_000


def key_of(*tokens: int) -> PrefixKey:
    return PrefixKey.from_tokens(tokens, 1)


def prefix_of(tree: RadixTree, node: Node) -> Prefix:
    return tuple(page for step in tree.path(node) for page in step.pages)


def insert_host(tree: RadixTree, key: PrefixKey, pages: list[int]) -> list[int]:
    """Publish `key` below the root; returns the known pages."""
    return tree.insert_host(tree.root, key.pages, chain_hashes(key), pages).known_pages


# One token in four turns off the way of zeros, so that keys are long, share prefixes, and still part.
TOKENS = st.sampled_from([0, 0, 0, 1])
KEYS = st.integers(0, 6).flatmap(lambda n: st.lists(TOKENS, min_size=n, max_size=n)).map(lambda ts: key_of(*ts))
EVICT_PAGES = st.sampled_from([0, 1, 1, 2, 3, 1000])


@dataclass
class Entry:
    """The last page of one prefix, and what components have beside it, by component and tier."""

    device: int | None = None
    host: int | None = None
    used: int = 0
    slots: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass
class Held:
    """Two nodes that somebody holds, the prefix that he means, and how many pages the node had then."""

    node: Node
    twin: Node
    prefix: Prefix
    pages: int


class TreeAgainstDictionary(RuleBasedStateMachine):
    """Any call of the scheduler, in any order, on a small alphabet so that keys share, split and collide."""

    tree_class: ClassVar[type[RadixTree]]
    components: ClassVar[Sequence[Component]] = ()

    @initialize()
    def start(self) -> None:
        self.tree = self.tree_class(components=self.components)
        self.twin = self.tree_class(components=self.components)
        self.model: dict[Prefix, Entry] = {}
        self.fresh_page = itertools.count()
        self.now = 0
        self.protected: list[Held] = []
        self.locked: list[Held] = []
        self.read: list[Held] = []

    # the model's side

    def take(self, n: int) -> list[int]:
        return [next(self.fresh_page) for _ in range(n)]

    def touch(self, pages: Prefix) -> None:
        self.now += 1
        for length in range(1, len(pages) + 1):
            if pages[:length] in self.model:
                self.model[pages[:length]].used = self.now

    def entries(self, pages: Prefix) -> list[Entry]:
        """One for each page that is known."""
        prefixes = (pages[:length] for length in range(1, len(pages) + 1))
        return [self.model[prefix] for prefix in itertools.takewhile(self.model.__contains__, prefixes)]

    def served(self, pages: Prefix, tiers: Sequence[str] = TIERS) -> int:
        """Pages of the longest known prefix at whose end every component has what it needs on one of these tiers."""
        known = self.entries(pages)
        if HOST not in tiers:
            known = list(itertools.takewhile(lambda entry: entry.device is not None, known))
        ends = range(len(known), -1, -1)
        return next(end for end in ends if all(self.has_needed(c, known[:end], tiers) for c in self.components))

    def has_needed(self, component: Component, known: Sequence[Entry], tiers: Sequence[str]) -> bool:
        needed = component.needed(0, len(known))
        return all(any((component.name, tier) in known[i].slots for tier in tiers) for i in needed)

    def kept(self, held: list[Held]) -> set[Prefix]:
        return {one.prefix[:length] for one in held for length in range(1, len(one.prefix) + 1)}

    def being_read(self) -> set[Prefix]:
        """The prefixes whose host slots must stay: those of the pages that the node had, whatever it is now."""
        return {one.prefix[: len(one.prefix) - i] for one in self.read for i in range(one.pages)}

    def leaf_ages(self, tier: str, kept: set[Prefix]) -> list[int]:
        """When the pages that end a branch of the tier, and may go, were last used."""
        here = {prefix for prefix, entry in self.model.items() if getattr(entry, tier) is not None}
        inner = {prefix[:-1] for prefix in here}
        if tier == HOST:
            here = {prefix for prefix in here if self.model[prefix].device is None}
        return [self.model[prefix].used for prefix in here - inner - kept]

    def both(self, pages: list[int]) -> list[int]:
        return [page + TWIN_OFFSET for page in pages]

    # what goes beside the pages

    def attach(self, node: Node, twin: Node, tier: str, names: Sequence[str], start: int = 0) -> None:
        """Give slots of these components to what a prefix needs whose pages from `start` on are new."""
        prefix = prefix_of(self.tree, node)
        slots: dict[str, dict[int, int]] = {}
        spare: dict[str, list[int]] = {}
        for name in names:
            for position in self.tree.components[name].needed(start, len(prefix)):
                (slot,) = self.take(1)
                slots.setdefault(name, {})[position] = slot
                here = self.model[prefix[: position + 1]].slots
                if (name, tier) in here:
                    spare.setdefault(name, []).append(slot)
                else:
                    here[name, tier] = slot
        assert self.tree.attach(node, tier, slots) == spare
        mirrored = {name: {i: slot + TWIN_OFFSET for i, slot in given.items()} for name, given in slots.items()}
        assert self.twin.attach(twin, tier, mirrored) == {name: self.both(given) for name, given in spare.items()}

    def attach_beside(self, node: Node, twin: Node, tier: str, start: int = 0) -> None:
        """Pages from `start` on are on this tier now, so what is beside every page is, too."""
        self.attach(node, twin, tier, [c.name for c in self.components if c.beside_pages], start)

    # the calls

    @rule(key=KEYS)
    def match(self, key: PrefixKey) -> None:
        got, twin = self.tree.match(key), self.twin.match(key)
        served = key.pages[: self.served(key.pages)]
        known = self.entries(served)
        assert got.device_pages == [entry.device for entry in known if entry.device is not None]
        assert got.host_pages == [entry.host for entry in known if entry.device is None]
        assert self.both(got.device_pages + got.host_pages) == twin.device_pages + twin.host_pages
        assert prefix_of(self.tree, got.device_node) == served[: len(got.device_pages)]
        assert prefix_of(self.tree, got.host_node) == served
        ready = served[: self.served(served, [DEVICE])]
        assert got.ready_pages == twin.ready_pages == len(ready)
        assert prefix_of(self.tree, got.ready_node) == prefix_of(self.twin, twin.ready_node) == ready
        self.touch(served)

    @rule(key=KEYS, own=st.booleans())
    def insert_device(self, key: PrefixKey, own: bool) -> None:
        pages = self.take(len(key))
        duplicates: list[int] = []
        for length in range(1, len(key) + 1):
            entry = self.model.setdefault(key.pages[:length], Entry())
            if entry.device is None:
                entry.device = pages[length - 1]
            elif own:
                pages[length - 1] = entry.device
            else:
                duplicates.append(pages[length - 1])
        inserted = self.tree.insert_device(key, pages)
        twin = self.twin.insert_device(key, self.both(pages))
        assert inserted.duplicate_pages == duplicates
        assert twin.duplicate_pages == self.both(duplicates)
        assert [node.id for node in inserted.new_nodes] == [node.id for node in twin.new_nodes]
        assert prefix_of(self.tree, inserted.node) == key.pages
        self.attach_beside(inserted.node, twin.node, DEVICE)
        self.touch(key.pages)

    @rule(key=KEYS, base=st.integers(0, 6))
    def insert_host(self, key: PrefixKey, base: int) -> None:
        base = min(base, len(key))
        anchor, twin_anchor = self.tree.match(key.first(base)).host_node, self.twin.match(key.first(base)).host_node
        done = len(prefix_of(self.tree, anchor))
        self.touch(key.pages[:done])
        if anchor.host is None:
            return
        rest, hashes = key.after(done), chain_hashes(key)[done:]
        pages = self.take(len(rest))
        known: list[int] = []
        for length, page in zip(range(done + 1, len(key) + 1), pages, strict=True):
            entry = self.model.setdefault(key.pages[:length], Entry())
            if entry.host is None:
                entry.host = page
            else:
                known.append(page)
        published = self.tree.insert_host(anchor, rest.pages, hashes, pages)
        twin = self.twin.insert_host(twin_anchor, rest.pages, hashes, self.both(pages))
        assert published.known_pages == known
        assert twin.known_pages == self.both(known)
        assert published.new == twin.new == len(pages) - len(known)
        assert prefix_of(self.tree, published.node) == key.pages
        self.attach_beside(published.node, twin.node, HOST, done)
        self.touch(key.pages)

    @precondition(lambda self: self.components)
    @rule(key=KEYS, tier=st.sampled_from(TIERS), data=st.data(), more=st.booleans())
    def give_slots(self, key: PrefixKey, tier: str, data: st.DataObject, more: bool) -> None:
        """What a model computed, or what was fetched, for the end of a prefix whose pages are on this tier."""
        known = self.entries(key.pages)
        on_tier = list(itertools.takewhile(lambda entry: getattr(entry, tier) is not None, known))
        reached = key.first(len(on_tier))
        device_pages = [entry.device for entry in on_tier]
        if tier == DEVICE:
            node = self.tree.insert_device(reached, [page for page in device_pages if page is not None]).node
            twin_pages = self.both([page for page in device_pages if page is not None])
            twin = self.twin.insert_device(reached, twin_pages).node
        else:
            pages, hashes = self.take(len(reached)), chain_hashes(reached)
            node = self.tree.insert_host(self.tree.root, reached.pages, hashes, pages).node
            twin = self.twin.insert_host(self.twin.root, reached.pages, hashes, self.both(pages)).node
        names = [component.name for component in self.components]
        chosen = names if more else [data.draw(st.sampled_from(names))]
        self.attach(node, twin, tier, chosen)
        self.touch(reached.pages)

    @rule(key=KEYS)
    def write_through(self, key: PrefixKey) -> None:
        match, twin = self.tree.match(key), self.twin.match(key)
        self.touch(prefix_of(self.tree, match.host_node))
        self.back_up(match.device_node, twin.device_node)

    def back_up(self, last: Node, twin_last: Node) -> None:
        for node, twin in zip(self.tree.path(last), self.twin.path(twin_last), strict=True):
            if node.host is None:
                pages = self.take(len(node))
                self.tree.set_host(node, pages)
                self.twin.set_host(twin, self.both(pages))
                prefix = prefix_of(self.tree, node)
                for offset, page in enumerate(pages):
                    self.model[prefix[: len(prefix) - len(node) + offset + 1]].host = page
                self.attach_beside(node, twin, HOST, len(prefix) - len(node))

    @rule(key=KEYS)
    def load_back(self, key: PrefixKey) -> None:
        match, twin_match = self.tree.match(key), self.twin.match(key)
        way = self.tree.path(match.host_node, below=match.device_node)
        twin_way = self.twin.path(twin_match.host_node, below=twin_match.device_node)
        done = len(match.device_pages)
        for node, twin in zip(way, twin_way, strict=True):
            pages = self.take(len(node))
            self.tree.set_device(node, pages)
            self.twin.set_device(twin, self.both(pages))
            start = done
            for page in pages:
                done += 1
                self.model[key.pages[:done]].device = page
            self.attach_beside(node, twin, DEVICE, start)
        self.touch(key.pages[:done])

    @rule(key=KEYS, reads=st.booleans())
    def protect(self, key: PrefixKey, reads: bool) -> None:
        """For an operation that hangs there, or, if `reads`, for a backup of the node."""
        node, twin = self.tree.match(key).host_node, self.twin.match(key).host_node
        held = Held(node, twin, prefix_of(self.tree, node), len(node))
        self.touch(held.prefix)
        if node.host is None or (reads and node is self.tree.root):
            return
        self.tree.protect_host(node)
        self.twin.protect_host(twin)
        self.protected.append(held)
        if reads:
            self.tree.hold_slots(node)
            self.twin.hold_slots(twin)
            self.read.append(held)

    @precondition(lambda self: self.protected)
    @rule(data=st.data())
    def unprotect(self, data: st.DataObject) -> None:
        self.let_go(data.draw(st.integers(0, len(self.protected) - 1)))

    def let_go(self, index: int) -> None:
        held = self.protected.pop(index)
        self.tree.unprotect_host(held.node)
        self.twin.unprotect_host(held.twin)
        if any(held is one for one in self.read):
            self.read = [one for one in self.read if one is not held]
            self.tree.release_slots(held.node, held.pages)
            self.twin.release_slots(held.twin, held.pages)

    @rule(key=KEYS)
    def lock(self, key: PrefixKey) -> None:
        match, twin = self.tree.match(key), self.twin.match(key)
        self.touch(prefix_of(self.tree, match.host_node))
        self.tree.lock_device(match.device_node)
        self.twin.lock_device(twin.device_node)
        node = match.device_node
        self.locked.append(Held(node, twin.device_node, prefix_of(self.tree, node), len(node)))

    @precondition(lambda self: self.locked)
    @rule(data=st.data())
    def unlock(self, data: st.DataObject) -> None:
        held = self.locked.pop(data.draw(st.integers(0, len(self.locked) - 1)))
        self.tree.unlock_device(held.node)
        self.twin.unlock_device(held.twin)

    @rule(n=EVICT_PAGES)
    def evict_host(self, n: int) -> None:
        kept = self.kept(self.protected)
        going = {prefix for prefix, entry in self.model.items() if entry.device is None} - kept
        assert self.tree.evictable_host_pages() == len(going)
        evicted: list[int] = []

        freed = 0

        def on_evict(node: Node) -> None:
            nonlocal freed
            assert freed < n, "enough was out already"
            freed += len(node)
            evicted.append(node.id)
            assert node.last_access == min(self.leaf_ages(HOST, kept)), "not the least recently used"
            prefix = prefix_of(self.tree, node)
            for length in range(len(prefix) - len(node) + 1, len(prefix) + 1):
                assert prefix[:length] in going
                assert self.seen_slots(node, HOST, length - len(prefix)) == self.model[prefix[:length]].slots
                del self.model[prefix[:length]]

        before = {entry.host for entry in self.model.values()}
        pages = self.tree.evict_host(n, on_evict)
        twins: list[int] = []
        assert self.twin.evict_host(n, lambda node: twins.append(node.id)) == self.both(pages)
        assert twins == evicted
        assert set(pages) == before - {entry.host for entry in self.model.values()}
        assert len(pages) >= min(n, len(going))

    def seen_slots(self, node: Node, tier: str, from_end: int) -> dict[tuple[str, str], int]:
        """What the node has on this tier beside one of its pages, which is counted from the end."""
        position = len(node) - 1 + from_end
        return {(n, t): slots[position] for (n, t), slots in node.slots.items() if t == tier and position in slots}

    @rule(n=EVICT_PAGES)
    def evict_device(self, n: int) -> None:
        kept = self.kept(self.locked)
        going = {prefix for prefix, entry in self.model.items() if entry.device is not None} - kept
        evicted: list[int] = []

        freed = 0

        def on_evict(node: Node) -> None:
            nonlocal freed
            assert freed < n, "enough was out already"
            freed += len(node)
            evicted.append(node.id)
            assert node.last_access == min(self.leaf_ages(DEVICE, kept)), "not the least recently used"
            prefix = prefix_of(self.tree, node)
            for length in range(len(prefix) - len(node) + 1, len(prefix) + 1):
                assert prefix[:length] in going
                entry = self.model[prefix[:length]]
                seen = self.seen_slots(node, DEVICE, length - len(prefix))
                assert seen == {place: slot for place, slot in entry.slots.items() if place[1] == DEVICE}
                entry.device = None
                entry.slots = {place: slot for place, slot in entry.slots.items() if place[1] == HOST}
                if entry.host is None:
                    del self.model[prefix[:length]]

        before = {entry.device for entry in self.model.values()}
        pages = self.tree.evict_device(n, on_evict)
        twins: list[int] = []
        assert self.twin.evict_device(n, lambda node: twins.append(node.id)) == self.both(pages)
        assert twins == evicted
        assert set(pages) == before - {entry.device for entry in self.model.values()}
        assert len(pages) >= min(n, len(going))

    @precondition(lambda self: any(not component.beside_pages for component in self.components))
    @rule(data=st.data(), tier=st.sampled_from(TIERS), n=EVICT_PAGES)
    def evict_slots(self, data: st.DataObject, tier: str, n: int) -> None:
        name = data.draw(st.sampled_from([c.name for c in self.components if not c.beside_pages]))
        kept = self.kept(self.locked) if tier == DEVICE else self.being_read()
        going = {
            entry.slots[name, tier]: entry
            for prefix, entry in self.model.items()
            if (name, tier) in entry.slots and prefix not in kept
        }
        if tier == HOST:
            assert self.tree.evictable_slots(name) == self.twin.evictable_slots(name) == len(going)
        out = self.tree.evict_slots(name, tier, n)
        assert self.twin.evict_slots(name, tier, n) == self.both(out)
        assert len(set(out)) == len(out) >= min(n, len(going))
        assert out == [] or n > 0
        ages = [going[slot].used for slot in out]
        assert ages == sorted(ages)
        assert all(entry.used >= max(ages, default=0) for slot, entry in going.items() if slot not in out)
        for slot in out:
            del going[slot].slots[name, tier]

    # after every step

    @invariant()
    def the_tree_is_sound(self) -> None:
        assert self.tree.audit() == []

    @invariant()
    def the_tree_holds_what_the_dictionary_holds(self) -> None:
        found = {
            (*prefix_of(self.tree, node)[: -len(node)], *node.pages[: index + 1]): Entry(
                node.device[index] if node.device is not None else None,
                node.host[index] if node.host is not None else None,
                node.last_access,
                {place: slots[index] for place, slots in node.slots.items() if index in slots},
            )
            for node in self.tree.nodes()
            for index in range(len(node))
        }
        assert found == self.model

    @invariant()
    def whoever_holds_a_node_keeps_its_whole_prefix(self) -> None:
        for held in self.protected + self.locked:
            assert prefix_of(self.tree, held.node) == held.prefix

    def teardown(self) -> None:
        if not hasattr(self, "tree"):
            return
        while self.protected:
            self.let_go(len(self.protected) - 1)
        while self.locked:
            held = self.locked.pop()
            self.tree.unlock_device(held.node)
            self.twin.unlock_device(held.twin)
        self.evict_device(1000)
        self.evict_host(1000)
        assert self.model == {}
        assert list(self.tree.nodes()) == []
        assert self.tree.device_pages_resident() == self.tree.host_pages_resident() == 0
        assert not +self.tree.slots_resident
        assert self.tree.held == {}
        assert self.tree.audit() == []


def machine_for(name: str, tree_class: type[RadixTree], components: Sequence[Component]) -> type[TreeAgainstDictionary]:
    """The machine for a tree with these components."""
    parts = {"tree_class": tree_class, "components": tuple(components)}
    return type(f"{name}_against_dictionary", (TreeAgainstDictionary,), parts)
