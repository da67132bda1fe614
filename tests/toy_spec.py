"""A small specification that uses every part of the language: two workers take tickets from a queue."""

from __future__ import annotations

from dataclasses import dataclass

from hicache_spec.language import (
    NONE,
    EventKind,
    State,
    StateShape,
    action,
    constant,
    discard,
    emit,
    emitted,
    enumeration,
    field,
    fifo,
    flag,
    index,
    initial,
    insert,
    invariant,
    member,
    optional,
    quiescent,
    require,
    sometimes,
    step_property,
    subset,
    table,
    upto,
)


@dataclass(frozen=True)
class ToyBounds:
    tickets: int = 2
    workers: int = 2
    costs: tuple[int, ...] = (1, 2)


MODE = enumeration("mode", "resting busy")
RESTING, BUSY = MODE
TICKETS = index("ticket", "tickets")
WORKERS = index("worker", "workers")
BUDGET = constant(lambda b: sum(b.costs), "budget")
COST = table("cost", lambda b: b.costs)
ON_TAKEN = EventKind("taken", ("worker", "ticket"))


class Toy(StateShape):
    waiting = field(fifo(TICKETS))
    mode = field(member(MODE), WORKERS)
    ticket = field(optional(TICKETS), WORKERS)
    done = field(subset(TICKETS))
    seen = field(flag(), WORKERS, TICKETS)
    spent = field(upto(BUDGET))


@initial
def start(s: State) -> None:
    """§1 All tickets wait."""
    for t_ in TICKETS:
        s.waiting.append(t_)


@quiescent
def all_done(s: State) -> bool:
    """§1 Nothing waits and nobody works."""
    return len(s.waiting) == 0 and all(s.mode[w] == RESTING for w in WORKERS)


@action(fairness="weak", worker=WORKERS)
def worker_take(s: State, worker: int) -> None:
    """§2.1 A resting worker takes the next ticket."""
    require(s.mode[worker] == RESTING, "the worker rests")
    require(len(s.waiting) > 0, "a ticket waits")
    s.ticket[worker] = s.waiting.pop(0)
    s.mode[worker] = BUSY
    s.seen[worker][s.ticket[worker]] = True
    emit(s, ON_TAKEN, worker, s.ticket[worker])


@action(fairness="weak", worker=WORKERS)
def worker_finish(s: State, worker: int) -> None:
    """§2.2 The ticket is done and paid for."""
    require(s.mode[worker] == BUSY, "the worker is busy")
    insert(s.done, s.ticket[worker])
    pay(s, COST[s.ticket[worker]])
    s.ticket[worker] = NONE
    s.mode[worker] = RESTING


@action(ticket=TICKETS)
def env_reopen(s: State, ticket: int) -> None:
    """§2.3 A ticket that was done waits again, for free."""
    require(ticket in s.done, "the ticket is done")
    discard(s.done, ticket)
    s.spent -= COST[ticket]
    s.waiting.append(ticket)


def pay(s: State, amount: int) -> None:
    s.spent += amount


@invariant
def inv_paid_for_what_is_done(s: State) -> bool:
    """§3.1 What was spent is the cost of what is done."""
    return s.spent == sum(COST[t_] if t_ in s.done else 0 for t_ in TICKETS)


@invariant
def inv_one_place_a_ticket(s: State) -> bool:
    """§3.2 A ticket waits, is worked on, or is done."""
    return all((t_ in s.waiting) + (t_ in s.done) + sum(s.ticket[w] == t_ for w in WORKERS) == 1 for t_ in TICKETS)


@step_property
def step_done_is_not_lost(s: State, t: State) -> bool:
    """§3.3 At most one ticket leaves the set of done ones in a step."""
    return len(t.done) >= len(s.done) - 1


@sometimes
def sometimes_second_worker_takes_first_ticket(s: State, t: State) -> bool:
    """§4.1 The second worker takes ticket 0."""
    return emitted(t, ON_TAKEN, worker=1, ticket=0)
