"""§14 Groups: how ranks in a grid agree, each scheduler and each query thread by itself.

Nothing here is in lockstep. Every rank walks through its turn alone and waits only where it meets others. That the
schedulers take the same steps all the same, which §3 assumes (A1), is what this design shows.
"""

from __future__ import annotations

from ..language import (
    NONE,
    State,
    StateShape,
    action,
    element,
    enumeration,
    field,
    fifo,
    flag,
    initial,
    member,
    optional,
    quiescent,
    require,
    upto,
)
from .grid import (
    ABORTS,
    ABOVE,
    AFTER_POINT,
    AFTER_SEAT,
    AGREED,
    AXES,
    AXIS_AT,
    AXIS_OF_SEAT,
    BACKUP,
    BELOW,
    CALL_AT,
    COUNTS,
    COUNTS_OF_OPS,
    DEATHS,
    DRAIN,
    FAILURES,
    FETCHES,
    FIRST,
    FLAGS,
    FREE,
    HITS,
    IDLE,
    JUDGING,
    LINE,
    LINES,
    MISSES,
    OPS,
    OPS_MAX,
    POINT,
    POLLING,
    PUBLISHING,
    RANKS,
    SAMPLING,
    SEAT,
    SHARD,
    STAGE,
    TAKING,
    TURNS,
)

FATE = enumeration("fate", "alive dead gone")
ALIVE, DEAD, GONE = FATE
STANDING = enumeration("standing", "queued reading landed failed stopped fetched empty revoked")
QUEUED, READING, LANDED, FAILED, STOPPED, FETCHED, EMPTY, REVOKED = STANDING
VOTE = enumeration("vote", "silent ready waiting terminated")
SILENT, READY, WAITING, TERMINATED = VOTE
NOTHING_LANDED, ALL_LANDED = READY, WAITING
"""In the call `counts`, the votes are numbers of pages; an operation has one page."""
NODE = enumeration("node", "not_backed_up storing acknowledged released")
NOT_BACKED_UP, STORING, ACKNOWLEDGED, RELEASED = NODE


class Ranks(StateShape):
    """§14.2 The state: everything exists for each rank, but what callers ask."""

    # the process
    fate = field(member(FATE), RANKS)
    # its scheduler
    turn = field(element(TURNS), RANKS)  # whether the turn is an odd one
    point = field(member(POINT), RANKS)  # where in it the scheduler is
    count = field(upto(OPS_MAX), RANKS)  # answers: sampled, then agreed
    vote = field(member(VOTE), RANKS, OPS)  # of each operation in a poll: its own, then the agreed one
    ack = field(member(VOTE), RANKS)  # of the node that is backed up, likewise
    standing = field(member(STANDING), RANKS, OPS)  # the IO thread sets it too
    told = field(fifo(COUNTS_OF_OPS, 1), RANKS)  # agreed counts that the stage above has handed down
    # its query thread
    query_queue = field(fifo(OPS), RANKS)
    seat = field(member(SEAT), RANKS)  # how far it is with the head of its queue
    answer = field(element(HITS), RANKS)  # its own, then the agreed one
    hit = field(element(HITS), RANKS, OPS)
    hit_queue = field(fifo(OPS), RANKS)
    # its backup thread
    node = field(member(NODE), RANKS)
    stored = field(flag(), RANKS)  # its shard is in storage
    # callers
    asked = field(optional(OPS), TURNS)  # the operation to be aborted when a turn begins


@initial
def start(s: State) -> None:
    """§14.2 Every request is submitted: its operation is in the queue of every rank's query thread."""
    for r in RANKS:
        for op in OPS:
            if FETCHES:
                s.query_queue[r].append(op)
        if BACKUP:
            s.node[r] = STORING


@quiescent
def at_rest(s: State) -> bool:
    """§14.2 A server takes turns for ever. It rests when no rank is left."""
    return all(s.fate[r] != ALIVE for r in RANKS)


def has_memory(s: State, rank: int, op: int) -> bool:
    """Granted and not yet ended, as the rank's scheduler knows it."""
    return s.standing[rank][op] in (READING, LANDED, FAILED, STOPPED)


def is_ended(s: State, rank: int, op: int) -> bool:
    """Fetched, with or without a page, or revoked."""
    return s.standing[rank][op] in (FETCHED, EMPTY, REVOKED)


