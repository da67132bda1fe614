"""Faulty rules of groups: ranks that meet in the wrong company, in the wrong order, too seldom, or for ever."""

from __future__ import annotations

from hicache_spec.language import NONE, State, require
from hicache_spec.parts.grid import (
    AFTER_POINT,
    AFTER_SEAT,
    AGREED,
    BELOW,
    CALL_AT,
    COUNTS_PP,
    DRAIN_CP,
    DRAIN_TP,
    FLAGS,
    FLAGS_PP,
    FREE,
    IDLE,
    JUDGING,
    LINE,
    MISSES,
    OPS,
    OPS_MAX,
    POLLING,
    PUBLISHING,
    RANKS,
    SAMPLING,
    SHARD,
    STAGE,
    TAKING,
)
from hicache_spec.parts.groups import (
    ACKNOWLEDGED,
    ALIVE,
    ALL_LANDED,
    DEAD,
    FAILED,
    LANDED,
    READING,
    READY,
    REVOKED,
    SILENT,
    STORING,
    TERMINATED,
    WAITING,
    abort,
    agree_on_ack,
    agree_on_most,
    decide,
    give_back,
    go_to,
    hand_down,
    is_ended,
    is_met,
    is_seated,
    own_ack,
    own_vote,
)

# ---- who makes which call


def vote_on_what_is_looked_at(s: State, rank: int, op: int) -> int:
    """What a poll inside the scan of the waiting requests does: it ends where this rank's batch is full."""
    if len(s.hit_queue[rank]) > 0:
        return SILENT
    return own_vote(s, rank, op)


def sample_what_there_is(s: State, rank: int) -> None:
    require(s.fate[rank] == ALIVE and s.point[rank] == SAMPLING, "the turn has begun")
    require(STAGE[rank] == 0, "the first stage decides")
    s.count[rank] = len(s.hit_queue[rank])
    go_to(s, rank, AFTER_POINT[SAMPLING] if len(s.hit_queue[rank]) > 0 else TAKING)


def poll_when_something_has_landed(s: State, rank: int) -> None:
    require(s.fate[rank] == ALIVE and s.point[rank] == POLLING, "the answers are taken")
    for op in OPS:
        s.vote[rank][op] = own_vote(s, rank, op)
    go_to(s, rank, AFTER_POINT[POLLING] if any(s.standing[rank][op] == LANDED for op in OPS) else JUDGING)


def ask_and_keep_a_miss(s: State, rank: int, hit: int) -> None:
    require(s.fate[rank] == ALIVE and s.seat[rank] == FREE, "the thread is free")
    require(len(s.query_queue[rank]) > 0, "an operation waits for its look-up")
    require(hit > 0 or MISSES, "storage can answer this")
    s.answer[rank] = hit
    s.seat[rank] = AFTER_SEAT[FREE] if hit > 0 else AGREED


def start_in_an_order_of_its_own(s: State) -> None:
    for r in RANKS:
        for op in OPS:
            s.query_queue[r].append(op if r == 0 else OPS_MAX - 1 - op)


# ---- in whose company


def agree_on_no_count(s: State, axis: int, line: int) -> None:
    """Every rank takes what it has."""


def agree_on_the_highest_count(s: State, axis: int, line: int) -> None:
    for r in RANKS:
        if LINE[axis][r] == line:
            s.count[r] = max(s.count[q] if LINE[axis][q] == line else 0 for q in RANKS)


def end_when_one_is_ready(s: State, axis: int, line: int, op: int) -> None:
    for r in RANKS:
        if LINE[axis][r] == line:
            s.vote[r][op] = min(s.vote[q][op] if LINE[axis][q] == line else TERMINATED for q in RANKS)


def publish_what_any_has(s: State, axis: int, line: int, op: int) -> None:
    for r in RANKS:
        if LINE[axis][r] == line:
            s.vote[r][op] = max(s.vote[q][op] if LINE[axis][q] == line else SILENT for q in RANKS)


def go_past_context_parallel_ranks(s: State, rank: int, point: int) -> None:
    go_to(s, rank, DRAIN_TP if point == DRAIN_CP else point)


