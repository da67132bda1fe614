"""The command line of the commands about systems under test: what is asked for is what is done."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from hicache_checks import cli, conform_command, diff_targets_command
from hicache_checks.conformance.differ import DiffOptions
from hicache_checks.conformance.search import SearchOptions
from hicache_checks.reporting import Outcome, Screen, Verdict

Run = Callable[[str], tuple[object, str, str]]


@pytest.fixture
def hicheck(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run one command in this process: returns (exit code, stdout, stderr)."""

    def run(arguments: str) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments.split())
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return run


def asked(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The options that a command's body is given from now on; the body itself does nothing."""
    given: list[Any] = []

    def run(options: Any, screen: Screen) -> Outcome:
        given.append(options)
        return Outcome(Verdict.PASS)

    monkeypatch.setattr(module, "run", run)
    return given


# ---- conform


@pytest.mark.parametrize(
    ("arguments", "search"),
    [
        ("", SearchOptions(schedules=1000)),
        ("--seconds 5", SearchOptions(schedules=None, seconds_max=5.0)),
        ("--schedules 7 --seconds 5", SearchOptions(schedules=7, seconds_max=5.0)),
        ("--strategy pct --seed 3 --policy timeout", SearchOptions(strategy="pct", seed=3, policies=("timeout",))),
        ("--steps 3", SearchOptions(schedules=1000, steps_max=3)),
        ("--strategy exhaustive", SearchOptions(strategy="exhaustive", schedules=None)),
        (
            "--strategy exhaustive --preemptions 0 --ranks 1 --schedules 9",
            SearchOptions(strategy="exhaustive", preemptions_max=0, ranks=1, schedules=9),
        ),
    ],
)
def test_what_is_searched(arguments: str, search: SearchOptions, hicheck: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    given = asked(conform_command, monkeypatch)
    assert hicheck(f"conform reference {arguments}")[0] == 0
    assert [options.search for options in given] == [search]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("conform reference --strategy luck", "'luck' is not one of 'mixed', 'walk', 'pct', 'exhaustive'"),
        ("conform reference --preemptions -1", "hicheck conform: Invalid value for '--preemptions'"),
        ("conform reference --strategy exhaustive --mode threads", "--strategy exhaustive chooses every switch"),
        ("diff-targets reference", "hicheck diff-targets: Missing argument 'RIGHT'"),
        ("diff-targets reference nobody", "hicheck diff-targets: no target 'nobody'; give "),
        ("diff-targets reference reference --assume luck", "hicheck diff-targets: luck is no assumption; of programs "),
        ("diff-targets reference reference --ranks 0", "hicheck diff-targets: Invalid value for '--ranks'"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments: str, says: str, hicheck: Run) -> None:
    code, out, err = hicheck(arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


# ---- diff-targets


def test_what_is_compared(hicheck: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    given = asked(diff_targets_command, monkeypatch)
    hicheck("diff-targets reference:revoke_queue reference")
    hicheck(
        "diff-targets a:b c:d --assume no_host_pressure,whole_ticks --assume other --programs 3 --seconds 4 --ranks 5"
        " --policy timeout --seed 6"
    )
    assumed = ("no_host_pressure", "whole_ticks", "other")
    assert given == [
        DiffOptions("reference:revoke_queue", "reference"),
        DiffOptions("a:b", "c:d", assumed, programs=3, seconds_max=4.0, seed=6, ranks=5, policies=("timeout",)),
    ]


@pytest.mark.heavy
def test_the_founding_question_is_answered_by_exit_code(hicheck: Run) -> None:
    both = "diff-targets reference:revoke_queue reference"
    code, out, _ = hicheck(f"{both} --ranks 1 --policy wait_complete --json -")
    document = json.loads(out)
    assert (code, document["verdict"], document["command"]) == (1, "fail", "diff-targets")
    setup = document["difference"]["setup"]
    assert (setup["ranks"], setup["policy"]) == (1, "wait_complete")
    assert document["difference"]["left"]["ends"] != document["difference"]["right"]["ends"]
    assert hicheck(f"{both} --ranks 1 --policy wait_complete --assume no_host_pressure --programs 50")[0] == 0
