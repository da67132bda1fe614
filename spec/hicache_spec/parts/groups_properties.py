"""§14.8 What must hold of the ranks of a grid, and what must happen in the end.

Each docstring names the properties of the protocol (P1 to P32, see SPEC.md §9) that it implements.
"""

from __future__ import annotations

from ..language import State, invariant, leads_to, step_property
from .grid import (
    AXES,
    AXIS_AT,
    CALL_AT,
    COUNTS,
    DRAIN,
    FETCHES,
    FLAGS,
    FREE,
    IDLE,
    JUDGING,
    LINE,
    OPS,
    OPS_MAX,
    RANKS,
    SHARD,
    STAGE,
)
from .groups import (
    ALIVE,
    DEAD,
    EMPTY,
    FAILED,
    FETCHED,
    LANDED,
    NOT_BACKED_UP,
    RELEASED,
    REVOKED,
    SILENT,
    STOPPED,
    TERMINATED,
    has_memory,
    is_ended,
    is_met,
    is_seated,
)

# ---- §14.8 invariants


@invariant
def inv_ranks_in_lockstep(s: State) -> bool:
    """§14.8.1 P7. Ranks at the same point of the same turn have decided alike about every operation and the backup.

    Why: this is what §3 assumes (A1). Each scheduler has gone there by itself.
    """
    return all(all(not are_abreast(s, a, b) or have_decided_alike(s, a, b) for b in RANKS if b > a) for a in RANKS)


def are_abreast(s: State, a: int, b: int) -> bool:
    """Both ranks live and are at the same point of the same turn."""
    return s.fate[a] == ALIVE and s.fate[b] == ALIVE and s.turn[a] == s.turn[b] and s.point[a] == s.point[b]


def have_decided_alike(s: State, a: int, b: int) -> bool:
    """What two schedulers know of the operations and of the backup is the same, whatever their threads are doing."""
    return (s.node[a] == RELEASED) == (s.node[b] == RELEASED) and all(
        has_memory(s, a, op) == has_memory(s, b, op)
        and (has_memory(s, a, op) or s.standing[a][op] == s.standing[b][op])
        for op in OPS
    )


@invariant
def inv_ranks_act_on_the_same_values(s: State) -> bool:
    """§14.8.2 P7. Ranks that are about to act on what was agreed in the same turn hold the same counts and votes."""
    return all(
        all(not are_about_to_act(s, a) or not are_abreast(s, a, b) or hold_the_same(s, a, b) for b in RANKS if b > a)
        for a in RANKS
    )


def are_about_to_act(s: State, rank: int) -> bool:
    """The scheduler is in no meeting: what it holds, if it holds anything, is agreed."""
    return AXIS_AT[s.point[rank]] < 0


def hold_the_same(s: State, a: int, b: int) -> bool:
    """Two ranks hold the same count and the same votes."""
    return s.count[a] == s.count[b] and s.ack[a] == s.ack[b] and all(s.vote[a][op] == s.vote[b][op] for op in OPS)


@invariant
def inv_members_make_the_same_call(s: State) -> bool:
    """§14.8.3 P7. Members of a group that are in it are in the same call, about the same operations."""
    return all(
        all(all(not are_met(s, a, b, axis) or make_the_same_call(s, a, b) for b in RANKS if b > a) for a in RANKS)
        for axis in AXES
    )


def are_met(s: State, a: int, b: int, axis: int) -> bool:
    """Both ranks are members of one group along an axis, and in it."""
    return LINE[axis][a] == LINE[axis][b] and is_met(s, a, axis) and is_met(s, b, axis)


def make_the_same_call(s: State, a: int, b: int) -> bool:
    """The call and what it is about are the same."""
    return (
        s.point[a] == s.point[b]
        and (s.ack[a] == SILENT) == (s.ack[b] == SILENT)
        and all((s.vote[a][op] == SILENT) == (s.vote[b][op] == SILENT) for op in OPS)
    )


@invariant
def inv_threads_ask_about_the_same_operation(s: State) -> bool:
    """§14.8.4 P7. Query threads that are in the same group agree on the same operation."""
    return all(
        all(
            all(
                LINE[axis][a] != LINE[axis][b]
                or not is_seated(s, a, axis)
                or not is_seated(s, b, axis)
                or s.query_queue[a][0] == s.query_queue[b][0]
                for b in RANKS
                if b > a
            )
            for a in RANKS
        )
        for axis in AXES
    )


