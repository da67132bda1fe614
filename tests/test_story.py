"""A run told step by step: what is told of it, in which order, and what a reader sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_checks.conformance.difference import Change, said, together
from hicache_checks.conformance.findings import Broken, Finding
from hicache_checks.conformance.observation import Event
from hicache_checks.conformance.program import Setup, Step
from hicache_checks.conformance.story import Recorder
from hicache_checks.conformance.telling import Storyteller
from hicache_checks.reporting import story_lines
from hicache_checks.reporting.story import Story

A, B = ("a", 1), ("b", 1)


class Log:
    """The events of one rank so far."""

    def __init__(self, rank: int) -> None:
        self.events: list[Event] = []
        self._rank = rank

    def add(self, kind: str, op: tuple[str, int] | None = None, **data: Any) -> None:
        self.events.append(Event(self._rank, len(self.events), kind, op, data))

    def take_since(self, seq: int) -> Sequence[Event]:
        return self.events[seq:]


class Scripted:
    """A target whose logs say what a test wants, and the judge that reads them."""

    def __init__(self, **setup: Any) -> None:
        self.setup = Setup(**{"host_pages": 4, **setup})
        self.ranks = [Log(rank) for rank in range(self.setup.ranks)]
        self.now = 0.0
        self.judge = Storyteller(self, self.setup)
        self.finding: Finding | None = None

    def logs(self) -> list[Log]:
        return self.ranks

    def before(self, kind: str, *args: Any) -> Step:
        step = Step(kind, args)
        self.judge.before(step, self.now)
        return step

    def after(self, step: Step, answer: Any = None) -> None:
        try:
            self.judge.after(step, answer, self.now)
        except Broken as broken:
            self.finding = broken.finding

    def call(self, kind: str, *args: Any) -> None:
        self.after(self.before(kind, *args))

    def story(self) -> Story:
        return self.judge.story(self.finding)

    def told(self) -> list[tuple[str, str, str]]:
        """The rows, short."""
        return [(row.rank, row.thread, "; ".join(row.what)) for row in self.story().rows]


def submit(target: Scripted, op: tuple[str, int] = A, pages: int = 2) -> None:
    step = target.before("submit", op[0], tuple(range(pages)))
    for log in target.ranks:
        log.add("submitted", op, span=pages, base=0, anchor=0)
    target.after(step)


def look_up(log: Log, op: tuple[str, int] = A, hit: int = 2) -> None:
    log.add("query_taken", op, terminated=False)
    log.add("query_asked", op, hit=hit)


def answer(log: Log, op: tuple[str, int] = A, hit: int = 2) -> None:
    log.add("query_agreed", op, hit=hit)
    log.add("query_put", op)


def allocated(log: Log, op: tuple[str, int] = A, pages: int = 2) -> None:
    log.add("allocated", op, pages=pages, hit=pages, evictable=0, free=4 - pages)


def test_a_finding_is_told_from_the_first_call_to_what_would_have_been_right() -> None:
    target = Scripted(stored=((0, 1),))
    (log,) = target.ranks
    target.call("lose", 0, (0, 1))
    submit(target)
    step = target.before("tick")
    look_up(log)
    answer(log)
    allocated(log)
    target.after(step)
    step = target.before("poll", ("a",))
    log.add("io_started", A, page=0)
    log.add("io_landed", A, page=0)
    log.add("io_started", A, page=1)
    log.add("io_failed", A, page=1, reason="miss")
    log.add("io_released", A, page=1)
    log.add("io_released", A, page=1)
    target.after(step)
    assert story_lines(target.story()) == [
        "  1 rank, wait_complete, 4 host pages, threshold 1, limit 16; stored: [0, 1]",
        "  step  rank  thread     what happened                                   what changed",
        "     1        caller     lose(0, (0, 1))",
        "     2        caller     submit('a', (0, 1))",
        "     3  0     scheduler  submitted a#1 span=2 base=0 anchor=0            phase[a#1]: absent -> queued",
        "                                                                         span[a#1]: 0 -> 2",
        "                                                                         occupied: 0 -> 2",
        "                                                                         query_queue: [] -> [a#1]",
        "     4        caller     tick()",
        "     5  0     query      query_taken a#1 terminated=False                phase[a#1]: queued -> queried",
        "                         query_asked a#1 hit=2                           hit[a#1]: 0 -> 2",
        "                         query_agreed a#1 hit=2                          query_queue: [a#1] -> []",
        "                         query_put a#1                                   hit_queue: [] -> [a#1]",
        "     6  0     scheduler  allocated a#1 pages=2 hit=2 evictable=0 free=2  phase[a#1]: queried -> allocated",
        "                                                                         granted[a#1]: 0 -> 2",
        "                                                                         free: 4 -> 2",
        "                                                                         hit[a#1]: 2 -> 0",
        "                                                                         hit_queue: [a#1] -> []",
        "                                                                         buffer: [] -> [a#1]",
        "     7        caller     poll(('a',))",
        "     8  0     io         io_started a#1 page=0                           counted[a#1]: 0 -> 1",
        "                         io_landed a#1 page=0                            phase[a#1]: allocated -> terminated",
        "                         io_started a#1 page=1                           stopped[a#1]: no -> yes",
        "                         io_failed a#1 page=1 reason=miss                buffer: [a#1] -> []",
        "                         io_released a#1 page=1                          given[a#1]: 0 -> 1",
        "                                                                         releasing: 0 -> 1",
        "     9  0     io         io_released a#1 page=1",
        "  finding  io_release_page (§3.7.4): this operation is not at the head of the queue",
        "  allowed  schedulers: submitted or declined or reclaimed pages=1 .. 1 or fetched a#1 by a poll or stopped or "
        "revoked a#1 by its caller",
    ]


def two_ranks_look_up() -> Scripted:
    target = Scripted(ranks=2)
    submit(target)
    return target


def test_ranks_that_do_the_same_are_told_once() -> None:
    target = two_ranks_look_up()
    step = target.before("settle")
    for log in target.ranks:
        look_up(log)
        log.add("joined", group="query", number=0, call="min")
        log.add("left", group="query", number=0, call="min")
        answer(log)
    target.after(step)
    assert target.told()[2:] == [
        ("", "caller", "settle()"),
        (
            "0, 1",
            "query",
            "query_taken a#1 terminated=False; query_asked a#1 hit=2; query_agreed a#1 hit=2; query_put a#1",
        ),
    ]


def test_ranks_are_told_apart_where_a_call_or_another_step_is_in_between() -> None:
    target = two_ranks_look_up()
    first, second = target.ranks
    step = target.before("tick")
    look_up(first)
    target.after(step)
    step = target.before("store", (7,))
    second.add("query_taken", A, terminated=False)
    second.add("query_asked", A, hit=1)
    target.after(step)
    assert target.told()[2:] == [
        ("", "caller", "tick()"),
        ("0", "query", "query_taken a#1 terminated=False; query_asked a#1 hit=2"),
        ("", "caller", "store((7,))"),
        ("1", "query", "query_taken a#1 terminated=False; query_asked a#1 hit=1"),
    ]


def test_changes_on_other_ranks_than_the_one_that_acts_are_told_with_their_ranks() -> None:
    target = two_ranks_look_up()
    first, second = target.ranks
    step = target.before("tick")
    for log in (first, second):
        look_up(log)
        log.add("joined", group="query", number=0, call="min")
    first.add("left", group="query", number=0, call="min")
    answer(first)
    target.after(step)
    assert target.story().rows[-1].changes == [
        "phase[a#1]: queued -> queried",
        "stage: answered -> idle",
        "stage on rank 1: answered -> agreed",
        "hit[a#1]: 0 -> 2",
        "query_queue: [a#1] -> []",
        "answer: 2 -> 0",
        "hit_queue: [] -> [a#1]",
    ]


def test_collectives_are_told_where_they_are_what_is_wrong() -> None:
    target = two_ranks_look_up()
    first, second = target.ranks
    step = target.before("tick")
    first.add("joined", group="sched", number=0, call="min")
    second.add("joined", group="sched", number=0, call="max")
    target.after(step)
    assert target.told()[3:] == [
        ("0", "scheduler", "joined group=sched number=0 call=min"),
        ("1", "scheduler", "joined group=sched number=0 call=max"),
        ("1", "scheduler", "P7 lockstep; another rank is in min at this point"),
    ]
    story = target.story()
    assert story.about == [4]
    assert [line.partition(":")[0] for line in story.allowed] == ["schedulers"]


def test_where_another_rank_came_first_only_the_same_is_allowed() -> None:
    target = two_ranks_look_up()
    first, second = target.ranks
    step = target.before("abort", "a")
    first.add("stopped", A)
    second.add("revoked", A, reason="aborted", by="abort", evictable=0, free=4)
    target.after(step)
    story = target.story()
    assert (story.about, story.allowed) == ([4], ["scheduler of rank 1: stopped a#1"])


def test_calls_of_which_nothing_came_are_left_out_but_for_the_last_of_a_finding() -> None:
    target = Scripted()
    for kind in ("tick", "observe", "abort", "heal_storage", "observe"):
        target.call(kind, *(["a"] if kind == "abort" else []))
    assert target.told() == [("", "caller", "abort('a')")]
    target.finding = Finding("P4", "a page is missing")
    assert target.told() == [
        ("", "caller", "abort('a')"),
        ("", "caller", "settle()"),
        ("", "caller", "P4; a page is missing"),
    ]


def test_storage_is_healed_only_after_it_was_broken() -> None:
    target = Scripted()
    target.call("break_storage", 0, "get", "miss")
    target.call("heal_storage")
    assert [what for _, _, what in target.told()] == ["break_storage(0, 'get', 'miss')", "heal_storage()"]


@pytest.mark.parametrize("policy", ["timeout", "wait_complete"])
def test_time_is_told_where_it_matters(policy: str) -> None:
    target = Scripted(policy=policy)
    target.call("abort", "a")
    target.now += 0.7
    target.call("abort", "b")
    between = [("", "caller", "0.7 s pass")] if policy == "timeout" else []
    assert target.told() == [("", "caller", "abort('a')"), *between, ("", "caller", "abort('b')")]


def test_a_flush_begins_again() -> None:
    target = Scripted()
    submit(target)
    (log,) = target.ranks
    log.events.clear()
    target.before("flush")
    target.judge.begin_again()
    submit(target)
    assert [what for _, _, what in target.told()] == [
        *("submit('a', (0, 1))", "submitted a#1 span=2 base=0 anchor=0", "flush()"),
        *("submit('a', (0, 1))", "submitted a#1 span=2 base=0 anchor=0"),
    ]


def test_a_flush_that_does_not_return_is_told() -> None:
    target = Scripted()
    target.before("flush")
    assert [what for _, _, what in target.told()] == ["flush()"]


def test_after_a_flush_events_are_those_of_the_new_logs() -> None:
    target = two_ranks_look_up()
    for log in target.ranks:
        log.events.clear()
    target.before("flush")
    target.judge.begin_again()
    first, second = target.ranks
    step = target.before("submit", "b", (0, 1))
    first.add("submitted", B, span=2, base=0, anchor=0)
    second.add("submitted", A, span=2, base=0, anchor=0)
    target.after(step)
    assert target.told()[4] == ("0", "scheduler", "submitted b#1 span=2 base=0 anchor=0")
    assert target.story().about == [5]


def test_an_operation_that_nobody_holds_any_more_is_told_to_have_ended() -> None:
    target = Scripted()
    submit(target)
    (log,) = target.ranks
    step = target.before("tick")
    look_up(log, hit=0)
    answer(log, hit=0)
    log.add("revoked", A, reason="below_threshold", by="drain", evictable=0, free=4)
    target.after(step)
    assert target.story().rows[-1].changes == [
        "phase[a#1]: queried -> revoked",
        "occupied: 2 -> 0",
        "hit_queue: [a#1] -> []",
    ]


def test_what_an_ended_operation_forgets_is_not_told() -> None:
    target = Scripted()
    submit(target)
    (log,) = target.ranks
    step = target.before("abort", "a")
    log.add("revoked", A, reason="aborted", by="abort", evictable=0, free=4)
    target.after(step)
    assert target.story().rows[-1].changes == [
        "phase[a#1]: queued -> revoked",
        "occupied: 2 -> 0",
        "stopped[a#1]: no -> yes",
    ]


def test_more_operations_than_the_monitor_follows_at_first_keep_their_names() -> None:
    target = Scripted(limit_pages=99)
    for n in range(1, 10):
        submit(target, (f"r{n}", 1), 1)
    queue = ", ".join(f"r{n}#1" for n in range(1, 10))
    assert target.story().rows[-1].changes[-1] == f"query_queue: [{queue.rpartition(',')[0]}] -> [{queue}]"


def test_two_changes_of_a_variable_are_one_and_none_if_they_cancel() -> None:
    first = [Change("stage", 0, "idle", "looking"), Change("free", None, "4", "3")]
    then = [Change("stage", 0, "looking", "idle"), Change("free", None, "3", "1")]
    assert together(first, then) == [Change("free", None, "4", "1")]


def test_ranks_of_a_change_are_named_unless_they_are_the_steps_or_all() -> None:
    on = [Change("free", rank, "4", "3") for rank in (2, 0)]
    assert said(on, of=[0], ranks=3) == ["free on rank 0, 2: 4 -> 3"]
    assert said(on, of=[2, 0], ranks=3) == ["free: 4 -> 3"]
    assert said([*on, Change("free", 1, "4", "3")], of=[0], ranks=3) == ["free: 4 -> 3"]


STEPS = st.lists(
    st.one_of(st.just("call"), st.tuples(st.integers(0, 2), st.sampled_from(("query_put", "io_started", "skipped"))))
)


@given(STEPS)
def test_no_rank_sees_its_own_steps_or_the_calls_in_another_order(steps: list[Any]) -> None:
    recorder = Recorder(Setup(ranks=3))
    happened: list[list[str]] = [[], [], []]
    for n, step in enumerate(steps):
        if step == "call":
            recorder.call(Step("abort", (str(n),)), 0.0)
            for rank in range(3):
                happened[rank].append(str(Step("abort", (str(n),))))
        else:
            rank, kind = step
            recorder.event(Event(rank, n, kind, A), [])
            happened[rank].append(f"{kind} a#1")
    rows = recorder.story(None).rows
    for rank in range(3):
        assert [what for row in rows if not row.ranks or rank in row.ranks for what in row.what] == happened[rank]