# ---- §14.3 what callers ask


@action(op=OPS, turn=TURNS)
def env_abort(s: State, op: int, turn: int) -> None:
    """§14.3 A request is aborted. Every rank is told at the beginning of the same turn, which none has begun.

    Why that may be assumed: requests come to one rank, which hands them on before the turn in the order they came.
    """
    require(ABORTS, "callers abort requests")
    require(all(s.asked[other] == NONE for other in TURNS), "one abort at a time")
    require(not any(has_begun(s, r, turn) for r in RANKS), "no rank has begun the turn")
    require(all(s.fate[r] != ALIVE or not is_ended(s, r, op) for r in RANKS), "the operation has not ended")
    s.asked[turn] = op


def has_begun(s: State, rank: int, turn: int) -> bool:
    """The rank is in this turn and has learned what callers ask."""
    return s.fate[rank] == ALIVE and s.turn[rank] == turn and s.point[rank] != IDLE


# ---- §14.4 the turn of a scheduler


@action(fairness="weak", rank=RANKS)
def sched_begin(s: State, rank: int) -> None:
    """§14.4.1 A turn begins with what callers ask: an abort ends an operation without memory at once, and stops one
    with memory; then the ranks of the stage meet in a barrier."""
    require(s.fate[rank] == ALIVE and s.point[rank] == IDLE, "the scheduler is between two turns")
    s.asked[1 - s.turn[rank]] = NONE
    s.point[rank] = SAMPLING
    for op in OPS:
        if s.asked[s.turn[rank]] == op:
            abort(s, rank, op)


def abort(s: State, rank: int, op: int) -> None:
    """The request is gone."""
    if has_memory(s, rank, op):
        s.standing[rank][op] = STOPPED
        go_to(s, rank, AFTER_POINT[IDLE])
    elif not is_ended(s, rank, op):
        s.standing[rank][op] = REVOKED


def go_to(s: State, rank: int, point: int) -> None:
    """The scheduler comes to this point of its turn; what it does there without waiting for anybody is done."""
    s.point[rank] = point
    if point == SAMPLING:
        give_back(s, rank)
    if point == TAKING:
        hand_down(s, rank)


def give_back(s: State, rank: int) -> None:
    """After the barrier nobody reads for what was aborted: its pages return."""
    for op in OPS:
        if s.standing[rank][op] == STOPPED:
            s.standing[rank][op] = REVOKED


def hand_down(s: State, rank: int) -> None:
    """The next stage is told the count, at the same place of it."""
    if BELOW[rank] != NONE:
        tell(s, BELOW[rank], s.count[rank])


def tell(s: State, rank: int, count: int) -> None:
    """A rank is sent a count; a process that has ended receives nothing."""
    if s.fate[rank] == ALIVE:
        s.told[rank].append(count)


@action(fairness="weak", rank=RANKS)
def sched_sample(s: State, rank: int) -> None:
    """§14.4.2 A rank of the first stage counts the answers that its query thread has brought, and goes to agree on the
    MIN with the other ranks of the stage."""
    require(s.fate[rank] == ALIVE and s.point[rank] == SAMPLING, "the turn has begun")
    require(STAGE[rank] == 0, "the first stage decides")
    s.count[rank] = len(s.hit_queue[rank])
    go_to(s, rank, AFTER_POINT[SAMPLING])


@action(fairness="weak", rank=RANKS)
def sched_follow(s: State, rank: int) -> None:
    """§14.4.3 A rank of a later stage takes as many answers as the first stage has agreed on, and tells the next.

    Why no meeting: what the first stage can count has been agreed by the query threads of all stages, so the answers
    will come to the later ones. And the first stage need not wait for the last.
    """
    require(s.fate[rank] == ALIVE and s.point[rank] == SAMPLING, "the turn has begun")
    require(STAGE[rank] > 0, "the later stages follow")
    require(len(s.told[rank]) > 0, "the stage above has decided")
    s.count[rank] = s.told[rank].pop(0)
    go_to(s, rank, TAKING)


