"""A rank of a release that is measured: what comes from its files to its host, and what its tree costs."""

from __future__ import annotations

import threading
import time
from typing import Any

import torch

from hicache_checks.targets.sglang import building, speed_tree
from hicache_checks.targets.sglang.device import COPIES
from hicache_checks.targets.sglang.files import FileShelf
from hicache_checks.targets.sglang.rank import Rank
from hicache_checks.targets.sglang.release import Release
from hicache_checks.targets.sglang.shelf import SHELVES
from hicache_checks.targets.sglang.speed import DEVICE_PAGES, NAMED, POLL_S, WAIT_S, Moved, SpeedError, Took

KEYS_AND_VALUES = 2


class ReadyRank(Rank):
    """A rank whose prompts are made before they come: that is no work of the release's."""

    def __init__(self, *given: Any) -> None:
        self._made: dict[range, Any] = {}
        super().__init__(*given)

    def tokens(self, tokens: Any) -> Any:
        """See Rank."""
        if tokens not in self._made:
            self._made[tokens] = super().tokens(tokens)
        return self._made[tokens]


class SpeedRank:
    """One rank at a time; each `open_...` makes a new one."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self._rank: Rank | None = None
        self._prompts: list[range] = []
        self._rounds = 0

    # ---- from the files to the host

    def open_fetch(self, moved: Moved) -> None:
        """See ReleaseProcess."""
        sizes = KEYS_AND_VALUES * building.LAYERS * building.HEADS * torch.float32.itemsize * moved.page_tokens
        if moved.page_bytes % sizes:
            raise SpeedError(f"a page has a multiple of {sizes} bytes, not {moved.page_bytes}")
        rank = self._begin(
            page_size=moved.page_tokens,
            head_dim=moved.page_bytes // sizes,
            host_pages=moved.pages + 1,
            limit_pages=2 * moved.pages,
            storage=building.FILES,
        )
        pages = moved.operation_pages
        self._prompts = [range(number * pages, (number + 1) * pages) for number in range(moved.operations)]
        if not isinstance(rank.shelf, FileShelf):
            raise SpeedError("its store has no files")
        for prompt in self._prompts:
            for token, name in zip(prompt, rank.keys(prompt), strict=True):
                rank.shelf.pages[name] = _content(token, moved.page_bytes)

    def fetch(self) -> Took:
        """See ReleaseProcess."""
        took = self._fetch()
        self._forget()
        return took

    def check_fetch(self) -> None:
        """See ReleaseProcess."""
        rank = self._known()
        self._fetch()
        for prompt in self._prompts:
            path = rank.tree.path(rank.tokens(prompt))
            slots = [slot for node in path for slot in node.host or ()][:: rank.page]
            for token, slot in zip(prompt, slots, strict=True):
                page = rank.host_page(slot)
                if not torch.equal(page.flatten(), _content(token, page.nbytes)):
                    raise SpeedError("it brought other bytes than are stored")
        self._forget()

    def _fetch(self) -> Took:
        rank = self._known()
        self._rounds += 1
        waiting = [f"{self._rounds}.{number}" for number in range(len(self._prompts))]
        until_s = time.monotonic() + WAIT_S
        reader = _reading_clock()
        began_reader_s = 0.0 if reader is None else time.clock_gettime(reader)
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        for rid, prompt in zip(waiting, self._prompts, strict=True):
            if not rank.submit(rid, prompt)["accepted"]:
                raise SpeedError("it does not take all operations")
        while waiting:
            time.sleep(POLL_S)
            rank.tick()
            waiting = [rid for rid, answer in rank.poll(waiting).items() if not answer["ready"]]
            if time.monotonic() > until_s:
                raise SpeedError(f"{len(waiting)} operations do not end")
        seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
        reader_s = None if reader is None else time.clock_gettime(reader) - began_reader_s
        self._check_came()
        return Took(seconds, cpu_s, reader_s)

    def _check_came(self) -> None:
        rank = self._known()
        there = sum(1 for _ in rank.tree.host_slots()) // rank.page
        if there != sum(map(len, self._prompts)):
            raise SpeedError(f"{there} pages came")

    def _forget(self) -> None:
        """The host is empty again, by the release's own eviction: after a reset of some releases the reading thread of
        before would help the new one."""
        rank = self._known()
        rank.cache.evict_host(len(self._prompts) * len(self._prompts[0]) * rank.page)
        if left := sum(1 for _ in rank.tree.host_slots()):
            raise SpeedError(f"{left} tokens stay on the host")

    # ---- the scheduler's calls

    def tree(self, nodes: int, page_tokens: int) -> list[dict[str, Any]]:
        """See speed_tree."""
        pages = speed_tree.pages_of_tree(nodes)
        rank = self._begin(
            page_size=page_tokens,
            head_dim=1,
            device_pages=pages,
            host_pages=2 * pages,
            limit_pages=0,
            write_policy="write_through_selective",
        )
        return speed_tree.tree_rows(rank, nodes)

    def allocations(self, pages: int, page_tokens: int) -> list[dict[str, Any]]:
        """See speed_tree."""
        rank = self._begin(page_size=page_tokens, head_dim=1, host_pages=pages, limit_pages=0)
        return speed_tree.allocation_rows(rank, pages)

    def ticks(self, pending: int, page_tokens: int) -> list[dict[str, Any]]:
        """See speed_tree."""
        pages = pending + speed_tree.FINISHED * (speed_tree.TICKS + 1)
        rank = self._begin(page_size=page_tokens, host_pages=pages + 1, limit_pages=2 * pages)
        return speed_tree.tick_rows(rank, pending)

    # ---- the rank

    def _begin(self, **more: Any) -> Rank:
        if self._rank is not None:
            self._rank.close()
        config = {
            "ranks": 1,
            "threshold_pages": 1,
            "device_pages": DEVICE_PAGES,
            "policy": "wait_complete",
            "timeout_s_base": WAIT_S,
            "timeout_s_per_page": 1.0,
            "namespace": "speed",
            **more,
        }
        SHELVES.clear()
        COPIES.clear()
        self._release.prepare(config)
        self._rank = ReadyRank(0, config, self._release, self._release.groups(0))
        return self._rank

    def _known(self) -> Rank:
        if self._rank is None:
            raise SpeedError("nothing was opened")
        return self._rank


def _content(token: int, size_bytes: int) -> torch.Tensor:
    """A page's bytes as float32: whole numbers, so that none is not a number."""
    return torch.arange(token, token + size_bytes // torch.float32.itemsize, dtype=torch.float32)


def _reading_threads() -> list[threading.Thread]:
    """Those that read from storage, the newest last."""
    return [
        thread for thread in threading.enumerate() if NAMED in getattr(getattr(thread, "_target", None), "__name__", "")
    ]


def _reading_clock() -> int | None:
    threads = _reading_threads()
    return time.pthread_getcpuclockid(threads[-1].ident) if threads and threads[-1].ident is not None else None
