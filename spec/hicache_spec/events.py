"""§3.14 The vocabulary of observable events.

An implementation emits these under the same names; `op` is the operation (a request id and its attempt). Lockstep
events come from the schedulers and are the same sequence on every rank; the others come from a rank's own threads.
"""

from __future__ import annotations

from .language import EventKind

ON_SUBMITTED = EventKind("submitted", ("op", "span"))
ON_DECLINED = EventKind("declined", ("request", "reason", "span"))
ON_STOPPED = EventKind("stopped", ("op",))
ON_SKIPPED = EventKind("skipped", ("op",))
ON_REVOKED = EventKind("revoked", ("op", "reason", "room"))
ON_ALLOCATED = EventKind("allocated", ("op", "pages", "hit", "room"))
ON_FETCHED = EventKind("fetched", ("op", "pages", "known"))
ON_EVICTED = EventKind("evicted", ("chain", "pages"))
ON_WRITTEN = EventKind("written", ("chain", "pages"))
ON_RECLAIMED = EventKind("reclaimed", ("pages",))

ON_QUERY_TAKEN = EventKind("query_taken", ("rank", "op"))
ON_QUERY_ASKED = EventKind("query_asked", ("rank", "op", "hit"))
ON_QUERY_AGREED = EventKind("query_agreed", ("op", "hit"))
ON_QUERY_PUT = EventKind("query_put", ("rank", "op"))
ON_IO_STARTED = EventKind("io_started", ("rank", "op", "page"))
ON_IO_LANDED = EventKind("io_landed", ("rank", "op", "page"))
ON_IO_UNCOUNTED = EventKind("io_uncounted", ("rank", "op", "page"))
ON_IO_FAILED = EventKind("io_failed", ("rank", "op", "page"))
ON_IO_RELEASED = EventKind("io_released", ("rank", "op"))

LOCKSTEP = (
    ON_SUBMITTED,
    ON_DECLINED,
    ON_STOPPED,
    ON_SKIPPED,
    ON_REVOKED,
    ON_ALLOCATED,
    ON_FETCHED,
    ON_EVICTED,
    ON_WRITTEN,
    ON_RECLAIMED,
)
THREAD = (
    ON_QUERY_TAKEN,
    ON_QUERY_ASKED,
    ON_QUERY_AGREED,
    ON_QUERY_PUT,
    ON_IO_STARTED,
    ON_IO_LANDED,
    ON_IO_UNCOUNTED,
    ON_IO_FAILED,
    ON_IO_RELEASED,
)
EVENTS = {kind.name: kind for kind in (*LOCKSTEP, *THREAD)}

LOGGED_LOCKSTEP: dict[str, tuple[str, ...]] = {
    "submitted": ("span", "base", "anchor"),
    "declined": ("reason", "span"),
    "stopped": (),
    "skipped": (),
    "clamped": ("pages", "pool", "wanted", "free", "evictable"),
    "revoked": ("reason", "by", "evictable", "free"),
    "allocated": ("pages", "hit", "evictable", "free"),
    "fetched": ("pages", "known", "reason"),
    "evicted": ("node", "pages"),
    "written": ("node", "pages"),
    "copied": ("node", "pages"),
    "reclaimed": ("pages",),
    "slots_taken": ("pool", "slots", "free"),
    "slots_freed": ("pool", "slots", "free"),
    "stored": ("node", "pages", "failed"),
    "loaded": ("node", "pages"),
    "arrived": ("node", "pages"),
    "detaching": (),
    "resetting": (),
    "kept": (),
    "attaching": (),
    "attached": (),
    "attach_failed": (),
    "closed": (),
}
"""What a scheduler logs, with the fields of each event beside the rank and the operation."""

LOGGED_THREAD: dict[str, tuple[str, ...]] = {
    "marked": ("reason", "counted"),
    "query_taken": ("terminated",),
    "query_asked": ("hit",),
    "query_agreed": ("hit",),
    "query_put": (),
    "io_started": ("page",),
    "io_landed": ("page",),
    "io_uncounted": ("page",),
    "io_failed": ("page", "reason"),
    "io_released": ("page",),
    "backed_up": ("pages", "failed"),
    "joined": ("group", "number", "call"),
    "left": ("group", "number", "call"),
    "told_to_stop": (),
    "thread_ended": ("thread",),
    "detached": (),
    "begun_again": (),
    "thread_started": ("thread",),
    "start_failed": ("reason",),
    "died": ("thread", "error"),
}
"""What a rank's threads log. `joined` and `left` stand before and after each collective."""
