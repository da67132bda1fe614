"""The same programs with real threads and real time: to confirm what a simulation found, and for `--mode threads`."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hicache_checks.conformance.findings import HARNESS, Broken, Finding
from hicache_checks.conformance.judges import MakeJudge, Rest, built, judge_for
from hicache_checks.conformance.program import STEPS_MAX, Setup, draw_setup, menu_for
from hicache_checks.conformance.schedule import Result, digest_of_program, variants_of
from hicache_checks.conformance.session import Session, asked, first_line
from hicache_checks.simulation.choices import Choices

REST_S = 0.01
CLOSE = "close"


@dataclass(frozen=True)
class RealPlace:
    """See session.Place. Time passes only where the policy looks at it."""

    target: Any
    can_settle: bool
    timed: bool

    def now(self) -> float:
        """See Place."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """See Place."""
        if self.timed:
            time.sleep(seconds)

    def settle(self) -> None:
        """See Place."""
        if self.can_settle:
            self.target.settle()
        else:
            time.sleep(REST_S)

    def set_clock(self, seconds: float) -> None:
        """See Place. Nobody here can do that, nor what follows."""

    def slow(self, threads: Sequence[str], seconds: float) -> None:
        """See Place."""

    def kill(self, threads: Sequence[str]) -> None:
        """See Place."""

    def left(self) -> Sequence[str]:
        """See Place."""
        return ()

    def died(self) -> None:
        """See Place. A thread that dies says so to its own target only."""


def run_real(
    build: Callable[[], Any],
    ranks: int,
    policy: str,
    choices: Choices,
    steps_max: int = STEPS_MAX,
    make_judge: MakeJudge = judge_for,
) -> Result:
    """A program on a target that runs as it likes. Only its program is chosen; the digest is that of the program."""
    result = Result(Setup(ranks, policy))
    target: Any = None
    try:
        target = built(build)
        capabilities = result.capabilities = sorted(target.capabilities())
        setup = result.setup = draw_setup(choices, ranks, policy, "store" in capabilities, variants_of(target))
        asked(lambda: target.reset(setup.config()), "reset")
        for prompt in setup.stored:
            asked(partial(target.store, prompt), "store")
        capabilities = target.capabilities()
        settles = "settle" in capabilities
        judge = make_judge(target, setup, Rest(settles))
        session = Session(target, setup, judge, RealPlace(target, settles, policy == "timeout"), capabilities)
        result.steps, result.states, result.outcomes = session.done, judge.states, judge.outcomes
        session.run(choices, menu_for(capabilities), steps_max)
        result.unobserved = judge.unobserved
    except Broken as broken:
        result.finding = broken.finding
    except Exception as error:
        # What the target raises in its calls is told by whoever calls it.
        where = traceback.extract_tb(error.__traceback__)[-1].name
        result.finding = Finding("harness", f"{type(error).__name__}: {first_line(error)}", HARNESS, where)
    _close(target, result)
    result.choices, result.counts = choices.taken, choices.counts
    result.digest = digest_of_program(result)
    return result


def _close(target: Any, result: Result) -> None:
    try:
        if target is not None:
            target.close()
    except Exception as error:
        # After a finding a broken target may not even close; before, that is the finding.
        result.finding = result.finding or Finding(
            "raises", f"{type(error).__name__}: {first_line(error)}", place=CLOSE
        )
