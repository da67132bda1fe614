"""Checks that need nothing but the calls of a store: what is put is got, whole, by its own name."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch

from hicache_checks.stores.asking import (
    LAYER_BYTES,
    LAYERS,
    Asking,
    blank,
    keys,
    page,
    pages,
    put_in_the_end,
    side_by_side,
)
from hicache_checks.stores.under_check import Place, Wrong

BAD_NAMES = (
    *("", "ab", "../../x", "/etc/passwd", "..", "a/bcd", "abc/", "ABCD", "abc.", "abc ", "abc\n", "abc\0", "a*", "xyz"),
    *("abc\r\nDEL abc", "abc\u0661", "a" * 300),
)
RACING_TURNS = 40
SCATTERED: dict[str, Callable[[], torch.Tensor]] = {
    "with rows apart": lambda: torch.zeros(LAYERS, 3, LAYER_BYTES, dtype=torch.uint8)[:, 1],
    "by columns": lambda: torch.zeros(LAYER_BYTES, LAYERS, dtype=torch.uint8).t(),
    "of every other byte": lambda: torch.zeros(LAYERS, 2 * LAYER_BYTES, dtype=torch.uint8)[:, ::2],
}


def what_was_put_is_got(place: Place, ask: Asking) -> None:
    """All pages of a batch, with their bytes; before that, none."""
    names = keys(8)
    ask.lacks(names, " before they were put")
    ask.put_all(names, pages(8))
    ask.holds(names, pages(8))


def exists_is_a_leading_run(place: Place, ask: Asking) -> None:
    """It counts from the first page to the first gap."""
    names = keys(6)
    ask.put_all([*names[:3], *names[4:]], [*pages(3), *pages(2, 4)])
    for asked, count in ((names, 3), (names[3:], 0), (names[4:], 2), (names[::-1], 2), ([], 0), (names[:1], 1)):
        if (said := ask.exists(asked)) != count:
            raise Wrong(f"exists says {said} where {count} are there without a gap")


def each_page_is_answered_for_itself(place: Place, ask: Asking) -> None:
    """A miss in the middle of a batch changes nothing for the others; an empty batch has an empty answer."""
    names = keys(5)
    ask.put_all(names[1::2], [page(1), page(3)])
    into = blank(5)
    got = ask.get(names, into)
    if got != [False, True, False, True, False]:
        raise Wrong(f"a batch with gaps is answered {got}")
    if not (torch.equal(into[1], page(1)) and torch.equal(into[3], page(3))):
        raise Wrong("wrong bytes are served beside a gap")
    ask.put([], [])
    ask.get([], [])


def big_batches_are_answered(place: Place, ask: Asking) -> None:
    """Of 2,000 pages."""
    names, given = keys(2000), [page(number, 1, 64) for number in range(2000)]
    ask.put_all(names, given)
    if (said := ask.exists(names)) != 2000:
        raise Wrong(f"exists says {said} of 2,000")
    ask.holds(names, given)


def a_later_put_wins(place: Place, ask: Asking) -> None:
    """Over a page of the same size, and of another one."""
    name = keys(1)
    for given in (page(0), page(1), page(2, 1, 100), page(3, 4, 4096), page(4)):
        ask.put_all(name, [given])
        ask.holds(name, [given], " after it was put once more")


def the_store_keeps_a_copy(place: Place, ask: Asking) -> None:
    """Who put a page may write to its memory at once; who got one, too."""
    name, given = keys(1), page(0).clone()
    ask.put_all(name, [given])
    given.zero_()
    into = blank()
    ask.get(name, into)
    into[0].fill_(1)
    ask.holds(name, [page(0)], " after its memory was used again")


def another_size_is_a_miss(place: Place, ask: Asking) -> None:
    """A page is served whole, to a destination of its size, or not at all."""
    name = keys(1)
    ask.put_all(name, pages(1))
    for layer_bytes in (1, LAYER_BYTES - 1, LAYER_BYTES + 1, 2 * LAYER_BYTES):
        if ask.get(name, [torch.zeros(LAYERS, layer_bytes, dtype=torch.uint8)]) != [False]:
            raise Wrong(f"a page of {LAYERS * LAYER_BYTES} bytes is served as one of {LAYERS * layer_bytes}")
    ask.holds(name, pages(1))


def a_page_may_lie_anywhere(place: Place, ask: Asking) -> None:
    """Sources and destinations have strides; what lies between their rows is not touched."""
    name = keys(1)
    for (source_is, make_source), (into_is, make_into) in itertools.product(SCATTERED.items(), SCATTERED.items()):
        source, into = make_source(), make_into()
        source.copy_(page(0))
        ask.put_all(name, [source])
        if ask.get(name, [into]) != [True] or not torch.equal(into, page(0)):
            raise Wrong(f"a page {source_is} is not served {into_is}")
        whole = torch.empty(0, dtype=torch.uint8).set_(into.untyped_storage())
        if int(whole.sum()) != int(into.sum()):
            raise Wrong(f"what lies between the bytes of a destination {into_is} is written to")


def bad_names_are_refused(place: Place, ask: Asking) -> None:
    """ValueError for a name that is no name of a page, alone or among others: no path, no pattern, no command."""
    names = keys(2)
    for bad in BAD_NAMES:
        for asked in ([bad], [names[0], bad, names[1]]):
            calls: dict[str, Callable[[], object]] = {
                "exists": lambda asked=asked: ask.store.exists(asked),  # type: ignore[misc]
                "get_into": lambda asked=asked: ask.store.get_into(asked, blank(len(asked))),  # type: ignore[misc]
                "put_from": lambda asked=asked: ask.store.put_from(asked, pages(len(asked))),  # type: ignore[misc]
            }
            for call, made in calls.items():
                _must_refuse(call, made, f"the name {bad[:20]!r}")
    if ask.exists(names[:1]):
        raise Wrong("of a batch with a bad name, a part is stored")


def lists_that_do_not_fit_are_refused(place: Place, ask: Asking) -> None:
    """ValueError for more names than pages, and for what is not of bytes."""
    names = keys(2)
    _must_refuse("get_into", lambda: ask.store.get_into(names, blank(1)), "2 names for 1 page")
    _must_refuse("put_from", lambda: ask.store.put_from(names, pages(1)), "2 names for 1 page")
    _must_refuse("put_from", lambda: ask.store.put_from(names[:1], [torch.zeros(4)]), "a page of floats")
    _must_refuse("get_into", lambda: ask.store.get_into(names[:1], [torch.zeros(4)]), "a page of floats")


def names_that_differ_are_other_pages(place: Place, ask: Asking) -> None:
    """In a digit, in length, in the rank, in the number of ranks, in where an underscore is."""
    base = f"{7:064x}"
    names = [
        *(f"{base}_{rank:x}_{ranks:x}" for ranks in (1, 2, 16, 17) for rank in range(ranks)),
        *(f"{base}_1", base, f"{base}__0_1", f"{base}0_0_1", f"0{base}_0_1", f"{base[1:]}_0_1", f"{base}_01_1"),
        *(f"{base}_0_1_", f"_{base}_0_1", "000", "0000", "0_0", "a" * 200, "a" * 199),
    ]
    ask.put_all(names, pages(len(names)))
    ask.holds(names, pages(len(names)), " among names much like it")


def counts_grow(place: Place, ask: Asking) -> None:
    """`stats` has counts by name; a hit, a miss and a put change some of them, and none gets smaller."""
    names = keys(2)
    before = ask.stats()
    for what, call in (
        ("a put", lambda: ask.put(names[:1], pages(1))),
        ("a hit", lambda: ask.get(names[:1], blank())),
        ("a miss", lambda: ask.get(names[1:], blank())),
    ):
        call()
        after = ask.stats()
        if any(after.get(name, 0) < count for name, count in before.items()):
            raise Wrong(f"{what} makes a count smaller: {before} became {after}")
        if after == before:
            raise Wrong(f"{what} is not counted: {after}")
        before = after


def clear_removes_every_page(place: Place, ask: Asking) -> None:
    """Then there is none; and the store goes on."""
    names = keys(20)
    ask.put_all(names, pages(20))
    ask.clear()
    if said := ask.exists(names):
        raise Wrong(f"{said} pages exist after clear")
    ask.lacks(names, " after clear")
    ask.put_all(names[:2], pages(2))
    ask.holds(names[:2], pages(2), " when they are put after clear")
    ask.clear()
    ask.clear()


def pages_are_atomic(place: Place, ask: Asking) -> None:
    """Two who write one page, and two who read it: a reader sees one page whole, or none."""
    name = keys(1)
    given = [torch.full((LAYERS, 1 << 15), value, dtype=torch.uint8) for value in (1, 2)]
    ask.put_all(name, given[:1])

    def write(which: int) -> Callable[[], None]:
        return lambda: [ask.put(name, [given[which]]) for _ in range(RACING_TURNS)]  # type: ignore[return-value]

    def read() -> None:
        for _ in range(2 * RACING_TURNS):
            into = torch.zeros_like(given[0])
            if ask.get(name, [into]) == [True] and not any(torch.equal(into, each) for each in given):
                raise Wrong("a reader sees half of one page and half of another")

    side_by_side(write(0), write(1), read, read)
    # Writers may have been in each other's way, and who comes after them is not.
    put_in_the_end(ask, name, given[1:])


def many_threads_have_their_own_pages(place: Place, ask: Asking) -> None:
    """Four who write and read pages of their own."""

    def use(thread: int) -> Callable[[], None]:
        def turns() -> None:
            for turn in range(RACING_TURNS):
                first = thread * 10_000 + turn * 4
                ask.put_all(keys(4, first), pages(4, first))
                ask.holds(keys(4, first), pages(4, first), " by the thread that has just put it")

        return turns

    side_by_side(*map(use, range(4)))


def close_may_come_twice(place: Place, ask: Asking) -> None:
    """And nothing raises after it, whatever it answers."""
    ask.put_all(keys(1), pages(1))
    ask.close()
    ask.close()
    ask.exists(keys(1))
    ask.right(keys(1), pages(1))
    ask.put(keys(1), pages(1))
    ask.stats()


def _must_refuse(call: str, made: Callable[[], object], what: str) -> None:
    try:
        answer = made()
    except ValueError:
        return
    except Exception as error:
        raise Wrong(f"{call} raises {type(error).__name__} for {what}, not ValueError") from error
    raise Wrong(f"{call} answers {answer!r} for {what}, and raises no ValueError")
