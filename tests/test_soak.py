"""The soak: a short one passes, and each way in which one can fail is found."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from hicache_checks import cli, soak_command
from hicache_checks.rank_layout import RankLayout
from hicache_checks.reporting import InputError, Progress, Screen, Verdict
from hicache_checks.soak_command import SoakOptions
from hicache_impl import soak, soak_servers
from hicache_impl.config import CacheConfig
from hicache_impl.keys import chain_hashes
from hicache_impl.soak_steps import PROMPT_PAGES_MAX, PROMPTS, Life, prompt
from hicache_impl.storage.memory import MemoryStorage

HERE = Path(__file__).parent
RUNNER = "hicache_impl.soak:run"
CONFIG = CacheConfig(host_pages=64, device_pages=40, page_size=4)


@pytest.fixture(autouse=True)
def faults_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the processes of the ranks."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH", "")))))


def soaked(fault: str | None = None, seconds: float = 4.0, **more: Any) -> tuple[Verdict, dict[str, Any], list[str]]:
    """Verdict, report, and lines of progress."""
    lines: list[str] = []
    if fault is not None:
        more["cache_class"] = f"soak_faults:{fault}"
    layout = more.pop("layout", RankLayout(tp=2))
    options = SoakOptions(seconds / 60, layout, more.pop("store", "memory"), 0, RUNNER, more)
    outcome = soak_command.soak(options, lines.append)
    return outcome.verdict, dict(outcome.keys), lines


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("layout", "store"),
    [
        (RankLayout(tp=2), "memory"),
        (RankLayout(tp=2), "lmdb"),
        (RankLayout(tp=2), "file"),
        (RankLayout(), "memory"),
        (RankLayout(tp=2, pp=2), "memory"),
        (RankLayout(cp=2, dp=2), "file"),
    ],
    ids=str,
)
def test_a_short_soak_finds_nothing(layout: RankLayout, store: str) -> None:
    verdict, keys, lines = soaked(layout=layout, store=store, rounds_a_life=2, seconds=6.0)
    assert keys["violations"] == []
    assert verdict in (Verdict.PASS, Verdict.UNKNOWN), "so short a time need not be enough to judge memory"
    assert keys["rounds"] >= 2
    assert keys["lives"] >= 1
    assert keys["happened"]["submitted"] > 0
    assert keys["moved_pages"]["host to storage, stored"] > 0
    assert lines[0] == "soak: begins"
    assert any(", 2 rounds, " in line and line.endswith(" 0 findings") for line in lines)


@pytest.mark.heavy
@pytest.mark.parametrize("store", ["redis", "mooncake"])
def test_servers_are_stopped_and_killed_meanwhile(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak_servers, "WELL_S", (0.5, 1.0))
    monkeypatch.setattr(soak_servers, "STOPPED_S", (0.2, 0.5))
    monkeypatch.setattr(soak_servers, "MISSING_S", (0.0, 0.5))
    try:
        _, keys, _ = soaked(store=store, rounds_a_life=4, seconds=12.0)
    except InputError as reason:
        pytest.skip(str(reason))
    assert keys["violations"] == []
    assert keys["rounds"] >= 1
    assert sum(keys["servers"].values()) >= 2
    assert {name.split()[1] for name in keys["servers"]} <= {"stopped", "killed"}


@pytest.mark.parametrize("may_go", [True, False])
@pytest.mark.parametrize("does", ["right", "wrong", "misses"])
def test_wrong_bytes_are_found_whatever_befalls_the_store(does: str, may_go: bool) -> None:
    """A page that is gone is no fault of a store whose server may have been killed in between."""

    class Answering(MemoryStorage):
        def get_into(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
            got = super().get_into(keys, into)
            if does == "wrong":
                into[0].bitwise_not_()
            return [False] if does == "misses" else got

    life = Life.__new__(Life)
    life.problems = []
    life.cache = SimpleNamespace(config=CONFIG, rank=0)  # type: ignore[assignment]
    store = Answering()
    life.place = SimpleNamespace(store=store, pages_may_go=may_go)  # type: ignore[assignment]
    hashes = chain_hashes(prompt(3, CONFIG))
    store.put_from(life._names(hashes), [life._content(page_hash) for page_hash in hashes])
    life._look_at_the_store(hashes)
    is_wrong = does == "wrong" or (does == "misses" and not may_go)
    assert len(life.problems) == (len(hashes) if is_wrong else 0)
    assert all(problem.startswith("P30 the store does not hold the bytes of") for problem in life.problems)


class TestFaults:
    def violations(self, fault: str, **more: Any) -> str:
        verdict, keys, _ = soaked(fault, **more)
        assert verdict is Verdict.FAIL
        return "\n".join(keys["violations"])

    @pytest.mark.heavy
    def test_a_lost_page(self) -> None:
        found = self.violations("LosesADevicePage", seconds=30.0)
        assert "device pages are neither free nor in the tree" in found

    @pytest.mark.heavy
    def test_a_thread_that_is_left(self) -> None:
        assert "1 threads are left after close" in self.violations("LeavesAThread", rounds_a_life=1)

    @pytest.mark.heavy
    def test_memory_that_grows(self) -> None:
        found = self.violations("GrowsAndGrows", seconds=15.0, warm_up_s=0.0, steps_a_round=6)
        assert "memory: rank 0 had" in found
        assert "more" in found

    @pytest.mark.heavy
    def test_a_hang(self) -> None:
        found = self.violations("WaitsForNobody", seconds=60.0, stall_s=5.0, silence_s=8.0)
        assert "hang: rank 1: no round ended within 8 s; it is in " in found
        assert "detach_storage" in found

    @pytest.mark.heavy
    def test_what_does_not_end(self) -> None:
        assert "Stalled: P5 for 1 s these did not end: r" in self.violations("NeverRests", seconds=60.0, stall_s=1.0)

    @pytest.mark.heavy
    def test_a_rank_that_dies(self) -> None:
        found = self.violations("DiesSuddenly")
        assert "rank 1: ended without a result: exit code 7" in found or "rank 1 ended without a result" in found


REPORT: dict[str, Any] = {
    "ranks": 2,
    "layout": {"tp": 2, "cp": 1, "pp": 1, "dp": 1},
    "store": "memory",
    "seed": 0,
    "rounds": 9,
    "lives": 2,
    "happened": dict.fromkeys(soak_command.NEEDED, 1),
    "moved_pages": {"device to host, write_back": 5},
    "violations": [],
    "recent": [],
    "memory_judged": True,
    "resident": [{"after_warm_up_bytes": 2**30, "at_the_end_bytes": 2**30 + 2**25}],
    "seconds": 60.0,
    "servers": {},
}


class TestReport:
    """What a runner reports, judged and printed."""

    def judged(self, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> tuple[Verdict, str]:
        monkeypatch.setattr(soak_command, "load", lambda group, name: lambda given, progress: REPORT | changes)
        console = io.StringIO()
        screen = Screen(Console(file=console, soft_wrap=True), Progress(io.StringIO()))
        return soak_command.run(SoakOptions(1.0), screen).verdict, console.getvalue()

    @pytest.mark.parametrize(
        ("changes", "verdict", "says"),
        [
            ({}, Verdict.PASS, "pass: 0 violations"),
            ({"violations": ["P4 a page"]}, Verdict.FAIL, "fail: 1 violations"),
            ({"rounds": 0}, Verdict.ERROR, "error: 0 violations"),
            ({"memory_judged": False}, Verdict.UNKNOWN, "unknown: 0 violations; memory was not judged"),
            ({"happened": {"submitted": 3}}, Verdict.UNKNOWN, "never happened: fetched_complete, "),
        ],
    )
    def test_the_verdict(
        self, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], verdict: Verdict, says: str
    ) -> None:
        found, text = self.judged(monkeypatch, **changes)
        assert found is verdict
        assert says in text

    def test_it_tells_of_memory_and_violations(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _, text = self.judged(monkeypatch, violations=["P4 a page"], recent=["evicted None"])
        assert "1,024.0 MiB after the warm-up, 1,056.0 MiB at the end, +3.1%" in text
        assert "violation: P4 a page" in text
        assert "before it: evicted None" in text


class TestMemory:
    """Which samples are compared."""

    def grown(self, sizes: Sequence[int]) -> tuple[int, int]:
        return soak._resident([(float(second), size) for second, size in enumerate(sizes)], 10.0)

    def test_what_comes_before_the_warm_up_does_not_count(self) -> None:
        assert self.grown([9] * 10 + [5] * 20 + [7] * 20) == (5, 7)

    def test_one_high_sample_is_not_growth(self) -> None:
        assert self.grown([5] * 49 + [90]) == (5, 5)

    def test_too_few_are_not_judged(self) -> None:
        assert self.grown([5] * 17) == (0, 0)
        assert self.grown([0] * 60) == (0, 0), "the system does not say"


def test_prompts_share_prefixes_and_differ() -> None:
    keys = [prompt(number, CONFIG) for number in range(PROMPTS)]
    assert {len(key) for key in keys} <= set(range(1, PROMPT_PAGES_MAX + 1))
    assert len({key.pages for key in keys}) > PROMPTS // 2
    assert len({key.pages[0] for key in keys}) == 2
    assert prompt(3, CONFIG) == prompt(3, CONFIG)


def test_options_that_cannot_be_used() -> None:
    for more, says in (
        ({"seconds": 0}, "more than 0 s"),
        ({"store": "tape"}, "lmdb, file, memory, redis, mooncake"),
        ({"layout": {"tp": 0}}, "tp must be an integer >= 1"),
    ):
        with pytest.raises(InputError, match=says):
            soak_command.soak(SoakOptions(1.0, target=RUNNER, more=more), lambda line: None)
    with pytest.raises(InputError, match="no 'nobody' is registered in hicheck"):
        soak_command.soak(SoakOptions(1.0, target="nobody"), lambda line: None)


def test_the_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    def runner(given: dict[str, Any], progress: Any) -> dict[str, Any]:
        asked.append(given)
        return dict(REPORT)

    monkeypatch.setattr(soak_command, "load", lambda group, name: runner)
    with pytest.raises(SystemExit) as ended:
        cli.main(["soak", "--minutes", "0.5", "--tp", "3", "--store", "file", "--json", str(tmp_path / "r.json")])
    assert ended.value.code == 0
    document = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert (document["command"], document["verdict"], document["violations"]) == ("soak", "pass", [])
    (given,) = asked
    assert (given["seconds"], given["layout"]["tp"], given["store"], given["seed"]) == (30.0, 3, "file", 0)


def test_what_befell_the_servers_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    _, said = TestReport().judged(monkeypatch, servers={"redis stopped": 3, "redis killed": 2})
    assert "servers   redis killed 2, redis stopped 3" in said
