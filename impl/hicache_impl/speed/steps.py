"""What each step of reading a page costs, one after the other on one thread: where the time of a fetch goes.

Registered as the entry point `fetch_steps` of the group `hicheck.benchmarks`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch

from hicache_impl.config import READ_BATCH_BYTES
from hicache_impl.keys import chain_hashes
from hicache_impl.speed.fetch import ROUND_BYTES, WrongBytes
from hicache_impl.speed.shape import Shape, shape_for
from hicache_impl.speed.stores import opened
from hicache_impl.storage import Storage, check_keys, storage_keys
from hicache_impl.tensor_pool import TensorPool

STORES = ("memory", "lmdb", "file")
"""Those whose reads are all in the calling thread."""
SHARD = "0_1"
BATCH_PAGES = 128
LAYERS = 2
MICROSECONDS = 1e6
Asked = Sequence[tuple[Sequence[str], Sequence[torch.Tensor]]]
"""The names of each batch, and where its pages go."""


def measure_steps(page_bytes: int, round_bytes: int = ROUND_BYTES, rounds: int = 9) -> list[dict[str, Any]]:
    """A row for each step: `step`, and `us`, microseconds of the processor for a page, of the quickest round.

    ValueError: there are no such pages. WrongBytes: a store does not bring what it was given.
    """
    shape = shape_for(page_bytes, round_bytes)
    threads_before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [{"step": step, "us": _quickest(work, rounds) / shape.pages} for step, work in _steps(shape)]
    finally:
        torch.set_num_threads(threads_before)


def _quickest(work: Callable[[], object], rounds: int) -> float:
    """Microseconds."""
    took = []
    for _ in range(rounds):
        began_s = time.thread_time()
        work()
        took.append(time.thread_time() - began_s)
    return min(took) * MICROSECONDS


def _steps(shape: Shape) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each step with the work that it is, of all pages; what a store holds is let go of with its last step."""
    pool = TensorPool(shape.pages, LAYERS, shape.page_bytes)
    pages = pool.allocator.alloc(shape.pages) or ()
    contents = shape.contents()
    keys, hashes = shape.keys(), shape.hashes()
    names = storage_keys(hashes, SHARD)
    size = max(1, min(BATCH_PAGES, READ_BATCH_BYTES // shape.page_bytes))
    batches = [slice(first, first + size) for first in range(0, shape.pages, size)]
    pairs = list(zip(pool.views(pages), contents.view(pool.data.shape), strict=True))

    def mark() -> None:
        for batch in batches:
            pool.allocator.begin_write(*pages[batch])
            pool.allocator.end_write(*pages[batch])

    def check() -> None:
        for batch in batches:
            check_keys(names[batch])

    yield "the limit: copy_, page by page", lambda: [into.copy_(page) for into, page in pairs]
    yield "hash chain, by the query thread", lambda: [chain_hashes(key) for key in keys]
    yield "names", lambda: [storage_keys(hashes[batch], SHARD) for batch in batches]
    yield "names are checked", check
    yield "views", lambda: [pool.views(pages[batch]) for batch in batches]
    yield "write marks", mark
    asked = [(names[batch], pool.views(pages[batch])) for batch in batches]
    for store in STORES:
        with ExitStack() as stack:
            found = opened(store, shape.total_bytes, stack)
            assert not isinstance(found, str), "it needs no server"
            for checksums in (False, True):
                # What is in memory is not there for the next; digests are taken when a page is put.
                storage = found.open(checksums)
                stack.callback(storage.close)
                _fill(storage, names, contents)
                _check(storage, asked, pool, contents)
                if not checksums:
                    yield f"{store}: exists", partial(_ask, storage, asked)
                yield f"{store}: get_into, checksums {'on' if checksums else 'off'}", partial(_read, storage, asked)


def _ask(storage: Storage, asked: Asked) -> None:
    for names, _ in asked:
        storage.exists(names)


def _read(storage: Storage, asked: Asked) -> None:
    for names, views in asked:
        storage.get_into(names, views)


def _fill(storage: Storage, names: Sequence[str], contents: torch.Tensor) -> None:
    for first in range(0, len(names), BATCH_PAGES):
        batch = slice(first, first + BATCH_PAGES)
        storage.put_from(names[batch], list(contents[batch]))


def _check(storage: Storage, asked: Asked, pool: TensorPool, contents: torch.Tensor) -> None:
    pool.data.zero_()
    _read(storage, asked)
    if not torch.equal(pool.data.view(contents.shape), contents):
        raise WrongBytes(f"{type(storage).__name__} brought other bytes than were stored")
