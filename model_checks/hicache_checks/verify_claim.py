"""The founding claim in `hicheck verify`: is `decide_at_drain` behaviour-preserving? More in spec/EQUIVALENCE.md."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hicache_checks.equivalence import AMPLE, CANONICAL, REVOKING, WHOLE, answers
from hicache_checks.processes import Report, run_jobs, workers_for
from hicache_checks.reporting import Screen, Verdict, VerifyRow
from hicache_checks.verify_specification import Part
from hicache_spec.claim import CLAIM

OBSERVED = ("outcomes", "ticks")
PINNED = {WHOLE: (21, 11), WHOLE + AMPLE: (None, None)}
"""What is assumed -> the steps of the shortest run that refutes, for each of OBSERVED; None: it holds."""


def settle(assumed: tuple[str, ...], report: Report) -> tuple[list[int | None], int]:
    """The steps of the shortest refuting run for each observation, and the states that were compared."""
    found = [answers(REVOKING, CANONICAL, observe, assumed) for observe in OBSERVED]
    steps = [min((c.steps for c in each if c.steps is not None), default=None) for each in found]
    return steps, sum(c.left_states + c.right_states for c in found[0])


def claim(screen: Screen) -> Part:
    """Under ample host memory it holds; under pressure a run refutes it, as pinned."""
    start = time.perf_counter()
    screen.progress.update(f"comparing {REVOKING} with {CANONICAL}")
    found = run_jobs(settle, list(PINNED), workers_for(len(PINNED)), screen.progress.update)
    by_assumption = {assumed: steps for assumed, (steps, _) in zip(PINNED, found, strict=True)}
    as_pinned = all(tuple(steps) == PINNED[assumed] for assumed, steps in by_assumption.items())
    says = f"ample host memory: {_says(by_assumption[WHOLE + AMPLE])}; host pressure: {_says(by_assumption[WHOLE])}"
    verdict = Verdict.PASS if as_pinned else Verdict.FAIL
    states, seconds = sum(states for _, states in found), time.perf_counter() - start
    bounds = f"{REVOKING} in {CANONICAL}, {len(CLAIM)} configurations, up to 4 requests"
    row = VerifyRow("refinement", bounds, f"{states:,} states", seconds, says, verdict)
    keys = {
        "left": REVOKING,
        "right": CANONICAL,
        "observe": list(OBSERVED),
        "refuted_in_steps": {"host_pressure": by_assumption[WHOLE], "no_host_pressure": by_assumption[WHOLE + AMPLE]},
    }
    return Part(row, verdict, keys)


def _says(steps: Sequence[int | None]) -> str:
    if all(n is None for n in steps):
        return "holds"
    parts = zip(OBSERVED, steps, strict=True)
    return "refuted in " + ", ".join(f"{n} steps by {observe}" for observe, n in parts if n is not None)
