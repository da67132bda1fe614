"""What the reference has computed, by page hash: every byte on device, on host and in the store is held to it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from decoding.model import FULL, STATE, Model
from decoding.reference import Private, Request, key_of
from hicache_impl import HiCache
from hicache_impl.content import page_keys
from hicache_impl.keys import chain_hashes
from hicache_impl.storage import Storage


class Computed:
    """What must be in a page, and beside it (see hicache_impl.audit.Contents). KeyError: nobody computed that page."""

    def __init__(self, model: Model, requests: Sequence[Request], namespace: str) -> None:
        self._model = model
        self._where: dict[bytes, tuple[Private, int]] = {}
        for request in requests:
            for at, page_hash in enumerate(chain_hashes(key_of(request.fed, namespace))):
                self._where.setdefault(page_hash, (request.memories[model.shard.rank], at))

    def page(self, page_hash: bytes) -> Tensor:
        """uint8 (layers, layer_bytes)."""
        return self._of_kind(FULL, page_hash)

    def slot(self, pool: str, page_hash: bytes) -> Tensor:
        """uint8 (layers, layer_bytes). A pool has the name of the kind of layers that it is for."""
        return self._of_kind(pool, page_hash)

    def _of_kind(self, kind: str, page_hash: bytes) -> Tensor:
        memory, at = self._where[page_hash]
        layers = range(self._model.count(kind))
        values = memory.kept[at + 1] if kind == STATE else [memory.page(kind, layer, at) for layer in layers]
        return torch.stack([value.reshape(-1) for value in values]).view(torch.uint8)

    def wrong_in(self, store: Storage, cache: HiCache) -> list[str]:
        """A line for each kind of which the store gives other bytes than these, or none at all."""
        names = {FULL: page_keys(cache.config, cache.rank, list(self._where))}
        for pool in cache.extra.values():
            names[pool.name] = [pool.key(page_hash, cache.rank) for page_hash in self._where]
        problems: list[str] = []
        for kind, keys in names.items():
            expected = [self._of_kind(kind, page_hash) for page_hash in self._where]
            found = [torch.zeros_like(page) for page in expected]
            answers = store.get_into(keys, found)
            wrong = sum(
                given and not torch.equal(page, right)
                for given, page, right in zip(answers, found, expected, strict=True)
            )
            if wrong or not any(answers):
                problems.append(f"the store gives {wrong} wrong pages of {kind}, of {sum(answers)}")
        return problems
