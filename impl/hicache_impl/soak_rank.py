"""One rank of a soak, a process of its own: `python -m hicache_impl.soak_rank FOLDER RANK`.

FOLDER holds `options.json` and takes `rank-RANK.json`, this rank's result. Rank 0 prints a line after each round. Lives
follow each other until the time is up: each opens a cache of another policy, and closes it after some rounds.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import random
import sys
import threading
from collections import Counter, deque
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from hicache_impl.cache import AttachFailed, HiCache, open_rank
from hicache_impl.config import POLICIES, POOL_LAYOUTS, WRITE_POLICIES, CacheConfig
from hicache_impl.controller import WorkerDied
from hicache_impl.events import OpId
from hicache_impl.kv_events import Listener
from hicache_impl.operation import IllegalTrigger
from hicache_impl.page_pool import PoolError
from hicache_impl.pool_spec import PoolSpec
from hicache_impl.process_world import World, WorldOptions
from hicache_impl.rank_processes import STACKS_SIGNAL
from hicache_impl.ranks import Desync, GroupAborted
from hicache_impl.runtime import Stalled, ThreadRuntime
from hicache_impl.soak_steps import Life, Place
from hicache_impl.storage import Storage, open_storage
from hicache_impl.storage.faults import FaultyStorage
from hicache_impl.telemetry import Telemetry
from hicache_impl.trees.node import TreeError

# Beyond what anything may take to come to rest: opening and closing, and the rest of a round.
SILENCE_S = 30.0
RECENT = 40
SAMPLE_S = 0.25
# What the implementation raises when a rule of its own is broken, and ValueError, by which a listener refuses an event.
FINDINGS = (
    *(PoolError, TreeError, WorkerDied, IllegalTrigger, Desync, GroupAborted, Stalled, AttachFailed, ValueError),
    RuntimeError,
)


STATE = PoolSpec(name="state", kind="state", host_slots=16, device_slots=12)
WINDOW = PoolSpec(name="window", kind="window", window_pages=3, host_slots=24, device_slots=16)
TREES: tuple[tuple[str, tuple[PoolSpec, ...]], ...] = (
    ("hiradix", ()),
    ("hiradix", (PoolSpec(name="draft", kind="sidecar"),)),
    ("hi_mamba", (STATE,)),
    ("unified", (WINDOW, STATE)),
)


class SoakOptions(WorldOptions, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """How long and on what; see `soak.run`. `folder` takes the files of the run.

    `stall_s`: how long anything may take to come to rest; `silence_s`: when nothing ends for so long, all hang (30 s
    more, if not given). After `steps_a_round` steps everything comes to rest; after `rounds_a_life` rounds a cache is
    closed and another one opened. `server`: what open_storage takes for a store that has one. `cache_class`:
    `module:Class` of a faulty cache, for the tests of the soak.
    """

    folder: str
    seconds: float
    store: str = "lmdb"
    server: str = ""
    seed: int = 0
    stall_s: float = 30.0
    silence_s: float | None = None
    steps_a_round: int = 60
    rounds_a_life: int = 12
    warm_up_s: float | None = None
    cache_class: str | None = None

    @property
    def storage(self) -> str:
        """What open_storage takes."""
        if self.server or self.store == "memory":
            return self.server or "memory"
        return f"{self.store}:{Path(self.folder) / 'store'}"

    @property
    def silent_s(self) -> float:
        """When nothing ends for so long, all hang, in seconds."""
        return self.stall_s + SILENCE_S if self.silence_s is None else self.silence_s

    @property
    def warmed_up_s(self) -> float:
        """From when on memory is judged, in seconds after the start: a fifth of the time, if not given."""
        return self.seconds / 5 if self.warm_up_s is None else self.warm_up_s


class _Recent:
    """The last events, to be shown when something was wrong."""

    def __init__(self) -> None:
        self.kept: deque[tuple[str, OpId | None, dict[str, Any]]] = deque(maxlen=RECENT)

    def emit(self, kind: str, op: OpId | None = None, **data: Any) -> None:
        """Take one event."""
        self.kept.append((kind, op, data))


class _Soak:
    """The lives of one rank."""

    def __init__(self, options: SoakOptions, world: World) -> None:
        self.options = options
        self.world = world
        self.rank = world.rank
        self.runtime = ThreadRuntime()
        self.recent = _Recent()
        self.happened: Counter[str] = Counter()
        self.findings: list[str] = []
        self.broken = False
        self.rounds = 0
        self.lives = 0
        self.samples: list[tuple[float, int]] = []
        self.moved: Counter[str] = Counter()
        self.group = world.group("soak")
        self.store: Storage = open_storage(options.storage)
        # The groups of all lives are the same, as the process is.
        self.groups = world.groups(self.recent)
        self._cache_class = _named(options.cache_class)
        self._began_s = self.runtime.now()
        self._threads = threading.active_count()

    def run(self) -> None:
        """Lives until the time is up, or something is wrong on some rank."""
        while not self._is_over():
            self._live()
            self.lives += 1

    def _is_over(self) -> bool:
        over = bool(self.findings) or self._elapsed_s() > self.options.seconds
        return self.broken or bool(self.world.everyone.all_max([int(over)])[0])

    def _live(self) -> None:
        """A cache is of the same kind on all replicas, which do different things with theirs."""
        number = f"{self.options.seed} {self.lives}"
        config = _config(self.options, self.rank, random.Random(f"cache {number}"))
        draw = random.Random(f"life {number} {self.rank // self.options.layout.ranks}")
        faults, listener = FaultyStorage(self.store), Listener()
        telemetry = Telemetry(config, self.groups.rank, self.runtime, take=listener.take)
        cache = open_rank(
            config,
            faults,
            self.groups,
            self.runtime,
            self.recent,
            cache_class=self._cache_class,
            telemetry=telemetry,
        )
        place = Place(cache, self.store, faults, self.group, listener, pages_may_go=bool(self.options.server))
        life = Life(place, draw, self.options.stall_s, self.happened)
        name = f"life {self.lives} ({config.tree}, {config.policy}, {config.write_policy})"
        try:
            for _ in range(self.options.rounds_a_life):
                life.round(self.options.steps_a_round)
                self._note(life, name)
                if self._is_over():
                    break
        except FINDINGS as error:
            self.findings.append(f"rank {self.rank}: {name}: {type(error).__name__}: {error}")
            self.broken = True
        self._close(cache, name)
        for (source, target, reason), moved in telemetry.metrics.moved().items():
            # Of what fails, no page moves.
            if moved.pages:
                self.moved[f"{source} to {target}, {reason}"] += moved.pages
        if not self.broken:
            self._begin_again()

    def _close(self, cache: HiCache, name: str) -> None:
        try:
            cache.close(self.options.stall_s)
        except FINDINGS as error:
            self.findings.append(f"rank {self.rank}: {name}: close: {type(error).__name__}: {error}")
            self.broken = True
        threads = threading.active_count()
        if threads > self._threads and not self.broken:
            self.findings.append(f"rank {self.rank}: {name}: {threads - self._threads} threads are left after close")

    def _begin_again(self) -> None:
        """With an empty store, and while nobody uses it."""
        self.world.everyone.barrier()
        self.store.clear()
        self.world.everyone.barrier()

    def _note(self, life: Life, name: str) -> None:
        self.rounds += 1
        self.findings += [f"rank {self.rank}: {name}, round {self.rounds}: {problem}" for problem in life.problems]
        life.problems.clear()
        seconds = self._elapsed_s()
        if not self.samples or seconds - self.samples[-1][0] > SAMPLE_S:
            gc.collect()
            self.samples.append((seconds, resident_bytes()))
        self.say(
            f"{seconds:.0f} of {self.options.seconds:.0f} s, {name}, {self.rounds} rounds, "
            f"{sum(self.happened.values())} steps and ends, {self.samples[-1][1] / 2**20:.1f} MiB, "
            f"{len(self.findings)} findings"
        )

    def say(self, text: str) -> None:
        """A line of progress, from rank 0."""
        if self.rank == 0:
            sys.stdout.write(f"soak: {text}\n")
            sys.stdout.flush()

    def _elapsed_s(self) -> float:
        return self.runtime.now() - self._began_s

    def result(self) -> dict[str, Any]:
        """What is left in the folder."""
        return {
            "rank": self.rank,
            "broken": self.broken,
            "findings": self.findings,
            "rounds": self.rounds,
            "lives": self.lives,
            "seconds": self._elapsed_s(),
            "happened": dict(self.happened),
            "moved_pages": dict(self.moved),
            "resident": self.samples,
            "recent": [f"{kind} {op} {data}" for kind, op, data in self.recent.kept] if self.findings else [],
        }


def _config(options: SoakOptions, rank: int, draw: random.Random) -> CacheConfig:
    """The cache of a life: its pages are always as many, so that memory can be compared."""
    tree, pools = draw.choice(TREES)
    return CacheConfig(
        host_pages=64,
        device_pages=40,
        page_size=4,
        page_bytes=4096,
        threshold_pages=draw.choice((1, 2, 4)),
        limit_pages=draw.choice((24, 64, 200)),
        policy=draw.choice(POLICIES),  # type: ignore[arg-type]
        timeout_s_base=0.02,
        timeout_s_per_page=0.0,
        layout=options.layout,
        device=options.device_of(rank),
        replicated=draw.random() < 0.3,
        query_batch_pages=draw.choice((3, 128)),
        write_policy=draw.choice(WRITE_POLICIES),  # type: ignore[arg-type]
        async_copies=draw.random() < 0.7,
        load_back_pages_max=draw.choice((0, 8)),
        host_layout=draw.choice(POOL_LAYOUTS),  # type: ignore[arg-type]
        device_layout=draw.choice(POOL_LAYOUTS),  # type: ignore[arg-type]
        tree=tree,
        pools=pools,
        # A page of an earlier life may be on a server that could not be cleared; none of it is this life's.
        namespace=f"life {draw.getrandbits(64):x}",
    )


def _named(cache_class: str | None) -> type[HiCache]:
    if cache_class is None:
        return HiCache
    module, _, name = cache_class.partition(":")
    found: type[HiCache] = getattr(import_module(module), name)
    return found


def resident_bytes() -> int:
    """What this process has in memory now, but for files that it has mapped; 0 where the system does not say.

    Why without files: the map of a store is as large as what is stored, and its pages are the system's to take.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    lines = status.read_text(encoding="ascii", errors="replace").splitlines()
    sizes = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("RssAnon:", "RssShmem:"))}
    return sum(map(int, sizes.values())) * 1024


def main(arguments: list[str]) -> None:
    """Run the rank that the command line names, and leave its result in the folder."""
    if STACKS_SIGNAL is not None:
        faulthandler.register(STACKS_SIGNAL)
    folder, rank = Path(arguments[0]), int(arguments[1])
    given: Mapping[str, Any] = json.loads((folder / "options.json").read_text(encoding="utf-8"))
    options = msgspec.convert(given, SoakOptions)
    soak = _Soak(options, World(options, folder, rank))
    soak.say("begins")
    soak.run()
    (folder / f"rank-{rank}.json").write_text(json.dumps(soak.result()), encoding="utf-8")
    sys.stdout.flush()
    if not soak.broken:
        soak.world.leave()
    # After a finding, peers may hang in a collective and worker threads in a store; nobody waits for them.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
