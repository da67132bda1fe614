"""The stores of the implementation under the suite for stores, the servers of some included."""

from __future__ import annotations

import pytest

from hicache_checks.stores.suite import CHECKS, FAIL, OK, SKIP, make_checks
from hicache_impl.storage.places import FilePlace, LmdbPlace, MemoryPlace

NO_SERVER = {
    *("a_stopped_server_is_a_miss", "late_transfers_reach_nobody", "a_killed_server_is_a_miss"),
    *("what_misbehaves_is_kept_apart", "what_writes_late_reaches_nobody"),
}
IN_ONE_PROCESS = {
    *("clear_leaves_what_is_not_ours", "processes_share_pages"),
    *("pages_outlive_their_handles", "a_full_medium_refuses"),
}


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("place", "do_not_apply"),
    [(MemoryPlace, NO_SERVER | IN_ONE_PROCESS), (FilePlace, NO_SERVER), (LmdbPlace, NO_SERVER)],
)
def test_a_store_passes_every_check_that_applies(place: type, do_not_apply: set[str]) -> None:
    checked = list(make_checks(place, list(CHECKS), lambda name: None))
    assert not [each for each in checked if each.verdict == FAIL]
    assert {each.check for each in checked if each.verdict == SKIP} == do_not_apply
    assert {each.check for each in checked if each.verdict == OK} == CHECKS.keys() - do_not_apply
