"""The shortest counterexample of a finished search, rebuilt without stored parents.

Going back through the levels, the states are marked from which a violation can still be reached in time; going forward
from the initial state, always the first step in the order of the text that leads to a marked state is taken. The result
is the least of all shortest runs in lexicographic order, so it does not depend on the order in which states were found,
nor on threads, nor on symmetry.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hicache_checks.engine.compile.layout import Words
from hicache_checks.engine.kernel_steps import Checks, Kernels, Search, Steps, Tally, batches


@dataclass(frozen=True)
class Shortest:
    """A shortest run, and what it breaks: bits of step properties and invariants, or the bounds, or a deadlock."""

    run: tuple[int, ...]
    broken_steps: int = 0
    broken_invariants: int = 0
    leaves: bool = False


def shortest_run(kernels: Kernels, search: Search, tally: Tally, checks: Checks) -> Shortest | None:
    """The least shortest run to a violation of what is checked; None if there is none in the tally."""
    length = tally.shortest(checks)
    if length is None:
        return None
    others = tally.shortest(replace(checks, deadlock=False))
    stuck = others is None or others > length
    here = np.array([kernels.compiled.initial], np.uint64)
    if length == 0 and not stuck:
        return Shortest((), broken_invariants=int(kernels.broken_invariants(here)[0]) & checks.invariants)
    last = length if stuck else length - 1
    marks = _marked_levels(kernels, search, checks, last, stuck)
    run: list[int] = []
    for depth in range(1, last + 1):
        found = kernels.successors(here)
        row = int(np.argmax(_leads_to(kernels, found, marks[depth])))
        run.append(int(found.steps[row]))
        here = found.targets[row : row + 1]
    if stuck:
        return Shortest(tuple(run))
    found = kernels.successors(here)
    row = int(np.argmax(_violating(kernels, found, checks)))
    leaves = bool(found.leaves[row])
    invariants = 0 if leaves else int(kernels.broken_invariants(found.targets[row : row + 1])[0])
    return Shortest(
        (*run, int(found.steps[row])),
        int(found.broken[row]) & checks.steps,
        invariants & checks.invariants,
        leaves and checks.bounds,
    )


def _marked_levels(
    kernels: Kernels, search: Search, checks: Checks, last: int, stuck: bool
) -> dict[int, NDArray[np.uint64]]:
    """For each level after the first the states, as sorted fingerprints, that still lead to the violation in time."""
    marks: dict[int, NDArray[np.uint64]] = {}
    for depth in range(last, 0, -1):
        found = []
        for states, steps in batches(kernels, search.level(depth)):
            wanted = np.zeros(len(states), bool)
            if depth < last:
                wanted[steps.sources[_leads_to(kernels, steps, marks[depth + 1])]] = True
            elif stuck:
                wanted[:] = steps.stuck
            else:
                wanted[steps.sources[_violating(kernels, steps, checks)]] = True
            found.append(fingerprints(states[wanted]))
        marks[depth] = np.sort(np.concatenate(found))
    return marks


def _violating(kernels: Kernels, found: Steps, checks: Checks) -> NDArray[np.bool_]:
    broken = (found.broken & np.uint64(checks.steps)) != 0
    inside = found.leaves == 0
    broken |= ~inside if checks.bounds else False
    broken[inside] |= (kernels.broken_invariants(found.targets[inside]) & np.uint64(checks.invariants)) != 0
    return broken


def _leads_to(kernels: Kernels, found: Steps, marked: NDArray[np.uint64]) -> NDArray[np.bool_]:
    reached = fingerprints(kernels.canonical(found.targets))
    place = np.searchsorted(marked, reached)
    place[place == len(marked)] = 0
    return (marked[place] == reached) & (found.leaves == 0) if len(marked) else np.zeros(len(reached), bool)


def fingerprints(states: Words) -> NDArray[np.uint64]:
    """One number a state, shape (n,). Different states have the same one with probability 2 ** -64."""
    mixed = np.full(len(states), 0x9E3779B97F4A7C15, np.uint64)
    for word in states.T:
        mixed = (mixed ^ word) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
    mixed = mixed * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(32)))
