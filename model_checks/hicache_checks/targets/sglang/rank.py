"""One rank of a release under test: what its scheduler does with the cache, call by call.

Everything here runs on the task that is the rank's scheduler. A harness token is a page: it becomes `page_size` token
ids of the release. What a release names otherwise, or does not have, is found out by looking, once.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch.distributed as dist

from hicache_checks.targets.sglang import audit, building, store_audit
from hicache_checks.targets.sglang.building import Parts
from hicache_checks.targets.sglang.drafts import Draft
from hicache_checks.targets.sglang.event_log import Entry, EventLog
from hicache_checks.targets.sglang.event_scheduler import SchedulerEvents
from hicache_checks.targets.sglang.events import EVENTS, Router
from hicache_checks.targets.sglang.files import FileShelf
from hicache_checks.targets.sglang.grid import Groups
from hicache_checks.targets.sglang.indices import Indices, NoIndices
from hicache_checks.targets.sglang.queued import Queued
from hicache_checks.targets.sglang.rank_model import CALLED_OFF, TURN_S, TURNS_TO_REST, RankModel
from hicache_checks.targets.sglang.rank_storage import Tokens
from hicache_checks.targets.sglang.release import Release
from hicache_checks.targets.sglang.states import NoStates, States
from hicache_checks.targets.sglang.strangers import Strangers
from hicache_checks.targets.sglang.surroundings import Settings
from hicache_checks.targets.sglang.tree import is_under_way, tree_of

AUDITS = {audit.BYTES, EVENTS, CALLED_OFF, *store_audit.AUDITS}
"""What is looked at besides when `audits` of the configuration asks for it."""


class Rank(RankModel):
    """Cache, controller and pools of one rank. Its storage threads begin with it."""

    def __init__(self, number: int, config: Mapping[str, Any], release: Release, groups: Groups) -> None:
        self.number = number
        self.config = config
        self.group = groups.everybody
        self.page: int = config["page_size"]
        self.has_pairs = bool(config.get("pairs"))
        self.audits = frozenset(config.get("audits", ()))
        self._check(release.kind)
        self.settings = release.surroundings.settings
        self.parts: Parts = building.build(
            config, self.settings, groups, release.surroundings.grid.place(number), release.kind
        )
        self.cache = self.parts.cache
        self.controller = self.cache.cache_controller
        self.tree = tree_of(self.cache)
        pool = self.controller.mem_pool_host
        self.host = getattr(getattr(pool, "anchor_entry", None), "host_pool", None) or pool
        self.states = States(self) if self.parts.requests is not None else NoStates()
        self.indices: NoIndices = Indices(self) if config.get("indices") else NoIndices()
        if config.get("draft"):
            self.indices = Draft(self, self.indices)
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

    def full_turn(self) -> list[str]:
        """See Queued."""
        return self._queued.full_turn()

    def look(self, rid: str) -> dict[str, Any]:
        """See Queued."""
        return self._queued.look(rid, lambda: self._poll(rid))

    def neglected(self) -> list[str]:
        """After full turns, at rest: what they should have done, one line each."""
        return list(self._queued.problems())

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
        if done and self._events is not None:
            self._events.let_go()
        # What is computed from now on need not be in the store.
        self.shelf.has_failed_to_put = True
        return bool(done)

    def detached(self) -> None:
        """All ranks have let go of their stores."""
        if self._events is not None:
            self._events.met()

    def attach(self) -> bool:
        """Go on with the store."""
        if self._events is not None:
            self._events.attaching()
        settings = self.settings
        done, _ = self.cache.attach_storage_backend(
            settings.hicache_storage_backend,
            settings.hicache_storage_backend_extra_config,
            settings.served_model_name,
            settings.hicache_storage_prefetch_policy,
            settings.hicache_write_policy,
        )
        self._limit()
        if self._events is not None:
            self._events.tried(done)
        return bool(done)

    def attached(self, done: bool) -> None:
        """All ranks have tried, and have done it or not."""
        if self._events is not None:
            self._events.met()
            self._events.agreed(done)

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

    def audit_waits(self) -> list[str]:
        """By which functions a layer gets what is not loaded yet, one line each."""
        return list(self.indices.read_too_early())

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
