"""Faulty stores, put between the workers and the store that they were given; and wrong names for its pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch

from hicache_impl.config import CacheConfig
from hicache_impl.controller import Controller
from hicache_impl.events import Log
from hicache_impl.extra_pools import ExtraPool
from hicache_impl.host_pool import HostPool
from hicache_impl.mutants.mutant import faulty_controller
from hicache_impl.ranks import Group
from hicache_impl.runtime import Runtime
from hicache_impl.storage import Storage, storage_key


class PassingStore:
    """Hands every call on to `inner`."""

    def __init__(self, inner: Storage) -> None:
        self.inner = inner

    def exists(self, keys: Sequence[str]) -> int:
        return self.inner.exists(keys)

    def get_into(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
        return self.inner.get_into(keys, into)

    def put_from(self, keys: Sequence[str], pages: Sequence[torch.Tensor]) -> list[bool]:
        return self.inner.put_from(keys, pages)

    def stats(self) -> dict[str, int]:
        return self.inner.stats()

    def clear(self) -> None:
        self.inner.clear()

    def close(self) -> None:
        self.inner.close()


class ReferenceKeepingStore(PassingStore):
    """Keeps the caller's page and no copy of it."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self._pages: dict[str, torch.Tensor] = {}

    def exists(self, keys: Sequence[str]) -> int:
        for count, key in enumerate(keys):
            if key not in self._pages and not self.inner.exists([key]):
                return count
        return len(keys)

    def get_into(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
        return [self._get_one(key, page) for key, page in zip(keys, into, strict=True)]

    def put_from(self, keys: Sequence[str], pages: Sequence[torch.Tensor]) -> list[bool]:
        self._pages.update(zip(keys, pages, strict=True))
        return [True] * len(keys)

    def _get_one(self, key: str, into: torch.Tensor) -> bool:
        if key not in self._pages:
            return self.inner.get_into([key], [into]) == [True]
        into.copy_(self._pages[key])
        return True


class LateStore(PassingStore):
    """A read that was answered with no is carried out all the same, after the next read into the same memory."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self._late: set[int] = set()

    def get_into(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
        answers = super().get_into(keys, into)
        for answer, page in zip(answers, into, strict=False):
            if not answer:
                self._late.add(page.data_ptr())
            elif page.data_ptr() in self._late:
                self._late.remove(page.data_ptr())
                page.bitwise_not_()
        return answers


class _BehindAStore(Controller):
    store_class: type[PassingStore] = PassingStore

    def __init__(
        self,
        config: CacheConfig,
        rank: int,
        host: HostPool,
        storage: Storage,
        group: Group,
        runtime: Runtime,
        log: Log,
        extra: Mapping[str, ExtraPool] = MappingProxyType({}),
    ) -> None:
        super().__init__(config, rank, host, self.store_class(storage), group, runtime, log, extra)


class StoreKeepsNoCopy(_BehindAStore):
    """P30. The store keeps the caller's host page, which is reused, and not its bytes."""

    store_class = ReferenceKeepingStore


class StoreWritesAfterItsAnswer(_BehindAStore):
    """P30. The store fills a page after it said that it did not, when somebody else has it."""

    store_class = LateStore


class KeysForgetTheRank(Controller):
    """P19. All ranks use one name for what is a page of each."""

    def _keys(self, hashes: Sequence[bytes]) -> list[str]:
        return [storage_key(page_hash, self.config.shard(0)) for page_hash in hashes]


STORES = (
    faulty_controller("store_keeps_no_copy", StoreKeepsNoCopy),
    faulty_controller("store_writes_after_its_answer", StoreWritesAfterItsAnswer),
    faulty_controller("store_keys_forget_the_rank", KeysForgetTheRank, ranks=2),
)
