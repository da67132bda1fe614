"""What a router hears of a release, against what is there."""

from __future__ import annotations

from dataclasses import dataclass

from hicache_checks.targets.sglang.events import Router
from hicache_checks.targets.sglang.tree import NodeSeen


@dataclass
class BlockStored:
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int = 2
    medium: str | None = "GPU"


@dataclass
class BlockRemoved:
    block_hashes: list[int]
    medium: str | None = "GPU"


class AllBlocksCleared:
    pass


def node(prefix: tuple[int, ...], length: int, device: bool = True, host: bool = False) -> NodeSeen:
    slots = tuple(range(length))
    return NodeSeen(prefix, length, slots if device else None, slots if host else None, 0, 0, None, None)


STORED = [BlockStored([1], None, [2, 3]), BlockStored([2, 3], 1, [4, 5, 6, 7])]
WHOLE = (2, 3, 4, 5, 6, 7)


def heard(*events: object, has_tiers: bool = True) -> Router:
    router = Router(has_tiers)
    router.hear(events)
    return router


def test_what_is_told_is_there() -> None:
    assert list(heard(*STORED).problems([node(WHOLE, 6)], 2)) == []
    assert list(heard(*STORED).problems([node(WHOLE[:2], 2), node(WHOLE, 4)], 2)) == []
    gone = heard(*STORED, BlockRemoved([3]))
    assert list(gone.problems([node(WHOLE[:4], 4)], 2)) == []
    assert list(heard(*STORED, AllBlocksCleared()).problems([], 2)) == []


def test_what_is_not_there_any_more_is_said_to_be() -> None:
    assert list(heard(*STORED).problems([node(WHOLE[:4], 4)], 2)) == [
        "P29 the tier GPU has no page of [1, 2, 3], and the events say otherwise"
    ]
    removed = heard(*STORED, BlockRemoved([1, 2, 3], "CPU_PINNED"))
    assert list(removed.problems([], 2)), "it was removed from another tier"


def test_what_is_there_is_not_told() -> None:
    assert list(heard(STORED[0]).problems([node(WHOLE, 6)], 2)) == [
        "P29 the tier GPU has a page of [1, 2], and the events say otherwise"
    ]


def test_a_tier_that_no_event_names_is_not_judged() -> None:
    nodes = [node(WHOLE, 6, host=True)]
    assert list(heard(*STORED).problems(nodes, 2)) == []
    assert list(heard(*STORED, BlockStored([1], None, [2, 3], medium="CPU_PINNED")).problems(nodes, 2))
    assert list(heard(BlockStored([1], None, [2, 3], medium="DISK")).problems(nodes, 2)) == []


def test_older_releases_know_one_tier_only() -> None:
    for device, host in ((True, False), (False, True)):
        assert list(heard(*STORED, has_tiers=False).problems([node(WHOLE, 6, device, host)], 2)) == []
    assert list(heard(*STORED, has_tiers=False).problems([node(WHOLE, 6, device=False)], 2))


def test_a_page_that_follows_one_nobody_heard_of_shows() -> None:
    assert list(heard(STORED[1]).problems([], 2)) == [
        "P29 a page of [4, 5, 6, 7] is said to follow one that nobody heard of"
    ]


def test_pages_of_two_tenants_have_two_names() -> None:
    nodes = [node((2, 3), 2), node((2, 3), 2)]
    assert list(heard(STORED[0], BlockStored([9], None, [2, 3])).miscounted(nodes, 2)) == []
    assert list(heard(STORED[0], STORED[0]).miscounted(nodes, 2)) == [
        "P29 the tier GPU has 2 pages, and the events name 1"
    ]
