"""The Hypothesis state machine on a simulated target: Hypothesis draws the calls, their arguments and every switch.

So its shrinker takes out calls and switches alike, and the same program runs the same way each time. The machine runs
outside the simulated world; what a rule does, it hands to the world's caller, who is the one task that calls a target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from greenlet import greenlet
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from hicache_checks.conformance.findings import Broken
from hicache_checks.conformance.judges import built
from hicache_checks.conformance.program import (
    BREAKS,
    CLOCK_STEPS_S,
    MENU,
    PROMPTS,
    RIDS,
    THREADS_MAX,
    WAITS_S,
    Setup,
    Step,
    Tokens,
)
from hicache_checks.conformance.schedule import begin, broken_world
from hicache_checks.conformance.session import Judge
from hicache_checks.simulation.choices import Drawn
from hicache_checks.simulation.isolation import TorchModes
from hicache_checks.simulation.standins.collectives import open_ranks
from hicache_checks.simulation.world import World

SWITCH_CHANCE = 0.3
NEEDS = {item.kind: item.needs for item in MENU}
"""By kind of step, the capability that it takes."""

prompts = st.sampled_from(PROMPTS)
rids = st.sampled_from(RIDS)


class Caller:
    """The caller of a world, who does what he is told from outside, one call after the other."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._outside = greenlet.getcurrent()
        self._inside: greenlet | None = None
        greenlet(lambda: world.run(self._serve)).switch()

    def do(self, call: Callable[[], Any]) -> Any:
        """Have a call made. What it raises comes out of here; None when the world ended in it."""
        assert self._inside is not None
        self._outside = greenlet.getcurrent()
        outcome = self._inside.switch(call)
        if outcome is None:
            return None
        answer, error = outcome
        if error is not None:
            raise error
        return answer

    def leave(self) -> None:
        """The world ends: its other tasks are unwound."""
        if self._inside is not None and not self._inside.dead:
            self._outside = greenlet.getcurrent()
            self._inside.switch(None)

    def _serve(self) -> None:
        self._inside = greenlet.getcurrent()
        call = self._outside.switch()
        while call is not None:
            answer, error = None, None
            try:
                answer = call()
            except Exception as raised:
                error = raised
            call = self._outside.switch((answer, error))


