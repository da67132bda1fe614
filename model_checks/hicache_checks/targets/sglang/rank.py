"""One rank of a release under test: what its scheduler does with the cache, call by call.

Everything here runs on the task that is the rank's scheduler. A harness token is a page: it becomes `page_size` token
ids of the release. What a release names otherwise, or does not have, is found out by looking, once.
"""

from __future__ import annotations

import atexit
import dataclasses
import threading
import time
from array import array
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist

from hicache_checks.targets.sglang import audit, building, store_audit
from hicache_checks.targets.sglang.audit import Written
from hicache_checks.targets.sglang.building import Parts
from hicache_checks.targets.sglang.device import COPIES
from hicache_checks.targets.sglang.event_log import Entry, EventLog
from hicache_checks.targets.sglang.event_scheduler import SchedulerEvents
from hicache_checks.targets.sglang.events import EVENTS, Router
from hicache_checks.targets.sglang.files import FileShelf
from hicache_checks.targets.sglang.queued import Queued
from hicache_checks.targets.sglang.rank_storage import RankStorage
from hicache_checks.targets.sglang.release import Release
from hicache_checks.targets.sglang.states import NoStates, States
from hicache_checks.targets.sglang.strangers import Strangers
from hicache_checks.targets.sglang.surroundings import Settings
from hicache_checks.targets.sglang.tree import NodeSeen, is_under_way, tree_of

Tokens = Sequence[int]
TURNS_TO_REST = 60
TURN_S = 0.25
AUDITS = {audit.BYTES, EVENTS, *store_audit.AUDITS}
"""What is looked at besides when `audits` of the configuration asks for it."""


class EvictsTooLittle(Exception):
    """P9: the device is said to have pages that can go, and they do not go."""


@dataclasses.dataclass(frozen=True)
class Prefilled:
    """What became of a prompt that a model computed: `wrong` pages had other bytes when they were loaded."""

    wrong: tuple[str, ...] = ()


