"""Events of extra pools: their free slots are counted, and a hit is shortened only for want of room (§12.2)."""

from __future__ import annotations

from hicache_checks.conformance.explainer import Explainer
from hicache_checks.conformance.observation import Event
from hicache_checks.conformance.tree_seen import Unexplained

PAGES = "pages"
"""The pool of the pages themselves, where a hit is shortened for want of these."""
CONSERVED = "inv_slots_conserved"
IN_EVERY_POOL = "grantable_in_every_pool (§12.2)"


class PoolEvents(Explainer):
    """A handler a kind of event; what is not so is Unexplained. Of a pool that is named for the first time nothing is
    known before, so the event says how many of its slots are free.
    """

    def _on_slots_taken(self, event: Event) -> None:
        self._count_slots(event, -event.data["slots"])

    def _on_slots_freed(self, event: Event) -> None:
        self._count_slots(event, event.data["slots"])

    def _count_slots(self, event: Event, more: int) -> None:
        pool, free = event.data["pool"], event.data["free"]
        expected = self._free_slots_of(pool, free - more) + more
        if free != expected:
            raise Unexplained(CONSERVED, f"{free} slots of {pool} are free, counted are {expected}")
        if free > self._slots_of[pool]:
            raise Unexplained(CONSERVED, f"{pool} has {self._slots_of[pool]} slots")
        self._slots_free[pool] = free

    def _free_slots_of(self, pool: str, free: int) -> int:
        """As counted; of a pool that is new, what is said now."""
        self._slots_of.setdefault(pool, free)
        return self._slots_free.setdefault(pool, free)

    def _check_shortage(self, event: Event) -> None:
        """Some pool lacks what a longer prefix wants, and an eviction would not help."""
        pool, wanted, free, evictable = (event.data[name] for name in ("pool", "wanted", "free", "evictable"))
        counted = self.state.free[0] if pool == PAGES else self._free_slots_of(pool, free)
        if free != counted:
            raise Unexplained(CONSERVED, f"{free} of {pool} are free, counted are {counted}")
        if wanted <= free + evictable:
            raise Unexplained(
                IN_EVERY_POOL, f"{wanted} of {pool} can be had, with {free} free and {evictable} evictable"
            )
