"""Putting stand-ins into a program: by the packages that its modules belong to, and nowhere else.

A module that is imported while the stand-ins are in place meets them from its first line; in one that was imported
before, what it holds of the real things is replaced. Afterwards both are as if nothing had been. `torch.distributed` is
one for everybody, so its functions are replaced in place by ones that ask first whether the caller is simulated.
"""

from __future__ import annotations

import builtins
import concurrent.futures
import queue
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from hicache_checks.simulation.replacing import Kind, Replacements, replace_for_good, replaced
from hicache_checks.simulation.standins import clocks, futures, locks, queues, threads
from hicache_checks.simulation.world import current

REAL: dict[str, types.ModuleType] = {
    "threading": threading,
    "queue": queue,
    "time": time,
    "concurrent.futures": concurrent.futures,
}


def _standins() -> dict[str, types.ModuleType]:
    made = {"threading": threads.module(), "queue": queues.module(), "time": clocks.module()}
    return {**made, "concurrent.futures": futures.module(made)}


STANDINS = _standins()
# What `import concurrent.futures` gives.
CONCURRENT = types.SimpleNamespace(futures=STANDINS["concurrent.futures"])


@contextmanager
def simulated(packages: Sequence[str]) -> Iterator[None]:
    """Within this block the modules of these packages see the stand-ins, also those imported in it.

    TypeError: a class cannot change its base afterwards; import its module within the block.
    """
    before = _modules_of(packages)
    with ExitStack() as stack:
        collectives = _Collectives(stack)
        new_import = _import_for(tuple(packages), builtins.__import__, collectives.replace)
        stack.enter_context(mock.patch.object(builtins, "__import__", new_import))
        collectives.replace()
        replacements = Replacements([*_things(), *collectives.replaced], KINDS)
        stack.enter_context(replaced(before, replacements))
        stack.callback(_make_real, packages, before, replacements.inverse())
        yield


def _make_real(packages: Sequence[str], before: Sequence[types.ModuleType], inverse: Replacements) -> None:
    """Those that met the stand-ins from their first line."""
    known = set(map(id, before))
    replace_for_good([module for module in _modules_of(packages) if id(module) not in known], inverse)


def _modules_of(packages: Sequence[str]) -> list[types.ModuleType]:
    return [module for name, module in list(sys.modules.items()) if _belongs(name, packages)]


def _belongs(name: str, packages: Sequence[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _things() -> list[tuple[Any, Any]]:
    """(real, stand-in): the modules, and what they export and the stand-ins differ in."""
    found: list[tuple[Any, Any]] = [(concurrent, CONCURRENT)]
    for name, real in REAL.items():
        standin = STANDINS[name]
        found.append((real, standin))
        for attribute, value in vars(real).items():
            other = getattr(standin, attribute, value)
            if not attribute.startswith("_") and other is not value:
                found.append((value, other))
    return found


def _a_free_lock(make: Callable[[], Any], lock: Any) -> Any:
    if not lock.acquire(blocking=False):
        return None
    lock.release()
    return make()


def _an_event(make: Callable[[], Any], event: Any) -> Any:
    made = make()
    if event.is_set():
        made.set()
    return made


def _an_empty_queue(make: Callable[..., Any], items: Any) -> Any:
    if not items.empty():
        return None
    return make(items.maxsize) if hasattr(items, "maxsize") else make()


def _kinds() -> Iterator[Kind]:
    """Objects that modules and classes keep for good. One that is in use is left as it is."""
    for make_old, make_new, alike in (
        (threading.Lock, locks.Lock, _a_free_lock),
        (threading.RLock, locks.RLock, _a_free_lock),
        (threading.Event, locks.Event, _an_event),
        (threading.Semaphore, locks.Semaphore, lambda make, semaphore: make(semaphore._value)),
        (threading.local, threads.local, lambda make, local: None if vars(local) else make()),
        (queue.Queue, queues.Queue, _an_empty_queue),
        (queue.SimpleQueue, queues.SimpleQueue, _an_empty_queue),
    ):
        yield Kind(type(make_old()), make_old, type(make_new()), make_new, alike)


KINDS = tuple(_kinds())


def _import_for(
    packages: Sequence[str], real_import: Callable[..., Any], imported: Callable[[], None]
) -> Callable[..., Any]:
    """An `__import__` that gives stand-ins to whoever belongs to the packages."""

    def import_(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        importer = str((globals or {}).get("__name__", ""))
        if level or not _belongs(importer, packages):
            return real_import(name, globals, locals, fromlist, level)
        if name in STANDINS and (fromlist or "." not in name):
            return STANDINS[name]
        if name == "concurrent.futures" or (name == "concurrent" and "futures" in (fromlist or ())):
            return CONCURRENT
        module = real_import(name, globals, locals, fromlist, level)
        imported()
        return module

    return import_


class _Collectives:
    """The functions of torch.distributed, replaced as soon as it is there, until the stack unwinds."""

    def __init__(self, stack: ExitStack) -> None:
        self.replaced: list[tuple[Any, Any]] = []
        self._stack = stack

    def replace(self) -> None:
        if self.replaced or "torch.distributed" not in sys.modules:
            return
        import torch.distributed as dist

        from hicache_checks.simulation.standins import collectives, messages

        new: dict[str, Any] = {
            name: _ask_first(getattr(dist, name), standin)
            for name, standin in {**collectives.FUNCTIONS, **messages.FUNCTIONS}.items()
            if hasattr(dist, name)
        }
        self.replaced = [(getattr(dist, name), function) for name, function in new.items()]
        self._stack.enter_context(mock.patch.multiple(dist, **new))


def _ask_first(real: Any, standin: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return (real if current() is None else standin)(*args, **kwargs)

    return call
