"""`hicheck spec --diff`: what a reviewer of a changed design reads."""

from __future__ import annotations

import json
import textwrap

import pytest

import toy_spec
from hicache_checks import cli, spec_diff_command
from hicache_checks.rule_effects import calls, emitted, guards, written
from hicache_checks.spec_diff import ADDED, CHANGED, DROPPED, UNUSED, USED, RuleChange, SpecDiff, compare
from hicache_checks.spec_diff_command import report
from hicache_spec import DESIGNS, Design
from hicache_spec.language import NONE, State, emit, field, insert, require, upto
from toy_spec import BUSY, COST, ON_TAKEN, RESTING, Toy, env_reopen, pay, worker_finish, worker_take

JSON_KEYS = {"left", "right", "variables", "rules", "events", "violates", "refinement"}


class Credit(Toy):
    spent = field(upto(9))
    paid = field(upto(9))


def finish_on_credit(s: State, worker: int) -> None:
    """§2.2 The ticket is done. Who pays is seen later."""
    require(s.mode[worker] == BUSY, "the worker works")
    insert(s.done, s.ticket[worker])
    s.ticket[worker] = NONE
    s.mode[worker] = RESTING


def take_on_credit(s: State, worker: int) -> None:
    """§2.1 A resting worker takes the next ticket."""
    require(s.mode[worker] == RESTING, "the worker rests")
    require(len(s.waiting) > 0, "a ticket waits")
    s.ticket[worker] = s.waiting.pop(0)
    s.mode[worker] = BUSY
    s.spent += COST[s.ticket[worker]]


def pay_and_note(s: State, amount: int) -> None:
    """A payment is noted, too."""
    pay(s, amount)
    s.paid += amount
    emit(s, ON_TAKEN, 0, 0)


TOY = Design("toy", "", Toy, (toy_spec,), {})
CREDIT = TOY.variant(
    "credit",
    "",
    {"worker_take": take_on_credit, "worker_finish": finish_on_credit},
    violates=("inv_paid_for_what_is_done",),
    shape=Credit,
)
NOTED = TOY.variant("noted", "", {"pay": pay_and_note}, shape=Credit)


def lines(diff: SpecDiff) -> str:
    return "\n".join(report(diff)) + "\n"


