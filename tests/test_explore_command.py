"""`hicheck explore`: what a user sees, exit codes, JSON, budgets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hicache_checks import cli
from hicache_checks.engine.native.build import compiler
from hicache_checks.explore_command import ExploreOptions, configurations_of
from hicache_spec import BOUNDS, Bounds
from hicache_spec.bounds import BEST_EFFORT

AGAIN = "--requests 1 --attempts 2 --host-pages 1 --pages 1 --jobs 1"
needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
ENGINES = [
    "object",
    pytest.param("array", marks=pytest.mark.heavy),
    pytest.param("native", marks=[pytest.mark.heavy, needs_compiler]),
]
JSON_KEYS = {
    *("command", "version", "verdict", "seconds", "design", "bounds", "configurations", "states", "transitions"),
    *("depth", "violations", "sometimes_missing"),
}


def hicheck(arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments.split())
    captured = capsys.readouterr()
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, captured.out, captured.err


def test_a_counterexample_is_a_table_of_steps(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = hicheck(f"explore --design decide_at_drain_by_rid {AGAIN} --engine object", capsys)
    assert code == 1
    assert err == ""
    lines = out.splitlines()
    assert lines[3].startswith("step_drain_decides_its_own_attempt (§5.1) is violated in 11 steps, in custom:")
    assert lines[5].split() == ["step", "actor", "action", "what", "changed"]
    assert lines[6] == "   1  sched  sched_submit(request=0, chain=0)  attempts[0]: 0 -> 1"
    assert lines[7] == " " * 47 + "record[0]: none -> 0"
    assert any(line.startswith("  11  sched  sched_drain(hits=1, pages=0)") for line in lines)
    assert " " * 47 + "phase[1]: queued -> illegal" in lines
    assert lines[-1].startswith("decide_at_drain_by_rid: ")
    assert lines[-1].endswith("; fail")


def test_what_holds_is_said_with_its_size(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    code, out, _ = hicheck(f"explore {AGAIN} --json {file}", capsys)
    assert code == 0
    row = out.splitlines()[1].split()
    assert row[:6] == ["custom", "2", "1x2", "1,494", "4,188", "23"]
    assert row[-1] == "holds"
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document.keys() >= JSON_KEYS
    assert (document["verdict"], document["states"], document["transitions"]) == ("pass", 1494, 4188)
    (configuration,) = document["configurations"]
    assert configuration.keys() >= {"name", "states", "transitions", "depth"}
    assert "sometimes_stopped_by_the_caller" in document["sometimes_missing"]


def test_a_violation_is_in_the_json_with_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = hicheck(f"explore --design decide_at_drain_by_rid {AGAIN} --engine object --json -", capsys)
    assert code == 1
    (violation,) = json.loads(out)["violations"]
    assert violation["property"] == "step_drain_decides_its_own_attempt"
    assert violation["section"] == "5.1"
    assert [step["number"] for step in violation["steps"]] == list(range(1, 12))
    assert violation["steps"][0].keys() == {"number", "actor", "action", "changes"}


def test_a_budget_that_runs_out_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = hicheck(f"explore {AGAIN} --engine object --max-states 100", capsys)
    assert code == 3
    assert "unknown: cut by a budget" in out
    assert out.splitlines()[-1].endswith("; unknown")


@pytest.mark.heavy
def test_a_budget_of_memory_that_runs_out_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = hicheck("explore --requests 3 --ranks 2 --max-memory 8 --json -", capsys)
    assert code == 3
    (configuration,) = json.loads(out)["configurations"]
    assert not configuration["complete"]
    assert configuration["bytes_peak"] > 8 << 20


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_tells_the_same(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = hicheck(f"explore --design decide_at_drain_by_rid {AGAIN} --engine {engine} --json -", capsys)
    document = json.loads(out)
    assert code == 1
    assert document["configurations"][0]["engine"] == engine
    assert (document["states"], document["transitions"], document["depth"]) == (168, 317, 11)
    (violation,) = document["violations"]
    assert [step["action"] for step in violation["steps"]][-2:] == [
        "sched_submit(request=0, chain=0)",
        "sched_drain(hits=1, pages=0)",
    ]


@pytest.mark.heavy
def test_symmetry_says_what_was_checked(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = hicheck(f"explore {AGAIN} --engine array --symmetry", capsys)
    assert code == 0
    assert "holds; symmetry checked on 821 of 821 states" in out


def test_only_one_property(capsys: pytest.CaptureFixture[str]) -> None:
    only = "--only inv_life_cycle_is_legal"
    code, out, _ = hicheck(f"explore --design decide_at_drain_by_rid {AGAIN} --engine array {only}", capsys)
    assert code == 1
    assert "inv_life_cycle_is_legal (§4.13) is violated in 11 steps" in out


@pytest.mark.parametrize("engine", ENGINES)
def test_only_one_property_means_no_outcomes(engine: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    only = f"--only inv_anchors_alive --engine {engine} --json {file}"
    code, out, _ = hicheck(f"explore --design decide_at_drain_by_rid {AGAIN} {only}", capsys)
    assert (code, out.splitlines()[-1].split("; ")[1:]) == (0, ["only inv_anchors_alive", "pass"])
    document = json.loads(file.read_text(encoding="utf-8"))
    assert (document["sometimes_reached"], document["sometimes_missing"]) == ([], [])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_violation_in_the_level_of_the_cut_is_told(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    cut = f"{AGAIN} --engine {engine} --max-states 140"
    code, out, _ = hicheck(f"explore --design decide_at_drain_by_rid {cut}", capsys)
    assert code == 1
    assert "step_drain_decides_its_own_attempt (§5.1) is violated in 11 steps" in out
    code, out, _ = hicheck(f"explore --design decide_at_drain_by_rid {cut.replace('140', '120')}", capsys)
    assert code == 3
    assert "unknown: cut by a budget" in out


@pytest.mark.heavy
def test_a_lost_liveness_property_is_a_lasso(capsys: pytest.CaptureFixture[str]) -> None:
    room = "--requests 1 --attempts 2 --host-pages 2 --pages 1 --churn --jobs 1 --engine array"
    only = "--only inv_anchors_alive --liveness"
    code, out, _ = hicheck(f"explore --design decide_at_drain_by_rid {room} {only}", capsys)
    assert code == 1
    assert "live_submitted_operations_end(op=1) (§7.1) is violated, in custom:" in out
    assert "  and then nothing: nothing that must go on can go on" in out
    code, out, _ = hicheck(f"explore {room} --liveness --json -", capsys)
    assert code == 0
    assert {found["holds"] for found in json.loads(out)["liveness"]} == {True}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--design nothing", "no design 'nothing'; the designs are decide_at_drain, decide_at_drain_by_rid"),
        ("--bounds tiny --pages 1", "resident and stored pages of a chain lie in 0..1"),
        ("--requests 0", "greater than or equal to 1"),
        ("--only inv_nothing", "no property 'inv_nothing' of states or steps"),
        ("--engine array --device cuda --requests 1", "torch has no device 'cuda' here"),
        ("--engine object --symmetry", "--symmetry: the object engine has none"),
        ("--engine object --max-memory 100", "--max-memory: the object engine does not measure it"),
        ("--engine native --device cuda", "--device cuda: only the array engine has devices"),
        (
            "--requests 3 --attempts 2 --symmetry",
            "query_queue: 18 bits in one variable, more than the 16 that symmetry reduction can rename",
        ),
        ("--policy never", "is not one of"),
        ("--bounds huge", "is not one of"),
    ],
)
def test_bad_input_is_one_line(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = hicheck(f"explore {arguments}", capsys)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.heavy
def test_the_named_bounds_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = hicheck("explore --bounds tiny", capsys)
    assert code == 0
    names = [b.name for b in BOUNDS["tiny"]]
    assert [line.split()[0] for line in out.splitlines()[1:-1]] == names
    assert "not reached" not in out


def test_sizes_alone_make_a_configuration_of_their_own() -> None:
    (only,) = configurations_of(ExploreOptions(requests=3, policy="best_effort", churn=True))
    assert (only.name, only.requests, only.policy, only.churn) == ("custom", 3, BEST_EFFORT, True)
    assert only.ranks == Bounds.ranks


def test_sizes_with_named_bounds_change_each_of_them() -> None:
    changed = configurations_of(ExploreOptions(bounds="tiny", ranks=3))
    assert [b.name for b in changed] == [b.name for b in BOUNDS["tiny"]]
    assert {b.ranks for b in changed} == {3}
