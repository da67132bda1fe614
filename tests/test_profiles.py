"""Which design a target is held to: its own, the canonical one, or the one that is asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cache_scenario import Scenario, tokens
from conform_run import Ran, conform, ran
from hicache_checks import replay_command
from hicache_checks.conformance.explainer import FOLLOWED
from hicache_checks.conformance.merge import Merger
from hicache_checks.conformance.monitor import Monitor, MonitorConfig
from hicache_checks.conformance.next_steps import next_steps
from hicache_checks.conformance.observation import checked
from hicache_checks.conformance.search import SearchOptions
from hicache_checks.conformance.target import place_of, profile_of
from hicache_checks.conformance.traces import write_trace
from hicache_checks.reporting import InputError
from hicache_checks.trace_command import TraceOptions
from hicache_checks.trace_command import run as run_trace
from hicache_impl.variants.revoke_queue import RevokingCache, RevokingController
from hicache_spec import DESIGNS
from recorded_trace import Kept
from test_revoke_queue import REVOKE_QUEUE

OLDER, SAMPLED, NEWER = "revoke_queue", "revoke_queue_sampled", "decide_at_drain"
OUT_OF_TURN = "step_drain_decides_its_own_attempt: the next answer on rank 0 is that of a#1"
TOO_LATE = "a revoke comes after what this drain takes besides"
LEFT_OUT = "the revokes that were there before come first"
SECTION = {OLDER: "sched_drain (§8.3)", SAMPLED: "sched_drain (§8.5)"}


# ---- searches


def search(target: str, schedules: int, profile: str | None = None, **options: Any) -> Ran:
    return conform(target, SearchOptions(schedules=schedules, stop_at_first=True, **options), profile=profile)


@pytest.mark.heavy
def test_the_variant_conforms_to_the_design_that_it_names() -> None:
    ran = search("reference:revoke_queue", 400)
    assert (ran.code, ran.keys["profile"], ran.keys["schedules"]) == (0, SAMPLED, 400), ran.text
    assert f"profile     {SAMPLED}" in ran.text
    assert ran.keys["outcomes"]["revoked: below_threshold"] > 50


@pytest.mark.heavy
def test_the_variant_does_not_conform_to_the_canonical_design() -> None:
    ran = search("reference:revoke_queue", 200, NEWER)
    assert (ran.code, ran.keys["profile"], ran.keys["target"]) == (1, NEWER, "reference:revoke_queue")
    assert OUT_OF_TURN in ran.text


@pytest.mark.heavy
def test_the_reference_conforms_to_the_canonical_design_only(tmp_path: Path) -> None:
    assert search("reference", 30).keys["profile"] == NEWER
    found = search("reference", 200, SAMPLED, ranks=1)
    assert (found.code, found.keys["profile"]) == (1, SAMPLED)
    (finding,) = found.keys["findings"]
    assert (finding["property"], finding["message"]) == (SECTION[SAMPLED], TOO_LATE)
    assert finding["replay"]["target"] == f"reference@{SAMPLED}", "or its replay would be held to another design"
    (tmp_path / "found.json").write_text(json.dumps(finding["replay"]))
    again = ran(lambda screen: replay_command.run(replay_command.ReplayOptions(tmp_path / "found.json"), screen))
    assert again.code == 1
    assert again.keys["same_run"]
    assert again.keys["finding"]["message"] == TOO_LATE


@pytest.mark.heavy
def test_a_mutant_is_caught_under_a_profile_that_is_asked_for() -> None:
    ran = search("reference+io_releases_the_tail_twice", 300, NEWER)
    assert ran.code == 1
    assert "io_release_page" in ran.text or "inv_" in ran.text


def test_a_profile_is_a_design() -> None:
    with pytest.raises(InputError) as refused:
        profile_of("reference@nonsense", None)
    assert str(refused.value) == f"there is no design 'nonsense'; a profile is {', '.join(DESIGNS)}"


@pytest.mark.parametrize("profile", sorted(DESIGNS.keys() - set(FOLLOWED)))
def test_no_log_can_be_held_to_the_other_designs(profile: str) -> None:
    message = f"nothing can be held to '{profile}'; a profile is decide_at_drain, revoke_queue, revoke_queue_sampled"
    with pytest.raises(InputError) as refused:
        run_trace(TraceOptions(["nothing.jsonl"], profile), None)  # type: ignore[arg-type]
    assert str(refused.value) == message


@pytest.mark.heavy
def test_what_is_refused_is_a_usage_error() -> None:
    refused = search("reference", 1, "alloc_first")
    line = f"its profile: its logs can be held to {', '.join(FOLLOWED)} only, not to alloc_first"
    assert (refused.code, refused.text) == (2, f"reference@alloc_first cannot be used: {line}")


@pytest.mark.heavy
def test_without_logs_another_design_is_held_to_what_all_promise() -> None:
    held = search("toy_adapter:ToyAdapter", 30, OLDER)
    assert (held.code, held.keys["spec_states"]) == (0, 0)
    assert held.keys["outcomes"]["submitted"] > 0


def test_a_factory_names_a_profile_and_whoever_asks_has_the_last_word() -> None:
    class Factory:
        profile = OLDER

    assert [profile_of(name, Factory) for name in ("fork:Factory", f"fork:Factory@{NEWER}")] == [OLDER, NEWER]
    assert profile_of("fork:factory", lambda: None) == NEWER
    assert place_of(f"fork:Factory@{NEWER}") == "fork:Factory"
    assert place_of(f"reference:revoke_queue@{NEWER}") == "hicache_impl.targets:revoke_queue"
    assert place_of(f"reference+some_fault@{NEWER}") == "hicache_impl.mutants.targets:faulty"


# ---- the order of a drain


class LeavesRevokes(RevokingCache):
    """Its ticks take no revoke as long as there is a hit."""

    def _agree_lengths(self) -> list[int]:
        revokes, hits, *others = super()._agree_lengths()
        return [0 if hits else revokes, hits, *others]


LEAVES_REVOKES: dict[str, Any] = {"cache_class": LeavesRevokes, "controller_class": RevokingController}


def in_one_tick(ranks: int = 2, **builds: Any) -> Scenario:
    """`a` hits, `b` misses, and then one drain takes both answers."""
    s = Scenario(**builds, ranks=ranks)
    s.submit("a", tokens(1, 4))
    s.submit("b", tokens(2, 3), stored=0)
    s.turn()
    return s


def hit_while_a_revoke_was_seen(**builds: Any) -> Scenario:
    """`b` was revoked and the query threads are on to `c`, when the scheduler submits `d`; only then does it drain."""
    s = Scenario(**builds, ranks=2)
    s.submit("a", tokens(1, 4))
    s.submit("b", tokens(2, 3), stored=0)
    s.reference.settle()
    s.runtime.hold("query.ask")
    s.submit("c", tokens(3, 3))
    s.reference.settle()
    s.submit("d", tokens(4, 3))
    s.turn()
    return s


def explained(s: Scenario, design: str) -> str:
    """What the design does not explain of what happened so far; empty: nothing."""
    monitor = followed(s, design)
    return "" if monitor.finding is None else f"{monitor.finding.property}: {monitor.finding.message}"


def followed(s: Scenario, design: str) -> Monitor:
    config = s.reference.config
    sizes = (config.host_pages, config.threshold_pages, config.limit_pages)
    monitor, merger = Monitor(MonitorConfig(len(s.ranks), *sizes, config.policy, design)), Merger(len(s.ranks))
    for rank, log in enumerate(s.reference.logs()):
        merger.push(rank, list(checked(log.take_since(0))))
    for event in merger.ready():
        monitor.feed(event)
    return monitor


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("builds", "unexplained"),
    [
        ({}, {OLDER: f"{SECTION[OLDER]}: {TOO_LATE}", SAMPLED: f"{SECTION[SAMPLED]}: {TOO_LATE}"}),
        (REVOKE_QUEUE, {NEWER: OUT_OF_TURN}),
    ],
    ids=["newer", "older"],
)
def test_one_tick_tells_the_two_drains_apart(builds: Any, unexplained: dict[str, str], ranks: int) -> None:
    s = in_one_tick(ranks, **builds)
    assert {design: explained(s, design) for design in FOLLOWED} == {d: unexplained.get(d, "") for d in FOLLOWED}
    assert s.poll("a")[:2] == (True, "fetched")
    s.finish()


def test_where_no_collective_is_logged_nobody_knows_where_a_drain_ends() -> None:
    """So the same events may be those of two drains."""
    s = in_one_tick(ranks=1)
    config = s.reference.config
    sizes = (config.host_pages, config.threshold_pages, config.limit_pages)
    monitor = Monitor(MonitorConfig(1, *sizes, config.policy, SAMPLED))
    for event in checked(s.reference.logs()[0].take_since(0)):
        if event.kind not in ("joined", "left"):
            monitor.feed(event)
    assert monitor.finding is None
    assert s.poll("a")[:2] == (True, "fetched")
    s.finish()


def test_a_revoke_that_was_seen_is_not_left_for_the_next_tick() -> None:
    s = hit_while_a_revoke_was_seen(**LEAVES_REVOKES)
    assert explained(s, SAMPLED) == f"{SECTION[SAMPLED]}: {LEFT_OUT}"
    assert explained(s, OLDER) == "", "its drains take any numbers"
    s.runtime.release_all()
    s.turn()
    s.reference.close()


def test_a_revoke_that_was_seen_is_taken() -> None:
    s = hit_while_a_revoke_was_seen(**REVOKE_QUEUE)
    assert explained(s, SAMPLED) == ""
    assert [(e.kind, e.op) for e in s.events("allocated", "revoked")] == [
        ("revoked", ("b", 1)),
        ("allocated", ("a", 1)),
    ]
    s.runtime.release_all()
    s.turn()
    assert explained(s, SAMPLED) == ""
    s.reference.close()


def test_pages_are_reclaimed_after_the_revokes_too() -> None:
    """`a` is aborted when it has memory, so that there is something to reclaim."""
    s = Scenario(**LEAVES_REVOKES, ranks=1)
    s.submit("a", tokens(1, 4))
    s.turn()
    s.reference.abort("a")
    s.reference.settle()
    s.submit("b", tokens(2, 3), stored=0)
    s.submit("c", tokens(3, 3))
    s.turn()
    s.turn()
    assert "reclaimed" in {event.kind for event in s.events("reclaimed")}
    assert explained(s, SAMPLED) == ""
    s.reference.close()


def test_what_could_come_next_is_told_in_the_order_of_the_drain() -> None:
    s = Scenario(**REVOKE_QUEUE, ranks=2)
    s.submit("a", tokens(1, 4))
    s.submit("b", tokens(2, 3), stored=0)
    s.reference.settle()
    for design, order in ((SAMPLED, "b#1, then a#1"), (NEWER, "a#1, then b#1")):
        monitor = followed(s, design)
        assert f"a drain of {order}" in next_steps(monitor, monitor.state, None)[-1]
    s.reference.close()


# ---- traces


def test_a_trace_is_held_to_the_design_that_is_asked_for(tmp_path: Path) -> None:
    s = in_one_tick(**REVOKE_QUEUE)
    assert s.poll("a")[:2] == (True, "fetched")
    s.finish()
    path, config = tmp_path / "trace.jsonl", s.reference.config
    sizes = (config.host_pages, config.threshold_pages, config.limit_pages)
    logs = [Kept(list(checked(log.take_since(0)))) for log in s.reference.logs()]
    write_trace(path, MonitorConfig(2, *sizes, config.policy, SAMPLED), logs, "tests")
    assert traced([str(path)], SAMPLED).keys["profile"] == SAMPLED
    assert [traced([str(path)], profile).code for profile in FOLLOWED] == [1, 0, 0]


def traced(files: Sequence[str], profile: str) -> Ran:
    return ran(lambda screen: run_trace(TraceOptions(files, profile), screen))
