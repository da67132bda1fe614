"""The log of one rank."""

from __future__ import annotations

import io
import threading

import pytest

from hicache_impl import events
from hicache_impl.events import EventLog, NullLog, dump_events, load_events


def test_numbers_and_order() -> None:
    log = EventLog(1)
    log.emit(events.QUERY_PUT, ("a", 1))
    log.emit(events.RECLAIMED, pages=2)
    assert [(event.rank, event.seq, event.kind) for event in log.take_since(0)] == [
        (1, 0, "query_put"),
        (1, 1, "reclaimed"),
    ]
    assert [event.seq for event in log.take_since(1)] == [1]
    assert log.take_since(2) == []
    assert len(log) == 2


@pytest.mark.parametrize(
    ("kind", "data"), [("unheard", {}), ("reclaimed", {}), ("reclaimed", {"page": 1}), ("skipped", {"pages": 1})]
)
def test_the_vocabulary_is_closed(kind: str, data: dict[str, int]) -> None:
    log = EventLog(0)
    with pytest.raises(ValueError, match="has the fields"):
        log.emit(kind, ("a", 1), **data)
    assert len(log) == 0


def test_forgotten_events_are_not_taken_for_none() -> None:
    log = EventLog(0)
    for pages in range(5):
        log.emit(events.RECLAIMED, pages=pages)
    log.forget_before(3)
    assert [event.seq for event in log.take_since(3)] == [3, 4]
    with pytest.raises(ValueError, match="forgotten"):
        log.take_since(2)
    log.emit(events.RECLAIMED, pages=9)
    log.forget_before(100)
    assert (len(log), log.take_since(6)) == (6, [])


def test_json_lines_round_trip() -> None:
    log = EventLog(2)
    log.emit(events.QUERY_ASKED, ("a", 3), hit=4)
    log.emit(events.CLOSED)
    stream = io.StringIO()
    log.dump(stream)
    stream.seek(0)
    assert list(load_events(stream)) == log.take_since(0)


@pytest.mark.parametrize("line", ["{", "[]", '{"rank": 0}', '{"rank":0,"seq":0,"kind":"closed","op":["a"],"data":{}}'])
def test_a_line_that_is_no_event_is_named(line: str) -> None:
    good = io.StringIO()
    dump_events([events.Event(0, 0, "closed")], good)
    with pytest.raises(ValueError, match="line 2 is not an event"):
        list(load_events(io.StringIO(good.getvalue() + line + "\n")))


def test_threads_share_a_log() -> None:
    log = EventLog(0)

    def work() -> None:
        for pages in range(200):
            log.emit(events.RECLAIMED, pages=pages)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event.seq for event in log.take_since(0)] == list(range(800))


def test_nobody_listens() -> None:
    NullLog().emit("whatever", None, anything=1)
