"""Checks that reach behind a store's back: damaged pages, a full medium, what else lies there, other processes."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from hicache_checks.stores.asking import Asking, blank, keys, page, pages
from hicache_checks.stores.under_check import Place, Wrong

SMALL_BYTES = 1 << 20
BIG_PAGES = 64
STARTED_S = 60.0
PARTS = ("model", "layout", "dtype", "adapter", "salt")

# A writer of ever new pages; it says when it has put the first.
WRITER = """
import itertools, sys
from hicache_checks.stores.asking import keys, pages
for first in itertools.count(0, 4):
    store.put_from(keys(4, first % 400), pages(4, first % 400))
    if not first:
        print("writing", flush=True)
"""


def handles_see_the_same_pages(place: Place, ask: Asking) -> None:
    """What one handle puts, another one gets; what one clears, is gone for all."""
    other = Asking(place, place.another())
    ask.put_all(keys(4), pages(4))
    other.holds(keys(4), pages(4), " by another handle")
    other.clear()
    ask.lacks(keys(4), " after another handle has cleared the store")


def pages_outlive_their_handles(place: Place, ask: Asking) -> None:
    """When all handles are closed, the pages stay."""
    place.need("durable")
    ask.put_all(keys(4), pages(4))
    ask.close()
    Asking(place, place.another()).holds(keys(4), pages(4), " after all handles were closed")


def processes_share_pages(place: Place, ask: Asking) -> None:
    """What another process puts, this one gets, whole, also when that one is killed in the middle."""
    with _writer(place) as writer:
        ask.holds(keys(4), pages(4), " that another process has put")
        for delay_s in (0.0, 0.05):
            time.sleep(delay_s)
            ask.right(keys(40), pages(40), " while another process writes")
        writer.kill()
        writer.wait()
    ask.right(keys(400), pages(400), " after a writer was killed")
    ask.put_all(keys(8, 1000), pages(8, 1000))
    ask.holds(keys(8, 1000), pages(8, 1000), " after a writer was killed")


def damaged_pages_are_misses(place: Place, ask: Asking) -> None:
    """A flipped byte, a page that is cut off, one that is too long; and a put mends it."""
    damage = place.need("damage")
    name = keys(1)
    for how in ("flip", "cut", "grow"):
        ask.put_all(name, pages(1))
        damage(name[0], how)
        if ask.get(name, blank()) != [False]:
            raise Wrong(f"a page that was damaged ({how}) is served")
        ask.put_all(name, pages(1))
        ask.holds(name, pages(1), " after it was put over a damaged one")


def a_page_under_another_name_is_a_miss(place: Place, ask: Asking) -> None:
    """The digest knows whose page it is."""
    misname = place.need("misname")
    ask.put_all(keys(2), pages(2))
    misname(*keys(2))
    ask.holds(keys(1), pages(1))
    if ask.get(keys(1, 1), blank()) != [False]:
        raise Wrong("a page that lies under another page's name is served")


def checksums_can_be_turned_off(place: Place, ask: Asking) -> None:
    """Who does not check takes every page; a page without a digest is a miss for who checks."""
    trusting = Asking(place, place.another(checksums=False))
    trusting.put_all(keys(2), pages(2))
    trusting.holds(keys(2), pages(2), " without checksums")
    ask.lacks(keys(2), " that have no digest")
    ask.put_all(keys(1), pages(1))
    trusting.holds(keys(1), pages(1), " with a digest that nobody looks at")
    ask.holds(keys(1), pages(1))


def clear_leaves_what_is_not_ours(place: Place, ask: Asking) -> None:
    """Something else in the same medium."""
    place.need("put_foreign")()
    ask.put_all(keys(4), pages(4))
    ask.clear()
    ask.lacks(keys(4), " after clear")
    if not place.need("foreign_is_left")():
        raise Wrong("clear removes what is not the store's")


def names_tell_everything_apart(place: Place, ask: Asking) -> None:
    """Pages of different models, layouts, dtypes, adapters, salts, ranks and geometries have different names."""
    page_name = place.need("page_name")
    names = {page_name(**parts) for parts in _identities()}
    count = sum(1 for _ in _identities())
    if len(names) < count:
        raise Wrong(f"{count} different pages have {len(names)} names")
    some = sorted(names)[:50]
    ask.put_all(some, pages(50))
    ask.holds(some, pages(50))


def a_full_medium_refuses(place: Place, ask: Asking) -> None:
    """It refuses, or lets older pages go; what it took is right or a miss; after clear there is room."""
    full = Asking(place, place.keep(place.need("open_small")()))
    evicts = bool(getattr(place.made, "evicts", False))
    names = keys(BIG_PAGES)
    page_bytes = 2 * int(getattr(place.made, "small_bytes", SMALL_BYTES)) // BIG_PAGES
    given = [torch.full((1, page_bytes), number, dtype=torch.uint8) for number in range(BIG_PAGES)]
    for turn in range(2):
        stored: list[bool] = []
        for first in range(0, BIG_PAGES, 8):
            stored += full.put(names[first : first + 8], given[first : first + 8])
        taken = [number for number, is_stored in enumerate(stored) if is_stored]
        there = full.right([names[n] for n in taken], [given[n] for n in taken], " when the medium is full")
        if not taken:
            raise Wrong("no page is taken" + (" after clear, though there is room again" if turn else ""))
        if len(taken) == BIG_PAGES and there == BIG_PAGES:
            raise Wrong(f"{BIG_PAGES} pages are taken where there is no room for them: nothing was checked")
        if not evicts and there < len(taken):
            raise Wrong(f"{len(taken)} pages are said to be stored, {there} are there")
        refused = [number for number in range(BIG_PAGES) if number not in taken]
        if full.right([names[n] for n in refused], [given[n] for n in refused], " though it was refused"):
            raise Wrong("a page is served that was refused")
        full.clear()


@contextmanager
def _writer(place: Place) -> Iterator[subprocess.Popen[str]]:
    code = place.need("elsewhere")
    process = subprocess.Popen([sys.executable, "-c", code + WRITER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        if said != "writing\n":
            raise Wrong(f"another process cannot use the store: it says {said.strip()!r}")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _identities() -> Iterator[dict[str, object]]:
    """Parts that differ, and parts that would look alike if they were only put one behind the other."""
    plain: dict[str, object] = {**dict.fromkeys(PARTS, "x"), "rank": 0, "ranks": 1}
    yield plain
    for part in PARTS:
        for value in ("", "xx", "X", "x_", "1:x", "x/x", "\u00e9", "0"):
            yield {**plain, part: value}
    for left, right in itertools.pairwise(PARTS):
        yield {**plain, left: "xx", right: ""}
        yield {**plain, left: "", right: "xx"}
    for ranks in (2, 11, 16):
        yield from ({**plain, "rank": rank, "ranks": ranks} for rank in range(ranks))


def a_page_of_nobody_is_no_page(place: Place, ask: Asking) -> None:
    """`exists` does not count what is not there, however it is asked: after a refused put, after a clear."""
    ask.put_all(keys(2), [page(0), page(1)])
    ask.clear()
    ask.put_all(keys(1), pages(1))
    if (said := ask.exists(keys(2))) != 1:
        raise Wrong(f"exists says {said} of a page that is there and one that was cleared")