class SimulatedConformance(RuleBasedStateMachine):
    """Subclass with `build`, `ranks` and `policy`; see `simulated_machine_for`. `seen` counts outcomes."""

    build: ClassVar[Callable[[], Any]]
    ranks: ClassVar[int]
    policy: ClassVar[str]
    seen: ClassVar[Counter[str]]

    caller: Caller | None = None
    is_broken = False

    @initialize(
        host_pages=st.integers(2, 6),
        threshold_pages=st.sampled_from((1, 1, 2)),
        limit_pages=st.sampled_from((16, 4, 2)),
        stored=st.lists(prompts, min_size=1, max_size=4),
        data=st.data(),
    )
    def start(self, host_pages: int, threshold_pages: int, limit_pages: int, stored: list[Tokens], data: Any) -> None:
        draw = data.conjecture_data

        def switch(count: int) -> int:
            return int(draw.draw_integer(0, count - 1)) if draw.draw_boolean(SWITCH_CHANCE) else 0

        self.world = World(Drawn(switch), modes=TorchModes())
        open_ranks(self.world, self.ranks)
        self.setup_ = Setup(self.ranks, self.policy, host_pages, threshold_pages, limit_pages, tuple(stored))
        self.caller = Caller(self.world)
        self._in_the_world(self._open)

    def _open(self) -> None:
        self.target = built(type(self).build)
        if "store" not in self.target.capabilities():
            self.setup_ = replace(self.setup_, stored=())
        self.session, self.judge = begin(self.world, self.target, self.setup_)

    @rule(rid=rids, prompt=prompts)
    def submit(self, rid: str, prompt: Tokens) -> None:
        self._do("submit", rid, prompt)

    @rule(rid=rids, prompt=prompts)
    def submit_again(self, rid: str, prompt: Tokens) -> None:
        self._do("submit_again", rid, prompt)

    @rule(rid=rids, prompt=prompts)
    def leave(self, rid: str, prompt: Tokens) -> None:
        self._do("leave", rid, prompt)

    @rule()
    def turn(self) -> None:
        self._do("turn")

    @rule()
    def tick(self) -> None:
        self._do("tick")

    @rule(asked=st.lists(rids, min_size=1, unique=True))
    def poll(self, asked: list[str]) -> None:
        self._do("poll", tuple(asked))

    @rule(rid=rids)
    def abort(self, rid: str) -> None:
        self._do("abort", rid)

    @rule(rid=rids)
    def stop(self, rid: str) -> None:
        self._do("stop", rid)

    @rule()
    def settle(self) -> None:
        self._do("settle")

    @rule(seconds=st.sampled_from(WAITS_S))
    def wait(self, seconds: float) -> None:
        self._do("wait", seconds)

    @rule(prompt=prompts)
    def store(self, prompt: Tokens) -> None:
        self._do("store", prompt)

    @rule(prompt=prompts)
    def store_elsewhere(self, prompt: Tokens) -> None:
        self._do("store_elsewhere", prompt)

    @rule(rank=st.integers(0, 3), call=st.sampled_from(("get", "exists", "put")), how=st.sampled_from(BREAKS))
    def break_storage(self, rank: int, call: str, how: str) -> None:
        self._do("break_storage", rank % self.ranks, call, how)

    @rule(rank=st.integers(0, 3), prompt=prompts)
    def lose(self, rank: int, prompt: Tokens) -> None:
        self._do("lose", rank % self.ranks, prompt)

    @rule()
    def heal_storage(self) -> None:
        self._do("heal_storage")

    @rule(prompt=prompts)
    def prefill(self, prompt: Tokens) -> None:
        self._do("prefill", prompt)

    @rule(prompt=prompts)
    def converse(self, prompt: Tokens) -> None:
        self._do("converse", prompt)

    @rule(pages=st.integers(1, 4))
    def evict_device(self, pages: int) -> None:
        self._do("evict_device", pages)

    @rule()
    def flush(self) -> None:
        self._do("flush")

    @rule()
    def reattach(self) -> None:
        self._do("reattach")

    @rule(rank=st.integers(0, 3), call=st.sampled_from(("get", "exists")), how=st.sampled_from(BREAKS), prompt=prompts)
    def fetch_in_vain(self, rank: int, call: str, how: str, prompt: Tokens) -> None:
        self._do("fetch_in_vain", rank % self.ranks, call, how, prompt)

    @rule(rank=st.integers(0, 3), old=prompts, computed=prompts, asked=prompts)
    def squeeze(self, rank: int, old: Tokens, computed: Tokens, asked: Tokens) -> None:
        self._do("squeeze", rank % self.ranks, old, computed, asked)

    @rule(rank=st.integers(0, 3), seconds=st.sampled_from(WAITS_S))
    def slow_rank(self, rank: int, seconds: float) -> None:
        self._do("slow_rank", rank % self.ranks, seconds)

    @rule(seconds=st.sampled_from(CLOCK_STEPS_S))
    def set_clock(self, seconds: float) -> None:
        self._do("set_clock", seconds)

    @rule(rank=st.integers(0, 3), thread=st.integers(0, THREADS_MAX - 1))
    def kill_thread(self, rank: int, thread: int) -> None:
        self._do("kill_thread", rank % self.ranks, thread)

    def _do(self, kind: str, *args: Any) -> None:
        """A step of a program, if the target can do it."""
        if NEEDS.get(kind) is None or NEEDS[kind] in self.session.can:
            self._in_the_world(lambda: self.session.do(Step(kind, args)))

    def _in_the_world(self, call: Callable[[], Any]) -> None:
        assert self.caller is not None
        self.is_broken = True
        try:
            self.caller.do(call)
            finding = broken_world(self.world, self._judge_of_the_living())
            if finding is not None:
                raise Broken(finding.property, finding.message, finding.kind, finding.place)
        except Broken as broken:
            switches = sum(self.world.choices.taken[place] > 0 for place in self.world.choices.switches)
            broken.add_note(f"{self.setup_}, {switches} switches chosen")
            for step in self.session.done if hasattr(self, "session") else ():
                broken.add_note(f"    {step}")
            raise
        self.is_broken = False

    def _judge_of_the_living(self) -> Judge | None:
        return self.judge if hasattr(self, "session") and not self.session.is_struck else None

    def teardown(self) -> None:
        """Let everything run out: every operation ends by itself, and nothing is left over."""
        if self.caller is None or not hasattr(self, "session"):
            return
        try:
            if not self.is_broken:
                self._in_the_world(self.session.run_out)
                self._in_the_world(self.session.close)
        finally:
            self.seen.update(self.judge.outcomes)
            self.caller.leave()


def simulated_machine_for(build: Callable[[], Any], ranks: int, policy: str) -> type[SimulatedConformance]:
    """The state machine for an adapter under a policy and a number of ranks. The stand-ins must be in place."""
    name = f"SimulatedConformance_{policy}_{ranks}"
    parts = {"build": staticmethod(build), "ranks": ranks, "policy": policy, "seen": Counter()}
    return type(name, (SimulatedConformance,), parts)
