"""§3.0 The state of the pipeline, and the words that its rules share.

Schedulers of all ranks run in lockstep, so what only a scheduler writes exists once (phase, record, tree); what a
rank's threads write exists per rank (queues, flags, landed pages). The host pool exists per rank, to be compared.
"""

from __future__ import annotations

from .language import (
    NONE,
    State,
    StateShape,
    constant,
    enumeration,
    field,
    fifo,
    flag,
    index,
    initial,
    member,
    optional,
    quiescent,
    switch,
    table,
    upto,
)
from .lifecycle import EDGES, TRIGGERS

PHASE = enumeration("phase", "absent queued queried terminated revoked allocated fetched illegal")
ABSENT, QUEUED, QUERIED, TERMINATED, REVOKED, ALLOCATED, FETCHED, ILLEGAL = PHASE
QUERY, ALLOCATE, FETCH, TERMINATE, REVOKE = range(len(TRIGGERS))

STAGE = enumeration("stage", "idle skipping looking answered agreed")
IDLE, SKIPPING, LOOKING, ANSWERED, AGREED = STAGE

REASON = enumeration("reason", "too_short limited pending below_threshold no_memory stopped aborted")
TOO_SHORT, LIMITED, PENDING, BELOW_THRESHOLD, NO_MEMORY, WAS_STOPPED, WAS_ABORTED = REASON

AFTER = tuple(
    tuple(PHASE.members.index(EDGES.get((trigger, phase), "illegal")) for phase in PHASE.members)
    for trigger in TRIGGERS
)
"""AFTER[trigger][phase]: the life-cycle table of §2, with `illegal` where it has no edge."""

