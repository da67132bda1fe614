"""What all trees share: nodes of pages, matching, splitting, inserting, evicting. No threads, no storage: only the
scheduler calls it.

What always holds (`audit` checks it): a node has a device value, a host value or both; the ancestors of a node on
device are on device (P22 can then match it); the ancestors of a node on host are on host (P23), so a backed-up prefix
can be loaded back without a gap. A component's slots (see components) are on a tier only where the page is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from hicache_impl.keys import PrefixKey, chain_hashes, namespace_hash
from hicache_impl.trees.audit import audit_tree
from hicache_impl.trees.components import DEVICE, HOST, TIERS, Component
from hicache_impl.trees.eviction import EvictionOrder, has_evictable_slots, is_device_leaf, is_host_leaf
from hicache_impl.trees.node import Inserted, Match, Node, Published, Slots, TreeError


class RadixTree:
    """The tree of one rank and one namespace. Same calls, same nodes, same evictions on every rank.

    The root is empty, counts as being on device and on host, and is never evicted. A call that raises TreeError or
    ValueError changes nothing but the shape of the tree (a split) and ages. ValueError: a kind of component that this
    tree has no place for, or two of one name.
    """

    kinds: ClassVar[tuple[type, ...]] = ()

    def __init__(self, namespace: str = "", components: Sequence[Component] = ()) -> None:
        if foreign := [component.name for component in components if not isinstance(component, self.kinds)]:
            raise ValueError(f"{type(self).__name__} has no place for {', '.join(foreign)}")
        self.components = {component.name: component for component in components}
        if len(self.components) < len(components):
            raise ValueError("two components of one name")
        self.namespace = namespace
        self.held: dict[int, Node] = {}
        self.slots_resident: Counter[tuple[str, str]] = Counter()
        self.slot_orders = {
            (component.name, tier): EvictionOrder()
            for component in components
            if not component.beside_pages
            for tier in TIERS
        }
        self.root = Node(0, (), (), None, device=[], host=[])
        self.protected: dict[int, Node] = {}
        self.host_order = EvictionOrder()
        self.device_order = EvictionOrder()
        self.host_only_pages = 0
        self._kept_pages = 0
        # Told of each value that comes (True) or goes: the node, its parent, "device" or "host".
        self.on_change: Callable[[Node, Node, str, bool], None] | None = None
        # A component has slots beside the pages with these hashes on a tier from now on (True), or no longer (False).
        self.on_slots: Callable[[str, str, tuple[bytes, ...], bool], None] | None = None
        self._root_hash = namespace_hash(namespace)
        self._next_id = 1
        self._clock = 0
        self._device_pages = 0
        self._host_pages = 0

    # --- reading -----------------------------------------------------------------------------------------------

    def nodes(self) -> Iterator[Node]:
        """Every node but the root, parents first."""
        stack = list(reversed(self.root.children.values()))
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children.values()))

    def path(self, node: Node, below: Node | None = None) -> list[Node]:
        """The nodes from the root (not included), or from below the ancestor `below`, down to `node`.

        TreeError: `node` left the tree, or `below` is not an ancestor of it.
        """
        self._check_attached(node)
        top = self.root if below is None else below
        nodes: list[Node] = []
        while node is not top:
            if node.parent is None:
                raise TreeError(f"{top} is not above {nodes[0] if nodes else node}")
            nodes.append(node)
            node = node.parent
        nodes.reverse()
        return nodes

    def chain_parent(self, node: Node) -> bytes:
        """The hash that a page below `node` is chained to."""
        return node.hashes[-1] if node.hashes else self._root_hash

    def host_pages_resident(self) -> int:
        """Host pages that the tree holds."""
        return self._host_pages

    def device_pages_resident(self) -> int:
        """Device pages that the tree holds."""
        return self._device_pages

    def evictable_host_pages(self) -> int:
        """What `evict_host` frees when asked for everything: host-only pages that no protected node hangs below."""
        return self.host_only_pages - self._kept_pages

    def audit(self) -> list[str]:
        """One line for each thing that is wrong; empty when the tree is sound. Walks the whole tree."""
        return audit_tree(self)

    # --- matching and inserting --------------------------------------------------------------------------------

    def match(self, key: PrefixKey) -> Match:
        """The longest known prefix of `key` that every component serves; a node that is matched in part is split.

        ValueError: other namespace.
        """
        self._check_namespace(key)
        self._clock += 1
        served = self._served(key.pages)
        # First the shorter of the two, because a node may end there only after a split.
        ready_pages = self._served(key.pages[:served], DEVICE)
        ready_node = self._descend(self.root, key.pages[:ready_pages])[-1] if self.components and ready_pages else None
        device_pages: list[int] = []
        host_pages: list[int] = []
        device_node = node = self.root
        for node in self._descend(self.root, key.pages[:served]):
            if node.device is not None:
                device_pages.extend(node.device)
                device_node = node
            elif node.host is not None:
                host_pages.extend(node.host)
        if not self.components:
            ready_pages, ready_node = len(device_pages), device_node
        return Match(device_pages, host_pages, device_node, node, ready_pages, ready_node or self.root)

    def _served(self, pages: tuple[bytes, ...], tier: str | None = None) -> int:
        """How many of `pages` are known and end where every component has what it needs, on this tier or on any."""
        if not self.components:
            return len(pages)
        present: dict[str, list[bool]] = {name: [] for name in self.components}
        for node, taken in self._along(pages):
            if tier == DEVICE and node.device is None:
                break
            for name, flags in present.items():
                here = [node.slots_of(name, where) for where in (TIERS if tier is None else (tier,))]
                flags.extend(any(position in slots for slots in here) for position in range(taken))
        serves = [component.serves(present[name]) for name, component in self.components.items()]
        return max(end for end, ends in enumerate(zip(*serves, strict=True)) if all(ends))

    def _along(self, pages: tuple[bytes, ...]) -> Iterator[tuple[Node, int]]:
        """The nodes along `pages` with how many pages of each are matched; nothing is split or touched."""
        node, done = self.root, 0
        while done < len(pages) and (child := node.children.get(pages[done])) is not None:
            common = _common_pages(child.pages, pages, done)
            yield child, common
            if common < len(child):
                return
            node, done = child, done + common

    def insert_device(self, key: PrefixKey, pages: Sequence[int]) -> Inserted:
        """Hang device pages, one for each page of `key`, into the tree.

        Where a node is on device already its pages stay, and those of `pages` that are not its own are duplicates; a
        host-only node adopts the device pages; the rest becomes one new node. ValueError: wrong length or namespace.
        """
        self._check_namespace(key)
        if len(pages) != len(key):
            raise ValueError(f"{len(pages)} device pages for a key of {len(key)} pages")
        self._clock += 1
        duplicates: list[int] = []
        node, done = self.root, 0
        for node in self._descend(self.root, key.pages):
            given = list(pages[done : done + len(node)])
            done += len(node)
            if node.device is None:
                self._set_values(node, given, node.host)
            else:
                duplicates.extend(page for page, own in zip(given, node.device, strict=True) if page != own)
        if done == len(key):
            return Inserted([], node, duplicates)
        hashes = chain_hashes(key.after(done), self.chain_parent(node))
        new = self._add_child(node, key.pages[done:], hashes)
        self._set_values(new, list(pages[done:]), None)
        return Inserted([new], new, duplicates)

    def insert_host(
        self, anchor: Node, pages_key: tuple[bytes, ...], hashes: Sequence[bytes], host_pages: Sequence[int]
    ) -> Published:
        """Hang fetched host pages below `anchor`, which is the root or backed up.

        Pages whose node has a host value are known and not taken; a device-only node adopts its pages, so that
        backed-up nodes stay contiguous from the root; the rest becomes one host-only node. TreeError: the anchor left
        the tree or is not backed up, or a hash is not the one that the tree knows. ValueError: lengths differ.
        """
        if not len(pages_key) == len(hashes) == len(host_pages):
            raise ValueError(f"{len(pages_key)} pages, {len(hashes)} hashes, {len(host_pages)} host pages")
        self._check_attached(anchor)
        if anchor.host is None:
            raise TreeError(f"{anchor} is not backed up, so nothing can be published below it")
        self._clock += 1
        for ancestor in self.path(anchor):
            self._touch(ancestor)
        way = self._descend(anchor, pages_key)
        if [page_hash for node in way for page_hash in node.hashes] != list(hashes[: sum(map(len, way))]):
            raise TreeError(f"the hashes to publish below {anchor} are not those of the tree")
        known: list[int] = []
        node, done, adopted = anchor, 0, 0
        for node in way:
            given = list(host_pages[done : done + len(node)])
            done += len(node)
            if node.host is None:
                self._set_values(node, node.device, given)
                adopted += len(node)
            else:
                known.extend(given)
        if done < len(pages_key):
            node = self._add_child(node, pages_key[done:], tuple(hashes[done:]))
            self._set_values(node, None, list(host_pages[done:]))
        return Published(known, len(pages_key) - len(known), adopted, node)

    def set_host(self, node: Node, pages: Sequence[int]) -> None:
        """Write-through: `node` is backed up in `pages`. TreeError: it is already, or its parent is not (P23)."""
        self._check_attached(node)
        if node.host is not None:
            raise TreeError(f"{node} is backed up already")
        if node.parent is None or node.parent.host is None:
            raise TreeError(f"{node} cannot be backed up before its parent")
        self._check_length(node, pages)
        self._set_values(node, node.device, list(pages))

    def set_device(self, node: Node, pages: Sequence[int]) -> None:
        """Load-back: `node` is on device in `pages`. TreeError: it is already, or its parent is not."""
        self._check_attached(node)
        if node.device is not None:
            raise TreeError(f"{node} is on device already")
        if node.parent is None or node.parent.device is None:
            raise TreeError(f"{node} cannot be loaded back before its parent")
        self._check_length(node, pages)
        self._set_values(node, list(pages), node.host)

    # --- what components have beside the pages -----------------------------------------------------------------

    def attach(self, node: Node, tier: str, slots: Slots) -> dict[str, list[int]]:
        """Hang slots on the nodes down to `node`, whose pages are on this tier.

        Where a position has a slot, it stays. Returns, by component, the slots that were not taken, which are the
        caller's to free. TreeError: a position that is not above `node`, or whose page is not on this tier.
        """
        path = self.path(node)
        placed = [
            (name, position, *self._place(path, position, tier), slot)
            for name, given in slots.items()
            for position, slot in given.items()
        ]
        spare: dict[str, list[int]] = {}
        came: dict[str, list[bytes]] = {}
        for name, position, part, start, slot in placed:
            here = part.slots.setdefault((name, tier), {})
            if position - start in here:
                spare.setdefault(name, []).append(slot)
            else:
                here[position - start] = slot
                self.slots_resident[name, tier] += 1
                came.setdefault(name, []).append(part.hashes[position - start])
            self._refresh(part)
        for name, hashes in came.items():
            self._tell_slots(name, tier, hashes, True)
        return spare

    def _place(self, path: list[Node], position: int, tier: str) -> tuple[Node, int]:
        """Which node of the path holds this position, and the position of its first page."""
        start = 0
        for node in path:
            if start <= position < start + len(node):
                if (node.device if tier == DEVICE else node.host) is None:
                    raise TreeError(f"{node} is not on {tier}, so nothing can be beside its pages there")
                return node, start
            start += len(node)
        raise TreeError(f"there is no position {position} among {start} pages")

    def slots_along(self, node: Node, tier: str) -> dict[str, dict[int, int]]:
        """What each component has on this tier on the way down to `node`, by position from the root."""
        found: dict[str, dict[int, int]] = {name: {} for name in self.components}
        start = 0
        for step in self.path(node):
            for name, slots in found.items():
                slots.update({start + position: slot for position, slot in step.slots_of(name, tier).items()})
            start += len(step)
        return found

    def evictable_slots(self, component: str) -> int:
        """Host slots that `evict_slots` frees when asked for everything."""
        kept = sum(len(node.slots_of(component, HOST)) for node in self.held.values())
        return self.slots_resident[component, HOST] - kept

    def evict_slots(self, component: str, tier: str, n: int) -> list[int]:
        """Drop slots of least recently used nodes, all of a node, until at least n are out or none may go.

        On host those stay that somebody reads (`hold_slots`), on device those of locked nodes. The pages stay. Returns
        the slots, which are the caller's to free.
        """
        out: list[int] = []
        order = self.slot_orders[component, tier]
        while len(out) < n and (node := order.oldest()) is not None:
            out.extend(self._drop_slots(node, component, tier))
            self._refresh(node)
        return out

    def _drop_slots(self, node: Node, component: str, tier: str) -> list[int]:
        dropped = node.slots.pop((component, tier), {})
        self.slots_resident[component, tier] -= len(dropped)
        self._tell_slots(component, tier, [node.hashes[position] for position in dropped], False)
        return list(dropped.values())

    def _tell_slots(self, component: str, tier: str, hashes: Sequence[bytes], came: bool) -> None:
        if self.on_slots is not None and hashes:
            self.on_slots(component, tier, tuple(hashes), came)

    def hold_slots(self, node: Node) -> None:
        """Forbid dropping the slots that this node has on host. TreeError: it left the tree."""
        self._check_attached(node)
        node.slots_ref += 1
        self.held[node.id] = node
        self._refresh(node)

    def release_slots(self, node: Node, pages: int) -> None:
        """Undo one `hold_slots` of a node that had `pages` pages then, whatever it was split into meanwhile.

        TreeError: there is none to undo.
        """
        parts: list[Node] = []
        step: Node | None = node
        while pages > 0 and step is not None:
            parts.append(step)
            pages -= len(step)
            step = step.parent
        if pages or any(part.slots_ref <= 0 for part in parts):
            raise TreeError(f"the slots of {node} are not held")
        for part in parts:
            part.slots_ref -= 1
            if part.slots_ref == 0:
                del self.held[part.id]
            self._refresh(part)

    # --- references --------------------------------------------------------------------------------------------

    def protect_host(self, node: Node) -> None:
        """Forbid dropping this node's host value (and with it those above). TreeError: it has none."""
        self._check_attached(node)
        if node.host is None:
            raise TreeError(f"{node} has no host value to protect")
        node.host_ref += 1
        if node.host_ref == 1:
            self.protected[node.id] = node
            self._count_protected(node, 1)
        self._refresh(node)

    def unprotect_host(self, node: Node) -> None:
        """Undo one protect_host. TreeError: there is none to undo."""
        if node.host_ref <= 0:
            raise TreeError(f"{node} is not protected")
        node.host_ref -= 1
        if node.host_ref == 0:
            del self.protected[node.id]
            self._count_protected(node, -1)
        self._refresh(node)

    def _count_protected(self, node: Node, change: int) -> None:
        """One protected node more or less, seen by all above it: what is host-only and above one, is kept."""
        step: Node | None = node
        while step is not None:
            was_kept = step.protected_below > 0
            step.protected_below += change
            if step.device is None:
                self._kept_pages += len(step) * ((step.protected_below > 0) - was_kept)
            step = step.parent

    def lock_device(self, node: Node) -> None:
        """Forbid evicting the device values of `node` and of all above it. TreeError: it is not on device."""
        path = self.path(node)
        if node.device is None:
            raise TreeError(f"{node} has no device value to lock")
        for locked in path:
            locked.lock_ref += 1
            self._refresh(locked)

    def unlock_device(self, node: Node) -> None:
        """Undo one lock_device. TreeError: there is none to undo."""
        path = self.path(node)
        if any(locked.lock_ref <= 0 for locked in path):
            raise TreeError(f"{node} is not locked")
        for locked in path:
            locked.lock_ref -= 1
            self._refresh(locked)

    # --- evicting ----------------------------------------------------------------------------------------------

    def evict_host(self, n: int, on_evict: Callable[[Node], None]) -> list[int]:
        """Drop least recently used host leaves, whole nodes, until at least n pages are out or none may go.

        A host leaf is not on device, is not protected, and has no child with a host value. `on_evict` sees the node
        as it still is and must not call the tree. Returns the host pages, which are the caller's to free.
        """
        out: list[int] = []
        while len(out) < n and (node := self.host_order.oldest()) is not None:
            on_evict(node)
            out.extend(node.host or ())
            self._set_values(node, None, None)
        return out

    def evict_device(self, n: int, on_evict: Callable[[Node], None]) -> list[int]:
        """Drop the device values of least recently used device leaves, whole nodes, until at least n pages are out.

        A device leaf is not locked and has no child on device. Backed up, it stays as a host-only node; otherwise it
        leaves the tree. `on_evict` sees the node as it still is and must not call the tree. Returns the device pages,
        which are the caller's to free.
        """
        out: list[int] = []
        while len(out) < n and (node := self.device_order.oldest()) is not None:
            on_evict(node)
            out.extend(node.device or ())
            self._set_values(node, None, node.host)
        return out

    # --- the inside --------------------------------------------------------------------------------------------

    def _descend(self, node: Node, pages: tuple[bytes, ...]) -> list[Node]:
        """The nodes below `node` along `pages`, splitting the one that is matched in part, all touched."""
        way: list[Node] = []
        done = 0
        while done < len(pages) and (child := node.children.get(pages[done])) is not None:
            common = _common_pages(child.pages, pages, done)
            node = child if common == len(child) else self._split(child, common)
            self._touch(node)
            way.append(node)
            done += common
        return way

    def _split(self, node: Node, at: int) -> Node:
        """Cut `node` after `at` pages and return the new upper half, used now.

        Why the object given stays the lower half: whoever holds it (an anchor, a lock) means the whole prefix.
        """
        parent = node.parent
        assert parent is not None
        assert 0 < at < len(node)
        upper = self._new_node(node.pages[:at], node.hashes[:at], parent)
        upper.lock_ref, upper.hits = node.lock_ref, node.hits
        upper.protected_below = node.protected_below
        upper.slots_ref = node.slots_ref
        if upper.slots_ref:
            self.held[upper.id] = upper
        parent.children[upper.pages[0]] = upper
        if node.device is not None:
            upper.device, node.device = node.device[:at], node.device[at:]
            upper.device_children = 1
        if node.host is not None:
            upper.host, node.host = node.host[:at], node.host[at:]
            upper.host_children = 1
        self._split_slots(upper, node, at)
        node.pages, node.hashes, node.parent = node.pages[at:], node.hashes[at:], upper
        upper.children[node.pages[0]] = node
        self._refresh(upper)
        self._refresh(node)
        return upper

    def _split_slots(self, upper: Node, node: Node, at: int) -> None:
        """Each slot goes with its position; so what belongs to the end of a node stays with its lower half."""
        for place, slots in list(node.slots.items()):
            above = {position: slot for position, slot in slots.items() if position < at}
            below = {position - at: slot for position, slot in slots.items() if position >= at}
            for half, part in ((upper, above), (node, below)):
                half.slots.pop(place, None)
                if part:
                    half.slots[place] = part

    def _new_node(self, pages: tuple[bytes, ...], hashes: tuple[bytes, ...], parent: Node) -> Node:
        node = Node(self._next_id, pages, hashes, parent, last_access=self._clock)
        self._next_id += 1
        return node

    def _add_child(self, parent: Node, pages: tuple[bytes, ...], hashes: tuple[bytes, ...]) -> Node:
        node = self._new_node(pages, hashes, parent)
        parent.children[pages[0]] = node
        return node

    def _touch(self, node: Node) -> None:
        node.last_access = self._clock
        self._refresh(node)

    def _set_values(self, node: Node, device: list[int] | None, host: list[int] | None) -> None:
        """The only place where values come and go: counters, parent, orders; a node with no value leaves the tree."""
        parent = node.parent
        assert parent is not None
        device_change = (device is not None) - (node.device is not None)
        host_change = (host is not None) - (node.host is not None)
        self._device_pages += device_change * len(node)
        self._host_pages += host_change * len(node)
        self.host_only_pages -= len(node) if node.device is None and node.host is not None else 0
        self.host_only_pages += len(node) if device is None and host is not None else 0
        if node.protected_below:
            self._kept_pages += len(node) * ((device is None) - (node.device is None))
        parent.device_children += device_change
        parent.host_children += host_change
        node.device, node.host = device, host
        if self.on_change is not None:
            for where, change in ((DEVICE, device_change), (HOST, host_change)):
                if change:
                    self.on_change(node, parent, where, change > 0)
        for name, tier in list(node.slots):
            if (device if tier == DEVICE else host) is None:
                self._drop_slots(node, name, tier)
        if device is None and host is None:
            assert not node.children
            assert not node.host_ref
            assert not node.slots_ref
            assert not node.lock_ref
            del parent.children[node.pages[0]]
            node.parent, node.detached = None, True
        self._refresh(node)
        self._refresh(parent)

    def _refresh(self, node: Node) -> None:
        if node is self.root:
            return
        self.host_order.update(node, is_host_leaf(node))
        self.device_order.update(node, is_device_leaf(node))
        for (name, tier), order in self.slot_orders.items():
            order.update(node, has_evictable_slots(node, name, tier))

    def _check_namespace(self, key: PrefixKey) -> None:
        if key.namespace != self.namespace:
            raise ValueError(f"a key of namespace {key.namespace!r} in a tree of {self.namespace!r}")

    def _check_attached(self, node: Node) -> None:
        if node.detached:
            raise TreeError(f"{node} left the tree")

    def _check_length(self, node: Node, pages: Sequence[int]) -> None:
        if len(pages) != len(node):
            raise ValueError(f"{len(pages)} pages for {node}")


def _common_pages(own: tuple[bytes, ...], pages: tuple[bytes, ...], start: int) -> int:
    """How many pages of a node whose first one fits are those of `pages` from `start` on."""
    common = 1
    limit = min(len(own), len(pages) - start)
    while common < limit and own[common] == pages[start + common]:
        common += 1
    return common