def golden(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def change(diff: SpecDiff, name: str) -> RuleChange:
    (found,) = [r for r in diff.rules if r.name == name]
    return found


def hicheck(arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments.split())
    captured = capsys.readouterr()
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, captured.out, captured.err


@pytest.fixture
def stubbed_refinement(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdicts of refinement are another command's: these tests are about the text."""
    monkeypatch.setattr(spec_diff_command, "verdicts", lambda left, right: [f"{left} refines {right}: holds"])


# ---- the text


@pytest.mark.usefixtures("stubbed_refinement")
def test_one_changed_function(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = hicheck("spec --diff decide_at_drain decide_at_drain_by_rid", capsys)
    assert (code, err) == (0, "")
    assert out == golden(
        """
        decide_at_drain -> decide_at_drain_by_rid

        functions of the actions
          ~ find_record, of sched_drain
              Whatever operation is pending under the request id of the answer.
                 def find_record(s: State, op: int) -> int:
                -    if s.record[REQUEST_OF[op]] == op:
                -        return op
                -    return NONE
                +    return s.record[REQUEST_OF[op]]

        events
          every action emits the same ones

        known to violate
          decide_at_drain         nothing
          decide_at_drain_by_rid  step_drain_decides_its_own_attempt

        refinement
          decide_at_drain refines decide_at_drain_by_rid: holds
        """
    )


def test_state_guards_and_events_that_change() -> None:
    assert lines(compare(TOY, CREDIT)) == golden(
        """
        toy -> credit

        state
          ~ seen: no longer written
          ~ spent: 0 .. budget -> 0 .. 9
          + paid: 0 .. 9

        actions
          ~ worker_take
              A resting worker takes the next ticket.
              is      §2.1, each worker, weak fairness
                     s.ticket[worker] = s.waiting.pop(0)
                     s.mode[worker] = BUSY
                -    s.seen[worker][s.ticket[worker]] = True
                -    emit(s, ON_TAKEN, worker, s.ticket[worker])
                +    s.spent += COST[s.ticket[worker]]
          ~ worker_finish
              The ticket is done. Who pays is seen later.
              is      §2.2, each worker, weak fairness
              guard - s.mode[worker] == BUSY: the worker is busy
              guard + s.mode[worker] == BUSY: the worker works
                 def worker_finish(s: State, worker: int) -> None:
                -    require(s.mode[worker] == BUSY, "the worker is busy")
                +    require(s.mode[worker] == BUSY, "the worker works")
                     insert(s.done, s.ticket[worker])
                -    pay(s, COST[s.ticket[worker]])
                     s.ticket[worker] = NONE
                     s.mode[worker] = RESTING

        functions of the actions
          - pay, of worker_finish

        events
          worker_take no longer emits taken

        known to violate
          toy     nothing
          credit  inv_paid_for_what_is_done
        """
    )


def test_a_wrapper_is_only_what_it_adds() -> None:
    assert lines(compare(TOY, NOTED)) == golden(
        """
        toy -> noted

        state
          ~ spent: 0 .. budget -> 0 .. 9
          + paid: 0 .. 9

        functions of the actions
          ~ pay, of worker_finish
              A payment is noted, too.
              calls   what it replaces
                +def pay_and_note(s: State, amount: int) -> None:
                +    pay(s, amount)
                +    s.paid += amount
                +    emit(s, ON_TAKEN, 0, 0)

        events
          worker_finish newly emits taken

        known to violate
          toy    nothing
          noted  nothing
        """
    )
    back = change(compare(NOTED, TOY), "pay")
    assert (back.change, back.wraps) == (CHANGED, False)
    assert back.text[0] == "-def pay_and_note(s: State, amount: int) -> None:"


def test_two_equal_designs_differ_in_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = hicheck("spec --diff revoke_queue revoke_queue", capsys)
    assert out == golden(
        """
        revoke_queue -> revoke_queue

        no variable, rule or function differs

        events
          every action emits the same ones

        known to violate
          revoke_queue  nothing
          revoke_queue  nothing

        refinement
          the same design
        """
    )


# ---- what a function does by its own text


def test_what_a_function_calls_requires_writes_and_emits() -> None:
    assert list(calls(worker_finish)) == [("pay", pay)]
    assert [(g.condition, g.reason) for g in guards(worker_take)] == [
        ("s.mode[worker] == RESTING", "the worker rests"),
        ("len(s.waiting) > 0", "a ticket waits"),
    ]
    assert set(written(worker_take)) == {"ticket", "waiting", "mode", "seen"}
    assert set(written(worker_finish)) == {"done", "ticket", "mode"}, "what a helper writes is the helper's"
    assert set(written(env_reopen)) == {"done", "spent", "waiting"}
    assert set(written(toy_spec.all_done)) == set()
    assert list(emitted(worker_take)) == ["taken"]
    assert list(emitted(pay)) == []


# ---- the comparison


def test_the_founding_change_back_and_forth() -> None:
    diff = compare(DESIGNS["revoke_queue"], DESIGNS["decide_at_drain"])
    assert [(v.name, v.change) for v in diff.variables] == [("revoke_queue", DROPPED)]
    changes = {r.name: r.change for r in diff.rules if r.kind in ("action", "helper")}
    assert changes == {
        "query_put": CHANGED,
        "sched_drain": CHANGED,
        "decide": CHANGED,
        "is_travelling": CHANGED,
        "carry_out_revoke": DROPPED,
        "take_revoke": DROPPED,
    }
    drain = change(diff, "sched_drain")
    assert drain.left == "§8.3, any revokes, any hits, any pages, weak fairness"
    assert drain.right == "§3.6, any hits, any pages, weak fairness"
    assert [g.reason for g in drain.guards_dropped] == [
        "there is something to take",
        "every rank has that many revokes",
    ]
    assert [g.reason for g in drain.guards_added] == ["there is something to take"]
    assert "+    elif s.hit[0][op] < THRESHOLD:" in change(diff, "decide").text, (
        "the scheduler compares, not the thread"
    )
    back = compare(DESIGNS["decide_at_drain"], DESIGNS["revoke_queue"])
    assert {r.name for r in back.rules} == {r.name for r in diff.rules}
    assert change(back, "take_revoke").change == ADDED


def test_a_queue_that_nobody_fills_any_more_is_named() -> None:
    diff = compare(DESIGNS["decide_at_drain"], DESIGNS["alloc_first"])
    assert [(v.name, v.change) for v in diff.variables] == [("hit_queue", UNUSED), ("revoke_queue", ADDED)]
    assert {(e.action, e.dropped, e.added) for e in diff.events} == {
        ("sched_submit", (), ("evicted",)),
        ("query_put", (), ("allocated",)),
        ("sched_drain", ("allocated", "evicted"), ()),
    }
    back = compare(DESIGNS["alloc_first"], DESIGNS["decide_at_drain"])
    assert [(v.name, v.change) for v in back.variables] == [("hit_queue", USED), ("revoke_queue", DROPPED)]


def test_an_added_rule_and_the_functions_around_others() -> None:
    diff = compare(DESIGNS["revoke_queue"], DESIGNS["revoke_queue_sampled"])
    assert change(diff, "sched_look").change == ADDED
    assert {r.name for r in diff.rules if r.wraps} == {"admit", "terminate", "drop_record"}
    assert change(diff, "terminate").reached_by == ("sched_poll", "sched_stop", "sched_abort")


def test_one_wrapper_for_another_shows_both() -> None:
    both = change(compare(DESIGNS["revoke_queue_sampled"], DESIGNS["alloc_first"]), "admit")
    assert "-def admit_and_look(s: State, request: int, chain: int, span: int) -> None:" in both.text
    assert "+def admit_with_pages(s: State, request: int, chain: int, span: int) -> None:" in both.text


# ---- the command


@pytest.mark.usefixtures("stubbed_refinement")
def test_the_comparison_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = hicheck("spec --diff decide_at_drain revoke_queue_by_rid --json -", capsys)
    assert code == 0
    document = json.loads(out)
    assert (document["command"], document["verdict"]) == ("spec", "pass")
    assert document.keys() >= JSON_KEYS
    assert document["variables"] == [
        {"name": "revoke_queue", "change": "added", "left": "", "right": "queue of op, for each rank"}
    ]
    assert {"query_put", "find_record"} <= {r["name"] for r in document["rules"]}
    assert document["violates"] == {"left": [], "right": ["step_drain_decides_its_own_attempt"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--diff decide_at_drain nothing", "hicheck spec: no design 'nothing'; the designs are decide_at_drain, "),
        ("--diff nothing decide_at_drain", "hicheck spec: no design 'nothing'; "),
        ("--diff decide_at_drain", "Option '--diff' requires 2 arguments"),
        ("--diff decide_at_drain revoke_queue --diagram dot", "hicheck spec: give --diagram or --diff, one of them"),
    ],
)
def test_bad_input_is_one_line(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = hicheck(f"spec {arguments}", capsys)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
