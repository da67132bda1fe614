"""`hicheck bench targets`: the work is done by real releases, and the verdict is about the figure."""

from __future__ import annotations

import pytest

from conform_run import ran
from hicache_checks import bench_targets, cli
from hicache_checks.bench_simulation import Row, simulated_run
from hicache_checks.bench_targets import Measured, TargetsOptions
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict
from release_under_test import release


def row(runs: int, cpu_seconds: float, has_judge: bool = False, seconds: float | None = None) -> Row:
    """A measurement, which had a core for itself if nothing else is said."""
    return Row("simulated", True, has_judge, runs, seconds or cpu_seconds, cpu_seconds, 300.0)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """What is asked to be measured. With the judge, work takes longer."""
    asked: list[tuple[str, bool]] = []

    def made_up(of: str, is_simulated: bool, has_judge: bool, seconds: float, screen: Screen) -> Row:
        assert is_simulated
        asked.append((of, has_judge))
        return row(1_600 if of.startswith("fast") else 900, seconds if has_judge else seconds / 2, has_judge)

    monkeypatch.setattr(bench_targets, "measured", made_up)
    monkeypatch.setattr(bench_targets, "fetch", lambda *_: None)
    return asked


@pytest.mark.parametrize(
    ("runs", "seconds", "verdict"),
    [
        (1_500, 10.0, Verdict.PASS),
        (1_500, 30.0, Verdict.PASS),
        (1_499, 10.0, Verdict.FAIL),
        (1_499, 11.0, Verdict.FAIL),
        (1_499, 12.0, Verdict.UNKNOWN),
    ],
)
def test_wanted_are_150_a_second_of_a_core(runs: int, seconds: float, verdict: Verdict) -> None:
    """Whoever shared the core and has too little, does not know."""
    assert Measured("a", row(runs, 10.0, seconds=seconds)).verdict is verdict


def test_one_row_that_does_not_know_is_said(measured: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = iter((row(1_500, 10.0), row(1_499, 10.0, seconds=20.0)))
    monkeypatch.setattr(bench_targets, "measured", lambda *_: next(rows))
    said = ran(lambda screen: bench_targets.run(TargetsOptions(("busy",), 10.0), screen))
    assert said.code == Verdict.UNKNOWN.exit_code
    assert "others were at work: measure again on a quiet machine\nverdict: unknown" in said.text


def test_each_target_is_measured_with_and_without_the_judge(measured: list[tuple[str, bool]]) -> None:
    said = ran(lambda screen: bench_targets.run(TargetsOptions(("fast", "slow"), 10.0), screen))
    assert measured == [("fast", False), ("fast", True), ("slow", False), ("slow", True)]
    header, *lines = said.text.splitlines()
    assert header.startswith("target  judge  schedules  schedules/s  schedules/s of a core  wanted  steps")
    assert [line.split() for line in lines] == [
        ["fast", "off", "1,600", "320", "320", "150", "300"],
        ["fast", "on", "1,600", "160", "160", "150", "300"],
        ["slow", "off", "900", "180", "180", "150", "300"],
        ["slow", "on", "900", "90", "90", "150", "300"],
        ["verdict:", "fail"],
    ]
    assert said.code == Verdict.FAIL.exit_code
    assert [one["share_of_wanted"] for one in said.keys["rows"]] == pytest.approx([320 / 150, 160 / 150, 1.2, 0.6])
    assert [one["has_judge"] for one in said.keys["rows"]] == [False, True, False, True]
    assert (said.keys["ranks"], said.keys["pages"], said.keys["wanted"]) == (2, 8, 150.0)


def test_what_is_fast_enough_passes(measured: list[tuple[str, bool]]) -> None:
    said = ran(lambda screen: bench_targets.run(TargetsOptions(("fast",), 10.0), screen))
    assert (said.code, said.text.splitlines()[-1]) == (0, "verdict: pass")


def test_options_reach_the_body(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given: list[TargetsOptions] = []

    def run(options: TargetsOptions, screen: Screen) -> Outcome:
        given.append(options)
        return Outcome(Verdict.PASS)

    monkeypatch.setattr(bench_targets, "run", run)
    for words in ("", "--targets a,b --targets c --seconds 2"):
        with pytest.raises(SystemExit) as stop:
            cli.main(["bench", "targets", *words.split()])
        assert stop.value.code == 0
    assert given == [TargetsOptions(bench_targets.TARGETS, 10.0), TargetsOptions(("a", "b", "c"), 2.0)]


@pytest.mark.heavy
def test_releases_do_the_work() -> None:
    for name in bench_targets.TARGETS:
        with release(name) as target:
            first, again, other = (simulated_run(target.build, seed, True, target.judge) for seed in (1, 1, 2))
            assert first.digest() == again.digest() != other.digest()
            alone = simulated_run(target.build, 1, False)
            assert alone.trace == first.trace


@pytest.mark.heavy
def test_work_that_is_not_done_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hicache_checks.bench_simulation.STEPS", ())
    with (
        release(bench_targets.TARGETS[0]) as target,
        pytest.raises(InputError, match=r"0 of 8 pages were fetched|is wrong"),
    ):
        simulated_run(target.build, 1, False)