@action(fairness="weak", rank=RANKS)
def sched_take(s: State, rank: int) -> None:
    """§14.4.4 The scheduler takes so many answers, waiting for its own query thread if need be, and decides each by the
    agreed hit: it grants pages or revokes."""
    require(s.fate[rank] == ALIVE and s.point[rank] == TAKING, "the count is agreed")
    require(len(s.hit_queue[rank]) >= s.count[rank], "the query thread has brought as many")
    for _ in OPS:
        if s.count[rank] > 0:
            s.count[rank] -= 1
            decide(s, rank, s.hit_queue[rank].pop(0))
    go_to(s, rank, POLLING)


def decide(s: State, rank: int, op: int) -> None:
    """One answer: what was aborted meanwhile is skipped."""
    if s.standing[rank][op] == QUEUED:
        s.standing[rank][op] = READING if s.hit[rank][op] > 0 else REVOKED
    s.hit[rank][op] = 0


@action(fairness="weak", rank=RANKS)
def sched_poll(s: State, rank: int) -> None:
    """§14.4.5 The scheduler asks about all operations with memory, and about the ack of the backup, in one call, and
    also if there are none.

    Why: a call for each request by itself is made as often as a rank has requests to look at; and a rank that makes
    no call because it has nothing to ask leaves the others waiting.
    """
    require(s.fate[rank] == ALIVE and s.point[rank] == POLLING, "the answers are taken")
    for op in OPS:
        s.vote[rank][op] = own_vote(s, rank, op)
    s.ack[rank] = own_ack(s, rank)
    go_to(s, rank, AFTER_POINT[POLLING])


def own_vote(s: State, rank: int, op: int) -> int:
    """What a rank knows of an operation. The higher wins: who waits makes all wait, who must end makes all end."""
    if s.standing[rank][op] == FAILED:
        return TERMINATED
    if s.standing[rank][op] == READING:
        return WAITING
    return READY if s.standing[rank][op] == LANDED else SILENT


def own_ack(s: State, rank: int) -> int:
    """What a rank knows of its backup."""
    if s.node[rank] == STORING:
        return WAITING
    return READY if s.node[rank] == ACKNOWLEDGED else SILENT


@action(fairness="weak", rank=RANKS)
def sched_judge(s: State, rank: int) -> None:
    """§14.4.6 By the agreed votes, operations wait on or end on every rank. Those that end are stopped, their counts
    frozen, and the ranks meet once more to agree on the MIN of them. If none ends, the turn does."""
    require(s.fate[rank] == ALIVE and s.point[rank] == JUDGING, "the votes are agreed")
    if s.ack[rank] == READY:
        s.node[rank] = RELEASED
    s.ack[rank] = SILENT
    for op in OPS:
        if must_end(s, rank, op):
            freeze(s, rank, op)
        else:
            s.vote[rank][op] = SILENT
    if any(s.vote[rank][op] != SILENT for op in OPS):
        go_to(s, rank, AFTER_POINT[JUDGING])
    else:
        end_turn(s, rank)


def must_end(s: State, rank: int, op: int) -> bool:
    """Nobody waits for it, or somebody has terminated it."""
    return s.vote[rank][op] in (READY, TERMINATED)


def freeze(s: State, rank: int, op: int) -> None:
    """What has landed on this rank is put forward; no page is read any more."""
    s.vote[rank][op] = ALL_LANDED if s.standing[rank][op] == LANDED else NOTHING_LANDED
    if s.standing[rank][op] == READING:
        s.standing[rank][op] = FAILED


def end_turn(s: State, rank: int) -> None:
    """The next turn is of the other kind."""
    s.turn[rank] = 1 - s.turn[rank]
    s.point[rank] = IDLE


@action(fairness="weak", rank=RANKS)
def sched_publish(s: State, rank: int) -> None:
    """§14.4.7 What has landed on every rank of every stage is published, and the turn ends."""
    require(s.fate[rank] == ALIVE and s.point[rank] == PUBLISHING, "the counts are agreed")
    for op in OPS:
        if s.vote[rank][op] != SILENT:
            s.standing[rank][op] = FETCHED if s.vote[rank][op] == ALL_LANDED else EMPTY
        s.vote[rank][op] = SILENT
    end_turn(s, rank)


# ---- §14.5 the meetings


