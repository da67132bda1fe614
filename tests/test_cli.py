"""The command line: one clear line for bad input, exit codes, JSON, and no traceback ever."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hicache_checks import __version__, cli, explore_command
from hicache_checks.explore_command import ExploreOptions
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, envelope

Run = Callable[..., tuple[object, str, str]]


@pytest.fixture
def hicheck(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run one command in this process: returns (exit code, stdout, stderr)."""

    def run(*arguments: str) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main(list(arguments))
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return run


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "hicheck: Missing command"),
        (["nonsense"], "hicheck: No such command 'nonsense'"),
        (["explore", "--nonsense"], "hicheck explore: No such option: --nonsense"),
        (["explore", "--ranks", "two"], "hicheck explore: Invalid value for '--ranks'"),
        (["explore", "--ranks", "0"], "hicheck explore: Invalid value for '--ranks'"),
        (["explore", "--bounds", "huge"], "'huge' is not one of 'tiny', 'small'"),
        (["explore", "--policy", "never"], "'never' is not one of 'best_effort', 'wait_complete', 'timeout'"),
        (["explore", "--json"], "hicheck: Option '--json' requires an argument"),
        (["spec", "--diagram", "svg"], "'svg' is not one of 'mermaid', 'dot'"),
        (["workload"], "hicheck workload: give a trace FILE or --synthetic, one of them"),
        (["workload", "file.jsonl", "--synthetic"], "hicheck workload: give a trace FILE or --synthetic, one of them"),
        (["workload", "nowhere/file.jsonl"], "hicheck workload: nowhere/file.jsonl: no such file"),
        (["workload", "--synthetic", "--abort-rate", "1.5"], "hicheck workload: Invalid value for '--abort-rate'"),
        (["workload", "--synthetic", "--storage", "tape"], "hicheck workload: "),
        (["version", "--json", "nowhere/out.json"], "hicheck version: --json nowhere/out.json: no such directory"),
        (["version", "--json", "."], "hicheck version: --json .: is a directory"),
        (["version", "surplus"], "hicheck version: Got unexpected extra argument"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(hicheck: Run, arguments: list[str], says: str) -> None:
    code, out, err = hicheck(*arguments)
    assert code == 2
    assert says in err
    assert err.count("\n") == 1
    assert out == ""


@pytest.mark.parametrize(
    ("verdict", "code"), [(Verdict.PASS, 0), (Verdict.FAIL, 1), (Verdict.ERROR, 2), (Verdict.UNKNOWN, 3)]
)
def test_a_verdict_is_the_exit_code_and_stands_in_the_json(
    hicheck: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verdict: Verdict, code: int
) -> None:
    monkeypatch.setattr(explore_command, "run", lambda options, screen: Outcome(verdict, {"states": 5}))
    target = tmp_path / "out.json"
    assert hicheck("explore", "--json", str(target))[0] == code
    document = json.loads(target.read_text())
    assert document.pop("seconds") >= 0
    assert document == {"command": "explore", "version": __version__, "verdict": verdict.value, "states": 5}


def test_json_on_stdout_is_json_alone(hicheck: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(options: ExploreOptions, screen: Screen) -> Outcome:
        screen.say("for people")
        return Outcome(Verdict.PASS)

    monkeypatch.setattr(explore_command, "run", body)
    code, out, err = hicheck("explore", "--json", "-")
    assert code == 0
    assert json.loads(out)["command"] == "explore"
    assert err == "for people\n"


def test_an_input_error_of_a_body_is_a_line_an_exit_code_and_a_document(
    hicheck: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(options: ExploreOptions, screen: Screen) -> Outcome:
        raise InputError(f"no design {options.design!r}")

    monkeypatch.setattr(explore_command, "run", body)
    code, out, err = hicheck("explore", "--design", "mine", "--json", "-")
    assert code == 2
    assert err == "hicheck explore: no design 'mine'\n"
    document = json.loads(out)
    assert (document["verdict"], document["error"]) == ("error", "no design 'mine'")


def test_a_defect_of_ours_is_an_error_not_a_traceback(hicheck: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(options: ExploreOptions, screen: Screen) -> Outcome:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(explore_command, "run", body)
    code, out, err = hicheck("explore")
    assert (code, out) == (2, "")
    assert err == (
        "hicheck explore: internal error: RuntimeError: two lines (test_cli.py::body);"
        " HICHECK_TRACEBACK=1 shows the traceback\n"
    )
    monkeypatch.setenv("HICHECK_TRACEBACK", "1")
    assert "Traceback (most recent call last)" in hicheck("explore")[2]


def test_an_interrupt_is_one_line_and_exit_130(hicheck: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(options: ExploreOptions, screen: Screen) -> Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(explore_command, "run", body)
    assert hicheck("explore") == (130, "", "hicheck explore: interrupted\n")


def test_options_reach_the_body(hicheck: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def body(options: ExploreOptions, screen: Screen) -> Outcome:
        seen.append(options)
        return Outcome(Verdict.PASS)

    monkeypatch.setattr(explore_command, "run", body)
    hicheck("explore", "--bounds", "small", "--requests", "3", "--policy", "timeout", "--max-states", "10")
    assert seen == [ExploreOptions(bounds="small", requests=3, policy="timeout", max_states=10)]


def test_a_workload_is_reported_to_people_and_as_json(hicheck: Run, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    code, out, err = hicheck("workload", "--synthetic", "--requests", "20", "--page-bytes", "64", "--json", str(target))
    document = json.loads(target.read_text())
    assert (code, document["verdict"]) == (0, "pass")
    assert document["events_explained"] > 0
    assert (document["command"], document["requests"], document["pages_left"]) == ("workload", 20, 0)
    assert document["violations"] == []
    assert "logs" not in document
    assert out.startswith("requests    20: ")
    assert "verdict     pass: 0 violations, 0 pages left over" in out
    assert err == ""


def test_the_version_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hicache_checks.cli", "version"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"hicheck {__version__}\n", "")


def test_the_envelope_belongs_to_the_harness() -> None:
    with pytest.raises(ValueError, match="belong to the envelope"):
        envelope("spec", Outcome(Verdict.PASS, {"version": "9"}), 0.0)
    with pytest.raises(ValueError, match="differs"):
        envelope("spec", Outcome(Verdict.PASS, {"verdict": "fail"}), 0.0)


def test_the_worst_part_decides_and_no_part_is_an_error() -> None:
    assert Verdict.worst([]) is Verdict.ERROR
    assert Verdict.worst([Verdict.PASS, Verdict.UNKNOWN]) is Verdict.UNKNOWN
    assert Verdict.worst([Verdict.UNKNOWN, Verdict.FAIL]) is Verdict.FAIL
    assert Verdict.worst([Verdict.PASS, Verdict.PASS]) is Verdict.PASS
