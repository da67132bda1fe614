"""The stores of the implementation under the suite for stores, with their real servers where these can be had."""

from __future__ import annotations

import pytest

from hicache_checks.stores.suite import CHECKS, FAIL, OK, SKIP, make_checks
from hicache_impl.storage.dynamic_place import DynamicPlace
from hicache_impl.storage.mooncake_place import MooncakePlace
from hicache_impl.storage.places import FilePlace, LmdbPlace, MemoryPlace
from hicache_impl.storage.redis_place import RedisPlace
from hicache_impl.storage.servers import Unavailable

SERVERS = {"a_stopped_server_is_a_miss", "late_transfers_reach_nobody", "a_killed_server_is_a_miss"}
OUTSIDE = {"what_misbehaves_is_kept_apart", "what_writes_late_reaches_nobody"}
FULL = {"clear_leaves_what_is_not_ours", "a_full_medium_refuses"}
SHARED = {"processes_share_pages", "pages_outlive_their_handles"}


@pytest.mark.heavy
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("place", "do_not_apply"),
    [
        (MemoryPlace, SERVERS | OUTSIDE | FULL | SHARED),
        (FilePlace, SERVERS | OUTSIDE),
        (LmdbPlace, SERVERS | OUTSIDE),
        (RedisPlace, OUTSIDE),
        pytest.param(MooncakePlace, OUTSIDE, marks=pytest.mark.slow),
        pytest.param(DynamicPlace, SERVERS | FULL, marks=pytest.mark.slow),
    ],
)
def test_a_store_passes_every_check_that_applies(place: type, do_not_apply: set[str]) -> None:
    try:
        checked = list(make_checks(place, list(CHECKS), lambda name: None))
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert not [each for each in checked if each.verdict == FAIL]
    assert {each.check for each in checked if each.verdict == SKIP} == do_not_apply
    assert {each.check for each in checked if each.verdict == OK} == CHECKS.keys() - do_not_apply


@pytest.mark.heavy
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("place", "checks"),
    [
        (MooncakePlace, ["what_was_put_is_got", "clear_leaves_what_is_not_ours", "late_transfers_reach_nobody"]),
        (DynamicPlace, ["what_was_put_is_got", "what_misbehaves_is_kept_apart", "what_writes_late_reaches_nobody"]),
    ],
)
def test_a_store_with_a_process_of_its_own_passes_what_is_hardest_for_it(place: type, checks: list[str]) -> None:
    try:
        checked = list(make_checks(place, checks, lambda name: None))
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert [(each.verdict, each.reason) for each in checked] == [(OK, "")] * len(checks)


def test_the_reasons_why_a_check_does_not_apply_are_the_stores_own() -> None:
    for place in (MemoryPlace, FilePlace, LmdbPlace, RedisPlace, MooncakePlace, DynamicPlace):
        assert all(len(reason) > 10 for reason in place.lacks.values())
