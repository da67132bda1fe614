"""What is done to the store of one rank of a release: pages that come there, what goes wrong, their names."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from hicache_checks.targets.sglang import building, strangers
from hicache_checks.targets.sglang.building import Parts
from hicache_checks.targets.sglang.content import content
from hicache_checks.targets.sglang.files import Files, FileShelf
from hicache_checks.targets.sglang.indices import NoIndices, index_stored_as
from hicache_checks.targets.sglang.shelf import SHELVES, Shelf
from hicache_checks.targets.sglang.states import NoStates, States, stored_as
from hicache_checks.targets.sglang.strangers import Strangers
from hicache_checks.targets.sglang.surroundings import page_hashes

Tokens = Sequence[int]
PAGE_FIRST = "page_first_direct"
"""A layout of host pools: the layers of a page are next to each other."""
QUEUES = ("prefetch_queue", "prefetch_buffer", "prefetch_sync_queue", "backup_queue")


class RankStorage:
    """The part of a rank that is about its store. `prompts`: those that somebody asked for."""

    number: int
    config: Mapping[str, Any]
    page: int
    has_pairs: bool
    parts: Parts
    cache: Any
    controller: Any
    host: Any
    shelf: Shelf
    prompts: dict[Tokens, None]
    strangers: Strangers
    states: States | NoStates
    indices: NoIndices

    def tokens(self, tokens: Tokens) -> Any:
        """See Rank."""
        raise NotImplementedError

    def _shelf(self) -> Shelf:
        if self.config.get("storage") != building.FILES:
            return SHELVES.setdefault(self.number, Shelf())
        store = self.controller.storage_backend
        files = Files(Path(store.file_path), store._get_suffixed_key)
        shelf = SHELVES[self.number] = FileShelf(files, self.flat((0,)).nbytes)
        return shelf

    def break_store(self, call: str, how: str) -> None:
        """From now on the store fails in a call. ValueError: it cannot."""
        self.shelf.break_(call, how)

    def lose(self, tokens: Tokens) -> None:
        """The last page of this prompt can no longer be read, although it is said to exist."""
        self.shelf.lost.add(self.keys(tokens)[-1])

    def lose_beside(self, tokens: Tokens) -> None:
        """The same of the index of that page."""
        self.shelf.lost.add(index_stored_as(self.keys(tokens)[-1]))

    def damage(self, tokens: Tokens) -> None:
        """The file of the last page of this prompt is cut off. TypeError: the store has no files."""
        self._file_shelf().damage(self.keys(tokens))

    def pin(self, tokens: Tokens) -> None:
        """The file of the last page of this prompt cannot be removed. TypeError: the store has no files."""
        self._file_shelf().pin(self.keys(tokens))

    def clear_store(self) -> bool:
        """The user has the release clear its store."""
        # What the host has need not be in the store any more.
        self.shelf.has_failed_to_put = True
        done = bool(self.cache.clear_storage_backend())
        self.shelf.look()
        return done

    def heal(self) -> None:
        """The store works again."""
        self.shelf.heal()

    def is_busy(self) -> bool:
        """Has a storage thread something to do, as far as its queues show it?"""
        queues = (getattr(self.controller, name, None) for name in QUEUES)
        return bool(self.shelf.stalled) or any(queue is not None and not queue.empty() for queue in queues)

    def put(self, tokens: Tokens, namespace: str | None = None) -> None:
        """The store holds the pages of this prompt; or, of another namespace, somebody else's of the same tokens."""
        self.prompts[tuple(tokens)] = None
        mine = namespace is None or namespace == self.config["namespace"]
        if not mine and isinstance(self.shelf, FileShelf):
            self.put_by([("model_name", namespace)], tokens)
            return
        for place, name in enumerate(self.keys(tokens)):
            prefix = tokens[: place + 1]
            self.shelf.damaged.discard(name)
            shelf_name = name if mine else f"{namespace}/{name}"
            owned = prefix if mine else (namespace, *prefix)
            self.shelf.pages[shelf_name] = self.flat(owned)
            if (state := self.states.bytes_of(owned)) is not None:
                self.shelf.pages[stored_as(shelf_name)] = state
            if (index := self.indices.bytes_of(owned)) is not None:
                self.shelf.pages[index_stored_as(shelf_name)] = index

    def put_by(self, changes: Sequence[tuple[str, Any]], tokens: Tokens) -> None:
        """Somebody else whose store is the same one, but for these changes, stores his pages of this prompt. TypeError:
        the store has no files, and nobody else."""
        self._file_shelf()
        name = strangers.name_of(strangers.known(dict(changes)))
        mine = self.controller.storage_backend
        store = strangers.store_of(mine, getattr(self.controller, "storage_config", None), dict(changes))
        pages = {key: self.flat((name, *tokens[: place + 1])) for place, key in enumerate(self.keys(tokens))}
        self.strangers.put(name, store, pages)

    def _file_shelf(self) -> FileShelf:
        if not isinstance(self.shelf, FileShelf):
            raise TypeError("this can only be done to a store of files")
        return self.shelf

    def keys(self, tokens: Tokens) -> list[str]:
        """What the store calls the pages of a prompt."""
        return self._names(self.tokens(tokens))

    def _names(self, ids: Sequence[int]) -> list[str]:
        names: list[str] = page_hashes(list(itertools.pairwise(ids) if self.has_pairs else ids), None, self.page)
        return names

    def flat(self, prefix: Sequence[object]) -> torch.Tensor:
        """The bytes of the last page of this prefix, as the release would store them."""
        page = self.host_page(0)
        before = page.clone()
        page.copy_(content(prefix, self.number, before))
        read = getattr(self.host, "get_data_page", None) or self.host.get_flat_data_page
        flat: torch.Tensor = read(0).clone()
        page.copy_(before)
        return flat

    def host_page(self, slot: int) -> torch.Tensor:
        """The page that begins at a host slot: keys and values, layers, tokens, heads, dimensions."""
        buffer: torch.Tensor = self.host.kv_buffer
        if not hasattr(self.parts.device, "k_buffer"):
            # Keys and values are in one.
            buffer = buffer.unsqueeze(0)
        if self.host.layout == PAGE_FIRST:
            return buffer[:, slot // self.page]
        return buffer[:, :, slot : slot + self.page]
