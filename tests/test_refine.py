"""`hicheck refine`: what a user sees, exit codes, JSON, budgets; observations, watched designs, assumptions."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hicache_checks import cli, refine_command
from hicache_checks.engine.graph import graph_by_objects
from hicache_checks.engine.refine_told import Move, TwoSides
from hicache_checks.refine_command import (
    Compared,
    RefineOptions,
    compare,
    graph_of,
    holds,
    says,
    shortest,
    summarise,
    verdicts,
)
from hicache_spec import DESIGNS, BoundSpec, Refused, SpecError
from hicache_spec.assumptions import ASSUMPTIONS, ample
from hicache_spec.bounds import BEST_EFFORT, TIMEOUT, WAIT_COMPLETE
from hicache_spec.claim import CLAIM, CLAIM_FOUR, CLAIM_MORE, CLAIM_PAIR, CLAIM_TRIO, COMPARED
from hicache_spec.designs import DECIDE_AT_DRAIN
from hicache_spec.language import State
from hicache_spec.observations import DRAINS, OBSERVATIONS, default_polls, observation, outcome, say_letter
from hicache_spec.watched import watched
from quick import one_quick

CANONICAL = DECIDE_AT_DRAIN
JSON_KEYS = {"left", "right", "observe", "assume", "holds", "steps", "states", "verdict"}


def hicheck(arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["refine", *arguments.split()])
    captured = capsys.readouterr()
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, captured.out, captured.err


# ---- the command


def test_a_difference_is_told_from_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "revoke_queue decide_at_drain --observe ticks --assume whole_ticks --bounds claim_pair"
    code, out, _ = hicheck(arguments, capsys)
    assert code == 1
    lines = out.splitlines()
    assert lines[0] == "revoke_queue can do what decide_at_drain cannot, in claim_pair:"
    assert lines[1].split("  ")[0] == "step"
    assert "LEFT: revoke_queue" in lines[1]
    assert "RIGHT: decide_at_drain" in lines[1]
    last = next(n for n, line in enumerate(lines) if line.startswith("  11  sched_drain(revokes=1, hits=1, pages=0)"))
    assert lines[last].endswith("11  sched_drain(hits=2, pages=0)")
    both = [tuple(part.strip() for part in line.split("    ") if part.strip()) for line in lines[last + 1 : last + 4]]
    assert both == [
        ("revoked(op=1, reason=below_threshold)", "allocated(op=0, pages=1, hit=2)"),
        ("evicted(chain=1, pages=1)", "revoked(op=1, reason=below_threshold)"),
        ("allocated(op=0, pages=2, hit=2)",),
    ]
    assert lines[last + 4 : last + 6] == [
        "seen: sched_submit(0, 0); sched_submit(1, 1); tick{allocated(0, 2), revoked(1)}",
        "RIGHT can show the first 2 of these, and then not tick{allocated(0, 2), revoked(1)}, "
        "only tick{allocated(0, 1), revoked(1)}",
    ]
    assert lines[-1] == "revoke_queue refines decide_at_drain, by ticks, assuming whole_ticks: refuted in 11 steps"


@pytest.mark.heavy
def test_a_difference_in_outcomes_is_told_at_rest(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = hicheck("revoke_queue decide_at_drain --assume whole_ticks --bounds claim_trio", capsys)
    assert code == 1
    assert "at rest, LEFT:           0 fetched 1, 1 fetched 2, 2 revoked\n" in out
    assert "at rest, RIGHT at best:  0 fetched 1, 1 fetched 1, 2 revoked\n" in out


def test_what_holds_is_said_with_its_size(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = hicheck("decide_at_drain revoke_queue --assume whole_ticks --bounds claim_pair", capsys)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == [
        "configuration",
        "polls",
        "states",
        "of",
        "LEFT",
        "states",
        "of",
        "RIGHT",
        "pairs",
        "result",
    ]
    assert lines[1].split()[:4] == ["claim_pair", "hidden", "1,245", "1,245"]
    assert lines[-1].endswith(": holds")


@pytest.mark.heavy
def test_the_json_says_it_all(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "revoke_queue decide_at_drain --assume whole_ticks,no_host_pressure --bounds claim_trio --json -"
    code, out, _ = hicheck(arguments, capsys)
    document = json.loads(out)
    assert (code, document["verdict"], document["holds"], document["steps"]) == (0, "pass", True, None)
    assert document.keys() >= JSON_KEYS | {"command", "version", "seconds"}
    assert document["assume"] == ["whole_ticks", "no_host_pressure"]
    code, out, _ = hicheck("revoke_queue decide_at_drain --assume whole_ticks --bounds claim_trio --json -", capsys)
    document = json.loads(out)
    assert (code, document["verdict"], document["holds"], document["steps"]) == (1, "fail", False, 25)
    assert len(document["run"]["left"]) == 25
    assert document["run"]["left"][0].keys() == {"number", "step", "events", "seen"}
    assert document["run"]["left_outcome"][1] == ["fetched", 2]
    assert document["states"] == sum(c["states"] for c in document["configurations"]) == 1154 + 1138


@pytest.mark.parametrize("budget", ["--max-states 100", "--max-pairs 100"])
def test_a_budget_that_runs_out_is_unknown(budget: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = hicheck(f"revoke_queue decide_at_drain --bounds claim_trio {budget} --json -", capsys)
    document = json.loads(out)
    assert (code, document["verdict"], document["holds"], document["steps"]) == (3, "unknown", None, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nothing decide_at_drain", "no design 'nothing'; there is decide_at_drain, "),
        ("decide_at_drain nothing", "no design 'nothing'"),
        (
            "decide_at_drain revoke_queue --bounds huge",
            "no bounds of a comparison 'huge'; there is claim, claim_pair, ",
        ),
        (
            "decide_at_drain revoke_queue --assume luck",
            "no assumption 'luck'; there is no_host_pressure, whole_ticks, ",
        ),
        ("decide_at_drain revoke_queue --observe all", "is not one of"),
        ("decide_at_drain revoke_queue --polls often", "is not one of"),
        ("decide_at_drain", "Missing argument 'RIGHT'"),
    ],
)
def test_bad_input_is_one_line(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = hicheck(arguments, capsys)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_verdicts_for_a_reviewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMPARED, "claim", (CLAIM_TRIO,))
    lines = verdicts("revoke_queue", "decide_at_drain")
    assert len(lines) == 3 * 2 * 2
    assert lines[0] == "revoke_queue refines decide_at_drain, by outcomes, assuming whole_ticks: refuted in 25 steps"
    assert lines[1].endswith("assuming whole_ticks, no_host_pressure: holds")


def test_what_is_unknown_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine_command, "compare", lambda *given: UNKNOWN)
    assert {line.partition(": ")[2] for line in verdicts("revoke_queue", "decide_at_drain")} == {
        "unknown: a budget ran out"
    }


# ---- several configurations

HOLDS = Compared(CLAIM_PAIR, "hidden", True, 1, 1, 1)
UNKNOWN = Compared(CLAIM_PAIR, "hidden", None, 1, 1, 1)


def refuted(steps: int, name: str = "") -> Compared:
    moves = tuple((Move(n, "", (), ""), None) for n in range(steps))
    run = TwoSides(moves, (), 0, "", None, None)
    return Compared(replace(CLAIM_PAIR, name=name), "hidden", False, 1, 1, 1, run)


@pytest.mark.parametrize(
    ("found", "answer", "text", "verdict"),
    [
        ([HOLDS, HOLDS], True, "holds", "pass"),
        ([HOLDS, UNKNOWN], None, "unknown: a budget ran out", "unknown"),
        ([], None, "unknown: a budget ran out", "unknown"),
        ([UNKNOWN, refuted(2), refuted(1), HOLDS], False, "refuted in 1 step", "fail"),
        ([refuted(0), refuted(2)], False, "refuted in 0 steps", "fail"),
    ],
)
def test_one_answer_for_several_configurations(
    found: list[Compared], answer: bool | None, text: str, verdict: str
) -> None:
    assert (holds(found), says(found)) == (answer, text)
    keys = summarise(RefineOptions("revoke_queue", "decide_at_drain"), found)
    assert (keys["holds"], keys["verdict"]) == (answer, verdict)


def test_of_equally_short_runs_the_first_is_told() -> None:
    found = shortest([HOLDS, refuted(3, "a"), refuted(2, "b"), refuted(2, "c")])
    assert found is not None
    assert (found.steps, found.bounds.name) == (2, "b")
    assert shortest([HOLDS, UNKNOWN]) is None


# ---- designs, policies


@pytest.mark.parametrize("name", one_quick(DESIGNS))
def test_every_design_can_be_watched_and_refines_itself(name: str) -> None:
    assert compare(RefineOptions(name, name, "events"), CLAIM_PAIR).holds


def test_a_design_that_replaces_what_watching_replaces_is_refused() -> None:
    own = CANONICAL.variant("own", "", {"publish": CANONICAL.modules[2].publish})
    with pytest.raises(SpecError, match="own cannot be watched: it replaces publish itself"):
        watched(own, CLAIM_PAIR, "hidden")


@pytest.mark.parametrize("polls", ["visible", "hidden"])
@pytest.mark.parametrize("policy", one_quick([WAIT_COMPLETE, BEST_EFFORT, TIMEOUT]))
def test_calls_are_possible_in_every_state(policy: int, polls: str) -> None:
    """Whether a call is refused depends on the calls before it, and on nothing that a design decides."""
    bounds = replace(CLAIM_PAIR, policy=policy, stops=True, writes=True)
    spec = BoundSpec(watched(CANONICAL, bounds, polls), bounds)
    names = {"sched_submit", "sched_abort", "sched_stop", "sched_write_through"}
    names |= {"sched_poll"} if polls == "visible" else set()
    names |= {"env_advance_clock"} if (polls, policy) == ("visible", TIMEOUT) else set()
    graph = graph_by_objects(spec, max_states=2_000)
    by_calls: dict[tuple[int, ...], set[frozenset[str]]] = {}
    for number in range(0, graph.size, 7):
        possible = set()
        for step in spec.steps:
            s = graph.states[number]
            try:
                step.run(s)
            except Refused:
                continue
            if step.rule.name in names:
                possible.add(step.label)
        asked = tuple(graph.states[number].asked)
        by_calls.setdefault(asked, set()).add(frozenset(possible))
    assert {name.split("(")[0] for found in by_calls.values() for labels in found for name in labels} == names
    assert all(len(found) == 1 for found in by_calls.values())
    assert len(by_calls) == 3


def test_what_was_published_is_seen_at_rest() -> None:
    graph = graph_of("decide_at_drain", CLAIM_PAIR, "hidden", (), None)
    ends = {outcome(graph.states[n]) for n in range(graph.size) if graph.at_rest[n]}
    assert (("fetched", 2), ("absent", 0)) in ends
    assert (("fetched", 1), ("revoked", 0)) in ends


def test_polls_are_visible_where_their_moment_decides() -> None:
    assert [default_polls(replace(CLAIM_PAIR, policy=p)) for p in (WAIT_COMPLETE, BEST_EFFORT, TIMEOUT)] == [
        *("hidden", "visible", "visible")
    ]
    assert "sched_poll" not in observation("outcomes", CLAIM_PAIR, "hidden").inputs
    assert "sched_poll" in observation("outcomes", CLAIM_PAIR, "visible").inputs


def test_storage_is_an_input_only_where_it_churns() -> None:
    assert "query_ask_storage" not in observation("outcomes", CLAIM_PAIR, "hidden").inputs
    assert "query_ask_storage" in observation("outcomes", replace(CLAIM_PAIR, churn=True), "hidden").inputs


def test_decisions_of_one_tick_are_a_set_and_empty_ticks_are_not_seen() -> None:
    spec = BoundSpec(watched(CANONICAL, CLAIM_PAIR, "hidden"), CLAIM_PAIR)
    drain = next(n for n, step in enumerate(spec.steps) if step.rule.name in DRAINS)
    submit = next(n for n, step in enumerate(spec.steps) if step.rule.name == "sched_submit")
    events = [("revoked", 1, 3, 1), ("evicted", 1, 1), ("allocated", 0, 2, 2, 0)]
    ticks, log = OBSERVATIONS["ticks"].bind(spec), OBSERVATIONS["events"].bind(spec)
    (letter,) = ticks(drain, events)
    assert say_letter(letter) == "tick{allocated(0, 2), revoked(1)}"
    assert ticks(drain, events[::-1]) == (letter,)
    assert ticks(drain, [("reclaimed", 1)]) == ()
    assert ticks(submit, events) == ()
    assert [say_letter(a) for a in log(drain, events)] == ["revoked(1, below_threshold)", "allocated(0, 2)"]


# ---- assumptions


def test_ample_host_memory_is_ample_and_the_check_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ample(CLAIM_FOUR).host_pages == 1 + 4 * 2
    tight = replace(ASSUMPTIONS["no_host_pressure"], bounds=lambda b: b)
    monkeypatch.setitem(ASSUMPTIONS, "no_host_pressure", tight)
    with pytest.raises(ValueError, match="no_host_pressure does not hold in claim_pair"):
        compare(RefineOptions("decide_at_drain", "revoke_queue", assume=("no_host_pressure",)), CLAIM_PAIR)


@pytest.mark.parametrize("name", one_quick([a.name for a in ASSUMPTIONS.values() if a.step]))
def test_an_assumption_about_steps_leaves_some_runs_out(name: str) -> None:
    assumption = ASSUMPTIONS[name]
    design = "decide_at_drain" if name == "nothing_short_ahead" else "revoke_queue"
    bounds = next(b for b in CLAIM if b.name == "claim_victims")
    if name == "nothing_else_evicted":
        design = "decide_at_drain"
    whole = graph_of(design, bounds, "hidden", (), None)
    part = graph_of(design, bounds, "hidden", (assumption.step,), None)
    assert 0 < len(part.sources) < len(whole.sources)


@pytest.mark.parametrize("name", ["decide_at_drain", "revoke_queue", "revoke_queue_sampled", "alloc_first"])
def test_assumptions_are_in_the_language(name: str) -> None:
    """So that they can be compiled, like any property."""
    from hicache_spec.language import Rule
    from hicache_spec.subset import check_rule

    design = watched(DESIGNS[name], CLAIM_PAIR, "hidden")
    functions = {n: f for m in design.modules for n, f in vars(m).items()}
    for assumption in ASSUMPTIONS.values():
        if assumption.step:
            check_rule(Rule("step", assumption.step, functions[assumption.step], {}), design)


def test_a_tick_that_leaves_something_is_not_whole() -> None:
    spec = BoundSpec(watched(DESIGNS["revoke_queue"], CLAIM_PAIR, "hidden"), CLAIM_PAIR)
    whole = spec.function("takes_all_that_waits")

    def drained(hits: int, revokes: int, waiting: int) -> tuple[State, State]:
        s, t = spec.initial(), spec.initial()
        s.hit_queue[0] = list(range(hits + waiting))
        t.hit_queue[0] = list(range(waiting))
        s.revoke_queue[0] = list(range(revokes))
        return s, t

    assert whole(*drained(1, 0, 0))
    assert not whole(*drained(1, 0, 1))
    assert not whole(*drained(0, 1, 1)), "a revoke is taken and a hit is left"


# ---- named configurations


def test_the_claim_has_three_and_four_requests_and_one_rank() -> None:
    assert {b.requests for b in CLAIM} == {2, 3, 4}
    assert {b.ranks for b in CLAIM} == {1}
    assert {b.attempts for b in (*CLAIM, *CLAIM_MORE)} == {1}, "operations are numbered as they come"
    assert any(b.ranks == 2 for b in CLAIM_MORE)
    assert len({b.name for b in (*CLAIM, *CLAIM_MORE)}) == len(CLAIM) + len(CLAIM_MORE)
