"""Published releases under the harness: each family and design loads, fetches, computes, and is judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conform_run import conform, ran
from hicache_checks import diff_targets_command, scenario_command
from hicache_checks.conformance import scenario as scenarios
from hicache_checks.conformance.differ import DiffOptions
from hicache_checks.conformance.search import SearchOptions
from hicache_checks.conformance.target import kind_of, opened
from hicache_checks.reporting import InputError
from release_under_test import Driven, have, release

PROFILES = {
    "sglang==0.5.1": "alloc_first",
    "sglang==0.5.17": "revoke_queue",
    "sglang==0.5.18": "decide_at_drain",
    "sglang[unified]==0.5.18": "decide_at_drain",
    "sglang==0.5.19": "progress_ack",
    "sglang==0.5.23": "attempts",
    "sglang-kt==0.7.2": "alloc_first",
}
AUDITS = ("bytes", "events", "all_prefix_keys", "asked", "vain_reads", "retried")
ORDINARY = {"free_pages": 3, "resident_pages": 3, "occupied_pages": 0, "operations": {}}


def fetch_and_compute(adapter: Any, rest: Callable[..., None], seen: dict[str, Any]) -> None:
    adapter.store((5, 6, 7))
    seen["submitted"] = adapter.submit("a", (5, 6, 7))
    rest()
    seen["polled"] = adapter.poll(["a"])["a"]["ready"]
    seen["observed"] = {name: value for name, value in adapter.observe().items() if name != "ranks"}
    rest()
    seen["wrong"] = [*adapter.prefill((5, 6, 7)).wrong, *adapter.prefill((1, 2, 3)).wrong]
    rest()
    seen["audit"] = [*adapter.audit(), *adapter.audit_stores()]


@pytest.mark.heavy
@pytest.mark.parametrize("name", PROFILES)
def test_a_release_fetches_pages_with_their_bytes(name: str) -> None:
    with release(name) as target:
        assert target.profile == PROFILES[name]
        for ranks in (1, 2):
            seen = Driven(target, ranks).run(fetch_and_compute)
            assert seen["submitted"] == {"accepted": True, "attempt": 1, "span_pages": 3}
            assert (seen["polled"], seen["observed"]) == (True, ORDINARY)
            assert (seen["wrong"], seen["audit"]) == ([], [])


@pytest.mark.heavy
def test_a_tree_with_states_fetches_them_besides() -> None:
    with release("sglang[himamba]==0.5.17") as target:
        for ranks, page_size in ((1, 1), (2, 64)):
            seen = Driven(target, ranks, more=(("page_size", page_size),)).run(fetch_and_compute)
            assert seen["submitted"] == {"accepted": True, "attempt": 1, "span_pages": 3}
            assert (seen["polled"], seen["observed"]) == (True, ORDINARY)
            assert (seen["wrong"], seen["audit"]) == ([], [])


@pytest.mark.heavy
def test_a_state_in_the_wrong_place_shows() -> None:
    def body(adapter: Any, rest: Callable[..., None], seen: dict[str, Any]) -> None:
        adapter.prefill((1, 2, 3))
        rest()
        assert adapter.audit() == adapter.audit_stores() == []
        rank = adapter._crew._ranks[0]
        states, requests, node = rank.cache.mamba_pool_host, rank.parts.requests, next(rank.tree.nodes()).raw
        states.temporal_buffer += 1
        seen["P6 the host's state"] = adapter.audit()
        states.temporal_buffer -= 1
        requests.mamba_pool.mamba_cache.conv[0] += 1
        seen["P6 the device's state"] = adapter.audit()
        seen["loaded"] = adapter.prefill((1, 2, 3)).wrong
        requests.mamba_pool.mamba_cache.conv[0] -= 1
        kept, states.free_slots = states.free_slots, states.free_slots[1:]
        seen["P4 host states"] = adapter.audit()
        states.free_slots = kept
        taken = requests.mamba_allocator.alloc(1)
        seen["P4 1 slots for states"] = adapter.audit()
        requests.mamba_allocator.free(taken)
        node.mamba_lock_ref += 1
        seen["P14 1 hold on to the state"] = adapter.audit()
        node.mamba_lock_ref -= 1
        assert adapter.audit_written() == []
        kept, node.mamba_host_value = node.mamba_host_value, None
        seen["P32 the device has the state"] = adapter.audit_written()
        node.mamba_host_value = kept
        assert adapter.audit() == adapter.audit_stores() == []
        rank.shelf.pages[f"{rank.keys((1, 2, 3))[-1]}.mamba"] += 1
        seen["P30 the store"] = adapter.audit_stores()

    with release("sglang[himamba]==0.5.17") as target:
        seen = Driven(target, 1).run(body)
    assert any("the device's state after [1, 2, 3]" in line for line in seen.pop("loaded"))
    for begins, lines in seen.items():
        assert [line.startswith(f"rank 0: {begins}") for line in lines] == [True], (begins, lines)


@pytest.mark.heavy
def test_what_a_tree_with_states_has_no_idea_of_is_refused() -> None:
    pairs = (("pairs", True), ("page_size", 4))
    with release("sglang[himamba]==0.5.17") as target, pytest.raises(ValueError, match="no keys of pairs"):
        Driven(target, 1, more=pairs).run(fetch_and_compute)


@pytest.mark.heavy
@pytest.mark.parametrize("page_size", [4, 16, 64])
def test_pages_may_have_many_tokens(page_size: int) -> None:
    with release("sglang==0.5.18") as target:
        seen = Driven(target, 1, more=(("page_size", page_size),)).run(fetch_and_compute)
        assert (seen["polled"], seen["observed"], seen["wrong"], seen["audit"]) == (True, ORDINARY, [], [])


@pytest.mark.heavy
def test_a_page_in_the_wrong_place_shows() -> None:
    """What the audits look at is seen: each of these is broken by hand."""

    def body(adapter: Any, rest: Callable[..., None], seen: dict[str, Any]) -> None:
        adapter.prefill((1, 2, 3))
        rest()
        assert adapter.audit() == []
        rank = adapter._crew._ranks[0]
        rank.host.kv_buffer += 1
        seen["bytes"] = adapter.audit()
        rank.host.kv_buffer -= 1
        kept, rank.host.free_slots = rank.host.free_slots, rank.host.free_slots[1:]
        seen["lost"] = adapter.audit()
        rank.host.free_slots = kept
        node = next(rank.tree.nodes()).raw
        node.host_ref_counter += 1
        seen["held"] = adapter.audit()
        node.host_ref_counter -= 1
        rank.controller.prefetch_tokens_occupied += 1
        seen["occupied"] = adapter.audit()
        rank.controller.prefetch_tokens_occupied -= 1
        kept, node.host_value = node.host_value, node.host_value.repeat(2)[: len(node.host_value)]
        seen["kept"] = adapter.audit()
        node.host_value = kept
        heard = rank.router.tiers["CPU_PINNED"]
        block, missed = heard.popitem()
        seen["unheard"] = adapter.audit()
        heard.update({block: missed, 9: (9,)})
        seen["imagined"] = adapter.audit()
        heard.pop(9)
        rank.shelf.told_before.append((rank.keys((1, 2))[1], ("another",)))
        seen["misled"] = adapter.audit_stores()
        rank.shelf.told_before[-1:] = [(rank.keys((1, 2))[1], ())]
        seen["uninformed"] = adapter.audit_stores()
        rank.shelf.told_before.clear()
        rank.shelf.asked["nobody's"] += 1
        seen["asked"] = adapter.audit_stores()
        del rank.shelf.asked["nobody's"]
        rank.shelf.vain_reads["a page"] = 4
        seen["vain"] = adapter.audit_stores()
        rank.shelf.vain_reads.clear()
        rank.shelf.has_failed_to_put = True
        page = rank.shelf.pages.pop(rank.keys((1, 2))[1])
        seen["refused"] = adapter.audit_stores()
        rank.shelf.pages[rank.keys((1, 2))[1]] = page
        assert adapter.audit() == adapter.audit_stores() == []
        rank.shelf.pages[rank.keys((1,))[0]] += 1
        seen["stored"] = adapter.audit_stores()

    with release("sglang==0.5.18") as target:
        seen = Driven(target, 1, more=(("audits", AUDITS),)).run(body)
    names = {"bytes": "P6", "lost": "P4", "held": "P14", "occupied": "P8", "stored": "P30"}
    names |= {"kept": "P4", "unheard": "P29", "imagined": "P29", "misled": "P21", "uninformed": "P21"}
    names |= {"asked": "P21", "vain": "P5", "refused": "P32"}
    for place, property_ in names.items():
        assert seen[place], place
        assert all(f"rank 0: {property_} " in line for line in seen[place]), (place, seen[place])


@pytest.mark.heavy
def test_what_random_search_finds_is_what_the_public_threads_say() -> None:
    """B11: until 0.5.21 one error of a store ends a thread for good; repaired in 0.5.22."""
    for name in ("sglang==0.5.21", "sglang==0.5.22"):
        have(name)
    found = conform("sglang==0.5.21", SearchOptions(schedules=60))
    properties = {finding["property"] for finding in found.keys["findings"]}
    assert (found.code, "P31 threads_survive" in properties) == (1, True)
    repaired = conform("sglang==0.5.22", SearchOptions(schedules=60))
    assert "P31 threads_survive" not in {finding["property"] for finding in repaired.keys["findings"]}


@pytest.mark.slow
def test_the_founding_claim_fails_on_the_releases() -> None:
    have("sglang==0.5.17")
    have("sglang==0.5.18")
    options = DiffOptions("sglang==0.5.17", "sglang==0.5.18", seconds_max=120.0)
    differs = ran(lambda screen: diff_targets_command.run(options, screen))
    assert differs.code == 1
    difference = differs.keys["difference"]
    assert len(difference["program"]) <= 12
    # Which small program is left depends on the time that there was for it: pages differ in the end, or an operation.
    left, right = ({name: difference[side][name] for name in ("ends", "rest")} for side in ("left", "right"))
    assert left != right


@pytest.mark.heavy
def test_a_scenario_is_shown_where_it_says() -> None:
    for name in ("sglang==0.5.19", "sglang==0.5.20"):
        have(name)
    played = ran(lambda screen: scenario_command.run(scenario_command.ScenarioOptions("B43-stale-ack"), screen))
    assert played.code == 0
    assert [(s["target"], s["shown"]) for s in played.keys["scenarios"]] == [
        ("sglang==0.5.19", True),
        ("sglang==0.5.20", False),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("W46-pages-of-another-model", "W09-parent-untold", "B51-asked-for-by-tokens"),
        *("W19-parent-of-what-is-evicted", "N09-a-state-is-a-token"),
    ],
)
def test_scenarios_of_stores_events_keys_and_states_are_shown_where_they_say(name: str) -> None:
    scenario = scenarios.read(name)
    for target in (*scenario.affected, *scenario.repaired):
        have(target)
    played = ran(lambda screen: scenario_command.run(scenario_command.ScenarioOptions(name, schedules=5), screen))
    assert played.code == 0
    assert [s["shown"] for s in played.keys["scenarios"]] == [True] * len(scenario.affected) + [False]


def test_a_release_may_be_asked_for_another_tree() -> None:
    assert kind_of("sglang[unified]==0.5.18") == ("sglang==0.5.18", "unified")
    assert kind_of("path:/somewhere[hiradix]") == ("path:/somewhere", "hiradix")
    assert kind_of("sglang==0.5.18") == ("sglang==0.5.18", None)


@pytest.mark.heavy
def test_a_tree_that_a_release_lacks_is_a_usage_error() -> None:
    have("sglang==0.5.23")
    with pytest.raises(InputError, match="no tree of the kind 'hiradix'"), opened("sglang[hiradix]==0.5.23", True):
        pass


def test_a_directory_that_is_no_release_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(InputError), opened(f"path:{tmp_path}", True):
        pass