@action(fairness="weak", axis=AXES, line=LINES)
def sched_meet(s: State, axis: int, line: int) -> None:
    """§14.5.1 The schedulers of a group are all in the same call: each leaves it with the agreed values, for the next
    group or the next point of its turn."""
    require(all(is_met(s, r, axis) for r in RANKS if LINE[axis][r] == line), "every member is alive and in a meeting")
    require(
        all(s.point[r] == s.point[FIRST[axis][line]] for r in RANKS if LINE[axis][r] == line), "they make the same call"
    )
    for op in OPS:
        if CALL_AT[s.point[FIRST[axis][line]]] == FLAGS:
            agree_on_most(s, axis, line, op)
        if CALL_AT[s.point[FIRST[axis][line]]] == COUNTS:
            agree_on_least(s, axis, line, op)
    agree_on_ack(s, axis, line)
    if CALL_AT[s.point[FIRST[axis][line]]] == DRAIN:
        agree_on_count(s, axis, line)
    for r in RANKS:
        if LINE[axis][r] == line:
            go_to(s, r, AFTER_POINT[s.point[r]])


def is_met(s: State, rank: int, axis: int) -> bool:
    """The rank lives, and its scheduler is in a meeting along this axis."""
    return s.fate[rank] == ALIVE and AXIS_AT[s.point[rank]] == axis


def agree_on_most(s: State, axis: int, line: int, op: int) -> None:
    """MAX of the votes. Writing one after the other is no harm: the most of what is written stays the most."""
    for r in RANKS:
        if LINE[axis][r] == line:
            s.vote[r][op] = max(s.vote[q][op] if LINE[axis][q] == line else SILENT for q in RANKS)


def agree_on_least(s: State, axis: int, line: int, op: int) -> None:
    """MIN of the votes."""
    for r in RANKS:
        if LINE[axis][r] == line:
            s.vote[r][op] = min(s.vote[q][op] if LINE[axis][q] == line else TERMINATED for q in RANKS)


def agree_on_ack(s: State, axis: int, line: int) -> None:
    """MAX: who waits makes all wait. Outside a poll all are silent."""
    for r in RANKS:
        if LINE[axis][r] == line:
            s.ack[r] = max(s.ack[q] if LINE[axis][q] == line else SILENT for q in RANKS)


def agree_on_count(s: State, axis: int, line: int) -> None:
    """MIN of the counts: every rank takes what all have."""
    for r in RANKS:
        if LINE[axis][r] == line:
            s.count[r] = min(s.count[q] if LINE[axis][q] == line else OPS_MAX for q in RANKS)


# ---- §14.6 the other threads


@action(fairness="weak", chosen=("hit",), rank=RANKS, hit=HITS)
def query_ask(s: State, rank: int, hit: int) -> None:
    """§14.6.1 A query thread looks its next operation up in storage, and goes to agree on the hit."""
    require(s.fate[rank] == ALIVE and s.seat[rank] == FREE, "the thread is free")
    require(len(s.query_queue[rank]) > 0, "an operation waits for its look-up")
    require(hit > 0 or MISSES, "storage can answer this")
    s.answer[rank] = hit
    s.seat[rank] = AFTER_SEAT[FREE]


@action(fairness="weak", axis=AXES, line=LINES)
def query_meet(s: State, axis: int, line: int) -> None:
    """§14.6.2 The query threads of a group are all in it: each leaves with the MIN of the answers.

    Why groups of their own, over all stages: a thread that shared one with its scheduler would meet the schedulers of
    other ranks; and what is fetched must be there for every stage.
    """
    require(all(is_seated(s, r, axis) for r in RANKS if LINE[axis][r] == line), "every member is alive and in it")
    for r in RANKS:
        if LINE[axis][r] == line:
            s.answer[r] = min(s.answer[q] if LINE[axis][q] == line else 1 for q in RANKS)
    for r in RANKS:
        if LINE[axis][r] == line:
            s.seat[r] = AFTER_SEAT[s.seat[r]]


def is_seated(s: State, rank: int, axis: int) -> bool:
    """The rank lives, and its query thread is in a meeting along this axis."""
    return s.fate[rank] == ALIVE and AXIS_OF_SEAT[s.seat[rank]] == axis


@action(fairness="weak", rank=RANKS)
def query_put(s: State, rank: int) -> None:
    """§14.6.3 The thread hands the answer to its own scheduler, whatever it is."""
    require(s.seat[rank] == AGREED, "the hit is agreed")
    op = s.query_queue[rank].pop(0)
    s.hit[rank][op] = s.answer[rank]
    s.hit_queue[rank].append(op)
    s.answer[rank] = 0
    s.seat[rank] = FREE


