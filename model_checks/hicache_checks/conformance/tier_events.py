"""Events of what is written, stored and loaded: each a step of what is on its way, and of the tree that is seen."""

from __future__ import annotations

from hicache_checks.conformance.explainer import Explainer
from hicache_checks.conformance.observation import Event
from hicache_checks.conformance.on_its_way import STORED
from hicache_checks.conformance.tree_seen import Unexplained
from hicache_spec.parts.control_rules import DETACHED


class TierEvents(Explainer):
    """A handler a kind of event; what no step explains is Unexplained."""

    def _on_written(self, event: Event) -> None:
        """The host pages are the node's from now on. It stays until it is stored."""
        pages, node = event.data["pages"], event.data["node"]
        self._tree.evict(self.state, max(0, pages - self.state.free[0]))
        for _ in range(pages):
            self._step("sched_write_through", 0)
        self._on_its_way.write(node, pages)
        self._tree.hold(node)

    def _on_copied(self, event: Event) -> None:
        self._on_its_way.copied(event.data["node"], event.data["pages"])

    def _on_backed_up(self, event: Event) -> None:
        if not self._backup_lives[event.rank]:
            raise Unexplained("inv_no_thread_outlives_its_storage", "the backup thread has ended")
        self._on_its_way.back_up(event.rank, event.data["pages"], event.data["failed"], event)

    def _on_stored(self, event: Event) -> None:
        node, pages = event.data["node"], event.data["pages"]
        if self.state.place[0] == DETACHED:
            self._on_its_way.refuse()
        job = self._on_its_way.stored(node, pages)
        self._refused.append(job)
        self._tree.let_go(node)

    def _check_refused(self, event: Event) -> None:
        """Each rank says what its own storage has refused; the ranks say it one after the other."""
        at = self._stored_by[event.rank] - self._stored_first
        self._stored_by[event.rank] += 1
        job = self._refused[at]
        while self._refused and min(self._stored_by) > self._stored_first:
            self._refused.popleft()
            self._stored_first += 1
        if event.data["failed"] != job.refused[event.rank]:
            said = [job.said[event.rank]] if event.rank in job.said else []
            raise Unexplained(STORED, f"{job.refused[event.rank]} pages were refused on this rank", said)

    def _on_loaded(self, event: Event) -> None:
        """Host pages stay where they are until the device has them."""
        self._on_its_way.load(event.data["node"], event.data["pages"])
        self._tree.hold(event.data["node"])

    def _on_arrived(self, event: Event) -> None:
        self._on_its_way.arrived(event.data["node"], event.data["pages"])
        self._tree.let_go(event.data["node"])
