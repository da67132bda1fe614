"""Events of a rank's own threads, each explained by a step of the query thread or of the IO thread."""

from __future__ import annotations

from hicache_checks.conformance.explainer import Explainer
from hicache_checks.conformance.observation import Event
from hicache_checks.conformance.tree_seen import Unexplained
from hicache_spec.state import AGREED, ANSWERED


class ThreadEvents(Explainer):
    """A handler a kind of event; what no step explains is Unexplained."""

    def _thread_event(self, event: Event) -> None:
        getattr(self, f"_on_{event.kind}")(event)
        if event.op in self._slots:
            self._retire(event.op)

    def _on_marked(self, event: Event) -> None:
        slot, r = self._slot(event.op), event.rank
        assert event.op is not None
        marked = self._marked.setdefault(event.op, {})
        if r in marked:
            raise Unexplained(self._rule("sched_poll"), "this rank has marked the operation before", [marked[r]])
        marked[r] = event
        if event.data["reason"] != "aborted" and not self.word("is_terminated")(self.state, slot):
            self._see_time(event.op, slot, gave_up=event.data["reason"] == "policy")
            if not self.word("may_end")(self.state, slot):
                raise Unexplained("step_waits_for_the_verdict", "the policy still waits for this operation")
        if event.data["counted"] != self.state.counted[r][slot]:
            raise Unexplained("inv_counted_pages_are_filled", f"{self.state.counted[r][slot]} pages landed")
        if event.data["reason"] != "complete":
            self.state.stopped[r][slot] = True

    def _on_query_taken(self, event: Event) -> None:
        slot = self._head(self.state.query_queue[event.rank], event, "query_take")
        if event.data["terminated"] != self.state.stopped[event.rank][slot]:
            raise Unexplained(self._rule("query_take"), "the terminated flag is the other way round")
        self._step("query_take", event.rank)

    def _on_query_asked(self, event: Event) -> None:
        self._head(self.state.query_queue[event.rank], event, "query_ask_storage")
        self._step("query_ask_storage", event.rank, event.data["hit"])
        self._asked[event.rank] = event

    def _on_query_agreed(self, event: Event) -> None:
        slot = self._head(self.state.query_queue[event.rank], event, "query_agree")
        if self.state.stage[event.rank] not in (ANSWERED, AGREED):
            raise Unexplained(self._rule("query_agree"), "this rank has not looked it up")
        if self._agreed[event.rank] == event.op:
            raise Unexplained(self._rule("query_agree"), "this rank has agreed on it before")
        if self.state.stage[event.rank] == ANSWERED:
            self._step("query_agree")
        agreed = self.state.hit[event.rank][slot]
        if event.data["hit"] != agreed:
            raise Unexplained("step_hit_is_everywhere", f"the MIN of the answers is {agreed}", self._asked.values())
        self._agreed[event.rank] = event.op

    def _on_query_put(self, event: Event) -> None:
        self._head(self.state.query_queue[event.rank], event, "query_put")
        if self._agreed[event.rank] != event.op:
            raise Unexplained("step_hit_is_everywhere", "this rank has not agreed on it")
        self._step("query_put", event.rank)

    def _on_io_started(self, event: Event) -> None:
        self._head(self.state.buffer[event.rank], event, "io_start_page")
        if event.data["page"] != self.state.filled[event.rank]:
            raise Unexplained(self._rule("io_start_page"), f"page {self.state.filled[event.rank]} is next")
        self._step("io_start_page", event.rank)

    def _on_io_landed(self, event: Event) -> None:
        slot = self._head(self.state.buffer[event.rank], event, "io_land_page")
        self._step("io_land_page", event.rank)
        self._expect("io_landed", event.rank, slot, event.data["page"])

    def _on_io_uncounted(self, event: Event) -> None:
        slot = self._head(self.state.buffer[event.rank], event, "io_land_page")
        self._step("io_land_page", event.rank)
        self._expect("io_uncounted", event.rank, slot, event.data["page"])

    def _on_io_failed(self, event: Event) -> None:
        slot = self._head(self.state.buffer[event.rank], event, "io_fail_page")
        self._step("io_fail_page", event.rank)
        self._expect("io_failed", event.rank, slot, event.data["page"])

    def _on_io_released(self, event: Event) -> None:
        slot, page = self._head(self.state.buffer[event.rank], event, "io_release_page"), event.data["page"]
        tail = range(self.state.counted[event.rank][slot], self.state.granted[slot])
        self._step("io_release_page", event.rank)
        released = self._released[event.rank]
        if page in released:
            raise Unexplained(self._rule("io_release_page"), "this page was released before", [released[page]])
        if page not in tail:
            raise Unexplained(self._rule("io_release_page"), "this page is not of the unread tail")
        released[page] = event
        if self.state.buffer[event.rank][:1] != [slot]:
            released.clear()

    def _head(self, queue: list[int], event: Event, rule: str) -> int:
        """The slot of the operation, which must be the one that the thread works on."""
        slot = self._slot(event.op)
        if not queue or queue[0] != slot:
            raise Unexplained(self._rule(rule), "this operation is not at the head of the queue")
        return slot

    def _on_joined(self, event: Event) -> None:
        group, number = event.data["group"], event.data["number"]
        last = self._collective.get((event.rank, group))
        expected = 0 if last is None else last.data["number"] + 1
        if number != expected or (last is not None and last.kind == "joined"):
            message = f"this rank's next step in {group} is not collective {number}"
            raise Unexplained("P7 lockstep", message, self.collectives(event.rank))
        self._collective[event.rank, group] = event
        inside = self._calls.setdefault((group, number), [])
        inside.append(event)
        if inside[0].data["call"] != event.data["call"]:
            message = f"another rank is in {inside[0].data['call']} at this point"
            raise Unexplained("P7 lockstep", message, inside[:1])
        if len(inside) == self.config.ranks:
            del self._calls[group, number]

    def _on_left(self, event: Event) -> None:
        last = self._collective.get((event.rank, event.data["group"]))
        if last is None or last.kind != "joined" or last.data != event.data:
            message = f"this rank is not in this collective of {event.data['group']}"
            raise Unexplained("P7 lockstep", message, self.collectives(event.rank))
        self._collective[event.rank, event.data["group"]] = event
        self._past_revokes = False

    def _on_died(self, event: Event) -> None:
        raise Unexplained("P31 threads_survive", f"the {event.data['thread']} thread died: {event.data['error']}")
