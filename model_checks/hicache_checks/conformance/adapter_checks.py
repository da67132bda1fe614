"""What an adapter must look like and answer, checked at every call: a wrong answer is the adapter's fault, never taken
for the system's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from numbers import Integral
from reprlib import repr as shown
from typing import Any

from hicache_checks.conformance.adapter import CALLS
from hicache_checks.conformance.findings import HARNESS, Broken
from hicache_checks.conformance.observation import UNOBSERVED

ADAPTER = "adapter"
REQUIRED = ("capabilities", "reset", "submit", "poll", "abort", "tick", "observe", "close")
OBSERVED = ("free_pages", "resident_pages", "occupied_pages", "operations")
STATES = (None, "revoked", "fetched", UNOBSERVED)


class CheckedAdapter:
    """An adapter whose answers are checked. Broken: one of them is not what it must be."""

    def __init__(self, target: Any) -> None:
        self._target = target
        _refuse(problem_of_calls(target) or problem_of_capabilities(target), "the adapter")
        self._capabilities = tuple(target.capabilities())

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._target, name)
        return _checked(call, name, OPTIONAL[name]) if name in OPTIONAL else call

    def capabilities(self) -> Sequence[str]:
        """See Adapter."""
        return self._capabilities

    def reset(self, config: Mapping[str, Any]) -> None:
        """See Adapter. What it can do may depend on the variant."""
        self._target.reset(config)
        _refuse(problem_of_capabilities(self._target), "the adapter")
        self._capabilities = tuple(self._target.capabilities())

    def submit(self, rid: str, tokens: Sequence[int]) -> Mapping[str, Any]:
        """See Adapter."""
        answer: Mapping[str, Any] = self._target.submit(rid, tokens)
        _refuse(problem_of_submit(answer), "submit")
        return answer

    def poll(self, rids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """See Adapter."""
        answer: Mapping[str, Mapping[str, Any]] = self._target.poll(rids)
        _refuse(problem_of_poll(answer, rids), "poll")
        return answer

    def abort(self, rid: str) -> bool:
        """See Adapter."""
        answer: bool = self._target.abort(rid)
        _refuse(problem_of_truth(answer), "abort")
        return answer

    def observe(self) -> Mapping[str, Any]:
        """See Adapter."""
        answer: Mapping[str, Any] = self._target.observe()
        _refuse(problem_of_observe(answer), "observe")
        return answer


def problem_of_calls(target: Any) -> str | None:
    """Which required calls an adapter lacks; None: none."""
    missing = _missing(target, REQUIRED)
    return f"it has no {missing}" if missing else None


def problem_of_capabilities(target: Any) -> str | None:
    """What is wrong with what an adapter says that it can; None: nothing."""
    capabilities = target.capabilities()
    if isinstance(capabilities, str) or not isinstance(capabilities, Collection):
        return f"capabilities() is {shown(capabilities)}, a collection of names is expected"
    for name in capabilities:
        if name not in CALLS:
            return f"capabilities() names {shown(name)}; known are {', '.join(CALLS)}"
        if missing := _missing(target, CALLS[name]):
            return f"it is said to have {name}, and has no {missing}"
    return None


def problem_of_submit(answer: Any) -> str | None:
    """What is wrong with an answer of `submit`; None: nothing."""
    return _problem(answer, {"accepted": _is_truth}, {"span_pages": _is_count, "attempt": _is_count})


def problem_of_poll(answer: Any, rids: Sequence[str]) -> str | None:
    """What is wrong with an answer of `poll` for these requests; None: nothing."""
    if not isinstance(answer, Mapping):
        return f"the answer is {shown(answer)}, a mapping is expected"
    if missing := [rid for rid in rids if rid not in answer]:
        return f"the answer says nothing of request {missing[0]!r}"
    counts = dict.fromkeys(("pages", "known", "loaded"), _is_count_or_none)
    optional = {"state": STATES.__contains__, **counts}
    problems = (_problem(answer[rid], {"ready": _is_truth}, optional) for rid in rids)
    return next((problem for problem in problems if problem), None)


def problem_of_truth(answer: Any) -> str | None:
    """What is wrong with an answer that is yes, no, or none at all; None: nothing."""
    if answer is None or answer is UNOBSERVED or _is_truth(answer):
        return None
    return f"the answer is {shown(answer)}, True or False is expected"


def problem_of_observe(seen: Any) -> str | None:
    """What is wrong with what `observe` says; None: nothing."""
    if not isinstance(seen, Mapping):
        return f"the answer is {shown(seen)}, a mapping is expected"
    if missing := [name for name in OBSERVED if name not in seen]:
        return f"it leaves out {missing[0]}; if that cannot be seen, it is UNOBSERVED"
    for name in OBSERVED[:-1]:
        if seen[name] is not UNOBSERVED and not _is_count(seen[name]):
            return f"{name} is {shown(seen[name])}, a number of pages is expected"
    operations = seen["operations"]
    if operations is not UNOBSERVED and not (
        isinstance(operations, Mapping) and all(_is_operation(*item) for item in operations.items())
    ):
        return f"operations is {shown(operations)}, (request id, attempt) -> granted pages is expected"
    return None


def _problem(
    answer: Any, required: Mapping[str, Callable[[Any], bool]], optional: Mapping[str, Callable[[Any], bool]]
) -> str | None:
    if not isinstance(answer, Mapping):
        return f"the answer is {shown(answer)}, a mapping is expected"
    for name, admits in {**required, **optional}.items():
        if name not in answer:
            if name in required:
                return f"the answer {shown(dict(answer))} has no {name!r}"
        elif not admits(answer[name]) and (name in required or answer[name] is not UNOBSERVED):
            return f"{name!r} is {shown(answer[name])}"
    return None


def problem_of_success(answer: Any) -> str | None:
    """What is wrong with an answer that says whether it was done; None: nothing."""
    return None if _is_truth(answer) else f"the answer is {shown(answer)}, True or False is expected"


def problem_of_lines(answer: Any) -> str | None:
    """What is wrong with an answer that is a list of texts; None: nothing."""
    if isinstance(answer, Sequence) and not isinstance(answer, str) and all(isinstance(line, str) for line in answer):
        return None
    return f"the answer is {shown(answer)}, a list of texts is expected"


def problem_of_prefill(answer: Any) -> str | None:
    """What is wrong with an answer of `prefill`; None: nothing."""
    return (
        None if hasattr(answer, "wrong") else f"the answer {shown(answer)} has no `wrong`, the pages with other bytes"
    )


def problem_of_variants(answer: Any) -> str | None:
    """What is wrong with what `variants` says; None: nothing."""
    if not isinstance(answer, Mapping):
        return f"the answer is {shown(answer)}, a mapping is expected"
    for name, values in answer.items():
        if not (isinstance(name, str) and isinstance(values, Sequence) and not isinstance(values, str) and values):
            return f"of {name!r} it says {shown(values)}, a sequence of values is expected"
    return None


OPTIONAL: Mapping[str, Callable[[Any], str | None]] = {
    **dict.fromkeys(("flush", "begin_again", "detach", "attach"), problem_of_success),
    **dict.fromkeys(("audit", "audit_stores", "threads_of"), problem_of_lines),
    "prefill": problem_of_prefill,
    "variants": problem_of_variants,
}
"""What is wrong with an answer of a call that a capability adds."""


def _checked(call: Callable[..., Any], name: str, problem_of: Callable[[Any], str | None]) -> Callable[..., Any]:
    def checked(*args: Any) -> Any:
        answer = call(*args)
        _refuse(problem_of(answer), name)
        return answer

    return checked


def _refuse(problem: str | None, call: str) -> None:
    if problem is not None:
        raise Broken(ADAPTER, problem, HARNESS, call)


def _missing(target: Any, names: Sequence[str]) -> str:
    return ", ".join(f"{name}()" for name in names if not callable(getattr(target, name, None)))


def _is_truth(value: object) -> bool:
    return isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0


def _is_count_or_none(value: object) -> bool:
    return value is None or _is_count(value)


def _is_operation(name: object, pages: object) -> bool:
    return (
        isinstance(name, tuple)
        and len(name) == 2
        and isinstance(name[0], str)
        and _is_count(name[1])
        and (pages is UNOBSERVED or _is_count(pages))
    )
