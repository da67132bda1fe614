"""The requests that wait in the scheduler's queue of a rank, and what the release's own scheduler does about them.

A request that the cache has refused, or that found nothing, waits like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hicache_checks.targets.sglang import building
from hicache_checks.targets.sglang.exits import EXITS
from hicache_checks.targets.sglang.stand_in import Batch, StandIn, quiet_scheduler
from hicache_checks.targets.sglang.surroundings import Settings

if TYPE_CHECKING:
    from hicache_checks.targets.sglang.rank import Rank

RETRY_FIELDS = {"storage_prefetch_retry_pending": False}
RETRY_COUNTS = ("storage_prefetch_retry_wait_polls", "storage_prefetch_retry_attempts")
DRAINED = (
    *("ack_write_queue", "ack_backup_queue", "prefetch_revoke_queue", "prefetch_hit_queue", "ack_prefetch_queue"),
    "host_mem_release_queue",
)
"""The queues of a controller that its scheduler empties."""
ENDED = ("ongoing_write_through", "ongoing_backup")
"""What a cache keeps until it has heard that it is done."""


class Queued:
    """Requests by id, in the order in which they came."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._requests: dict[str, Settings] = {}
        self._gone: set[str] = set()
        self._passed_over: dict[str, set[int]] = {}

    # ---- coming and going

    def came(self, rid: str, request: Settings) -> None:
        """A request, matched just now, is put at the end."""
        vars(request).update(RETRY_FIELDS, **dict.fromkeys(RETRY_COUNTS, 0))
        request.known_at_first = self._rank.matched_pages(request)
        self._requests.pop(rid, None)
        self._requests[rid] = request
        self._gone.discard(rid)

    def left(self, rid: str) -> None:
        """A request is admitted, or gone."""
        self._requests.pop(rid, None)

    def leaves_by(self, exit_: str, rid: str) -> None:
        """A request leaves by one of EXITS; nobody asks for it any more."""
        request = self._requests.pop(rid)
        self._gone.add(rid)
        EXITS[exit_](self._rank, request, list(self._requests.values()))

    def is_gone(self, rid: str) -> bool:
        """Has a request left so, and not come again?"""
        return rid in self._gone

    def clear(self) -> None:
        """Nobody waits."""
        self._gone.clear()
        self._requests.clear()
        self._passed_over.clear()

    # ---- the scheduler's turns

    def full_turn(self) -> list[str]:
        """A turn of the release's loop while the batch is full, so that nobody is admitted. The ids of the requests
        that the cache takes in it, of those that it had not taken."""
        before = self._to_drain()
        running = Batch(is_full=True)
        scheduler = self._scheduler(running_batch=running)
        building.called(scheduler.get_next_batch_to_run, {"running_batch": running, "last_batch": None})
        after = self._to_drain()
        left = {name: entries.keys() & after[name].keys() for name, entries in before.items()}
        self._passed_over = {name: entries for name, entries in left.items() if entries}
        return self._taken()

    def look(self, rid: str, ready: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """A turn of the release's loop in which there is room: what it does about one request before it admits it.

        `ready`: ask whether it need not wait any longer. `polled`: the answer; `taken`: as of `full_turn`; `problems`.
        """
        request = self._requests[rid]
        polled = ready()
        if not polled["ready"]:
            return {"polled": polled, "taken": [], "problems": []}
        request.init_next_round_input(self._rank.cache)
        asked = self._scheduler()._prefetch_after_device_hit_loss
        if asked is not None and asked(request):
            self._requests[rid] = request
            return {"polled": polled, "taken": self._taken(), "problems": []}
        problems = [] if request.is_taken or self._rank.is_limited() else list(self._never_asked(rid, request))
        return {"polled": polled, "taken": [], "problems": problems}

    def _never_asked(self, rid: str, request: Settings) -> Iterator[str]:
        if pages := self._worth_asking(request):
            yield f"P26 {rid} is admitted and was never asked for, the store holds {pages} more of its pages"

    def _worth_asking(self, request: Settings) -> int:
        """How many pages of a request could be fetched; 0: not enough."""
        pages = self._rank.pages_to_ask_for(request)
        return pages if pages >= self._rank.config["threshold_pages"] else 0

    def _to_drain(self) -> dict[str, dict[int, Any]]:
        """What a turn is to take out of the controller's queues and the cache's records."""
        kept = [(name, getattr(self._rank.controller, name, None)) for name in DRAINED]
        kept += [(name, getattr(self._rank.cache, name, None)) for name in ENDED]
        return {name: _entries(entries) for name, entries in kept if entries is not None}

    def _scheduler(self, **given: Any) -> StandIn:
        rank = self._rank
        own = {"tree_cache": rank.cache, "server_args": rank.settings, "waiting_queue": list(self._requests.values())}
        return StandIn(rank.scheduler, "Scheduler", {**quiet_scheduler(), **own, **given})

    def _taken(self) -> list[str]:
        return [rid for rid, request in self._requests.items() if self._rank.is_taken_late(rid, request)]

    # ---- what is left undone

    def problems(self) -> Iterator[str]:
        """After some turns, with the threads at rest: what they should have done."""
        yield from self._undrained()
        yield from self._unasked()

    def _undrained(self) -> Iterator[str]:
        """Of what there was before the last turn, with the threads at rest."""
        for name, entries in self._passed_over.items():
            yield f"P3 {name} is not drained: {len(entries)} entries are there after a turn as before it"

    def _unasked(self) -> Iterator[str]:
        """Whoever comes first is about to be admitted, and need not be asked for again; nor is, before it is admitted,
        whose pages have left the device meanwhile."""
        rank = self._rank
        if rank.is_limited():
            return
        for rid, request in list(self._requests.items())[1:]:
            pages = self._worth_asking(request)
            if pages and rank.pending(rid) is None and rank.known_pages(request) >= request.known_at_first:
                yield f"P26 {rid} waits and is not asked for again, the store holds {pages} more of its pages"


def _entries(kept: Any) -> dict[int, Any]:
    """Of a list, a map or a queue, by identity; whoever has them keeps their identities from being used again."""
    values = kept.values() if hasattr(kept, "values") else getattr(kept, "queue", kept)
    return {id(value): value for value in values}
