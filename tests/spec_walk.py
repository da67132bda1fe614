"""A random run of the specification itself, on several ranks, seen from outside as a caller sees a real system."""

from __future__ import annotations

import random
from typing import Any

from hicache_checks.conformance.black_box import BlackBox
from hicache_checks.conformance.explainer import MonitorConfig
from hicache_checks.conformance.observation import UNOBSERVED
from hicache_spec import DESIGNS, Bounds, BoundSpec
from hicache_spec.bounds import POLICY
from hicache_spec.language import NONE, Refused
from hicache_spec.state import REASON

PAGES = 3
THREADS = (
    *("query_take", "query_ask_storage", "query_agree", "query_put"),
    *("io_start_page", "io_land_page", "io_fail_page", "io_release_page"),
)


class SpecWalk:
    """The system: a specification under bounds. `box` is told what is seen of it, some of it left out."""

    def __init__(self, seed: int, ranks: int, policy: str, hidden: float) -> None:
        self.random = random.Random(seed)
        bounds = Bounds(
            requests=3,
            attempts=2,
            ranks=ranks,
            host_pages=self.random.choice((2, 3, 4)),
            chain_pages=PAGES,
            threshold_pages=self.random.choice((1, 1, 2)),
            limit_pages=self.random.choice((3, 8)),
            policy=POLICY.members.index(policy),
            resident_pages=(0, 0),
            stored_pages=(PAGES, PAGES),
            churn=True,
            stops=True,
            writes=True,
        )
        self.spec = BoundSpec(DESIGNS["decide_at_drain"], bounds)
        self.s: Any = self.spec.initial()
        self.by_name: dict[str, list[Any]] = {}
        for step in self.spec.steps:
            self.by_name.setdefault(step.rule.name, []).append(step)
        config = MonitorConfig(ranks, bounds.host_pages, bounds.threshold_pages, bounds.limit_pages, policy)
        self.box = BlackBox(config, self._is_late)
        self._hidden = hidden
        self._at_rest = False
        self._late: dict[int, bool] = {}

    def run(self, calls: int) -> None:
        """Calls, with threads running in between; then everything runs out."""
        for _ in range(calls):
            for _ in range(self.random.randrange(7)):
                self._thread()
            call = self.random.choice(("submit", "submit", "tick", "tick", "poll", "poll", "settle", "rare"))
            getattr(self, f"_{call}")()
        for _ in range(6):
            self._settle()
            self._tick()
            self._poll([0, 1, 2], waits=True)
        self._settle()
        self._tick()
        self.box.rested(self._seen())

    # ---- threads

    def _thread(self) -> bool:
        """Some step of some thread; False: none is possible."""
        steps = [step for name in THREADS for step in self.by_name[name]]
        self.random.shuffle(steps)
        return any(map(self._take, steps))

    def _take(self, step: Any) -> bool:
        self.s.events = []
        try:
            step.run(self.s)
        except Refused:
            return False
        return True

    def _settle(self) -> None:
        while self._thread():
            pass
        self._at_rest = True
        self.box.settled()

    # ---- calls

    def _submit(self) -> None:
        request = self.random.randrange(3)
        if self.s.attempts[request] == self.spec.bounds.attempts:
            return
        attempt = self.s.attempts[request] + 1
        self._take(self.random.choice([s for s in self.by_name["sched_submit"] if s.arguments["request"] == request]))
        ((kind, *values),) = self.s.events
        if kind == "submitted":
            self._at_rest = False
            answer = {"accepted": True, "span_pages": values[1], "attempt": attempt}
        else:
            answer = {"accepted": False, "reason": REASON.members[values[1]], "span_pages": values[2]}
        self.box.submitted(f"r{request}", PAGES, self._some(answer, "accepted"), self._seen())

    def _tick(self) -> None:
        hits, pages = min(map(len, self.s.hit_queue)), min(self.s.releasing)
        if not self._at_rest:
            hits, pages = self.random.randint(0, hits), self.random.randint(0, pages)
        self._at_rest = False
        for step in self.by_name["sched_drain"]:
            if step.arguments == {"hits": hits, "pages": pages}:
                self._take(step)
        self.box.ticked(self._seen())

    def _poll(self, requests: list[int] | None = None, waits: bool = False) -> None:
        if waits:
            while any(map(self._take, self.by_name.get("env_advance_clock", []))):
                pass
        asked = requests or self.random.sample(range(3), self.random.randint(1, 3))
        pending = [r for r in asked if self.s.record[r] != NONE]
        ends = {r: self.spec.function("may_end")(self.s, self.s.record[r]) for r in pending}
        answers: dict[str, Any] = {}
        self._late = {op: bool(self.s.waited[op] >= self.spec.bounds.timeout_ticks) for op in range(6)}
        for r in asked:
            answers[f"r{r}"] = {"ready": ends.get(r, True), "state": None}
        for r in (r for r in pending if ends[r]):
            self._take(next(s for s in self.by_name["sched_poll"] if s.arguments["request"] == r))
            ((kind, *values),) = self.s.events
            how = {"pages": values[1], "known": values[2]} if kind == "fetched" else {}
            answers[f"r{r}"] = {"ready": True, "state": kind, **how}
        self.box.polled({rid: self._some(answer, "ready") for rid, answer in answers.items()}, self._seen())

    def _rare(self) -> None:
        request = self.random.randrange(3)
        had = self.s.record[request] != NONE
        how = self.random.choice(("stop", "abort", "write", "clock", "observe"))
        if how in ("stop", "abort"):
            if had:
                self._take(next(s for s in self.by_name[f"sched_{how}"] if s.arguments["request"] == request))
            answer = UNOBSERVED if self.random.random() < self._hidden else had
            told = self.box.stopped if how == "stop" else self.box.aborted
            told(f"r{request}", answer, self._seen())
        elif how == "write":
            self._take(self.random.choice(self.by_name["sched_write_through"]))
            self.box.disturbed(self._seen())
        elif how == "clock":
            self._take(self.by_name["env_advance_clock"][0])
        else:
            self.box.observed(self._seen())

    # ---- what is seen

    def _is_late(self, op: tuple[str, int]) -> bool:
        """Whether the time of an operation was over when it was polled."""
        return self._late[int(op[0][1:]) * 2 + op[1] - 1]

    def _seen(self) -> dict[str, Any]:
        s = self.s
        seen = {
            "free_pages": s.free[0],
            "resident_pages": sum(s.resident),
            "occupied_pages": s.occupied,
            "operations": {(f"r{op // 2}", op % 2 + 1): s.granted[op] for op in s.record if op != NONE},
        }
        return self._some(seen)

    def _some(self, answer: dict[str, Any], *kept: str) -> dict[str, Any]:
        return {name: v for name, v in answer.items() if name in kept or self.random.random() >= self._hidden}
