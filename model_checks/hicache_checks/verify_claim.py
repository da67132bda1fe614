"""The founding claim in `hicheck verify`: is `decide_at_drain` behaviour-preserving? More in spec/EQUIVALENCE.md."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from hicache_checks.processes import Report, run_jobs, workers_for
from hicache_checks.refine_command import (
    AMPLE_MEMORY,
    HOST_PRESSURE,
    Compared,
    RefineOptions,
    compare_all,
    holds,
    says,
    shortest,
)
from hicache_checks.reporting import Screen, Verdict, VerifyRow
from hicache_checks.verify_specification import Part
from hicache_spec.claim import CLAIM
from hicache_spec.designs import DECIDE_AT_DRAIN, REVOKE_QUEUE
from hicache_spec.observations import OUTCOMES, TICKS

LEFT, RIGHT = REVOKE_QUEUE.name, DECIDE_AT_DRAIN.name
OBSERVED = (OUTCOMES.name, TICKS.name)
CASES = {"no host pressure": AMPLE_MEMORY, "host pressure": HOST_PRESSURE}
PINNED = {
    "no host pressure": ("holds", "holds"),
    "host pressure": ("refuted in 21 steps", "refuted in 11 steps"),
}
"""For each case what comes out by each of OBSERVED."""

Answers = Sequence[Sequence[Compared]]
"""By each of OBSERVED, the answers of all configurations."""


def claim(screen: Screen) -> Part:
    """Under ample host memory it holds; under pressure a run refutes it, as pinned."""
    start = time.perf_counter()
    screen.progress.update(f"comparing {LEFT} with {RIGHT}")
    found = run_jobs(settle, list(CASES), workers_for(len(CASES)), screen.progress.update)
    return judge_claim(dict(zip(CASES, found, strict=True)), time.perf_counter() - start)


def settle(case: str, report: Report) -> Answers:
    """Compare in one case, by each observation."""
    return [compare_all(RefineOptions(LEFT, RIGHT, observe, CASES[case])) for observe in OBSERVED]


def judge_claim(found: Mapping[str, Answers], seconds: float) -> Part:
    """What came out in each case; a line for each answer that is not as pinned."""
    verdicts, wrong = [], []
    for case, by_observation in found.items():
        for observe, pinned, answers in zip(OBSERVED, PINNED[case], by_observation, strict=True):
            verdict = Verdict.PASS if says(answers) == pinned else Verdict.FAIL
            verdicts.append(Verdict.UNKNOWN if holds(answers) is None else verdict)
            if verdict is not Verdict.PASS:
                wrong.append(f"{LEFT} in {RIGHT}, {case}, by {observe}: {says(answers)}; pinned: {pinned}")
    # The graphs are the same by every observation: they are counted once.
    states = sum(c.left_states + c.right_states for answers, *_ in found.values() for c in answers)
    row = VerifyRow(
        "refinement",
        f"{LEFT} in {RIGHT}, {len(CLAIM)} configurations, up to {max(b.requests for b in CLAIM)} requests",
        f"{states:,} states",
        seconds,
        "; ".join(f"{case}: {_by_observation(answers)}" for case, answers in found.items()),
        Verdict.worst(verdicts),
    )
    keys = {
        "left": LEFT,
        "right": RIGHT,
        "observe": list(OBSERVED),
        "refuted_in_steps": {case.replace(" ", "_"): list(map(_steps, answers)) for case, answers in found.items()},
    }
    return Part(row, keys, wrong)


def _by_observation(answers: Answers) -> str:
    texts = [says(each) for each in answers]
    if len(set(texts)) == 1:
        return texts[0]
    return ", ".join(f"{text} by {observe}" for text, observe in zip(texts, OBSERVED, strict=True))


def _steps(found: Sequence[Compared]) -> int | None:
    refuted = shortest(found)
    return None if refuted is None else refuted.steps