def go_past_stages_in_a_poll(s: State, rank: int, point: int) -> None:
    go_to(s, rank, JUDGING if point == FLAGS_PP else point)


def begin_when_the_word_is_taken(s: State, rank: int) -> None:
    """Stages that do not meet in a poll are held together by this: a word is sent when the one before was taken."""
    require(s.fate[rank] == ALIVE and s.point[rank] == IDLE, "the scheduler is between two turns")
    require(is_word_taken(s, rank), "the stage below has taken the last word")
    s.asked[1 - s.turn[rank]] = NONE
    s.point[rank] = SAMPLING
    for op in OPS:
        if s.asked[s.turn[rank]] == op:
            abort(s, rank, op)


def is_word_taken(s: State, rank: int) -> bool:
    if BELOW[rank] == NONE:
        return True
    return len(s.told[BELOW[rank]]) == 0


def go_past_stages_with_counts(s: State, rank: int, point: int) -> None:
    go_to(s, rank, PUBLISHING if point == COUNTS_PP else point)


def vote_before_it_lands(s: State, rank: int, op: int) -> int:
    if s.standing[rank][op] == FAILED:
        return TERMINATED
    return READY if s.standing[rank][op] in (READING, LANDED) else SILENT


def put_forward_what_was_granted(s: State, rank: int, op: int) -> None:
    s.vote[rank][op] = ALL_LANDED
    if s.standing[rank][op] == READING:
        s.standing[rank][op] = FAILED


def seat_with_its_own_answer(s: State, axis: int, line: int) -> None:
    require(all(is_seated(s, r, axis) for r in RANKS if LINE[axis][r] == line), "every member is alive and in it")
    for r in RANKS:
        if LINE[axis][r] == line:
            s.seat[r] = AFTER_SEAT[s.seat[r]]


def seat_without_the_last_group(s: State, axis: int, line: int) -> None:
    """The query threads of a group meet, and those of other stages or slices are not asked."""
    require(all(is_seated(s, r, axis) for r in RANKS if LINE[axis][r] == line), "every member is alive and in it")
    for r in RANKS:
        if LINE[axis][r] == line:
            s.answer[r] = min(s.answer[q] if LINE[axis][q] == line else 1 for q in RANKS)
    for r in RANKS:
        if LINE[axis][r] == line:
            s.seat[r] = AGREED


def follow_by_its_own_count(s: State, rank: int) -> None:
    require(s.fate[rank] == ALIVE and s.point[rank] == SAMPLING, "the turn has begun")
    require(STAGE[rank] > 0, "the later stages follow")
    require(len(s.told[rank]) > 0, "the stage above has decided")
    s.told[rank].pop(0)
    s.count[rank] = len(s.hit_queue[rank])
    go_to(s, rank, TAKING)


def take_what_is_there(s: State, rank: int) -> None:
    require(s.fate[rank] == ALIVE and s.point[rank] == TAKING, "the count is agreed")
    for _ in OPS:
        if s.count[rank] > 0:
            s.count[rank] -= 1
            if len(s.hit_queue[rank]) > 0:
                decide(s, rank, s.hit_queue[rank].pop(0))
    go_to(s, rank, POLLING)


# ---- in which order


def join_crosswise(s: State, rank: int, point: int) -> None:
    """The ranks of one diagonal join the group of tensor-parallel ranks first, and then that of the slices."""
    s.point[rank] = crosswise(rank, point)
    if point == SAMPLING:
        give_back(s, rank)
    if point == TAKING:
        hand_down(s, rank)


def crosswise(rank: int, point: int) -> int:
    if rank in (0, 3) and point == DRAIN_CP:
        return DRAIN_TP
    return point


def hand_down_after_the_poll(s: State, rank: int) -> None:
    """The word for the next stage is sent at the end of the turn, with the batch."""
    s.turn[rank] = 1 - s.turn[rank]
    s.point[rank] = IDLE
    if BELOW[rank] != NONE and s.fate[BELOW[rank]] == ALIVE:
        s.told[BELOW[rank]].append(s.count[rank])


