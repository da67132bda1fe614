"""What a cache of a release keeps: what is on its way, and records that may stay."""

from __future__ import annotations

from types import SimpleNamespace

from hicache_checks.targets.sglang.tree import is_under_way, maps_of


def test_records_of_what_was_loaded_are_not_on_their_way() -> None:
    cache = SimpleNamespace(ongoing_prefetch={}, ongoing_backup={}, prefetch_loaded_tokens_by_reqid={"a": 4})
    assert not is_under_way(cache)
    assert maps_of(cache)["prefetch_loaded_tokens_by_reqid"] == 1


def test_what_is_on_its_way_is() -> None:
    assert is_under_way(SimpleNamespace(ongoing_prefetch={}, ongoing_backup={7: object()}))
