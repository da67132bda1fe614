"""The system under test, by name: `reference`, a variant of it (`reference:revoke_queue`), or `module:factory`.

A target is loaded in a process of its own. The factory takes nothing and returns an adapter. An attribute `packages` of
it names the packages whose threads are to be simulated; by default the one that the factory is in. `reference+FAULT` is
the reference with one of its registered mutants.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from hicache_checks.implementations import TARGETS
from hicache_checks.reporting import InputError
from hicache_checks.simulation.patching import simulated

FAULTY = "+"


@dataclass(frozen=True)
class Target:
    """How to build one, and what it consists of."""

    name: str
    build: Callable[[], Any]
    packages: tuple[str, ...]

    def fingerprint(self) -> str:
        """A digest of the texts of its packages as they are loaded now: another one, another target."""
        digest = blake2b(digest_size=8)
        for name in sorted(name for name in sys.modules if _belongs(name, self.packages)):
            file = getattr(sys.modules[name], "__file__", None)
            if file and file.endswith(".py"):
                digest.update(name.encode() + b"\0" + Path(file).read_bytes())
        return digest.hexdigest()


@contextmanager
def opened(name: str, simulate: bool) -> Iterator[Target]:
    """The target; with `simulate`, its modules see the stand-ins from their first line on. Raises InputError."""
    place = place_of(name)
    module = place.partition(":")[0]
    with _with(simulate, (module.partition(".")[0],)):
        packages = packages_of(_factory(name, place))
    if not simulate:
        yield Target(name, _factory(name, place), packages)
        return
    # Imported before their packages were known, so some of them may have met the real modules.
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if _belongs(name, (*packages, module))}
    try:
        with simulated(packages):
            yield Target(name, _factory(name, place), packages)
    finally:
        for added in [name for name in sys.modules if _belongs(name, (*packages, module))]:
            del sys.modules[added]
        sys.modules.update(before)


def place_of(name: str) -> str:
    """`module:attribute` of a target. Raises InputError."""
    registered = {point.name: point.value for point in entry_points(group=TARGETS)}
    base, faulty, _ = name.partition(FAULTY)
    registered_name = f"{base}.faulty" if faulty else name.replace(":", ".", 1)
    if registered_name in registered:
        return registered[registered_name]
    module, _, attribute = name.partition(":")
    if not attribute or not module:
        raise InputError(f"no target {name!r}; give {', '.join(sorted(registered))} or module:factory")
    return name


def packages_of(factory: Any) -> tuple[str, ...]:
    """What of a target is simulated. Raises InputError."""
    packages = getattr(factory, "packages", (str(getattr(factory, "__module__", "")).partition(".")[0],))
    if isinstance(packages, str) or not all(isinstance(p, str) and p for p in packages):
        raise InputError(f"packages of {factory!r} must be a tuple of names")
    return tuple(packages)


def _factory(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    fault = name.partition(FAULTY)[2]
    try:
        found = getattr(importlib.import_module(module), attribute)
        found = found(fault) if fault else found
    except (Exception, SystemExit) as error:
        raise InputError(f"cannot load {name}: {type(error).__name__}: {str(error).partition(chr(10))[0]}") from error
    if not callable(found):
        raise InputError(f"{name} is no factory: it cannot be called")
    return found


@contextmanager
def _with(simulate: bool, packages: Sequence[str]) -> Iterator[None]:
    if not simulate:
        yield
        return
    with simulated(packages):
        yield


def _belongs(name: str, packages: Sequence[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)
