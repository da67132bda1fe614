"""Where a running request has its keys, values and states: in pages and slots of the cache's device pools."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from decoding.model import FULL, STATE, STATE_WIDTH, WINDOW, WINDOW_PAGES, Model
from hicache_impl import HiCache, PrefixKey
from hicache_impl.trees.components import DEVICE
from hicache_impl.trees.node import Match, Node


class NotThere(Exception):
    """The model needs what the cache said it has, and has not."""


class Paged:
    """The memory of one request (see model.Memory). It owns what it reserved until it hands it to the tree.

    The pages and slots of the tree are never written: what is written is reserved first, also for a last page that is
    not filled. Down to `node` all is in the tree, and locked. The state goes on in a place of its own, because the
    tree's states are others', too; it is copied into a slot where it is to be kept.
    """

    def __init__(self, cache: HiCache, model: Model) -> None:
        self.cache, self.model = cache, model
        self.node: Node = cache.tree.root
        self.in_tree = 0
        self._pages: list[int] = []
        # Slots by page: the tree's, and its own, which it writes. Somebody else's may come into the tree meanwhile.
        self._windows: dict[int, int] = {}
        self._own_windows: dict[int, int] = {}
        self._spare: dict[str, list[int]] = {name: [] for name in cache.extra}
        self._state = torch.zeros(model.count(STATE), model.shard.channels, STATE_WIDTH)
        self._unread: dict[int, int] = {}

    # --- what the model asks for ---------------------------------------------------------------------------------

    def wait(self, kind: str, layer: int) -> None:
        """Until this layer has come from the host. What is beside the pages comes last."""
        if kind == FULL:
            self.cache.wait_layer(layer)
        else:
            self.cache.wait_loaded()
        if kind == STATE and layer in self._unread:
            slot = self.cache.extra[STATE].device.view(self._unread.pop(layer))
            self._state[layer] = self.model.shard.state_of(slot[layer])

    def page(self, kind: str, layer: int, page: int) -> Tensor:
        """A view of the pool's memory. NotThere."""
        if kind == FULL:
            return self.model.shard.page_of(self.cache.device.view(self._pages[page])[layer])
        slot = self._own_windows.get(page, self._windows.get(page))
        if slot is None:
            raise NotThere(f"the window has nothing at page {page}")
        return self.model.shard.page_of(self.cache.extra[WINDOW].device.view(slot)[layer])

    def state(self, layer: int) -> Tensor:
        """The state as it goes on."""
        return self._state[layer]

    # --- from the tree and back ----------------------------------------------------------------------------------

    def begin(self, match: Match, pages: int, ends: Sequence[int]) -> tuple[int, int] | None:
        """Load the match back, and reserve the rest of `pages`, which goes to the tree at these ends.

        Returns the pages that were on the device and on the host, which are locked now; None: there is no room for all,
        and nothing is changed but what is loaded.
        """
        on_device, on_host, node = len(match.device_pages), len(match.host_pages), match.host_node
        loaded = self.cache.load_back(match)
        if loaded is None:
            on_device, on_host, node = match.ready_pages, 0, match.ready_node
        self.cache.lock(node)
        self.node, self.in_tree = node, on_device + on_host
        self._pages = [*match.device_pages[:on_device], *(loaded or ())]
        self._look_along()
        if not self._reserve(pages - self.in_tree, sum(end > self.in_tree for end in ends)):
            self.end()
            return None
        if self.model.count(STATE) and self.in_tree:
            slots = self.cache.tree.slots_along(node, DEVICE)[STATE]
            if self.in_tree - 1 not in slots:
                self.end()
                raise NotThere(f"there is no state after page {self.in_tree - 1}")
            self._unread = dict.fromkeys(range(self.model.count(STATE)), slots[self.in_tree - 1])
        return on_device, on_host

    def insert(self, key: PrefixKey) -> None:
        """The pages of `key` are filled, and the state is that of their end: all of it is the tree's from now on."""
        cache, end = self.cache, len(key)
        slots: dict[str, dict[int, int]] = {}
        if WINDOW in self._spare:
            needed = cache.extra[WINDOW].component.needed(0, end)
            slots[WINDOW] = {at: self._own_windows.pop(at) for at in needed if at in self._own_windows}
        if STATE in self._spare:
            slot = self._spare[STATE].pop()
            for layer, state in enumerate(self._state):
                self.model.shard.state_of(cache.extra[STATE].device.view(slot)[layer]).copy_(state)
            slots[STATE] = {end - 1: slot}
        inserted = cache.insert(key, self._pages[:end], slots)
        # First the longer one, so that nothing of the shorter one goes meanwhile.
        cache.lock(inserted.node)
        cache.unlock(self.node)
        cache.free_device(inserted.duplicate_pages)
        self.node, self.in_tree = inserted.node, end
        self._pages[:end] = [page for node in cache.tree.path(self.node) for page in node.device or ()]
        self._look_along()

    def forget_before(self, page: int) -> None:
        """The window has moved on: its pages before that of `page` are needed by nobody, if they are not the tree's."""
        past = [at for at in self._own_windows if at < page - WINDOW_PAGES]
        self._free(WINDOW, [self._own_windows.pop(at) for at in past])

    def end(self) -> None:
        """Give back what the tree has not got, and unlock what it has."""
        self.cache.free_device(self._pages[self.in_tree :])
        self._free(WINDOW, list(self._own_windows.values()))
        for name, slots in self._spare.items():
            self._free(name, slots)
        self.cache.unlock(self.node)
        self._pages, self._own_windows, self._spare = [], {}, {}

    def _look_along(self) -> None:
        """Where the tree has the window, down to `node`."""
        self._windows = self.cache.tree.slots_along(self.node, DEVICE).get(WINDOW, {})

    def _reserve(self, pages: int, states: int) -> bool:
        """All that the request will need, at once: so none waits with something that another one waits for."""
        fresh = self.cache.alloc_device(pages)
        if fresh is None:
            return False
        self._pages += fresh
        for name, count in ((WINDOW, pages), (STATE, states)):
            if name in self._spare:
                slots = self.cache.alloc_device_slots(name, count)
                if slots is None:
                    return False
                self._spare[name] += slots
        for page in fresh:
            # What is masked counts nothing times what is there, and that must be a number.
            self.cache.device.view(page).zero_()
        for at in range(self.in_tree, self.in_tree + pages) if WINDOW in self._spare else ():
            self._own_windows[at] = self._spare[WINDOW].pop()
            self.cache.extra[WINDOW].device.view(self._own_windows[at]).zero_()
        return True

    def _free(self, name: str, slots: Sequence[int]) -> None:
        if slots:
            self.cache.free_device_slots(name, slots)
