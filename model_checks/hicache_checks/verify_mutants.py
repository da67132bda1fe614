"""What `hicheck verify` says of faulty rules of the specification: its properties catch every one."""

from __future__ import annotations

import time
from typing import Any

from hicache_checks.engine.engines import EngineOptions, explore
from hicache_checks.explore_command import live_results
from hicache_checks.implementations import MUTANTS, load
from hicache_checks.reporting import Screen, Verdict, VerifyRow, counted
from hicache_checks.verify_specification import Part, says_violation
from hicache_spec import BoundSpec
from hicache_spec.designs import DECIDE_AT_DRAIN

OBJECTS = EngineOptions(engine="object")
NOTHING = "nothing is violated"


def faults(screen: Screen) -> Part:
    """Every faulty rule is caught by the property that it breaks, in the pinned number of steps; those that starve
    somebody by liveness alone."""
    start = time.perf_counter()
    unsafe, starving = load(MUTANTS, "specification"), load(MUTANTS, "liveness")
    wrong, wrong_alone = [], []
    for mutant in unsafe:
        screen.progress.update(f"mutant {mutant.name}")
        wrong += _unless_as_pinned(mutant, *by_safety(mutant))
    for mutant in starving:
        screen.progress.update(f"mutant {mutant.name}")
        wrong_alone += _unless_as_pinned(mutant, *by_liveness_alone(mutant))
    known, alone = len(unsafe) + len(starving), len(starving) - len(wrong_alone)
    wrong += wrong_alone
    row = VerifyRow(
        "mutants",
        "of the specification",
        counted(known, "mutant"),
        time.perf_counter() - start,
        f"{known - len(wrong)} of {known} caught as pinned, {alone} of them by liveness alone",
        Verdict.PASS if unsafe and starving and not wrong else Verdict.FAIL,
    )
    return Part(row, {"total": known, "caught": known - len(wrong)}, wrong)


def by_safety(mutant: Any) -> tuple[str, str]:
    """What the fault breaks first, and what is pinned."""
    violation = explore(_faulty(mutant), OBJECTS).violation
    found = NOTHING if violation is None else says_violation(violation)
    return found, f"{mutant.caught_by} violated in {counted(mutant.steps, 'step')}"


def by_liveness_alone(mutant: Any) -> tuple[str, str]:
    """The pinned lasso, if that is among those that are found and nothing else is violated, and what is pinned."""
    spec, pinned = _faulty(mutant), _says_lasso(mutant.caught_by, mutant.stem, mutant.loop)
    violation = explore(spec, OBJECTS).violation
    if violation is not None:
        return says_violation(violation), pinned
    lassos = [
        _says_lasso(found.property, len(found.lasso.stem), len(found.lasso.loop))
        for found in live_results(spec)
        if found.lasso is not None
    ]
    return pinned if pinned in lassos else ", ".join(lassos) or NOTHING, pinned


def _unless_as_pinned(mutant: Any, found: str, pinned: str) -> list[str]:
    return [] if found == pinned else [f"mutant {mutant.name}: {found}; pinned: {pinned}"]


def _says_lasso(name: str, stem: int, loop: int) -> str:
    return f"{name} violated by a stem of {counted(stem, 'step')} and a loop of {counted(loop, 'step')}"


def _faulty(mutant: Any) -> BoundSpec:
    return BoundSpec(DECIDE_AT_DRAIN.variant(mutant.name, "", mutant.replaces), mutant.bounds)
