"""The suite: all checks of a store by name, each made in a place of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hicache_checks.stores import medium_checks, page_checks, server_checks
from hicache_checks.stores.asking import Asking
from hicache_checks.stores.under_check import DoesNotApply, Place, Store, Wrong

Check = Callable[[Place, Asking], None]

OK, FAIL, SKIP = "ok", "fail", "does not apply"

CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        page_checks.what_was_put_is_got,
        page_checks.exists_is_a_leading_run,
        page_checks.each_page_is_answered_for_itself,
        page_checks.big_batches_are_answered,
        page_checks.a_later_put_wins,
        page_checks.the_store_keeps_a_copy,
        page_checks.another_size_is_a_miss,
        page_checks.a_page_may_lie_anywhere,
        page_checks.bad_names_are_refused,
        page_checks.lists_that_do_not_fit_are_refused,
        page_checks.names_that_differ_are_other_pages,
        medium_checks.names_tell_everything_apart,
        page_checks.counts_grow,
        page_checks.clear_removes_every_page,
        medium_checks.clear_leaves_what_is_not_ours,
        page_checks.pages_are_atomic,
        page_checks.many_threads_have_their_own_pages,
        medium_checks.handles_see_the_same_pages,
        medium_checks.processes_share_pages,
        medium_checks.pages_outlive_their_handles,
        medium_checks.damaged_pages_are_misses,
        medium_checks.a_page_under_another_name_is_a_miss,
        medium_checks.checksums_can_be_turned_off,
        medium_checks.a_full_medium_refuses,
        server_checks.failed_reads_write_nothing_later,
        server_checks.a_stopped_server_is_a_miss,
        server_checks.late_transfers_reach_nobody,
        server_checks.a_killed_server_is_a_miss,
        server_checks.what_misbehaves_is_kept_apart,
        server_checks.what_writes_late_reaches_nobody,
        page_checks.close_may_come_twice,
    )
}
"""In the order in which they are made: who fails an early one is better not asked about the later ones."""


@dataclass(frozen=True)
class Checked:
    """A check, and what came of it: `ok`, `fail` or `does not apply`, with the reason."""

    check: str
    verdict: str
    reason: str = ""


def make_checks(
    factory: Callable[[], object], names: Sequence[str], begins: Callable[[str], None]
) -> Iterator[Checked]:
    """Make these checks; `begins` is told the name of each before. Whatever the factory raises is not caught.

    A place is used for one check after the other, emptied by its own store, as long as nothing fails.
    """
    place: Place | None = None
    try:
        for name in names:
            begins(name)
            store = None if place is None else _emptied(place)
            if store is None:
                if place is not None:
                    place.close()
                place = Place.of(factory)
                store = place.open()
            assert place is not None
            checked = _make(CHECKS[name], place, store)
            yield Checked(name, *checked)
            if checked[0] == FAIL or place.is_bare:
                # What it left behind is no fault of the next one.
                place.close()
                place = None
    finally:
        if place is not None:
            place.close()


def _make(check: Check, place: Place, store: Store) -> tuple[str, str]:
    try:
        check(place, Asking(place, store))
    except Wrong as wrong:
        return FAIL, str(wrong)
    except DoesNotApply as reason:
        return SKIP, str(reason)
    return OK, ""


def _emptied(place: Place) -> Store | None:
    """A new handle to a place that was used; None: it cannot be emptied."""
    try:
        while place.handles:
            place.handles.pop().close()
        store = place.open()
        store.clear()
    except Exception:
        return None
    return store
