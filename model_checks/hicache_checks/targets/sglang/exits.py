"""The ways by which a request leaves a release's scheduler that are no abort while it waits, each by the release's own
function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hicache_checks.targets.sglang.stand_in import Anybody, Batch, StandIn, quiet_scheduler
from hicache_checks.targets.sglang.surroundings import Settings

if TYPE_CHECKING:
    from hicache_checks.targets.sglang.rank import Rank


def crowded_out(rank: Rank, request: Settings, others: Sequence[Settings]) -> None:
    """The queue is full, and somebody more important comes."""
    waiting = [*others, request]
    for place, waits in enumerate(waiting):
        _prepare(waits, priority=-place)
    scheduler = _scheduler(
        rank, waiting, max_queued_requests=len(waiting), enable_priority_scheduling=True, policy=Anybody()
    )
    newcomer = _prepare(Settings(rid="newcomer"), priority=1)
    scheduler._abort_on_queued_limit(newcomer)


def aborted_in_bootstrap(rank: Rank, request: Settings, others: Sequence[Settings]) -> None:
    """The client goes while prefill and decode servers have not found each other yet."""
    code = rank.scheduler
    queue = Settings(queue=[_prepare(request)])
    mode = code.imported("DisaggregationMode").PREFILL
    scheduler = _scheduler(
        rank, [], disaggregation_mode=mode, disagg_prefill_bootstrap_queue=queue, disagg_prefill_inflight_queue=[]
    )
    scheduler.abort_request(code.imported("AbortReq")(rid=request.rid))


def failed_in_bootstrap(rank: Rank, request: Settings, others: Sequence[Settings]) -> None:
    """They do not find each other."""
    code = rank.bootstrap
    sender = Settings(poll=lambda: code.imported("KVPoll").Failed, failure_exception=lambda: None)
    given = {"queue": [_prepare(request, disagg_kv_sender=sender)], "gloo_group": rank.group}
    queue = StandIn(code, "PrefillBootstrapQueue", {**given, "scheduler": _scheduler(rank, []), "pp_size": 1})
    queue.pop_bootstrapped()


EXITS: dict[str, Callable[[Rank, Settings, Sequence[Settings]], None]] = {
    function.__name__: function for function in (crowded_out, aborted_in_bootstrap, failed_in_bootstrap)
}
"""By name. Each is given a request that leaves, and those that wait besides."""


def _prepare(request: Settings, **given: Any) -> Settings:
    """What a scheduler asks of a request besides its tokens."""
    times = Settings(wait_queue_entry_time=0.0, trace_ctx=Anybody())
    tells = {"time_stats": times, "disagg_kv_sender": Anybody(), "release_mm_inputs_on_abort": Anybody()}
    vars(request).update({**tells, "weight_version_events": [], "output_ids": [], **given})
    return request


def _scheduler(rank: Rank, waiting: list[Settings], **given: Any) -> StandIn:
    own = {"tree_cache": rank.cache, "server_args": rank.settings, "waiting_queue": waiting}
    return StandIn(rank.scheduler, "Scheduler", {**quiet_scheduler(), **own, "running_batch": Batch(False), **given})
