"""The comparison of engines can fail: a fault in any part of a compiled engine makes it disagree with the objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import getattr_static
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine_comparison import explore_alike
from hicache_checks.engine import shortest
from hicache_checks.engine.array import emit_python
from hicache_checks.engine.array.columns import NumpyColumns
from hicache_checks.engine.compile.expressions import Builder
from hicache_checks.engine.compile.kernels import Compiled
from hicache_checks.engine.compile.tracer import Tracer
from hicache_checks.engine.engines import EngineOptions
from hicache_checks.engine.native import build, emit_c
from hicache_spec import Refused
from quick import one_quick
from random_specs import HEAD, load

EXPLORER = build.EXPLORER
needs_compiler = pytest.mark.skipif(build.compiler() is None, reason="there is no C compiler")

TEXT = (
    HEAD.format(a=2, b=2, k=2, on=True, costs=(1, 2, 3), grid=((0, 1), (2, 3)))
    + '''    waiting = field(fifo(A), B)
    held = field(optional(A), B)
    done = field(subset(A))
    spent = field(upto(3))


@action(q=B)
def act_take(s: State, q: int) -> None:
    """§2.1 The first is taken."""
    require(len(s.waiting[q]) > 0, "something waits")
    require(s.held[q] == NONE, "nothing is held")
    s.held[q] = s.waiting[q].pop(0)
    emit(s, ON_X, s.held[q], q)


@action(fairness="weak", q=B)
def act_finish(s: State, q: int) -> None:
    """§2.2 It is done, or undone."""
    require(s.held[q] != NONE, "something is held")
    cost = cost_of(s, q)
    if s.held[q] in s.done:
        discard(s.done, s.held[q])
    else:
        insert(s.done, s.held[q])
        s.spent += cost
    s.held[q] = NONE


@action(fairness="weak", p=A, q=B)
def act_put(s: State, p: int, q: int) -> None:
    """§2.3 Something waits."""
    require(p not in s.waiting[q] and p not in s.done, "it is not there")
    s.waiting[q].append(p)


def cost_of(s: State, q: int) -> int:
    for a in A:
        if s.held[q] == a:
            return COSTS[a]
    return 0


@quiescent
def rests(s: State) -> bool:
    """§1 One thing at least is done."""
    return len(s.done) > 0


@invariant
def inv_not_both(s: State) -> bool:
    """§3.1 Not everything is done while something waits."""
    return len(s.done) < 2 or all(len(s.waiting[q]) == 0 for q in B)


@step_property
def step_order(s: State, t: State) -> bool:
    """§4.1 Nothing is taken that costs more than what was spent before."""
    return not any(emitted(t, ON_X, a=t.held[q], n=q) and s.spent > COSTS[t.held[q]] for q in B)


@sometimes
def sometimes_second(s: State, t: State) -> bool:
    """§5.1 The second is taken from a full queue."""
    return emitted(t, ON_X, a=1) and any(len(s.waiting[q]) > 1 for q in B)
'''
)


def instead(owner: Any, name: str, fault: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """A function is replaced by a faulty one, which is given the correct one first."""
    correct = getattr(owner, name)

    @wraps(correct)
    def faulty(*arguments: Any) -> Any:
        return fault(correct, *arguments)

    is_static = isinstance(getattr_static(owner, name), staticmethod)
    return lambda patch: patch.setattr(owner, name, staticmethod(faulty) if is_static else faulty)


def shorter_queues(formula: Callable[..., str], code: Any, node: Any) -> str:
    return f"({formula(code, node)}) - 1" if node.op == "queue_length" else formula(code, node)


def every_action_is_fair(init: Callable[..., None], compiled: Compiled, *arguments: Any) -> None:
    init(compiled, *arguments)
    compiled.goes_on = compiled.builder.some(k.guard for k in compiled.kernels)


FAULTS = {
    "front end: less means at most": instead(Builder, "less", lambda f, b, x, y: b.negate(f(b, y, x))),
    "front end: what follows a return happens": instead(Tracer, "unless_returned", lambda f, t, frame, go_on: go_on()),
    "front end: a free place is a member": instead(Builder, "at_most", lambda f, b, x, y: b.true),
    "front end: every action is fair": instead(Compiled, "__init__", every_action_is_fair),
    "arrays: queues look shorter": instead(emit_python._Function, "formula", shorter_queues),
    "arrays: the other choice": instead(NumpyColumns, "pick", lambda f, c, x, y, t: f(c, y, x, t)),
    "rebuild: the last step, not the first": instead(np, "argmax", lambda f, x: len(x) - 1 - f(x[::-1])),
    "rebuild: any step will do": instead(shortest, "_leads_to", lambda f, kernels, found, marked: found.leaves == 0),
}
FAULTS_IN_C = {
    "C: queues look shorter": instead(emit_c._Code, "formula", shorter_queues),
    "C: tables of one cell": instead(emit_c, "_padded", lambda f, table: 1),
}
FAULTS_IN_THE_EXPLORER = {
    "explorer: every state is at rest": ("&& !at_rest(w);\n        }", "&& 0;\n        }"),
    "explorer: invariants break a step later": ("invariants, s->levels)", "invariants, s->levels + 1)"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("specs")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faulty kernels stay out of the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize("engine", ["array", pytest.param("native", marks=needs_compiler)])
def test_without_a_fault_they_agree(engine: str, folder: Path) -> None:
    found = explore_alike(load(TEXT, folder), EngineOptions(engine))
    assert found.first.keys() == {"deadlock", "inv_not_both", "state_in_bounds", "step_order"}
    assert found.reached == {"sometimes_second"}


@pytest.mark.parametrize("fault", one_quick(FAULTS))
def test_a_fault_in_arrays_is_seen(fault: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load(TEXT, folder)
    FAULTS[fault](monkeypatch)
    with pytest.raises((AssertionError, Refused)):  # a run that is none is refused
        explore_alike(spec, EngineOptions("array"))


@needs_compiler
@pytest.mark.heavy
@pytest.mark.parametrize("fault", FAULTS_IN_C)
def test_a_fault_in_c_is_seen(fault: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load(TEXT, folder)
    FAULTS_IN_C[fault](monkeypatch)
    with pytest.raises(AssertionError):
        explore_alike(spec, EngineOptions("native"))


@needs_compiler
@pytest.mark.parametrize("fault", one_quick(FAULTS_IN_THE_EXPLORER))
def test_a_fault_in_the_explorer_is_seen(
    fault: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_explorer(tmp_path, monkeypatch, FAULTS_IN_THE_EXPLORER[fault])
    with pytest.raises(AssertionError):
        explore_alike(load(TEXT, folder), EngineOptions("native"))


@pytest.mark.heavy
@needs_compiler
def test_states_with_the_same_hash_are_told_apart(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_bits = ("return h ^ (h >> 29);", "return (h & 0xF0000000000000FULL) << 4;")
    change_explorer(tmp_path, monkeypatch, few_bits)
    explore_alike(load(TEXT, folder), EngineOptions("native", threads=2))
    change_explorer(tmp_path, monkeypatch, few_bits, ("same(p->states", "1 || same(p->states"))
    with pytest.raises(AssertionError):
        explore_alike(load(TEXT, folder), EngineOptions("native", threads=2))


def change_explorer(folder: Path, patch: pytest.MonkeyPatch, *changes: tuple[str, str]) -> None:
    text = EXPLORER.read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    (folder / "explorer.c").write_text(text, encoding="utf-8")
    patch.setattr(build, "EXPLORER", folder / "explorer.c")
