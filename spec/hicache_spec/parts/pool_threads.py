"""§12.2 Extra pools: what the query thread asks of them, and how the IO thread fills their slots."""

from __future__ import annotations

from ..bounds import OPTIONAL_STATE, SIDECAR
from ..language import NONE, State, action, emit, require
from ..pipeline import (
    agreed_hit,
    fail,
    forget_agreed,
    forget_answer,
    forget_read,
    has_landed,
    has_work,
    is_read,
    leave_io,
    take_agreed,
)
from ..state import CHURN, DEPTHS, LENGTH, RANKS
from .pool_state import (
    IN_STORE,
    KIND,
    ON_SLOT_FAILED,
    ON_SLOT_LANDED,
    ON_SLOT_RELEASED,
    POOLS,
    give_slot,
    has_in_offer,
    is_due,
    is_offered_everywhere,
    is_settled,
    lacks_sidecars,
)

# ---- the query thread


def may_offer(s: State, rank: int, hit: int, offer: int) -> bool:
    """Storage can have exactly this of every pool, beside a hit of so many pages."""
    return all(
        all(
            may_have(s, rank, hit, offer, pool, length)
            if has_in_offer(offer, pool, length)
            else may_lack(s, rank, hit, pool, length)
            for length in DEPTHS
        )
        for pool in POOLS
    )


def may_have(s: State, rank: int, hit: int, offer: int, pool: int, length: int) -> bool:
    """Nothing is offered beyond the hit, and no sidecar for a page whose predecessor has none."""
    return (
        length <= hit
        and can_have(s, rank, pool, length)
        and (KIND[pool] != SIDECAR or length == 1 or has_in_offer(offer, pool, length - 1))
    )


def may_lack(s: State, rank: int, hit: int, pool: int, length: int) -> bool:
    """Nothing that storage has is kept back, up to the hit."""
    return length == 0 or length > hit or can_lack(s, rank, pool, length)


def can_have(s: State, rank: int, pool: int, length: int) -> bool:
    """Churning storage may have anything; steady storage has what it holds."""
    return CHURN or is_in_store(s, s.query_queue[rank][0], pool, length)


def can_lack(s: State, rank: int, pool: int, length: int) -> bool:
    """Churning storage may lack anything; steady storage lacks what it does not hold."""
    return CHURN or not is_in_store(s, s.query_queue[rank][0], pool, length)


def is_in_store(s: State, op: int, pool: int, length: int) -> bool:
    """Steady storage has what the pool needs for a prefix that ends so far below the anchor."""
    return IN_STORE[pool][s.chain[op] * (2 * LENGTH + 1) + s.base[op] + length] == 1


def take_agreed_of_every_pool(s: State, rank: int, op: int) -> None:
    """A rank notes the hit, and up to there the prefixes for which every rank has the state."""
    take_agreed(s, rank, op)
    for pool in POOLS:
        for length in DEPTHS:
            if KIND[pool] != SIDECAR and length <= s.hit[rank][op]:
                s.agreed[rank][op][pool][length] = is_offered_everywhere(s, pool, length)


def agreed_usable_hit(s: State, rank: int) -> int:
    """The longest prefix that every rank has of the pages and of every pool that is required."""
    pages = agreed_hit(s, rank)
    found = 0
    for length in DEPTHS:
        if length <= pages and all(
            KIND[pool] == OPTIONAL_STATE or is_offered_everywhere(s, pool, length) for pool in POOLS
        ):
            found = length
    return found


def forget_answer_of_every_pool(s: State, rank: int) -> None:
    """The thread's own answers are of no use any more."""
    forget_answer(s, rank)
    for pool in POOLS:
        for length in DEPTHS:
            s.offers[rank][pool][length] = False


def forget_agreed_of_every_pool(s: State, rank: int, op: int) -> None:
    """The drain has used what the ranks agreed on."""
    forget_agreed(s, rank, op)
    for pool in POOLS:
        for length in DEPTHS:
            s.agreed[rank][op][pool][length] = False


# ---- the IO thread: a page, its sidecars, the next page; the states at the end


def has_landed_with_sidecars(s: State, rank: int, op: int) -> None:
    """A page counts only when all of its sidecars are in place."""
    if not lacks_sidecars(s, rank):
        has_landed(s, rank, op)


@action(fairness="weak", rank=RANKS, pool=POOLS)
def io_start_slot(s: State, rank: int, pool: int) -> None:
    """§12.2 The IO thread begins to read a sidecar of the latest page or, when all pages have landed, a state."""
    require(has_work(s, rank), "an operation waits for its slots")
    require(not s.writing[rank] and s.filling[rank] == NONE, "nothing is being read")
    require(not s.stopped[rank][s.buffer[rank][0]], "the operation is not terminated")
    require(is_due(s, rank, pool, s.buffer[rank][0]), "the pool is next")
    s.filling[rank] = pool


@action(fairness="weak", rank=RANKS, pool=POOLS)
def io_land_slot(s: State, rank: int, pool: int) -> None:
    """§12.2 The bytes of a slot are in place. It counts unless the operation was terminated meanwhile."""
    require(s.filling[rank] == pool, "a slot of the pool is being filled")
    op = s.buffer[rank][0]
    s.filling[rank] = NONE
    s.in_place[rank][pool] += 1
    emit(s, ON_SLOT_LANDED, rank, op, pool)
    if KIND[pool] == SIDECAR:
        has_landed_with_sidecars(s, rank, op)
    elif not s.stopped[rank][op]:
        s.landed[rank][pool][op] = True
    leave_io(s, rank, op)


@action(rank=RANKS, pool=POOLS)
def io_fail_slot(s: State, rank: int, pool: int) -> None:
    """§12.2 A slot cannot be read on this rank. Without what is required the operation ends; what is optional is given
    back, and the operation goes on without it."""
    require(CHURN, "storage churns")
    require(s.filling[rank] == pool, "a slot of the pool is being filled")
    op = s.buffer[rank][0]
    s.filling[rank] = NONE
    emit(s, ON_SLOT_FAILED, rank, op, pool)
    if KIND[pool] == OPTIONAL_STATE:
        give_slot(s, rank, pool, op)
    else:
        fail(s, rank, op)
    leave_io(s, rank, op)


@action(fairness="weak", rank=RANKS, pool=POOLS)
def io_release_slot(s: State, rank: int, pool: int) -> None:
    """§12.2 The IO thread puts the slot of a state that will not be read on the release queue, after the tail."""
    require(has_work(s, rank), "an operation is in work")
    require(not s.writing[rank] and s.filling[rank] == NONE, "nothing is being read")
    op = s.buffer[rank][0]
    require(s.stopped[rank][op], "the operation is terminated")
    require(s.counted[rank][op] + s.tail[rank] == s.granted[op], "the tail is released")
    require(not is_settled(s, rank, pool, op), "the state has not landed, and its slot is not given back")
    give_slot(s, rank, pool, op)
    emit(s, ON_SLOT_RELEASED, rank, op, pool)
    leave_io(s, rank, op)


def is_read_in_every_pool(s: State, rank: int, op: int) -> bool:
    """Every page of the operation is counted or released, and every state."""
    return is_read(s, rank, op) and all(is_settled(s, rank, pool, op) for pool in POOLS)


def forget_read_of_every_pool(s: State, rank: int) -> None:
    """The IO thread begins anew."""
    forget_read(s, rank)
    for pool in POOLS:
        s.in_place[rank][pool] = 0
