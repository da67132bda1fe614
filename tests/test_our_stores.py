"""The stores of the implementation under the suite for stores, with their real servers where these can be had."""

from __future__ import annotations

from pathlib import Path

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


PLACES: dict[str, type] = {
    "memory": MemoryPlace,
    "file": FilePlace,
    "lmdb": LmdbPlace,
    "redis": RedisPlace,
    "mooncake": MooncakePlace,
    "dynamic": DynamicPlace,
}
DO_NOT_APPLY = {
    "memory": SERVERS | OUTSIDE | FULL | SHARED,
    "file": SERVERS | OUTSIDE,
    "lmdb": SERVERS | OUTSIDE,
    "redis": OUTSIDE,
    "mooncake": OUTSIDE,
    "dynamic": SERVERS | FULL,
}
# Their servers, or their processes, take seconds to start.
MINUTES = {"mooncake", "dynamic"}


@pytest.mark.heavy
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in MINUTES else n for n in PLACES])
def test_a_store_passes_every_check_that_applies(name: str) -> None:
    do_not_apply = DO_NOT_APPLY[name]
    try:
        checked = list(make_checks(PLACES[name], list(CHECKS), lambda check: None))
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
    for place in PLACES.values():
        assert all(len(reason) > 10 for reason in place.lacks.values())  # type: ignore[attr-defined]


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).resolve().parents[1] / "docs" / "stores.md").read_text(encoding="utf-8")
    head = f"| check | what it asks | {' | '.join(PLACES)} |\n| --- | --- | {' | '.join('---' for _ in PLACES)} |\n"
    rows = [
        f"| `{name}` | {' '.join(str(check.__doc__).split())} | "
        + " | ".join("-" if name in DO_NOT_APPLY[store] else "yes" for store in PLACES)
        + " |\n"
        for name, check in CHECKS.items()
    ]
    assert head + "".join(rows) in page, "docs/stores.md should have:\n" + head + "".join(rows)
