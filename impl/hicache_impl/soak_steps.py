"""One life of a cache in a soak: rounds of random calls, after each of which everything must come to rest and add up.

Every rank draws the same steps from the same seed, and makes the same calls. What a rank does to its own store is its
own matter.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch

from hicache_impl.cache import HiCache
from hicache_impl.config import CacheConfig
from hicache_impl.content import page_keys, page_on_rank
from hicache_impl.keys import PrefixKey, chain_hashes
from hicache_impl.kv_events import Listener
from hicache_impl.prefill import prefill
from hicache_impl.ranks import Group
from hicache_impl.runtime import Stalled
from hicache_impl.storage import Storage
from hicache_impl.storage.faults import Call, FaultyStorage

RIDS = tuple(f"r{number}" for number in range(12))
PROMPTS = 64
PROMPT_PAGES_MAX = 20
# How many branches there are at each page of a prompt, from the first on: few at first, so that prompts share prefixes.
BRANCHES = (2, 2, 2, 4, 4, 8, 8, 16, 16, 32)
CALLS: tuple[Call, ...] = ("exists", "get", "put")
IDLE_S = 0.0005
STEPS = {
    "submit": 24,
    "tick": 24,
    "poll": 20,
    "prefill": 16,
    "evict_device": 6,
    "abort": 6,
    "stop": 4,
    "store": 6,
    "break_storage": 4,
    "heal_storage": 6,
    "pause": 4,
    "detach": 1,
    "attach": 6,
    "reset": 1,
}


@dataclass(frozen=True)
class Place:
    """Where a life takes place. `group` is one of its own, `store` is this rank's, `listener` hears the KV events.

    `pages_may_go`: the store has a server, which may forget, or not answer.
    """

    cache: HiCache
    store: Storage
    faults: FaultyStorage
    group: Group
    listener: Listener
    pages_may_go: bool = False


def prompt(number: int, config: CacheConfig) -> PrefixKey:
    """Prompt `number`, 1 to PROMPT_PAGES_MAX pages long; prompts whose numbers leave the same rests share a prefix."""
    pages = 1 + random.Random(number).randrange(PROMPT_PAGES_MAX)
    tokens: list[int] = []
    for page in range(pages):
        branch = number % (BRANCHES[page] if page < len(BRANCHES) else PROMPTS)
        tokens += [1_000 * page + branch] * config.page_size
    return PrefixKey.from_tokens(tokens, config.page_size, config.namespace)


class Life:
    """Rounds on one cache. `happened` counts steps and what came of them, `problems` has a line for what was wrong.

    `stall_s`: how long anything may take to come to rest.
    """

    def __init__(self, place: Place, draw: random.Random, stall_s: float, happened: Counter[str]) -> None:
        self.place = place
        self.cache = place.cache
        self.faults = place.faults
        self.problems: list[str] = []
        self.happened = happened
        self._draw = draw
        self._stall_s = stall_s
        self._prompts = [prompt(number, self.cache.config) for number in range(PROMPTS)]
        self._idle = self.cache.runtime.event()
        self._stored = 0

    def round(self, count: int) -> None:
        """`count` steps, and rest. Raises what the cache raises; Stalled when it does not come to rest."""
        steps: dict[str, Callable[[], None]] = {name: getattr(self, f"_{name}") for name in STEPS}
        for name in self._draw.choices(list(STEPS), list(STEPS.values()), k=count):
            steps[name]()
            self.happened[name] += 1
        self._rest()
        self._look()

    # --- steps ---------------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        answer = self.cache.submit(self._draw.choice(RIDS), self._draw.choice(self._prompts))
        self.happened["submitted" if answer.op is not None else f"declined_{answer.reason}"] += 1

    def _tick(self) -> None:
        self.cache.tick()

    def _poll(self) -> None:
        self._poll_these(self._draw.sample(RIDS, self._draw.randint(1, len(RIDS))))

    def _poll_these(self, rids: list[str]) -> None:
        for poll in self.cache.poll(rids).values():
            if poll.state is not None:
                self.happened[f"{poll.state}_{poll.reason}"] += 1

    def _prefill(self) -> None:
        key = self._draw.choice(self._prompts)
        done = prefill(self.cache, key)
        self.happened["loaded_pages"] += done.host_pages
        self.problems += done.wrong

    def _evict_device(self) -> None:
        self.cache.evict_device(self._draw.randint(1, self.cache.config.device_pages))

    def _abort(self) -> None:
        self.cache.abort(self._draw.choice(RIDS))

    def _stop(self) -> None:
        self.cache.stop(self._draw.choice(RIDS))

    def _store(self) -> None:
        """Another server stored a prompt, and what it needs beside it."""
        hashes = chain_hashes(self._draw.choice(self._prompts))
        self.place.store.put_from(self._names(hashes), [self._content(page_hash) for page_hash in hashes])
        for pool in self.cache.extra.values():
            beside = [hashes[at] for at in pool.component.needed(0, len(hashes))]
            keys = [pool.key(page_hash, self.cache.rank) for page_hash in beside]
            self.place.store.put_from(keys, [pool.content(page_hash, self.cache.rank) for page_hash in beside])

    def _break_storage(self) -> None:
        """On one rank, or on all."""
        rank = self._draw.randrange(self.cache.config.ranks + 1)
        call: Call = self._draw.choice(CALLS)
        # A stall takes long, so there are fewer of them.
        ways = (*(self.faults.raise_on, self.faults.miss, self.faults.short) * 5, self.faults.stall)
        how = self._draw.choice(ways)
        times = self._draw.choice((1, 3, None))
        if rank in (self.cache.rank, self.cache.config.ranks):
            how(call, None, times)

    def _heal_storage(self) -> None:
        self.faults.heal()

    def _pause(self) -> None:
        """The workers are left alone for a moment."""
        self._idle.wait(self._draw.choice((0.0, IDLE_S, 0.002)))

    def _detach(self) -> None:
        self.faults.heal()
        self.cache.detach_storage(self._stall_s)

    def _attach(self) -> None:
        if self.cache.storage is None:
            self.cache.attach_storage(self.faults, self._stall_s)
            self.happened["attached"] += 1

    def _reset(self) -> None:
        self.faults.heal()
        self.faults = FaultyStorage(self.place.store)
        self.cache.reset(self.faults, self._stall_s)

    # --- rest ----------------------------------------------------------------------------------------------------

    def _rest(self) -> None:
        """Every operation ends by itself, and nothing is on its way."""
        self.faults.heal()
        began_s = self.cache.runtime.now()
        while self.cache.records:
            self.cache.tick()
            self._poll_these(list(self.cache.records))
            self._idle.wait(IDLE_S)
            late = self.cache.runtime.now() - began_s > self._stall_s
            if self.place.group.all_max([int(late)])[0]:
                raise Stalled(f"P5 for {self._stall_s:g} s these did not end: {', '.join(self.cache.records)}")
        self.cache.quiesce(self._stall_s)

    def _look(self) -> None:
        """Pages, references, counts, bytes; what is acknowledged is stored; what was told is so."""
        cache = self.cache
        self.problems += cache.audit()
        device = cache.device.allocator
        lost = device.pages - device.available - cache.tree.device_pages_resident()
        if lost:
            self.problems.append(f"P4 {lost} device pages are neither free nor in the tree")
        locks = sum(node.lock_ref for node in cache.tree.nodes())
        if locks:
            self.problems.append(f"P14 {locks} locks are left")
        acknowledged = cache.counters.stored_pages + cache.counters.stored_slots
        taken = self.faults.taken_pages
        if acknowledged != taken:
            self.problems.append(f"P32 {acknowledged} pages are acknowledged as stored, the store took {taken}")
        for tier in ("device", "host"):
            known = {h for node in cache.tree.nodes() if getattr(node, tier) is not None for h in node.hashes}
            if known != self.place.listener.known[tier]:
                self.problems.append(f"P29 other pages are told of the {tier} than it has")
            self._look_beside(tier)
        self._look_at_the_store(chain_hashes(self._draw.choice(self._prompts)))

    def _look_beside(self, tier: str) -> None:
        for pool in self.cache.extra:
            there = {node.hashes[place] for node in self.cache.tree.nodes() for place in node.slots_of(pool, tier)}
            if there != self.place.listener.beside[pool, tier]:
                self.problems.append(f"P29 other slots of {pool} are told of the {tier} than it has")

    def _look_at_the_store(self, hashes: tuple[bytes, ...]) -> None:
        """P30, of one prompt."""
        store = self.place.store
        names = self._names(hashes)
        for name, page_hash in zip(names[: store.exists(names)], hashes, strict=False):
            expected = self._content(page_hash)
            got = store.get_into([name], [page := torch.zeros_like(expected)])
            if got == [False] and self.place.pages_may_go:
                continue
            if got != [True] or not torch.equal(page, expected):
                self.problems.append(f"P30 the store does not hold the bytes of {name[:12]}")

    def _names(self, hashes: tuple[bytes, ...]) -> list[str]:
        return page_keys(self.cache.config, self.cache.rank, hashes)

    def _content(self, page_hash: bytes) -> torch.Tensor:
        return page_on_rank(self.cache.config, self.cache.rank, page_hash)
