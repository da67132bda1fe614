"""What could have happened next: the steps that the specification allows in a state, in the words of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hicache_checks.conformance.explainer import Explainer, name_of
from hicache_spec import Refused
from hicache_spec.state import AGREED

IO = ("io_start_page", "io_land_page", "io_fail_page", "io_release_page")
SHOWN = 8


def next_steps(explainer: Explainer, state: Any, rank: int | None) -> list[str]:
    """One line for each thread of the rank (None: of every rank) that can act, and one for the schedulers."""
    lines = []
    for r in range(explainer.config.ranks) if rank is None else [rank]:
        threads = {"query": _of_query_thread(explainer, state, r), "io": _of_io_thread(explainer, state, r)}
        lines += [f"{name} thread of rank {r}: {_few(steps)}" for name, steps in threads.items() if steps]
    return [*lines, f"schedulers: {_few(_of_schedulers(explainer, state))}"]


def _of_query_thread(explainer: Explainer, s: Any, rank: int) -> list[str]:
    if not s.query_queue[rank]:
        return []
    op = s.query_queue[rank][0]
    if s.stage[rank] == AGREED and explainer.name(op) != explainer.agreed_on(rank):
        return [explainer.told(("query_agreed", op, s.hit[rank][op]))]
    answers = [step for hit in (0, s.span[op]) for step in _shown(explainer, s, "query_ask_storage", rank, hit)]
    return [
        *_shown(explainer, s, "query_take", rank),
        *([f"{answers[0]} .. {s.span[op]}"] if len(answers) == 2 and s.span[op] else answers[:1]),
        *_shown(explainer, s, "query_agree"),
        *_shown(explainer, s, "query_put", rank),
    ]


def _of_io_thread(explainer: Explainer, s: Any, rank: int) -> list[str]:
    return [step for rule in IO for step in _shown(explainer, s, rule, rank)]


def _shown(explainer: Explainer, state: Any, rule: str, *arguments: int) -> list[str]:
    """What a rule would show, if it can be taken."""
    copy = explainer.copy_of(state)
    try:
        explainer.word(rule)(copy, *arguments)
    except Refused:
        return []
    return [explainer.told(emitted) for emitted in copy.events]


def _of_schedulers(explainer: Explainer, s: Any) -> list[str]:
    steps = ["submitted", "declined"]
    if heads := [name_of(explainer.name(op)) for op in _answered(explainer, s)]:
        steps.append(f"a drain of {', then '.join(heads)}")
    if released := min(s.releasing):
        steps.append(f"reclaimed pages=1 .. {released}")
    for op, slot in explainer.pending(s):
        if explainer.word("may_end")(s, slot):
            steps.append(f"{'fetched' if s.granted[slot] else 'revoked'} {name_of(op)} by a poll")
        steps.append(f"stopped or revoked {name_of(op)} by its caller")
    return steps


def _answered(explainer: Explainer, s: Any) -> list[int]:
    """What a drain can take, in its order: from each queue what all ranks have of it."""
    queues = [getattr(s, way.queue) for way in explainer.ways]
    return [op for queue in queues for op in queue[0][: min(map(len, queue))]]


def _few(steps: Sequence[str]) -> str:
    more = f" or {len(steps) - SHOWN} more" if len(steps) > SHOWN else ""
    return " or ".join(steps[:SHOWN]) + more