class Rank(RankStorage):
    """Cache, controller and pools of one rank. Its storage threads begin with it."""

    def __init__(self, number: int, config: Mapping[str, Any], release: Release, group: Any) -> None:
        self.number = number
        self.config = config
        self.group = group
        self.page: int = config["page_size"]
        self.has_pairs = bool(config.get("pairs"))
        self.audits = frozenset(config.get("audits", ()))
        self._check(release.kind)
        self.settings = release.surroundings.settings
        self.parts: Parts = building.build(config, self.settings, group, release.kind)
        self.cache = self.parts.cache
        self.controller = self.cache.cache_controller
        self.tree = tree_of(self.cache)
        pool = self.controller.mem_pool_host
        self.host = getattr(getattr(pool, "anchor_entry", None), "host_pool", None) or pool
        self.states = States(self) if self.parts.kind == building.HIMAMBA else NoStates()
        self.foreign = self._foreign()
        self.shelf = self._shelf()
        self.prompts: dict[Tokens, None] = {}
        self.extras: dict[str, None] = {}
        self.strangers = Strangers()
        self.router = self._router() if EVENTS in self.audits else None
        self.scheduler = release.scheduler
        self.bootstrap = release.bootstrap
        self._base = building.needed("mem_cache.base_prefix_cache")
        self._key = getattr(building.needed("mem_cache.radix_cache"), "RadixKey", None)
        self._wants_arrays = self._key is not None and "array" in str(building.parameters_of(self._key)["token_ids"])
        self._handle = getattr(self._base, "CacheRequestHandle", None)
        self._attempts: dict[str, int] = {}
        self._waiting: set[str] = set()
        self._unanswered: dict[str, int] = {}
        self._queued = Queued(self)
        self._log = EventLog()
        self._events = SchedulerEvents(self, self._log) if config.get("events") else None
        self._limit()
        self.cache.load_back_threshold = 0
        for asked in (self.cache, self.controller):
            # The oldest releases do not let it be configured.
            asked.prefetch_threshold = config["threshold_pages"] * self.page
        if hasattr(self.cache, "shutdown"):
            # Else every rank ever built is kept until the process ends.
            atexit.unregister(self.cache.shutdown)

    def _check(self, kind: str) -> None:
        """ValueError: the configuration asks for what there is not."""
        if unknown := self.audits - AUDITS:
            raise ValueError(f"there is no audit {min(unknown)!r}; there are {', '.join(sorted(AUDITS))}")
        if self.has_pairs and self.page < 2:
            raise ValueError("a page of pairs has two tokens at least")
        if self.has_pairs and kind == building.HIMAMBA:
            raise ValueError("HiMambaRadixCache has no keys of pairs")

    @staticmethod
    def _router() -> Router:
        told = building.needed("disaggregation.kv_events")
        return Router(has_tiers=hasattr(told, "StorageMedium"))

    def _foreign(self) -> list[int]:
        """The host slots that the cache does not get: of so many pages as this rank has less than the others."""
        fewer = self.config.get("fewer_host_pages")
        if not fewer or not fewer[self.number]:
            return []
        return [int(slot) for slot in self.host.alloc(fewer[self.number] * self.page)]

    def _limit(self) -> None:
        """How much may wait for host memory at a time; 0: what the release chooses by itself."""
        if self.config["limit_pages"]:
            self.controller.prefetch_capacity_limit = self.config["limit_pages"] * self.page

    @property
    def writes_through(self) -> bool:
        """Does what is computed go to the host at once?"""
        return bool(self.controller.write_policy == "write_through")

    # ---- tokens, keys and requests

    def tokens(self, tokens: Tokens) -> Any:
        """Token ids of the release for a harness prompt.

        Where keys are pairs of neighbours, every page begins with the same token, and so does what follows the last: so
        the pairs of a page are the same whatever comes after it.
        """
        ids = [token * self.page + place for token in tokens for place in range(self.page)]
        if self.has_pairs:
            ids = [0 if place % self.page == 0 else token for place, token in enumerate(ids)]
            ids.append(0)
        return array("q", ids) if self._wants_arrays else ids

    def key(self, ids: Any, extra: str | None = None) -> Any:
        """The radix key of token ids; `extra`: the adapter or tenant that they are computed for, none in the oldest. A
        tenant's is a salt, where the release tells the two apart."""
        if self._key is None:
            return ids
        if self.config.get("salted") and "cache_salt" in building.parameters_of(self._key):
            return self._key(ids, cache_salt=extra)
        return self._key(ids, extra)

    def handle(self, rid: str) -> Any:
        """What the release knows a request by."""
        return rid if self._handle is None else self._handle(rid, self._attempts.get(rid, 0))

    def match(self, ids: Any, extra: str | None = None) -> Any:
        """The release's own answer to what of a prompt is where."""
        params = getattr(self._base, "MatchPrefixParams", None)
        key = self.key(ids, extra)
        return self.cache.match_prefix(key) if params is None else self.cache.match_prefix(params(key=key))

    def request(self, rid: str, tokens: Tokens, extra: str | None = None) -> Settings:
        """A request as the scheduler has it; a request has one more token than the pages that are asked for."""
        ids = self.tokens(tokens)
        if extra is None:
            self.prompts[tuple(tokens)] = None
        else:
            self.extras[extra] = None
        request = Settings(
            rid=rid,
            cache_request_handle=self.handle(rid),
            full_untruncated_fill_ids=ids,
            fill_ids=ids,
            extra_key=extra,
            swa_host_hit_length=0,
            mamba_host_hit_length=0,
            kv=Settings(),
            _compute_max_prefix_len=lambda length: length,
        )
        request.init_next_round_input = lambda *_, **__: self._matched(request, ids)
        return request

    def _matched(self, request: Settings, ids: Any) -> None:
        found = self.match(ids, request.extra_key)
        on_device = found.device_prefix_len if hasattr(found, "device_prefix_len") else len(found.device_indices)
        request.prefix_len, request.prefix_indices = on_device, range(on_device)
        request.last_node, request.last_host_node = found.last_device_node, found.last_host_node
        request.best_match_node = getattr(found, "best_match_node", found.last_host_node)
        request.host_hit_length = found.host_hit_length
        request.matched_tokens = on_device + self.tree.host_tokens(found)
        request.mamba_host_hit_length = getattr(found, "mamba_host_hit_length", 0)

    # ---- the scheduler's calls

    def submit(self, rid: str, tokens: Tokens) -> dict[str, Any]:
        """As the scheduler does when a request comes: match, then ask for the rest. A request that still waits does not
        come again."""
        if rid in self._waiting or self.pending(rid) is not None:
            return {"accepted": False}
        attempt = self._attempts[rid] = self._attempts.get(rid, 0) + 1
        request = self.request(rid, tokens)
        scheduler = Settings(tree_cache=self.cache, enable_hicache_storage=True, server_args=self.settings)
        self.scheduler.method("Scheduler._prefetch_kvcache")(scheduler, request)
        self._queued.came(rid, request)
        span = len(tokens) - self.matched_pages(request)
        if self.pending(rid) is None:
            self._attempts[rid] -= 1
            return {"accepted": False, "span_pages": span}
        self._waiting.add(rid)
        request.is_taken = True
        self._unanswered[rid] = self.shelf.asked.total()
        return {"accepted": True, "attempt": attempt, "span_pages": span}

    def poll(self, rids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Of each waiting request, whether it need not wait any longer; then it is admitted."""
        return {rid: self._poll(rid) for rid in rids}

    def poll_apart(self, shares: Sequence[Sequence[str]]) -> None:
        """The same, of those that this rank looks at before its batch is full. `shares`: by rank.

        Then, as at the beginning of every turn, the first rank tells the others which requests have come.
        """
        self.poll(shares[self.number])
        dist.broadcast_object_list([None], src=0, group=self.group)

    def _poll(self, rid: str) -> dict[str, Any]:
        if self._queued.is_gone(rid):
            return {"ready": True, "state": None}
        operation = self.pending(rid)
        ready = bool(self.cache.check_prefetch_progress(self.handle(rid)))
        if not ready:
            return {"ready": False, "state": None}
        told = {}
        if hasattr(self.cache, "pop_prefetch_loaded_tokens"):
            told["loaded"] = self.cache.pop_prefetch_loaded_tokens(self.handle(rid)) // self.page
        self._waiting.discard(rid)
        self._queued.left(rid)
        if operation is None:
            return {"ready": True, "state": None}
        state = "fetched" if self._granted(operation) else "revoked"
        answer = {"ready": True, "state": state, **told}
        # Whoever waits for all of it has to be answered; others may end before, and not on all ranks at once.
        return {**answer, "asked": self._was_asked(rid)} if self.config["policy"] == "wait_complete" else answer

    def _was_asked(self, rid: str) -> bool | None:
        """Was the store asked for anything since the request came? None: it is not known."""
        if rid not in self._unanswered or isinstance(self.shelf, FileShelf):
            return None
        return self.shelf.asked.total() > self._unanswered.pop(rid)

    def abort(self, rid: str) -> bool:
        """The request is gone."""
        pending = self.pending(rid) is not None
        if hasattr(self.cache, "release_aborted_request"):
            self.cache.release_aborted_request(self.handle(rid))
        self._waiting.discard(rid)
        self._queued.left(rid)
        return pending

    def leave(self, exit_: str, rid: str) -> None:
        """The request is gone by another way."""
        self._queued.leaves_by(exit_, rid)
        self._waiting.discard(rid)

    def tick(self) -> None:
        """One turn of the scheduler's loop."""
        self.cache.check_hicache_events()
        self.tell_router()

    def tell_router(self) -> None:
        """Whoever listens hears what the cache has to tell."""
        if self.router is not None:
            self.router.hear(self.cache.take_events())

    def compute(self, tokens: Tokens) -> Prefilled:
        """The same for a prompt that was matched before it came to the host: nothing is loaded back."""
        return self.prefill(tokens, loads=False)

    def full_turn(self) -> list[str]:
        """See Queued."""
        return self._queued.full_turn()

    def look(self, rid: str) -> dict[str, Any]:
        """See Queued."""
        return self._queued.look(rid, lambda: self._poll(rid))

    def neglected(self) -> list[str]:
        """After full turns, at rest: what they should have done, one line each."""
        return list(self._queued.problems())

    def prefill(
        self, tokens: Tokens, extra: str | None = None, is_chunk: bool = False, loads: bool = True
    ) -> Prefilled:
        """The model's part: match, load back, compute the rest, insert it.

        `is_chunk`: the prompt goes on after it; `loads`: what is on the host only is loaded back.
        """
        ids = self.tokens(tokens)
        request = self.request("prefill", tokens, extra)
        self._matched(request, ids)
        if (request.host_hit_length or request.mamba_host_hit_length) and loads:
            self._load_back(request)
            self._matched(request, ids)
        found = self._path(request)[: self._depth(request)]
        values = [slot for node in found for slot in node.device or ()]
        written = audit.written_as(tokens, extra)
        wrong = audit.wrong_device_pages(self, written, values)
        if found:
            wrong += tuple(self.states.wrong(found[-1], written(len(values) // self.page)))
        receipt = self.cache.inc_lock_ref(request.last_node)
        missing = len(tokens) * self.page - len(values)
        new = self._allocated(missing) if missing else torch.empty(0, dtype=torch.int64)
        if new is not None:
            self._compute(written, len(values) // self.page, new)
            self.states.write(written(len(tokens)), self.states.taken(request))
            slots = torch.cat([torch.tensor(values, dtype=torch.int64), new])
            self._insert(request, self.key(ids, extra), slots, len(values), is_chunk)
        self.states.give_back(request)
        self._unlock(request.last_node, receipt)
        return Prefilled(wrong)

    def evict_device(self, pages: int) -> int:
        """The device forgets pages. Raises EvictsTooLittle."""
        before = self.parts.allocator.available_size()
        possible = min(pages, self.tree.evictable_tokens() // self.page)
        self.evict(pages * self.page)
        done = int(self.parts.allocator.available_size() - before) // self.page
        if done < possible:
            raise EvictsTooLittle(f"P9 of {possible} device pages that can be evicted, {done} are")
        return done

    def hold_copies(self) -> None:
        """Copies between the pools do not end."""
        COPIES.are_held = True

    def release_copies(self) -> None:
        """They do."""
        COPIES.go_on()

    # ---- life cycle

    def rest(self) -> bool:
        """As a scheduler without requests: turn until nothing is on its way; False: it does not come to that."""
        for rid in self._attempts:
            self.abort(rid)
        for _ in range(TURNS_TO_REST):
            self.tick()
            if not is_under_way(self.cache):
                return True
            time.sleep(TURN_S)
        return False

    def flush(self) -> bool:
        """Begin again, if the release's scheduler lets: from some release on it asks first whether all is at rest."""
        if self.scheduler.has("Scheduler.is_fully_idle") and not self.rest():
            return False
        for rid in self._attempts:
            self.abort(rid)
        self.cache.reset()
        self.states.clear()
        if self._events is not None:
            self._events.restart()
        self.parts.allocator.clear()
        self.shelf.forget()
        self._attempts.clear()
        self._queued.clear()
        self.prompts.clear()
        self.extras.clear()
        self.strangers.forget()
        return True

    def detach(self) -> bool:
        """Let go of the store."""
        if not self.rest():
            return False
        with nullcontext() if self._events is None else self._events.detaching():
            done, _ = self.cache.detach_storage_backend()
        # What is computed from now on need not be in the store.
        self.shelf.has_failed_to_put = True
        return bool(done)

    def detached(self) -> None:
        """All ranks have let go of their stores."""
        if self._events is not None:
            self._events.detached()

    def attach(self) -> bool:
        """Go on with the store."""
        settings = self.settings
        done, _ = self.cache.attach_storage_backend(
            settings.hicache_storage_backend,
            settings.hicache_storage_backend_extra_config,
            settings.served_model_name,
            settings.hicache_storage_prefetch_policy,
            settings.hicache_write_policy,
        )
        self._limit()
        return bool(done)

    def close(self) -> None:
        """Tell the storage threads to end, whatever they have to do."""
        self.shelf.heal()
        for name in ("storage_stop_event", "stop_event"):
            if hasattr(self.controller, name):
                getattr(self.controller, name).set()

    def threads(self) -> list[Any]:
        """The threads that work for the scheduler."""
        return [value for value in vars(self.controller).values() if hasattr(value, "is_alive")]

    def thread_names(self) -> list[str]:
        """Their names."""
        return [thread.name for thread in self.threads()]

    def workers(self) -> list[str]:
        """What the living threads of the controller do, whoever still knows them: names of its functions."""
        targets: list[Any] = [getattr(thread, "_target", None) for thread in threading.enumerate()]
        return [target.__name__ for target in targets if getattr(target, "__self__", None) is self.controller]

    # ---- looking inside

    def events_since(self, seq: int) -> Sequence[Entry]:
        """What was logged from number `seq` on."""
        return self._log.since(seq)

    def free_pages(self) -> int:
        """Host pages that nobody has."""
        return int(self.host.available_size() + len(self.foreign)) // self.page

    def observe(self) -> dict[str, Any]:
        """See Adapter.observe, in pages."""
        self.shelf.look()
        occupied = getattr(self.controller, "prefetch_tokens_occupied", 0)
        return {
            "free_pages": self.free_pages(),
            "resident_pages": sum(1 for _ in self.tree.host_slots()) // self.page,
            "occupied_pages": occupied // self.page,
            "operations": {
                self._name(key): self._granted(self._operation(info))
                for key, info in self.cache.ongoing_prefetch.items()
            },
        }

    def audit(self) -> list[str]:
        """At rest: what is wrong, one line each."""
        return list(audit.problems(self))

    def audit_written(self) -> list[str]:
        """What was computed, some turns ago, and is not written through, one line each."""
        return list(audit.unwritten(self))

    def audit_consumers(self) -> list[str]:
        """Of which queue more than one thread reads, one line each."""
        return list(audit.consumer_problems(self))

    def audit_store(self) -> list[str]:
        """At rest: what is wrong with what the store holds."""
        return list(store_audit.problems(self))

    def pending(self, rid: str) -> Any:
        """The operation that the cache keeps under this request; None: none."""
        for known in (self.handle(rid), rid):
            if (info := self.cache.ongoing_prefetch.get(known)) is not None:
                return self._operation(info)
        return None

    def is_taken_late(self, rid: str, request: Settings) -> bool:
        """Has the cache taken a waiting request that it had not taken before? Then it is an attempt from now on."""
        names = (request.cache_request_handle, rid)
        if request.is_taken or not any(name in self.cache.ongoing_prefetch for name in names):
            return False
        self._attempts[rid] = self._attempts.get(rid, 0) + 1
        self._waiting.add(rid)
        request.is_taken = True
        return True

    def is_limited(self) -> bool:
        """Does the controller let nobody in, because so much waits for host memory?"""
        occupied, limit = self.controller.prefetch_tokens_occupied, self.controller.prefetch_capacity_limit
        return bool(occupied >= limit)

    def matched_pages(self, request: Settings) -> int:
        """How many pages of a request were on the device or the host when it was last matched."""
        return int(request.matched_tokens) // self.page

    def known_pages(self, request: Settings) -> int:
        """How many pages of a request are on the device or the host now."""
        self._matched(request, request.fill_ids)
        return self.matched_pages(request)

    def pages_to_ask_for(self, request: Settings) -> int:
        """How many pages of a waiting request the store holds that follow on what is on the device or the host."""
        names = self._names(request.fill_ids)
        known = pages = self.known_pages(request)
        while pages < len(names) and names[pages] in self.shelf.pages:
            pages += 1
        return pages - known

    @staticmethod
    def _operation(info: Any) -> Any:
        """Of a record of a pending prefetch: a tuple in older releases, an object in later ones."""
        if hasattr(info, "operation"):
            return info.operation
        return next(part for part in info if hasattr(part, "request_id"))

    def _granted(self, operation: Any) -> int:
        indices = operation.host_indices
        return 0 if indices is None else len(indices) // self.page

    def _name(self, key: Any) -> tuple[str, int]:
        """Request id and attempt. Where a release knows the request id only, it is the latest attempt's."""
        rid = str(getattr(key, "rid", key))
        return rid, getattr(key, "attempt_id", self._attempts.get(rid, 0))

    # ---- the device

    def _load_back(self, request: Settings) -> None:
        """What of the prompt is on the host only, becomes the device's, as far as there is room."""
        params = getattr(self._base, "InitLoadBackParams", None)
        if params is not None:
            values = {"best_match_node": request.best_match_node, "last_host_node": request.last_host_node}
            values |= {"host_hit_length": request.host_hit_length, "req": request}
            self.cache.init_load_back(building.made(params, values))
        else:
            self.cache.init_load_back(request.last_host_node, request.host_hit_length)
        self.cache.ready_to_load_host_cache()
        COPIES.go_on()
        for _ in range(TURNS_TO_REST):
            self.cache.loading_check()
            if not self.cache.ongoing_load_back:
                return
            time.sleep(TURN_S)

    def _path(self, request: Settings) -> list[NodeSeen]:
        """The nodes on a prompt, of those that are computed for the same adapter or tenant."""
        return [node for node in self.tree.path(request.fill_ids) if audit.extra_of(node) == request.extra_key]

    def _depth(self, request: Settings) -> int:
        """How many nodes from the root on are on the device as far as was matched."""
        depth, length = 0, 0
        for node in self._path(request):
            length += node.length
            if node.device is None or length > request.prefix_len:
                break
            depth += 1
        return depth

    def _allocated(self, tokens: int) -> torch.Tensor | None:
        slots: torch.Tensor | None = self.parts.allocator.alloc(tokens)
        if slots is None:
            self.evict(tokens)
            slots = self.parts.allocator.alloc(tokens)
        return None if slots is None else slots.to(torch.int64)

    def evict(self, tokens: int, states: int = 0) -> None:
        """The device forgets what so many tokens, and so many states, need."""
        params = getattr(self._base, "EvictParams", None)
        given = {"num_tokens": tokens, "mamba_num": states}
        self.cache.evict(tokens if params is None else building.made(params, given))

    def _compute(self, written: Written, known: int, slots: torch.Tensor) -> None:
        """The model writes the pages of a prompt that follow the first `known`."""
        for start in range(0, len(slots), self.page):
            place = known + start // self.page
            audit.write_device_page(self, written(place + 1), slots[start : start + self.page])

    def _insert(self, request: Settings, key: Any, values: torch.Tensor, known: int, is_chunk: bool) -> None:
        """What was computed becomes the tree's, and so does the state, unless the tree has one."""
        params = getattr(self._base, "InsertParams", None)
        if params is None:
            length = building.called(self.cache.insert, {"key": key, "value": values, "chunked": is_chunk})
        else:
            given = {"key": key, "value": values, "prev_prefix_len": known, "inserted_len": 0, "chunked": is_chunk}
            if request.mamba_pool_idx is not None:
                given["mamba_value"] = self.states.taken(request)
            done = self.cache.insert(building.made(params, given))
            length = done.prefix_len
            if request.mamba_pool_idx is not None and not done.mamba_exist:
                request.mamba_pool_idx = None
        if self.parts.kind == building.HIRADIX and length > known:
            # Pages that somebody else has put there: other trees give them back by themselves.
            self.parts.allocator.free(values[known:length])

    def _unlock(self, node: Any, receipt: Any) -> None:
        if hasattr(receipt, "to_dec_params"):
            self.cache.dec_lock_ref(node, receipt.to_dec_params())
        else:
            self.cache.dec_lock_ref(node)
