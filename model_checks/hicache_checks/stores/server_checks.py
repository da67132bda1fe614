"""Checks of a store whose medium fails as a whole: a server that is stopped or killed, code that misbehaves."""

from __future__ import annotations

import time

import torch

from hicache_checks.stores.asking import Asking, blank, keys, pages, put_in_the_end
from hicache_checks.stores.under_check import Place, Wrong

HEALED_PAGES = 24
LATE_S = 1.5
LATE_POLL_S = 0.05
MARK = 171
NONSENSE = ("raise", "hang", "short", "nonsense", "lie")


def failed_reads_write_nothing_later(place: Place, ask: Asking) -> None:
    """A destination of a get that was answered with no is not written to once the answer is there."""
    ask.put_all(keys(1), pages(1))
    into = [blank(2)[0], torch.zeros(1, 3, dtype=torch.uint8)]
    if ask.get([keys(1, 1)[0], keys(1)[0]], into) != [False, False]:
        raise Wrong("a page that is not there, or has another size, is served")
    _stay_as_marked(into, "after a miss")


def a_stopped_server_is_a_miss(place: Place, ask: Asking) -> None:
    """While one is stopped, every call ends in time with a no; when it goes on, all is right again."""
    names = keys(4)
    for name, server in place.need("servers").items():
        put_in_the_end(ask, names, pages(4))
        server.stop()
        try:
            ask.exists(names)
            ask.lacks(names, f" while the {name} is stopped")
            if any(ask.put(keys(2, 50), pages(2, 50))):
                raise Wrong(f"a page is taken while the {name} is stopped")
            ask.stats()
            ask.clear()
        finally:
            server.go_on()
        _heal(ask)
        ask.right(names, pages(4), f" after the {name} was stopped and went on")
        ask.right(keys(2, 50), pages(2, 50), f" that was refused while the {name} was stopped")


def late_transfers_reach_nobody(place: Place, ask: Asking) -> None:
    """A server is stopped in the middle of reads, and goes on after their answer: nothing is written then."""
    names = keys(8)
    given = [torch.full((1, 1 << 18), number + 1, dtype=torch.uint8) for number in range(8)]
    for name, server in place.need("servers").items():
        put_in_the_end(ask, names, given)
        into = [torch.zeros(1, 1 << 18, dtype=torch.uint8) for _ in range(8)]
        server.stop()
        try:
            if any(ask.get(names, into)):
                raise Wrong(f"a page is served while the {name} is stopped")
            for each in into:
                each.fill_(MARK)
        finally:
            server.go_on()
        _stay_as_marked(into, f"after the {name} went on")
        _heal(ask)
        # The memory of the failed reads is used again, by reads of other pages.
        for turn in range(8):
            ask.right(names[turn:] + names[:turn], given[turn:] + given[:turn], " after reads that failed")


def a_killed_server_is_a_miss(place: Place, ask: Asking) -> None:
    """While there is none, every call ends in time with a no; when there is one again, pages are put and got."""
    names = keys(4)
    for name, server in place.need("servers").items():
        put_in_the_end(ask, names, pages(4))
        server.kill()
        try:
            ask.exists(names)
            ask.lacks(names, f" while the {name} is dead")
            if any(ask.put(names, pages(4))):
                raise Wrong(f"a page is taken while the {name} is dead")
            ask.clear()
        finally:
            server.restart()
        _heal(ask)
        ask.right(names, pages(4), f" after the {name} was started again")
        put_in_the_end(ask, keys(4, 20), pages(4, 20))
        ask.holds(keys(4, 20), pages(4, 20), f" after the {name} was started again")


def what_misbehaves_is_kept_apart(place: Place, ask: Asking) -> None:
    """Code from outside that raises, hangs, answers nonsense or lies costs a miss, and harms nobody."""
    misbehave = place.need("misbehave")
    names = keys(4)
    for how in NONSENSE:
        ask.put_all(names, pages(4))
        misbehave(how)
        try:
            ask.exists(names)
            ask.lacks(names, f" by code that misbehaves ({how})")
            if how != "lie" and any(ask.put(keys(2, 30), pages(2, 30))):
                raise Wrong(f"code that misbehaves ({how}) is believed to have stored a page")
            ask.stats()
            ask.clear()
        finally:
            misbehave(None)
        _heal(ask)


def what_writes_late_reaches_nobody(place: Place, ask: Asking) -> None:
    """Code from outside that fills a page after its answer, or after nobody waits for it any more."""
    misbehave = place.need("misbehave")
    names = keys(4)
    ask.put_all(names, pages(4))
    into = blank(4)
    misbehave("late")
    try:
        if any(ask.get(names, into)):
            raise Wrong("a page is served that was not read in time")
        for each in into:
            each.fill_(MARK)
    finally:
        misbehave(None)
    _stay_as_marked(into, "by code that writes late")
    _heal(ask)
    ask.right(names, pages(4), " after code that writes late")


def _stay_as_marked(into: list[torch.Tensor], when: str) -> None:
    for each in into:
        each.fill_(MARK)
    until_s = time.monotonic() + LATE_S
    while time.monotonic() < until_s:
        if not all(bool((each == MARK).all()) for each in into):
            raise Wrong(f"the destination of a failed read is written to {when}")
        time.sleep(LATE_POLL_S)


def _heal(ask: Asking) -> None:
    """Until pages can be put and got again, many at once: not by luck. Wrong: they never can."""
    names, given = keys(HEALED_PAGES, 9_000), pages(HEALED_PAGES, 9_000)
    for _ in range(2):
        put_in_the_end(ask, names, given)
