"""Events of detach, attach and reset, each explained by a step of the part *control* (§13)."""

from __future__ import annotations

from hicache_checks.conformance.explainer import AS_AT_THE_START, Explainer
from hicache_checks.conformance.observation import Event
from hicache_checks.conformance.tree_seen import Unexplained
from hicache_spec.parts.control_rules import ATTACHED, HALF_STARTED, STARTED

ENDS = {"query": "query_end", "io": "io_end"}
STARTS = {"query": "sched_start_query_thread", "io": "sched_start_io_thread"}
BACKUP = "backup"
"""A thread that the part does not know: here it is held to what holds of the others."""


class ControlEvents(Explainer):
    """A handler a kind of event; what no step explains is Unexplained."""

    # ---- the schedulers, in lockstep

    def _on_detaching(self, event: Event) -> None:
        self._call("sched_detach", event)

    def _on_resetting(self, event: Event) -> None:
        self._call("sched_reset", event)

    def _on_kept(self, event: Event) -> None:
        self._call("sched_give_up_detaching", event)

    def _on_attaching(self, event: Event) -> None:
        self._call("sched_attach", event)

    def _on_attached(self, event: Event) -> None:
        if not all(self._backup_lives):
            raise Unexplained("inv_attached_queues_have_their_threads", "some rank has no backup thread")
        self._call("sched_agree_to_attach", event)

    def _on_attach_failed(self, event: Event) -> None:
        self._call("sched_agree_to_attach", event)

    def _call(self, rule: str, event: Event) -> None:
        """Every pending operation was aborted before, and has said so."""
        if self._live:
            pending = sorted(self._live.values())
            raise Unexplained("inv_nothing_is_pending_unless_attached", f"{pending} are still pending")
        self._step(rule)
        self._expect(event.kind)
        self._look_at_control()

    # ---- each rank by itself

    def _on_told_to_stop(self, event: Event) -> None:
        self._step("sched_tell_threads_to_stop", event.rank)
        self._look_at_control()

    def _on_thread_ended(self, event: Event) -> None:
        thread, rank = event.data["thread"], event.rank
        if thread != BACKUP:
            self._step(ENDS[thread], rank)
        elif not self._backup_lives[rank]:
            raise Unexplained("inv_one_consumer_per_queue", "this thread has ended before")
        elif not self._on_its_way.rests(rank):
            raise Unexplained("inv_detached_is_at_rest", "pages are queued that it has neither stored nor refused")
        else:
            self._backup_lives[rank] = False

    def _on_thread_started(self, event: Event) -> None:
        thread, rank = event.data["thread"], event.rank
        if thread != BACKUP:
            self._step(STARTS[thread], rank)
        elif self._backup_lives[rank]:
            raise Unexplained("inv_one_consumer_per_queue", "this thread lives already")
        else:
            self._backup_lives[rank] = True

    def _on_start_failed(self, event: Event) -> None:
        if self.state.place[event.rank] == STARTED:
            # The part's ranks have two threads to start, and fail before the last; others have more.
            self.state.place[event.rank] = HALF_STARTED
        self._step("sched_fail_to_start", event.rank)

    def _on_detached(self, event: Event) -> None:
        """What is left in the rank's queues, it takes by itself."""
        if self._backup_lives[event.rank]:
            raise Unexplained(self._rule("sched_let_go"), "the backup thread has not ended")
        self._step("sched_let_go", event.rank)
        for way in self.ways:
            # What a design has besides hits, the part does not know.
            for slot in getattr(self.state, way.queue)[event.rank][:]:
                getattr(self.state, way.queue)[event.rank].remove(slot)
                self.word("retire")(self.state, slot)
        for op in list(self._slots):
            self._retire(op)
        self._look_at_control()

    def _on_begun_again(self, event: Event) -> None:
        """Nothing of what was before is left: neither in the state, nor of what is kept beside it."""
        before, rank = self.copy_of(self.state), event.rank
        if self._tree.protected():
            raise Unexplained(AS_AT_THE_START, f"nodes {self._tree.protected()} are still protected")
        self._step("sched_begin_again", rank)
        if not self._bound.as_at_the_start(before, self.state):
            raise Unexplained(AS_AT_THE_START, "something of before is left")
        self._agreed[rank] = None
        if not self.state.resetting:
            self._attempts.clear()
            self._slots_free.update(self._slots_of)
        self._look_at_control()

    def _look_at_control(self) -> None:
        """Are the schedulers in their loop, and is storage attached?"""
        self._in_loop = self.word("are_in_their_loop")(self.state)
        self._is_attached = self.word("all_are")(self.state, ATTACHED)
