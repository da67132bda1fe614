"""A run of a specification told step by step: who acted, what, and what changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hicache_spec import BoundSpec


@dataclass(frozen=True)
class ToldStep:
    """One step of a run. `changes` are `variable[index]: old -> new`, in the order of the state's declaration."""

    number: int
    actor: str
    action: str
    changes: tuple[str, ...]


def tell(spec: BoundSpec, run: Sequence[int]) -> list[ToldStep]:
    """Replay a run (indices into `spec.steps`) from the initial state. Refused if it is not a run of this
    specification."""
    told = []
    before = spec.initial()
    for number, index in enumerate(run, 1):
        after = spec.decode(spec.encode(before))
        step = spec.steps[index]
        step.run(after)
        told.append(ToldStep(number, step.rule.actor, step.label, tuple(spec.difference(before, after))))
        before = after
    return told
