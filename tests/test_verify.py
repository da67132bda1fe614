"""`hicheck verify` as a user runs it: one command, one table, one exit code; and what makes each part of it fail."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hicache_checks import verify_command, verify_mutants
from hicache_checks.conformance.campaign import Campaign, Reported
from hicache_checks.conformance.findings import Finding
from hicache_checks.engine.explore import Exploration, Violation
from hicache_checks.engine.liveness import ToldLasso
from hicache_checks.engine.refine_told import Move, TwoSides
from hicache_checks.explore_command import Explored, Live
from hicache_checks.mutants.faulty_liveness import LIVENESS_MUTANTS
from hicache_checks.mutants.spec_mutants import SPEC_MUTANTS
from hicache_checks.refine_command import Compared
from hicache_checks.reporting import Progress, Screen, Verdict, VerifyRow
from hicache_checks.verify_claim import judge_claim
from hicache_checks.verify_command import VerifyOptions
from hicache_checks.verify_designs import DESIGN_BOUNDS, OTHERS, DesignFound, DesignJob, design_table, judge_designs
from hicache_checks.verify_mutants import faults
from hicache_checks.verify_parts import judge_part
from hicache_checks.verify_simulation import judge_campaign
from hicache_checks.verify_specification import CANONICAL, Part, judge_liveness, judge_small, judge_trio
from hicache_checks.verify_target import judge_target
from hicache_spec import DESIGNS, Bounds
from hicache_spec.bounds import AGAIN, PRESSURE, SMALL, SOLO_CHURN, TRIO_PRESSURE
from hicache_spec.claim import CLAIM_PAIR
from hicache_spec.designs.findings import AGAIN_WITH_ROOM, NEVER_HAPPENS, findings_of
from hicache_spec.parts import PART_BOUNDS, design_named, design_of, must_reach

PARTS = (
    *("specification", "specification", "liveness", "refinement", "designs"),
    *("part" for _ in PART_BOUNDS),
    "mutants",
    *("implementation", "simulation", "workload"),
)
NOT_COVERED = ("target",)


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_the_main_job(tmp_path: Path) -> None:
    file = tmp_path / "verify.json"
    done = subprocess.run(
        [sys.executable, "-m", "hicache_checks.cli", "verify", "--json", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    rows = len(PARTS) + len(NOT_COVERED)
    assert [line.split()[0] for line in lines[:rows]] == [*PARTS, *NOT_COVERED]
    assert all("not asked for" in line for line in lines[len(PARTS) : rows])
    assert lines[rows].split() == ["property", *(name for name in DESIGNS if name != CANONICAL)]
    assert lines[rows + 1].split()[:3] == ["step_drain_decides_its_own_attempt", "11", "steps"]
    assert lines[-1] == "verdict: pass"
    document = json.loads(file.read_text(encoding="utf-8"))
    assert (document["command"], document["verdict"]) == ("verify", "pass")
    small, medium, live, *rest = document["parts"]
    assert small["states"] == 129_235
    assert medium["states"] == 4_191_833
    assert live["cases"] > 20
    parts = {part["part"]: part for part in rest}
    assert parts["refinement"]["refuted_in_steps"] == {"host_pressure": [21, 11], "no_host_pressure": [None, None]}
    assert parts["designs"]["violated"]["revoke_queue"] == {}
    assert parts["designs"]["violated"]["alloc_first"]["inv_no_memory_before_verdict"] == 1
    assert "live_submitted_operations_end" in parts["designs"]["violated"]["decide_at_drain_by_rid"]
    assert parts["mutants"]["caught"] == parts["mutants"]["total"] >= 57
    assert parts["implementation"]["outcomes"]["fetched: all"] > 0
    assert (parts["simulation"]["schedules"], parts["simulation"]["findings"]) == (600, [])
    assert parts["simulation"]["spec_states"] > 1_000
    assert parts["workload"]["pages_left"] == 0
    assert parts["workload"]["events_explained"] > 1_000


@pytest.mark.heavy
def test_a_missing_trace_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hicache_checks.cli", "verify", "--workload", "no-such-file.jsonl"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no-such-file.jsonl" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.heavy
def test_a_part_that_fails_fails_the_job_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def part(what: str, verdict: Verdict, *details: str) -> Callable[..., Part]:
        return lambda *given: Part(VerifyRow(what, "", "", None, "", verdict), {}, list(details))

    for name in ("claim", "designs", "implementation", "workload"):
        monkeypatch.setattr(verify_command, name, part(name, Verdict.PASS))
    monkeypatch.setattr(verify_command, "parts_of_the_system", lambda screen: [part("part", Verdict.PASS)()])
    monkeypatch.setattr(verify_command, "specification", lambda screen: [part("specification", Verdict.UNKNOWN)()])
    monkeypatch.setattr(verify_command, "faults", part("mutants", Verdict.FAIL, "mutant one: nothing is violated"))
    outcome = verify_command.run(VerifyOptions(), Screen.for_target(None))
    assert outcome.verdict is Verdict.FAIL
    assert capsys.readouterr().out.splitlines()[-2:] == ["mutant one: nothing is violated", "verdict: fail"]
    monkeypatch.setattr(verify_command, "faults", part("mutants", Verdict.PASS))
    assert verify_command.run(VerifyOptions(), Screen.for_target(None)).verdict is Verdict.UNKNOWN


def judged(part: Part) -> tuple[Verdict, str]:
    return part.verdict, part.row.says


# ---- the canonical design

BROKEN = Violation("inv_pages_conserved", "5.2", "", (3,))
OUTCOMES = {rule.name for rule in DESIGNS[CANONICAL].rules() if rule.kind == "sometimes"}
LIVE = Live("live_control_queues_drain", "7.2", "", "live_control_queues_drain()", None)
STARVED = replace(LIVE, lasso=ToldLasso((), ()))


def explored(bounds: Bounds, live: Sequence[Live] = (LIVE,), **result: Any) -> Explored:
    return Explored(
        bounds, Exploration(**{"states": 5, "complete": True, "reached": OUTCOMES, **result}), (), tuple(live)
    )


def at_small(**changes: Any) -> list[Explored]:
    """Every configuration of `small`, all well, but for these changes of the second."""
    return [explored(b, **(changes if n == 1 else {})) for n, b in enumerate(SMALL)]


def test_the_row_of_small_says_what_is_wrong() -> None:
    verdict, says = judged(judge_small(at_small(), 1.0))
    assert (verdict, says) == (Verdict.PASS, f"30 properties hold, {len(OUTCOMES)} outcomes reached")
    assert (
        judge_small(at_small(), 1.0).row.bounds == f"{CANONICAL}, small: 11 configurations, up to 2 requests x 2 ranks"
    )
    violated = at_small(violation=BROKEN, complete=False)
    assert judged(judge_small(violated, 1.0)) == (Verdict.FAIL, "inv_pages_conserved violated in 1 step")
    assert judged(judge_small(at_small(complete=False), 1.0)) == (Verdict.UNKNOWN, "unknown: cut by a budget")
    assert judged(judge_small(at_small(live=[STARVED]), 1.0)) == (Verdict.FAIL, "liveness is violated")
    missed = [explored(b, reached=OUTCOMES - {"sometimes_declined_too_short"}) for b in SMALL]
    never = "outcomes never reached: sometimes_declined_too_short"
    assert judged(judge_small(missed, 1.0)) == (Verdict.FAIL, never)


def at_control(**changes: Any) -> list[Explored]:
    reached = set(must_reach(design_named(design_of("control")), "control"))
    given = [dict(changes), *({} for _ in PART_BOUNDS["control"][1:])]
    return [explored(b, **{"reached": reached, **c}) for b, c in zip(PART_BOUNDS["control"], given, strict=True)]


def test_the_row_of_a_part_says_what_is_wrong() -> None:
    fine = judge_part("control", at_control(), 1.0)
    assert fine.verdict is Verdict.PASS
    assert re.fullmatch(r"\d+ properties hold, \d+ outcomes reached, \d+ of liveness hold", fine.row.says)
    assert fine.row.bounds.startswith(f"{CANONICAL}+control: {len(PART_BOUNDS['control'])} configurations")
    violated = at_control(violation=BROKEN, complete=False)
    assert judged(judge_part("control", violated, 1.0)) == (Verdict.FAIL, "inv_pages_conserved violated in 1 step")
    assert judged(judge_part("control", at_control(complete=False), 1.0)) == (
        Verdict.UNKNOWN,
        "unknown: cut by a budget",
    )
    starved = judged(judge_part("control", at_control(live=[STARVED]), 1.0))
    assert starved == (Verdict.FAIL, f"{LIVE.label} violated")
    never = [replace(e, result=replace(e.result, reached=set())) for e in at_control()]
    assert judged(judge_part("control", never, 1.0))[1].startswith("outcomes never reached: sometimes_")


def test_the_row_of_the_trio_says_what_is_wrong() -> None:
    part = judge_trio(explored(TRIO_PRESSURE), 1.0)
    assert judged(part) == (Verdict.PASS, "30 properties hold (object engine)")
    assert part.row.bounds == f"{CANONICAL}, of medium trio_pressure: 3 requests x 2 ranks"
    cut = judge_trio(explored(TRIO_PRESSURE, complete=False), 1.0)
    assert judged(cut) == (Verdict.UNKNOWN, "unknown: cut by a budget")
    violated = judge_trio(explored(TRIO_PRESSURE, violation=replace(BROKEN, run=(1, 2)), complete=False), 1.0)
    assert judged(violated) == (Verdict.FAIL, "inv_pages_conserved violated in 2 steps")


def test_liveness_passes_only_where_it_is_decided_everywhere() -> None:
    assert judged(judge_liveness(at_small())) == (Verdict.PASS, "1 properties hold, 11 cases decided")
    undecided = judge_liveness(at_small(live=()))
    assert judged(undecided) == (Verdict.UNKNOWN, f"unknown: not decided in {SMALL[1].name}")
    assert undecided.row.amount == "50 states"
    assert judge_liveness([]).verdict is Verdict.UNKNOWN
    starved = judge_liveness(at_small(live=[LIVE, STARVED]))
    assert judged(starved) == (Verdict.FAIL, f"violated: {STARVED.label}")


# ---- the designs


def as_pinned(changed: DesignJob | None = None, **changes: Any) -> list[DesignFound]:
    """What exploration of all designs should find; but for these changes in one of the jobs."""
    found = []
    for job in (DesignJob(name, bounds) for name in OTHERS for bounds in DESIGN_BOUNDS):
        first = {f.property: f.steps for f in findings_of(job.design) if f.bounds == job.bounds}
        lost = frozenset(NEVER_HAPPENS.get(job.design, ())) if job.bounds == AGAIN_WITH_ROOM else None
        right = DesignFound(job, 10, first, lost)
        found.append(replace(right, **changes) if job == changed else right)
    return found


def test_designs_pass_if_all_is_as_pinned() -> None:
    part = judge_designs(as_pinned(), 1.0)
    assert judged(part) == (Verdict.PASS, "42 violations as pinned, nothing else")
    assert part.details == design_table(part.keys["violated"])


ONE_SHORT = {"inv_life_cycle_is_legal": 11, "step_waits_for_the_verdict": 11}
ONE_LONGER = {**ONE_SHORT, "step_drain_decides_its_own_attempt": 12}
ENDS, DRAINS = "live_submitted_operations_end", "live_control_queues_drain"


@pytest.mark.parametrize(
    ("job", "changes", "line"),
    [
        (
            DesignJob("revoke_queue", PRESSURE),
            {"first": {"inv_pages_conserved": 1}},
            "revoke_queue: inv_pages_conserved, in pressure: violated in 1 step; pinned: holds",
        ),
        (
            DesignJob("decide_at_drain_by_rid", AGAIN),
            {"first": ONE_SHORT},
            "decide_at_drain_by_rid: step_drain_decides_its_own_attempt, in again: holds; pinned: violated in 11 steps",
        ),
        (
            DesignJob("decide_at_drain_by_rid", AGAIN),
            {"first": ONE_LONGER},
            "decide_at_drain_by_rid: step_drain_decides_its_own_attempt, in again: violated in 12 steps; "
            "pinned: violated in 11 steps",
        ),
        (
            DesignJob("decide_at_drain_by_rid", AGAIN_WITH_ROOM),
            {"lost": frozenset({ENDS, DRAINS})},
            f"decide_at_drain_by_rid: {DRAINS}, in again_with_room: lasso; pinned: holds",
        ),
        (
            DesignJob("decide_at_drain_by_rid", AGAIN_WITH_ROOM),
            {"lost": frozenset()},
            f"decide_at_drain_by_rid: {ENDS}, in again_with_room: holds; pinned: lasso",
        ),
    ],
)
def test_a_design_that_is_not_as_pinned_is_named(job: DesignJob, changes: dict[str, Any], line: str) -> None:
    part = judge_designs(as_pinned(job, **changes), 1.0)
    assert judged(part) == (Verdict.FAIL, "1 not as pinned")
    assert part.details[0] == line
    assert part.keys["unexpected"] == [line]


def test_the_table_of_designs_has_the_fewest_steps_a_lasso_and_a_row_for_every_property() -> None:
    table: dict[str, dict[str, int | None]] = {
        "alloc_first": {"inv_occupied_is_sum_of_spans": 1, "live_control_queues_drain": None},
        "attempts": {"inv_occupied_is_sum_of_spans": 12},
    }
    header, *lines, _ = design_table(table)
    rows = {line.split()[0]: line for line in lines}
    assert header.split() == ["property", "alloc_first", "attempts"]
    assert lines[0].split() == ["inv_occupied_is_sum_of_spans", "1", "step", "12", "steps"]
    assert lines[1].split() == ["live_control_queues_drain", "lasso", "-"]
    assert rows["inv_pages_conserved"].split() == ["inv_pages_conserved", "-", "-"]
    assert rows["inv_retries_are_bounded"].split() == ["inv_retries_are_bounded", "-"], "attempts alone has it"
    known = {r.name for d in DESIGNS.values() for r in d.rules() if r.kind in ("invariant", "step", "live")}
    assert rows.keys() == known
    first = as_pinned(DesignJob("alloc_first", AGAIN), first={"inv_no_memory_before_verdict": 3})
    assert judge_designs(first, 1.0).keys["violated"]["alloc_first"]["inv_no_memory_before_verdict"] == 1


# ---- the mutants


def judged_mutants(monkeypatch: pytest.MonkeyPatch, unsafe: Sequence[Any], starving: Sequence[Any]) -> Part:
    registered = {"specification": unsafe, "liveness": starving}
    monkeypatch.setattr(verify_mutants, "load", lambda group, name: registered[name])
    return faults(Screen(Console(file=io.StringIO()), Progress(io.StringIO())))


UNSAFE = next(m for m in SPEC_MUTANTS if m.name == "sched_keeps_an_ended_record")
STARVING = next(m for m in LIVENESS_MUTANTS if m.name == "sched_puts_refused_answers_back")
LASSO_TOO = "live_control_queues_drain violated by a stem of 5 steps and a loop of 1 step"
CAUGHT = f"{UNSAFE.caught_by} violated in 2 steps"
LASSO = f"{STARVING.caught_by} violated by a stem of 5 steps and a loop of 1 step"


def test_mutants_pass_if_all_are_caught_as_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    part = judged_mutants(monkeypatch, [UNSAFE], [STARVING])
    assert judged(part) == (Verdict.PASS, "2 of 2 caught as pinned, 1 of them by liveness alone")
    assert part.details == []


@pytest.mark.parametrize(("unsafe", "starving"), [([], [STARVING]), ([UNSAFE], [])])
def test_no_mutants_are_no_proof(monkeypatch: pytest.MonkeyPatch, unsafe: list[Any], starving: list[Any]) -> None:
    assert judged_mutants(monkeypatch, unsafe, starving).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("mutant", "line"),
    [
        (replace(UNSAFE, replaces={}), f"nothing is violated; pinned: {CAUGHT}"),
        (replace(UNSAFE, steps=3), f"{CAUGHT}; pinned: {UNSAFE.caught_by} violated in 3 steps"),
        (replace(UNSAFE, caught_by="inv_x"), f"{CAUGHT}; pinned: inv_x violated in 2 steps"),
    ],
)
def test_a_mutant_of_a_rule_that_is_not_caught_as_pinned_is_named(
    monkeypatch: pytest.MonkeyPatch, mutant: Any, line: str
) -> None:
    part = judged_mutants(monkeypatch, [mutant], [STARVING])
    assert judged(part) == (Verdict.FAIL, "1 of 2 caught as pinned, 1 of them by liveness alone")
    assert part.details == [f"mutant {UNSAFE.name}: {line}"]


@pytest.mark.parametrize(
    ("mutant", "line"),
    [
        (replace(STARVING, replaces={}), f"nothing is violated; pinned: {LASSO}"),
        (replace(STARVING, stem=4), f"{LASSO}, {LASSO_TOO}; pinned: {LASSO.replace('5', '4')}"),
        (replace(STARVING, replaces=UNSAFE.replaces, bounds=SOLO_CHURN), f"{CAUGHT}; pinned: {LASSO}"),
    ],
)
def test_a_mutant_that_not_only_liveness_catches_as_pinned_is_named(
    monkeypatch: pytest.MonkeyPatch, mutant: Any, line: str
) -> None:
    part = judged_mutants(monkeypatch, [UNSAFE], [mutant])
    assert judged(part) == (Verdict.FAIL, "1 of 2 caught as pinned, 0 of them by liveness alone")
    assert part.details == [f"mutant {STARVING.name}: {line}"]


# ---- the claim


def compared(steps: int | None, holds: bool | None = None, bounds: Bounds = CLAIM_PAIR) -> Compared:
    """An answer: refuted in so many steps, or held or unknown."""
    if steps is None:
        return Compared(bounds, "hidden", holds, 7, 8, 9)
    moves = tuple((Move(n, "", (), ""), None) for n in range(1, steps + 1))
    return Compared(bounds, "hidden", False, 7, 8, 9, TwoSides(moves, (), 0, "", None, None))


HOLDS, UNKNOWN = compared(None, True), compared(None)
AS_PINNED = {
    "no host pressure": [[HOLDS, HOLDS], [HOLDS]],
    "host pressure": [[compared(25), compared(21), HOLDS], [compared(11), UNKNOWN]],
}


def test_the_claim_passes_if_every_answer_is_as_pinned() -> None:
    part = judge_claim(AS_PINNED, 1.0)
    assert judged(part) == (
        Verdict.PASS,
        "no host pressure: holds; host pressure: refuted in 21 steps by outcomes, refuted in 11 steps by ticks",
    )
    assert part.keys["refuted_in_steps"] == {"no_host_pressure": [None, None], "host_pressure": [21, 11]}
    assert part.details == []


@pytest.mark.parametrize(
    ("case", "answers", "verdict", "line"),
    [
        ("no host pressure", [HOLDS, compared(1)], Verdict.FAIL, "refuted in 1 step; pinned: holds"),
        ("no host pressure", [HOLDS, UNKNOWN], Verdict.UNKNOWN, "unknown: a budget ran out; pinned: holds"),
        ("no host pressure", [], Verdict.UNKNOWN, "unknown: a budget ran out; pinned: holds"),
        ("host pressure", [compared(22)], Verdict.FAIL, "refuted in 22 steps; pinned: refuted in 21 steps"),
        ("host pressure", [HOLDS], Verdict.FAIL, "holds; pinned: refuted in 21 steps"),
        ("host pressure", [UNKNOWN], Verdict.UNKNOWN, "unknown: a budget ran out; pinned: refuted in 21 steps"),
    ],
)
def test_an_answer_of_the_claim_that_is_not_as_pinned_is_named(
    case: str, answers: list[Compared], verdict: Verdict, line: str
) -> None:
    part = judge_claim({**AS_PINNED, case: [answers, AS_PINNED[case][1]]}, 1.0)
    assert part.verdict is verdict
    assert part.details == [f"revoke_queue in decide_at_drain, {case}, by outcomes: {line}"]


def test_a_finding_of_the_simulation_fails_the_job() -> None:
    campaign = Campaign(schedules=600, outcomes=Counter(submitted=1))
    assert judge_campaign(campaign, 1.0).verdict is Verdict.PASS
    campaign.add(Reported(Finding("P13", "page 3 is freed twice"), 2))
    part = judge_campaign(campaign, 1.0)
    assert part.verdict is Verdict.FAIL
    assert part.details == ["simulation: P13: page 3 is freed twice"]
    assert judge_campaign(Campaign(), 1.0).verdict is Verdict.ERROR


def test_a_target_that_is_named_is_a_row_with_its_findings_below() -> None:
    campaign = Campaign(profile="attempts", schedules=700, outcomes=Counter({"submitted": 9}))
    assert judge_target("sglang==0.5.23", campaign, 20.0).verdict is Verdict.PASS
    campaign.add(Reported(Finding("P4 inv_rest_restores_the_pool", "2 free pages are not the 6 pages"), 3))
    campaign.add(Reported(Finding("P31 threads_survive", "a thread died"), 5))
    part = judge_target("sglang==0.5.23", campaign, 20.0)
    assert (part.verdict, part.row.says) == (Verdict.FAIL, "2 findings")
    assert part.row.bounds == "sglang==0.5.23 (attempts), 2 ranks, 3 policies"
    first, second, how = part.details
    assert "P31 threads_survive: a thread died (5 schedules)" in first
    assert "P4 inv_rest_restores_the_pool" in second
    assert "--findings DIR" in how
    assert [finding["property"] for finding in part.keys["findings"]] == [
        "P31 threads_survive",
        "P4 inv_rest_restores_the_pool",
    ]
