"""Every run of the specification within bounds, beside the worlds that the black box keeps of it: is it ever wrong?"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from typing import Any

from hicache_checks.conformance.black_box import BlackBox
from hicache_checks.conformance.explainer import MonitorConfig
from hicache_spec import DESIGNS, Bounds, BoundSpec
from hicache_spec.bounds import POLICY
from hicache_spec.language import NONE, Refused
from hicache_spec.state import REASON


class Product:
    """Pairs of a state and a monitor that has seen everything that a caller saw on the way to it."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.spec = BoundSpec(DESIGNS["decide_at_drain"], bounds)
        self._late: bool | None = None
        config = MonitorConfig(
            bounds.ranks,
            bounds.host_pages,
            bounds.threshold_pages,
            bounds.limit_pages,
            POLICY.members[bounds.policy],
        )
        self.start = BlackBox(config, lambda op: self._late, operations_max=bounds.requests * bounds.attempts)

    def explore(self) -> tuple[int, int]:
        """How many pairs there are, and how many worlds at most. AssertionError: the monitor raised an alarm."""
        first = (self.spec.encode(self.spec.initial()), self.start)
        seen, todo, most = {self._key(*first)}, deque([first]), 1
        while todo:
            for state, box in self._later(*todo.popleft()):
                assert box.alarm is None, box.alarm
                assert box.unknown is None, box.unknown
                most = max(most, len(box.worlds))
                key = self._key(state, box)
                if key not in seen:
                    seen.add(key)
                    todo.append((state, box))
        return len(seen), most

    def _key(self, state: bytes, box: BlackBox) -> tuple[Any, ...]:
        known = (frozenset(box.worlds), frozenset(box._slots.items()), frozenset(box._asked_to_stop), box._at_rest)
        return (state, *known)

    def _later(self, state: bytes, box: BlackBox) -> Iterator[tuple[bytes, BlackBox]]:
        threads = False
        for step in self.spec.steps:
            s = self.spec.decode(state)
            polled = step.rule.name == "sched_poll"
            self._late = polled and bool(s.waited[s.record[step.arguments["request"]]] >= self.bounds.timeout_ticks)
            try:
                step.run(s)
            except Refused:
                if polled and s.record[step.arguments["request"]] != NONE:
                    yield state, self._told(box, "polled", {f"r{step.arguments['request']}": {"ready": False}}, s)
                continue
            later = self.spec.encode(s)
            if step.rule.actor in ("query", "io"):
                threads = True
                yield later, box
            elif step.rule.name == "env_advance_clock":
                yield later, box
            else:
                yield from self._seen(later, step, s, box)
        if not threads and not box._at_rest:
            settled = self._copy(box)
            settled.settled()
            yield state, settled

    def _seen(self, later: bytes, step: Any, s: Any, box: BlackBox) -> Iterator[tuple[bytes, BlackBox]]:
        """A call, and what the caller sees of it."""
        name, request = step.rule.name, f"r{step.arguments.get('request')}"
        if name == "sched_drain":
            before_all = all(len(q) == 0 for q in s.hit_queue) and min(s.releasing) == 0
            if before_all or not box._at_rest:
                yield later, self._told(box, "ticked", s)
        elif name == "sched_submit":
            ((kind, *values),) = s.events
            accepted = kind == "submitted"
            reason = None if accepted else REASON.members[values[1]]
            answer = {"accepted": accepted, "reason": reason, "span_pages": values[1 if accepted else 2]}
            yield later, self._told(box, "submitted", request, self.bounds.chain_pages, answer, s)
        elif name == "sched_poll":
            ((kind, *values),) = s.events
            how = {"pages": values[1], "known": values[2]} if kind == "fetched" else {}
            yield later, self._told(box, "polled", {request: {"ready": True, "state": kind, **how}}, s)
        elif name in ("sched_stop", "sched_abort"):
            yield later, self._told(box, {"sched_stop": "stopped", "sched_abort": "aborted"}[name], request, True, s)
        else:
            assert name == "sched_write_through"
            yield later, self._told(box, "disturbed", s)

    def _told(self, box: BlackBox, call: str, *told: Any) -> BlackBox:
        """A copy of the monitor that was told of a call; the last argument is the state that is observed after it."""
        *arguments, s = told
        attempts = self.bounds.attempts
        seen = {
            "free_pages": s.free[0],
            "resident_pages": sum(s.resident),
            "occupied_pages": s.occupied,
            "operations": {(f"r{op // attempts}", op % attempts + 1): s.granted[op] for op in s.record if op != NONE},
        }
        after = self._copy(box)
        getattr(after, call)(*arguments, seen)
        return after

    def _copy(self, box: BlackBox) -> BlackBox:
        after = copy.copy(box)
        for name in ("worlds", "_slots", "_free_slots", "_attempts", "_asked_to_stop", "unobserved"):
            setattr(after, name, copy.copy(getattr(box, name)))
        return after
