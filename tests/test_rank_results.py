"""What ranks counted, put together by replica."""

from __future__ import annotations

from typing import Any

from hicache_impl.rank_results import add_up, by_replica, disagreements


def result(rank: int, broken: bool = False, **counts: Any) -> dict[str, Any]:
    return {"rank": rank, "broken": broken, **counts}


def test_ranks_are_taken_together_by_replica() -> None:
    results = [result(rank) for rank in (0, 1, 2, 5)]
    assert [[found["rank"] for found in replica] for replica in by_replica(results, 2)] == [[0, 1], [2], [5]]
    assert by_replica([], 2) == []


def test_a_count_of_nothing_is_a_count() -> None:
    assert add_up([{"a": 0, "b": 2}, {"b": 3}]) == {"a": 0, "b": 5}


def test_a_difference_is_a_line() -> None:
    def counted(found: Any) -> dict[str, Any]:
        return {"pages": found["pages"], "rounds": 1}

    replica = [result(0, pages=3), result(1, pages=4), result(2, broken=True, pages=9)]
    assert disagreements(replica, counted) == ["P7 ranks disagree on pages: 3, 4"]
    assert disagreements(replica[:1], counted) == []
    assert disagreements(replica[2:], counted) == []
