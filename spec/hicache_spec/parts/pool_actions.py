"""§12.2 Extra pools: the actions of the canonical design that have to know of them."""

from __future__ import annotations

from ..bounds import SIDECAR
from ..events import ON_IO_STARTED
from ..language import NONE, State, action, emit, require
from ..pipeline import has_work, may_answer, note_answer, release_page
from ..state import DEPTHS, LOOKING, RANKS, SKIPPING
from .pool_state import KIND, OFFERS, POOLS, give_slot, has_in_offer, lacks_sidecars
from .pool_threads import may_offer


@action(fairness="weak", chosen=("hit", "offer"), rank=RANKS, hit=DEPTHS, offer=OFFERS)
def query_ask_storage_and_pools(s: State, rank: int, hit: int, offer: int) -> None:
    """§12.2 A rank looks up how many leading pages of the span its storage holds, and what it holds of each pool there.

    Why not one number for each pool: a state is there for some prefixes and not for others, so the shortest of two
    ranks' prefixes need not be one for which both have it.
    """
    require(s.stage[rank] in (SKIPPING, LOOKING), "an operation is taken and not yet looked up")
    require(may_answer(s, rank, s.query_queue[rank][0], hit), "storage can give this answer")
    require(may_offer(s, rank, hit, offer), "storage can have this of the pools")
    for pool in POOLS:
        for length in DEPTHS:
            s.offers[rank][pool][length] = has_in_offer(offer, pool, length)
    note_answer(s, rank, hit)


@action(fairness="weak", rank=RANKS)
def io_start_page_after_sidecars(s: State, rank: int) -> None:
    """§12.2 The IO thread begins to read the next page into its host page, when the latest has all its sidecars."""
    require(has_work(s, rank), "an operation waits for its pages")
    require(not s.writing[rank] and s.filling[rank] == NONE, "nothing is being read")
    require(not s.stopped[rank][s.buffer[rank][0]], "the operation is not terminated")
    require(not lacks_sidecars(s, rank), "the latest page has its sidecars")
    require(s.filled[rank] < s.granted[s.buffer[rank][0]], "a page is left to be read")
    s.writing[rank] = True
    emit(s, ON_IO_STARTED, rank, s.buffer[rank][0], s.filled[rank])


@action(fairness="weak", rank=RANKS)
def io_release_page_and_sidecars(s: State, rank: int) -> None:
    """§12.2 The IO thread puts a page of the unread tail, and the page's sidecars, on their release queues.

    Why: only the IO thread knows that nothing of the tail is still being written.
    """
    require(has_work(s, rank), "an operation is in work")
    require(not s.writing[rank] and s.filling[rank] == NONE, "nothing is being read")
    op = s.buffer[rank][0]
    require(s.stopped[rank][op], "the operation is terminated")
    require(s.counted[rank][op] + s.tail[rank] < s.granted[op], "a page of the tail is left")
    for pool in POOLS:
        if KIND[pool] == SIDECAR:
            give_slot(s, rank, pool, op)
    release_page(s, rank, op)