@invariant
def inv_given_back_when_all_have_stopped(s: State) -> bool:
    """§14.8.5 P18. When a rank has given back the pages of an aborted operation, no rank of its stage goes on with it.

    Why: this is what the barrier is for.
    """
    return all(
        all(all(not goes_on_alone(s, a, b, op) for b in RANKS if STAGE[a] == STAGE[b]) for a in RANKS) for op in OPS
    )


def goes_on_alone(s: State, a: int, b: int, op: int) -> bool:
    """Rank a has revoked an operation with which rank b goes on."""
    return s.standing[a][op] == REVOKED and has_memory(s, b, op) and s.standing[b][op] != STOPPED


@invariant
def inv_published_landed_everywhere(s: State) -> bool:
    """§14.8.6 P6, P12, P20. What a rank has published has landed on every rank of every stage."""
    return all(
        all(s.standing[a][op] != FETCHED for a in RANKS)
        or all(s.fate[b] != ALIVE or s.standing[b][op] in (LANDED, FETCHED) for b in RANKS)
        for op in OPS
    )


@invariant
def inv_released_is_stored(s: State) -> bool:
    """§14.8.7 P32. When a rank lets go of what was backed up, every shard of it is in storage.

    Why: of ranks that hold the same bytes one writes, and the others acknowledge at once.
    """
    return all(s.node[r] != RELEASED for r in RANKS) or all(is_stored(s, r) for r in RANKS)


def is_stored(s: State, rank: int) -> bool:
    """Some rank has stored the bytes that this one holds."""
    return any(s.stored[q] for q in RANKS if SHARD[q] == SHARD[rank])


# ---- §14.9 step properties


@step_property
def step_nobody_acts_without_a_member(s: State, t: State) -> bool:
    """§14.9.1 P7. A scheduler leaves a meeting with a value only if every member of the group was alive and in it."""
    return all(all(not has_left(s, t, r, axis) or all_are_met(s, r, axis) for axis in AXES) for r in RANKS)


def has_left(s: State, t: State, rank: int, axis: int) -> bool:
    """The scheduler was in a meeting along an axis, and has gone on."""
    return is_met(s, rank, axis) and t.fate[rank] == ALIVE and t.point[rank] != s.point[rank]


def all_are_met(s: State, rank: int, axis: int) -> bool:
    """Every member of the rank's group is in the same call."""
    return all(is_met(s, q, axis) and s.point[q] == s.point[rank] for q in RANKS if LINE[axis][q] == LINE[axis][rank])


@step_property
def step_what_is_agreed_is_of_all_members(s: State, t: State) -> bool:
    """§14.9.2 P7. What a scheduler takes out of a meeting is the least of the members' counts, the most of their votes
    in a poll, the least of their pages."""
    return all(all(not has_left(s, t, r, axis) or is_of_all_members(s, t, r, axis) for axis in AXES) for r in RANKS)


def is_of_all_members(s: State, t: State, rank: int, axis: int) -> bool:
    """The values after a meeting are those that its call makes of the values before."""
    if CALL_AT[s.point[rank]] == DRAIN:
        return t.count[rank] == min(s.count[q] if LINE[axis][q] == LINE[axis][rank] else OPS_MAX for q in RANKS)
    if CALL_AT[s.point[rank]] == FLAGS:
        return t.ack[rank] == most_ack(s, rank, axis) and all(
            t.vote[rank][op] == most_vote(s, rank, axis, op) for op in OPS
        )
    return CALL_AT[s.point[rank]] != COUNTS or all(t.vote[rank][op] == least_vote(s, rank, axis, op) for op in OPS)


def most_ack(s: State, rank: int, axis: int) -> int:
    """The highest of the members' acks."""
    return max(s.ack[q] if LINE[axis][q] == LINE[axis][rank] else SILENT for q in RANKS)


def most_vote(s: State, rank: int, axis: int, op: int) -> int:
    """The highest of the members' votes."""
    return max(s.vote[q][op] if LINE[axis][q] == LINE[axis][rank] else SILENT for q in RANKS)


def least_vote(s: State, rank: int, axis: int, op: int) -> int:
    """The lowest of the members' votes."""
    return min(s.vote[q][op] if LINE[axis][q] == LINE[axis][rank] else TERMINATED for q in RANKS)