def hand_down_nothing(s: State, rank: int) -> None:
    """Not in the middle of the turn."""


def begin_with_what_was_asked_before(s: State, rank: int) -> None:
    """One rank hears what callers ask a turn later than the others."""
    require(s.fate[rank] == ALIVE and s.point[rank] == IDLE, "the scheduler is between two turns")
    s.point[rank] = SAMPLING
    for op in OPS:
        if s.asked[1 - s.turn[rank] if rank == 0 else s.turn[rank]] == op:
            abort(s, rank, op)
    if rank > 0:
        s.asked[1 - s.turn[rank]] = NONE


def abort_without_a_barrier(s: State, rank: int, op: int) -> None:
    if not is_ended(s, rank, op):
        s.standing[rank][op] = REVOKED


# ---- backup


def agree_on_no_ack(s: State, axis: int, line: int) -> None:
    """Every rank goes by the ack of its own thread, those that write nothing too."""


def write_by_the_first_of_all(s: State, rank: int) -> bool:
    """One writer for the whole replica, though each slice and each stage holds bytes of its own."""
    return rank == 0


# ---- death


def meet_among_the_living(s: State, axis: int, line: int) -> None:
    require(any(is_met(s, r, axis) for r in RANKS if LINE[axis][r] == line), "somebody is in a meeting")
    require(all(s.fate[r] != ALIVE or is_met(s, r, axis) for r in RANKS if LINE[axis][r] == line), "so are all others")
    call = max(CALL_AT[s.point[r]] if LINE[axis][r] == line else NONE for r in RANKS)
    for op in OPS:
        if call == FLAGS:
            agree_on_most(s, axis, line, op)
    agree_on_ack(s, axis, line)
    for r in RANKS:
        if LINE[axis][r] == line and s.fate[r] == ALIVE:
            go_to(s, r, AFTER_POINT[s.point[r]])


def has_lost_to_death(s: State, rank: int, axis: int) -> bool:
    """Only who has died is told of, not who has given up."""
    return any(s.fate[q] == DEAD for q in RANKS if LINE[axis][q] == LINE[axis][rank])


def is_never_left_untold(s: State, rank: int) -> bool:
    """Nobody tells a stage that the stage above has ended."""
    return False


# ---- what goes on for ever


def poll_when_there_is_something(s: State, rank: int) -> None:
    require(s.fate[rank] == ALIVE and s.point[rank] == POLLING, "the answers are taken")
    for op in OPS:
        s.vote[rank][op] = own_vote(s, rank, op)
    s.ack[rank] = own_ack(s, rank)
    go_to(s, rank, JUDGING if is_silent(s, rank) else AFTER_POINT[POLLING])


def is_silent(s: State, rank: int) -> bool:
    return s.ack[rank] == SILENT and all(s.vote[rank][op] == SILENT for op in OPS)


def wait_for_what_has_failed(s: State, rank: int, op: int) -> int:
    if s.standing[rank][op] in (READING, FAILED):
        return WAITING
    return READY if s.standing[rank][op] == LANDED else SILENT


def poll_until_all_have_ended(s: State, rank: int) -> None:
    """A turn that waits for what only the next turn can take out of the queues."""
    if any(not is_ended(s, rank, op) for op in OPS):
        s.point[rank] = POLLING
    else:
        s.turn[rank] = 1 - s.turn[rank]
        s.point[rank] = IDLE


def drop_what_raises(s: State, rank: int, hit: int) -> None:
    require(s.fate[rank] == ALIVE and s.seat[rank] == FREE, "the thread is free")
    require(len(s.query_queue[rank]) > 0, "an operation waits for its look-up")
    require(hit > 0 or MISSES, "storage can answer this")
    if hit > 0:
        s.answer[rank] = hit
        s.seat[rank] = AFTER_SEAT[FREE]
    else:
        s.query_queue[rank].pop(0)


def acknowledge_what_it_writes(s: State, rank: int) -> None:
    require(s.node[rank] == STORING, "the node is to be stored")
    require(SHARD[rank] == rank, "the rank writes")
    s.stored[rank] = True
    s.node[rank] = ACKNOWLEDGED
