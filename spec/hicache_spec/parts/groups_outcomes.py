"""§14.10 What must be reachable in a grid of ranks, so that nothing holds for want of trying."""

from __future__ import annotations

from ..language import State, sometimes
from .grid import (
    AXES,
    IDLE,
    JUDGING,
    LINE,
    OPS,
    POLLING,
    RANKS,
    SAMPLING,
    SHARD,
    STAGE,
    TAKING,
)
from .groups import (
    ALIVE,
    DEAD,
    EMPTY,
    FAILED,
    FETCHED,
    GONE,
    LANDED,
    QUEUED,
    RELEASED,
    REVOKED,
    SILENT,
    STOPPED,
    STORING,
    TERMINATED,
    WAITING,
    has_lost,
    is_ended,
    is_left_untold,
    is_met,
    is_seated,
)


@sometimes
def sometimes_a_rank_is_a_turn_ahead(s: State, t: State) -> bool:
    """§14.10.1 A rank has begun the next turn while another is still in this one."""
    return any(any(is_ahead(t, a, b) for b in RANKS) for a in RANKS)


def is_ahead(s: State, a: int, b: int) -> bool:
    """Both ranks are in a turn, and not in the same."""
    return (
        s.fate[a] == ALIVE
        and s.fate[b] == ALIVE
        and s.turn[a] != s.turn[b]
        and s.point[a] != IDLE
        and s.point[b] != IDLE
    )


@sometimes
def sometimes_the_first_stage_is_ahead(s: State, t: State) -> bool:
    """§14.10.2 The first stage has taken its answers while a later stage has not begun the turn."""
    return any(any(waits_for_the_last(t, a, b) for b in RANKS if STAGE[b] > 0) for a in RANKS if STAGE[a] == 0)


def waits_for_the_last(s: State, a: int, b: int) -> bool:
    """Rank a has taken what rank b, of a later stage, has not even been told of."""
    return s.turn[a] == s.turn[b] and s.point[a] == POLLING and s.point[b] == IDLE and s.fate[b] == ALIVE


@sometimes
def sometimes_fewer_are_taken_than_there_are(s: State, t: State) -> bool:
    """§14.10.3 A rank leaves an answer in its queue, because another rank did not have it yet."""
    return any(s.point[r] == TAKING and t.point[r] == POLLING and len(t.hit_queue[r]) > 0 for r in RANKS)


@sometimes
def sometimes_a_later_stage_waits_for_its_own_thread(s: State, t: State) -> bool:
    """§14.10.4 A rank is told to take an answer that its own query thread has not put yet."""
    return any(t.point[r] == TAKING and len(t.hit_queue[r]) < t.count[r] for r in RANKS)


@sometimes
def sometimes_ranks_answer_differently(s: State, t: State) -> bool:
    """§14.10.5 A query thread learns in a meeting that another rank has found nothing."""
    return any(any(is_seated(s, r, axis) and t.answer[r] < s.answer[r] for axis in AXES) for r in RANKS)


@sometimes
def sometimes_an_answer_is_revoked(s: State, t: State) -> bool:
    """§14.10.6 Nothing is in storage for every rank: the operation is revoked."""
    return any(s.point[r] == TAKING and any(is_revoked(s, t, r, op) for op in OPS) for r in RANKS)


def is_revoked(s: State, t: State, rank: int, op: int) -> bool:
    """The step revokes an operation without memory."""
    return s.standing[rank][op] == QUEUED and t.standing[rank][op] == REVOKED


@sometimes
def sometimes_one_rank_makes_all_wait(s: State, t: State) -> bool:
    """§14.10.7 An operation whose page has landed on this rank waits for another rank."""
    return any(
        any(s.vote[r][op] == WAITING and s.standing[r][op] == LANDED and t.point[r] != JUDGING for op in OPS)
        for r in RANKS
        if s.point[r] == JUDGING
    )


@sometimes
def sometimes_one_rank_ends_it_for_all(s: State, t: State) -> bool:
    """§14.10.8 An operation that has not failed on this rank is ended, because it has on another."""
    return any(
        s.point[r] == JUDGING and any(s.vote[r][op] == TERMINATED and s.standing[r][op] != FAILED for op in OPS)
        for r in RANKS
    )


@sometimes
def sometimes_a_page_is_fetched(s: State, t: State) -> bool:
    """§14.10.9 What has landed on all ranks is published on all of them."""
    return all(all(t.standing[r][op] == FETCHED for op in OPS) for r in RANKS)


@sometimes
def sometimes_what_landed_is_not_published(s: State, t: State) -> bool:
    """§14.10.10 A page that has landed here is not published, because it has not on another rank."""
    return any(any(s.standing[r][op] == LANDED and t.standing[r][op] == EMPTY for op in OPS) for r in RANKS)


