"""Events as JSON lines through the standard library's `logging`. Nothing is logged unless a logger is given."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from hicache_impl import events
from hicache_impl.events import OpId

LOGGER = "hicache_impl.events"
# What a person who reads along wants to see first; all other events are for looking closer.
LEVELS: Mapping[str, int] = {
    **dict.fromkeys(events.LOCKSTEP_FIELDS, logging.INFO),
    events.IO_FAILED: logging.WARNING,
    events.DIED: logging.ERROR,
}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (seconds since 1970), `level`, `event`, `rank`, `op`, and the event's fields.

    Of any other record: `time`, `level`, `logger`, `message`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """See the class."""
        line: dict[str, Any] = {"time": round(record.created, 6), "level": record.levelname.lower()}
        fields = getattr(record, "hicache", None)
        line |= fields if fields is not None else {"logger": record.name, "message": record.getMessage()}
        return json.dumps(line, separators=(",", ":"), default=repr)


def write_event(logger: logging.Logger, rank: int, kind: str, op: OpId | None, data: Mapping[str, Any]) -> None:
    """One record, if the logger takes its level."""
    level = LEVELS.get(kind, logging.DEBUG)
    if logger.isEnabledFor(level):
        fields = {"event": kind, "rank": rank, "op": op, **data}
        logger.log(level, "%s", kind, extra={"hicache": fields})
