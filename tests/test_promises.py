"""What every design promises its callers: each promise, kept and broken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hicache_checks.conformance.findings import Broken
from hicache_checks.conformance.program import Setup, Step
from hicache_checks.conformance.promises import Promises

PROMPT = (1, 2, 3)


class Seen:
    """A target of which only what it shows matters."""

    def __init__(self) -> None:
        self.shows: dict[str, Any] = observation()

    def observe(self) -> Mapping[str, Any]:
        return self.shows


def observation(free: int = 6, resident: int = 0, occupied: int = 0, **operations: int) -> dict[str, Any]:
    named = {(name[0], int(name[1:])): pages for name, pages in operations.items()}
    return {"free_pages": free, "resident_pages": resident, "occupied_pages": occupied, "operations": named}


def judged(policy: str = "wait_complete") -> tuple[Promises, Seen]:
    seen = Seen()
    return Promises(seen, Setup(policy=policy)), seen


def call(judge: Promises, step: Step, answer: Any, now: float = 0.0) -> None:
    judge.before(step, now)
    judge.after(step, answer, now)


def submit(judge: Promises, seen: Seen, now: float = 0.0) -> None:
    seen.shows = observation(occupied=3, a1=0)
    call(judge, Step("submit", ("a", PROMPT)), {"accepted": True}, now)


def poll(judge: Promises, ready: bool, now: float = 0.0) -> None:
    call(judge, Step("poll", (("a",),)), {"a": {"ready": ready}}, now)


def test_an_ordinary_run_keeps_them_all() -> None:
    judge, seen = judged()
    submit(judge, seen)
    poll(judge, ready=False)
    seen.shows = observation(free=3, resident=3)
    call(judge, Step("tick"), None)
    poll(judge, ready=True)
    judge.at_rest(seen.shows)
    judge.finish()
    assert judge.outcomes == {"submitted": 1, "polled: UNOBSERVED": 1}


@pytest.mark.parametrize(
    ("shows", "property_"),
    [
        (observation(free=3, occupied=3, a1=3), "P2"),
        (observation(occupied=3), "P8"),
        (observation(free=4), "P4"),
    ],
)
def test_in_the_end_everything_is_given_back(shows: dict[str, Any], property_: str) -> None:
    judge, seen = judged()
    seen.shows = shows
    with pytest.raises(Broken) as broken:
        judge.finish()
    assert broken.value.finding.property.startswith(property_)


def test_nobody_is_known_who_did_not_come_or_has_ended() -> None:
    judge, seen = judged()
    seen.shows = observation(b1=0)
    with pytest.raises(Broken, match="nobody submitted b#1"):
        call(judge, Step("tick"), None)
    judge, seen = judged()
    submit(judge, seen)
    with pytest.raises(Broken, match="a#1 had ended before"):
        call(judge, Step("abort", ("a",)), True)


def test_there_are_never_more_pages_than_there_are() -> None:
    judge, seen = judged()
    seen.shows = observation(free=6, resident=1)
    with pytest.raises(Broken, match="P13"):
        call(judge, Step("tick"), None)


def test_the_wait_is_bounded_by_the_policy() -> None:
    judge, seen = judged("best_effort")
    submit(judge, seen)
    with pytest.raises(Broken, match="P5"):
        poll(judge, ready=False)
    judge, seen = judged("timeout")
    submit(judge, seen)
    for now in (2.0, 4.0, 6.0):
        poll(judge, ready=False, now=now)
    with pytest.raises(Broken, match="its time is over"):
        poll(judge, ready=False, now=8.0)
    judge, seen = judged()
    with pytest.raises(Broken, match="nothing is pending"):
        poll(judge, ready=False)


def test_ranks_wait_for_the_same_and_show_the_same_at_rest() -> None:
    judge, seen = judged()
    submit(judge, seen)
    seen.shows = {**seen.shows, "ranks": [observation(occupied=3, a1=0), observation()]}
    with pytest.raises(Broken, match="P7 lockstep: ranks wait for different requests"):
        call(judge, Step("tick"), None)
    apart = {**observation(), "ranks": [observation(free=6), observation(free=5)]}
    judge, seen = judged()
    seen.shows = apart
    call(judge, Step("tick"), None)
    with pytest.raises(Broken, match="P7 lockstep: ranks differ"):
        judge.at_rest(apart)


def test_after_a_flush_everything_begins_again() -> None:
    judge, seen = judged()
    submit(judge, seen)
    judge.begin_again()
    submit(judge, seen)
    poll(judge, ready=False)


def test_a_pool_with_room_admits_one_request() -> None:
    judge, _ = judged()
    with pytest.raises(Broken, match=r"P25 .*a is refused 3 pages, with 6 free and nobody waiting"):
        call(judge, Step("submit", ("a", PROMPT)), {"accepted": False, "span_pages": 3})
    for free, span in ((2, 3), (6, 2)):
        judge, seen = judged()
        seen.shows = observation(free=free, resident=6 - free)
        call(judge, Step("submit", ("a", PROMPT)), {"accepted": False, "span_pages": span})
    judge, seen = judged()
    submit(judge, seen)
    call(judge, Step("submit", ("b", PROMPT)), {"accepted": False, "span_pages": 3})


def test_who_waits_for_all_has_been_asked_for() -> None:
    for asked in (True, None):
        judge, seen = judged()
        submit(judge, seen)
        seen.shows = observation()
        call(judge, Step("poll", (("a",),)), {"a": {"ready": True, "asked": asked}})
    judge, seen = judged()
    submit(judge, seen)
    with pytest.raises(Broken, match=r"P1 .*a is ready, and the store was not asked"):
        call(judge, Step("poll", (("a",),)), {"a": {"ready": True, "asked": False}})


def test_a_request_that_is_taken_late_is_known_from_then_on() -> None:
    judge, seen = judged()
    seen.shows = observation(occupied=3, a1=0)
    call(judge, Step("full_turn"), ["a"])
    poll(judge, ready=False)
    judge, seen = judged()
    seen.shows = observation(occupied=3, a1=0)
    with pytest.raises(Broken, match="nobody submitted a#1"):
        call(judge, Step("full_turn"), [])


def test_who_leaves_by_another_way_has_ended() -> None:
    judge, seen = judged()
    submit(judge, seen)
    with pytest.raises(Broken, match="a#1 had ended before"):
        call(judge, Step("leave_by", ("crowded_out", "a")), None)