@sometimes
def sometimes_aborted_without_memory(s: State, t: State) -> bool:
    """§14.10.11 An abort revokes an operation without memory, at the beginning of a turn."""
    return any(s.point[r] == IDLE and any(is_revoked(s, t, r, op) for op in OPS) for r in RANKS)


@sometimes
def sometimes_aborted_with_memory(s: State, t: State) -> bool:
    """§14.10.12 After the barrier the pages of an aborted operation are given back."""
    return any(any(s.standing[r][op] == STOPPED and t.standing[r][op] == REVOKED for op in OPS) for r in RANKS)


@sometimes
def sometimes_an_abort_comes_too_late(s: State, t: State) -> bool:
    """§14.10.13 What callers want aborted has ended when they are heard."""
    return any(
        t.point[r] == SAMPLING and any(s.asked[s.turn[r]] == op and is_ended(s, r, op) for op in OPS)
        for r in RANKS
        if s.point[r] == IDLE
    )


@sometimes
def sometimes_the_answer_to_an_abort_is_skipped(s: State, t: State) -> bool:
    """§14.10.14 The drain meets an operation that was aborted while it was looked up."""
    return any(
        s.point[r] == TAKING
        and t.point[r] == POLLING
        and s.count[r] > 0
        and s.standing[r][s.hit_queue[r][0]] == REVOKED
        for r in RANKS
    )


@sometimes
def sometimes_a_poll_has_nothing_to_ask(s: State, t: State) -> bool:
    """§14.10.15 The schedulers meet in a poll, though no operation has memory and nothing is backed up."""
    return any(
        s.point[r] == JUDGING and s.ack[r] == SILENT and all(s.vote[r][op] == SILENT for op in OPS) for r in RANKS
    )


@sometimes
def sometimes_acknowledged_by_who_does_not_write(s: State, t: State) -> bool:
    """§14.10.16 A rank acknowledges bytes that another rank has not stored yet."""
    return any(s.node[r] == STORING and t.node[r] != STORING and not t.stored[SHARD[r]] for r in RANKS)


@sometimes
def sometimes_a_backup_is_released(s: State, t: State) -> bool:
    """§14.10.17 Every shard is stored, and every rank lets go."""
    return all(t.node[r] == RELEASED for r in RANKS)


@sometimes
def sometimes_a_rank_dies_in_a_meeting(s: State, t: State) -> bool:
    """§14.10.18 A process dies in a meeting in which another one waits."""
    return any(any(s.fate[r] == ALIVE and t.fate[r] == DEAD and waits_with(s, r, axis) for axis in AXES) for r in RANKS)


def waits_with(s: State, rank: int, axis: int) -> bool:
    """The rank is in a meeting along an axis, and another member is."""
    return is_met(s, rank, axis) and sum(is_met(s, q, axis) for q in RANKS if LINE[axis][q] == LINE[axis][rank]) > 1


@sometimes
def sometimes_told_by_who_was_told(s: State, t: State) -> bool:
    """§14.10.19 A process gives up though nobody whom it meets has died: one that it meets has given up."""
    return any(
        s.fate[r] == ALIVE and t.fate[r] == GONE and not any(meets_dead(s, r, axis) for axis in AXES) for r in RANKS
    )


def meets_dead(s: State, rank: int, axis: int) -> bool:
    """A member of the rank's group along an axis has died."""
    return any(s.fate[q] == DEAD for q in RANKS if LINE[axis][q] == LINE[axis][rank])


@sometimes
def sometimes_a_query_thread_is_told(s: State, t: State) -> bool:
    """§14.10.20 A query thread waits for a process that has ended, while its scheduler waits for nobody."""
    return any(
        any(is_seated(t, r, axis) and has_lost(t, r, axis) and t.point[r] == IDLE for axis in AXES) for r in RANKS
    )


@sometimes
def sometimes_a_word_never_comes(s: State, t: State) -> bool:
    """§14.10.21 A later stage waits for the word of a process that has ended."""
    return any(is_left_untold(t, r) for r in RANKS)


@sometimes
def sometimes_nobody_is_left(s: State, t: State) -> bool:
    """§14.10.22 After a death, every process has ended."""
    return all(t.fate[r] != ALIVE for r in RANKS)


@sometimes
def sometimes_some_act_and_others_end(s: State, t: State) -> bool:
    """§14.10.23 With two deaths: one member of a meeting has acted on what was agreed, and two have died before they
    did."""
    return any(t.point[r] == POLLING for r in RANKS) and sum(t.fate[r] == DEAD for r in RANKS) == 2