REQUESTS = index("request", "requests", symmetric=True)
ATTEMPTS = constant("attempts")
OPS = index("op", lambda b: b.requests * b.attempts, blocks_of=REQUESTS)
REQUEST_OF = table("request_of", lambda b: tuple(op // b.attempts for op in range(b.requests * b.attempts)))
RANKS = index("rank", "ranks", symmetric=True)
CHAINS = index("chain", lambda b: len(b.resident_pages))
LENGTH = constant("chain_pages")
DEPTHS = index("depth", lambda b: b.chain_pages + 1)
HITS = index("hits", lambda b: b.requests * b.attempts + 1)
PAGES = index("pages", lambda b: b.host_pages + 1)
HOST_PAGES = constant("host_pages")
THRESHOLD = constant("threshold_pages")
LIMIT = constant("limit_pages")
OCCUPIED_MAX = constant(lambda b: b.requests * b.attempts * b.chain_pages, "occupied_max")
PROTECTIONS_MAX = constant(lambda b: b.requests * b.attempts, "protections_max")
POLICY_NOW = constant("policy")
TIMEOUT_TICKS = constant("timeout_ticks")
RESIDENT_AT_START = table("resident_at_start", lambda b: b.resident_pages)
STORED = table("stored", lambda b: b.stored_pages)
CHURN = switch("churn")
ABORTS = switch("aborts")
STOPS = switch("stops")
WRITES = switch("writes")


class Pipeline(StateShape):
    """§3.0 The state. Comments name the writer."""

    # the schedulers, in lockstep: once
    attempts = field(upto(ATTEMPTS), REQUESTS)  # how often the request id was submitted
    record = field(optional(OPS), REQUESTS)  # the operation that the scheduler waits for
    phase = field(member(PHASE), OPS)
    chain = field(optional(CHAINS), OPS)  # the anchor: a chain ...
    base = field(upto(LENGTH), OPS)  # ... and how deep in it
    span = field(upto(LENGTH), OPS)  # pages asked for, from the anchor on
    waited = field(upto(TIMEOUT_TICKS), OPS)
    granted = field(upto(LENGTH), OPS)  # host pages given to the operation, on every rank
    occupied = field(upto(OCCUPIED_MAX))  # pages of spans that wait for or hold host memory
    resident = field(upto(LENGTH), CHAINS)  # host pages of the chain in the tree
    protected = field(upto(PROTECTIONS_MAX), CHAINS, DEPTHS)  # reference counts of anchors
    # each rank's scheduler
    free = field(upto(HOST_PAGES), RANKS)
    stopped = field(flag(), RANKS, OPS)  # the terminated flag; the IO thread sets it too
    # each rank's query thread
    query_queue = field(fifo(OPS), RANKS)
    stage = field(member(STAGE), RANKS)  # how far it is with the head of its queue
    answer = field(upto(LENGTH), RANKS)  # what storage said about it
    hit = field(upto(LENGTH), RANKS, OPS)
    hit_queue = field(fifo(OPS), RANKS)
    # each rank's IO thread
    buffer = field(fifo(OPS), RANKS)  # its head is the operation in work
    writing = field(flag(), RANKS)  # a page of the head is being filled
    filled = field(upto(LENGTH), RANKS)  # pages of the head whose bytes are in place
    tail = field(upto(LENGTH), RANKS)  # pages of the head's unread tail already released
    counted = field(upto(LENGTH), RANKS, OPS)  # landed pages as the scheduler may read them
    given = field(upto(LENGTH), RANKS, OPS)  # granted pages that the operation no longer holds
    releasing = field(upto(HOST_PAGES), RANKS)  # length of the host release queue


@initial
def start(s: State) -> None:
    """§3.0 Some chains have a resident prefix; all other host pages are free."""
    for chain in CHAINS:
        s.resident[chain] = RESIDENT_AT_START[chain]
    for r in RANKS:
        s.free[r] = HOST_PAGES - sum(RESIDENT_AT_START[chain] for chain in CHAINS)


@quiescent
def at_rest(s: State) -> bool:
    """§3.0 No operation is pending and every queue is empty: nothing more need happen."""
    return (
        all(s.record[request] == NONE for request in REQUESTS)
        and all(len(s.query_queue[r]) + len(s.hit_queue[r]) + len(s.buffer[r]) == 0 for r in RANKS)
        and all(s.releasing[r] == 0 for r in RANKS)
    )


def advance(s: State, op: int, trigger: int) -> None:
    """The operation takes an edge of the life cycle; without such an edge its phase becomes `illegal`."""
    s.phase[op] = AFTER[trigger][s.phase[op]]


def is_pending(s: State, op: int) -> bool:
    """Queued, queried, terminated or allocated: the operation has not ended."""
    return s.phase[op] in (QUEUED, QUERIED, TERMINATED, ALLOCATED)


def is_ended(s: State, op: int) -> bool:
    """Revoked or fetched."""
    return s.phase[op] in (REVOKED, FETCHED)


def is_terminated(s: State, op: int) -> bool:
    """The terminated flags, MAX-reduced."""
    return any(s.stopped[r][op] for r in RANKS)


def is_complete(s: State, op: int) -> bool:
    """There is a plan, and every rank has counted all pages of it."""
    return s.granted[op] > 0 and all(s.counted[r][op] == s.granted[op] for r in RANKS)


def is_travelling(s: State, op: int) -> bool:
    """Some thread still has the operation in a queue."""
    return any(op in s.query_queue[r] or op in s.hit_queue[r] or op in s.buffer[r] for r in RANKS)


def held(s: State, rank: int, op: int) -> int:
    """Pages that the operation holds on a rank."""
    return max(0, s.granted[op] - s.given[rank][op])


def retire(s: State, op: int) -> None:
    """Not a step of the protocol: variables of an ended operation that nobody can read any more are reset."""
    if is_ended(s, op) and not is_travelling(s, op) and has_given_all(s, op):
        forget(s, op)


def has_given_all(s: State, op: int) -> bool:
    """The operation holds nothing any more, on any rank, and gave back nothing twice."""
    return all(s.given[r][op] == s.granted[op] for r in RANKS)


def forget(s: State, op: int) -> None:
    """The variables of the operation are as they were before it."""
    s.chain[op] = NONE
    s.base[op] = 0
    s.span[op] = 0
    s.waited[op] = 0
    s.granted[op] = 0
    for r in RANKS:
        s.stopped[r][op] = False
        s.counted[r][op] = 0
        s.given[r][op] = 0