@action(fairness="weak", rank=RANKS, op=OPS)
def io_land(s: State, rank: int, op: int) -> None:
    """§14.6.4 The page has landed on this rank."""
    require(s.standing[rank][op] == READING, "the page is being read")
    s.standing[rank][op] = LANDED


@action(rank=RANKS, op=OPS)
def io_fail(s: State, rank: int, op: int) -> None:
    """§14.6.5 The page cannot be read on this rank."""
    require(FAILURES, "storage fails")
    require(s.standing[rank][op] == READING, "the page is being read")
    s.standing[rank][op] = FAILED


@action(fairness="weak", rank=RANKS)
def backup_store(s: State, rank: int) -> None:
    """§14.6.6 The backup thread acknowledges the node: a rank that writes when its shard is in storage, one whose bytes
    another writes at once."""
    require(s.node[rank] == STORING, "the node is to be stored")
    if is_writer(s, rank):
        s.stored[rank] = True
    s.node[rank] = ACKNOWLEDGED


def is_writer(s: State, rank: int) -> bool:
    """Of the ranks that hold the same bytes the first one writes them: each slice and each stage has a writer."""
    return SHARD[rank] == rank


# ---- §14.7 death


@action(rank=RANKS)
def env_kill(s: State, rank: int) -> None:
    """§14.7.1 A process dies, wherever it is, with all its threads."""
    require(s.fate[rank] == ALIVE, "the process lives")
    require(sum(s.fate[r] == DEAD for r in RANKS) < DEATHS, "bound: so many may die")
    forget(s, rank)
    s.fate[rank] = DEAD


@action(fairness="weak", rank=RANKS)
def sched_give_up(s: State, rank: int) -> None:
    """§14.7.2 A scheduler that waits for a process that has ended is told so, and ends its own."""
    require(s.fate[rank] == ALIVE, "the process lives")
    require(any(is_left(s, rank, axis) for axis in AXES) or is_left_untold(s, rank), "who is waited for has ended")
    forget(s, rank)
    s.fate[rank] = GONE


def is_left(s: State, rank: int, axis: int) -> bool:
    """The scheduler is in a meeting that a member can never join."""
    return AXIS_AT[s.point[rank]] == axis and has_lost(s, rank, axis)


def has_lost(s: State, rank: int, axis: int) -> bool:
    """A member of the rank's group along an axis has ended."""
    return any(s.fate[q] != ALIVE for q in RANKS if LINE[axis][q] == LINE[axis][rank])


def is_left_untold(s: State, rank: int) -> bool:
    """The scheduler waits for a word from the stage above that nobody will send."""
    if ABOVE[rank] == NONE:
        return False
    return s.point[rank] == SAMPLING and len(s.told[rank]) == 0 and s.fate[ABOVE[rank]] != ALIVE


@action(fairness="weak", rank=RANKS)
def query_give_up(s: State, rank: int) -> None:
    """§14.7.3 A query thread that waits for a process that has ended is told so, and its process ends.

    Why the process: the scheduler would wait for ever for the answer.
    """
    require(s.fate[rank] == ALIVE, "the process lives")
    require(any(is_seated(s, rank, axis) and has_lost(s, rank, axis) for axis in AXES), "a member has ended")
    forget(s, rank)
    s.fate[rank] = GONE


def forget(s: State, rank: int) -> None:
    """What a process knew is gone with it; what it has stored and what it has told others is not."""
    s.turn[rank] = 0
    s.point[rank] = IDLE
    s.count[rank] = 0
    s.ack[rank] = SILENT
    s.seat[rank] = FREE
    s.answer[rank] = 0
    s.node[rank] = NOT_BACKED_UP
    for op in OPS:
        s.vote[rank][op] = SILENT
        s.standing[rank][op] = QUEUED
        s.hit[rank][op] = 0
    for _ in range(OPS_MAX):
        if len(s.query_queue[rank]) > 0:
            s.query_queue[rank].pop(0)
        if len(s.hit_queue[rank]) > 0:
            s.hit_queue[rank].pop(0)
        if len(s.told[rank]) > 0:
            s.told[rank].pop(0)