@step_property
def step_hit_is_of_all_members(s: State, t: State) -> bool:
    """§14.9.3 P7, P12. A query thread leaves a meeting with the least of the answers of all members, and they were all
    alive and in it."""
    return all(
        all(
            not is_seated(s, r, axis)
            or t.fate[r] != ALIVE
            or t.seat[r] == s.seat[r]
            or (all_are_seated(s, r, axis) and t.answer[r] == least_answer(s, r, axis))
            for axis in AXES
        )
        for r in RANKS
    )


def all_are_seated(s: State, rank: int, axis: int) -> bool:
    """Every member's query thread is in the group."""
    return all(is_seated(s, q, axis) for q in RANKS if LINE[axis][q] == LINE[axis][rank])


def least_answer(s: State, rank: int, axis: int) -> int:
    """The lowest of the members' answers."""
    return min(s.answer[q] if LINE[axis][q] == LINE[axis][rank] else 1 for q in RANKS)


@step_property
def step_ends_for_cause(s: State, t: State) -> bool:
    """§14.9.4 P5. A poll ends an operation only if its page has landed on every rank of every stage, or failed on one.

    After a death nothing is said: what the dead one knew cannot be asked any more.
    """
    return any(s.fate[r] != ALIVE for r in RANKS) or all(
        all(not has_been_judged(s, t, r, op) or may_be_ended(s, op) for op in OPS) for r in RANKS
    )


def has_been_judged(s: State, t: State, rank: int, op: int) -> bool:
    """The scheduler has just found that the operation must end."""
    return s.point[rank] == JUDGING and t.point[rank] != JUDGING and t.vote[rank][op] != SILENT


def may_be_ended(s: State, op: int) -> bool:
    """It has landed everywhere, or failed somewhere; a rank that is ahead has frozen or published it already."""
    return all(s.standing[r][op] in (LANDED, FETCHED) for r in RANKS) or any(
        s.standing[r][op] in (FAILED, EMPTY) for r in RANKS
    )


# ---- §14.11 liveness


def turn_is_over(s: State, rank: int) -> bool:
    """The scheduler is between two turns, or its process has ended."""
    return s.point[rank] == IDLE


@leads_to(turn_is_over, rank=RANKS)
def live_turns_end(s: State, rank: int) -> bool:
    """§14.11.1 P7. Every turn that a scheduler has begun ends, or its process does: nobody waits for ever."""
    return s.point[rank] != IDLE


def thread_is_free(s: State, rank: int) -> bool:
    """The query thread has put its answer, or its process has ended."""
    return s.seat[rank] == FREE


@leads_to(thread_is_free, rank=RANKS)
def live_look_ups_are_agreed(s: State, rank: int) -> bool:
    """§14.11.2 P31. Every look-up that a query thread has made is agreed on, or its process ends."""
    return s.seat[rank] != FREE


def operation_is_over(s: State, rank: int, op: int) -> bool:
    """The operation has ended on this rank, or its process has."""
    return is_ended(s, rank, op) or s.fate[rank] != ALIVE


@leads_to(operation_is_over, rank=RANKS, op=OPS)
def live_operations_end_on_every_rank(s: State, rank: int, op: int) -> bool:
    """§14.11.3 P2. Every operation ends on every rank."""
    return FETCHES and s.fate[rank] == ALIVE and not is_ended(s, rank, op)


def backup_is_over(s: State, rank: int) -> bool:
    """The rank has let go of what it backed up, or its process has ended."""
    return s.node[rank] == RELEASED or s.fate[rank] != ALIVE


@leads_to(backup_is_over, rank=RANKS)
def live_backups_are_released(s: State, rank: int) -> bool:
    """§14.11.4 P3. What is backed up is let go of, on every rank."""
    return s.node[rank] != NOT_BACKED_UP


def process_has_ended(s: State, rank: int) -> bool:
    """The process is dead, or has given up."""
    return s.fate[rank] != ALIVE


@leads_to(process_has_ended, rank=RANKS)
def live_the_others_end(s: State, rank: int) -> bool:
    """§14.11.5 P7. When a process has died, every other one of the replica ends as well."""
    return any(s.fate[r] == DEAD for r in RANKS)
