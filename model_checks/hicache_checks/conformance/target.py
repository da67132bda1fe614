"""The system under test, by name: `reference`, a variant of it (`reference:revoke_queue`), a published release
(`sglang==0.5.18`, or any other distribution of the same modules), `path:DIR`, where one lies, or `module:factory`. A
release may be asked for another tree than the one that it would choose, `sglang[unified]==0.5.18`, and to log what it
does: `sglang[events]==0.5.18`.

A target is loaded in a process of its own. The factory takes nothing and returns an adapter. An attribute `packages` of
it names the packages whose threads are to be simulated; by default the one that the factory is in. An attribute
`profile` names the design of the specification that the target is held to; by default the canonical one. Another one
can be asked for: `TARGET@DESIGN`. `reference+FAULT` is the reference with one of its registered mutants.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from hicache_checks.conformance.explainer import CANONICAL, FOLLOWED
from hicache_checks.conformance.judges import MakeJudge, judge_for
from hicache_checks.implementations import TARGETS
from hicache_checks.reporting import InputError
from hicache_checks.simulation.patching import simulated
from hicache_checks.targets.trees import is_release, tree_of
from hicache_spec import DESIGNS

FAULTY = "+"
HELD_TO = "@"
RELEASE = ("sglang", "hicache_checks.targets.sglang")
"""What a release consists of, with what drives it."""
IN_BRACKETS = re.compile(r"\[([a-z_,]+)\]")
EVENTS = "events"
"""In the brackets of a release's name: it logs what it does."""


@dataclass(frozen=True)
class Target:
    """How to build one, what it consists of, and the design of the specification that it is held to.

    `sources`: its source files with their names, where they are no packages that can be imported by everybody.
    """

    name: str
    build: Callable[[], Any]
    packages: tuple[str, ...]
    profile: str = CANONICAL
    sources: tuple[tuple[str, Path], ...] = ()

    @property
    def judge(self) -> MakeJudge:
        """Who judges it, by its profile."""
        return partial(judge_for, profile=self.profile)

    def fingerprint(self) -> str:
        """A digest of all source files of its packages, imported or not: another one, another target."""
        digest = blake2b(digest_size=8)
        for package in self.packages if not self.sources else ():
            for name, file in sorted(_sources(package)):
                digest.update(f"{package}\0{name}\0".encode() + file.read_bytes())
        for name, file in sorted(self.sources):
            digest.update(f"{name}\0".encode() + file.read_bytes())
        return digest.hexdigest()


@contextmanager
def opened(name: str, simulate: bool) -> Iterator[Target]:
    """The target; with `simulate`, its modules see the stand-ins from their first line on. Raises InputError."""
    named, kind = kind_of(name.partition(HELD_TO)[0])
    if is_release(named):
        # Its modules, and ours that it is driven by, are this release's alone: another one may be open besides.
        with _own(RELEASE), _with(simulate, RELEASE):
            ours = importlib.import_module("hicache_checks.targets.sglang.target")
            with ours.release_opened(tree_of(named), simulate, kind, is_logged(name)) as release:
                yield Target(name, release.build, RELEASE, profile_of(name, release), release.sources)
        return
    place = place_of(name)
    module = place.partition(":")[0]
    with _with(simulate, (module.partition(".")[0],)):
        factory = _factory(name, place)
        packages, profile = packages_of(factory), profile_of(name, factory)
    if not simulate:
        yield Target(name, factory, packages, profile)
        return
    # Imported before their packages were known, so some of them may have met the real modules.
    with _own((*packages, module)), simulated(packages):
        yield Target(name, _factory(name, place), packages, profile)


def place_of(name: str) -> str:
    """`module:attribute` of a target. Raises InputError."""
    registered = {point.name: point.value for point in entry_points(group=TARGETS)}
    named = name.partition(HELD_TO)[0]
    base, faulty, _ = named.partition(FAULTY)
    registered_name = f"{base}.faulty" if faulty else named.replace(":", ".", 1)
    if registered_name in registered:
        return registered[registered_name]
    module, _, attribute = named.partition(":")
    if not attribute or not module:
        raise InputError(f"no target {named!r}; give {', '.join(sorted(registered))} or module:factory")
    return named


def fetch(name: str, wheels: Path | None = None, tell: Callable[[str], object] = lambda line: None) -> None:
    """See that the files of a release are here; of another target: nothing. `wheels`, `tell`: see `tree_of`.

    Raises InputError.
    """
    named, _ = kind_of(name.partition(HELD_TO)[0])
    if is_release(named):
        tree_of(named, wheels, tell)


def kind_of(name: str) -> tuple[str, str | None]:
    """The name of a release without what stands in brackets, and the kind of tree asked for there; None: none."""
    found = IN_BRACKETS.search(name)
    kinds = [word for word in _asked_for(name) if word != EVENTS]
    return (name, None) if found is None else (name.replace(found[0], "", 1), ",".join(kinds) or None)


def is_logged(name: str) -> bool:
    """Is a release asked, in the brackets of its name, to log what it does?"""
    return EVENTS in _asked_for(name)


def _asked_for(name: str) -> list[str]:
    """The words in brackets."""
    found = IN_BRACKETS.search(name)
    return [] if found is None else found[1].split(",")


def held_to(name: str, profile: str | None) -> str:
    """The name of the same target, held to this design; None: as it is."""
    return name if profile is None else f"{name.partition(HELD_TO)[0]}{HELD_TO}{profile}"


def profile_of(name: str, factory: Any) -> str:
    """The design that a target is held to: the one asked for, its own, or the canonical one. Raises InputError."""
    profile = name.partition(HELD_TO)[2] or getattr(factory, "profile", CANONICAL)
    if profile not in DESIGNS:
        raise InputError(f"there is no design {profile!r}; a profile is {', '.join(DESIGNS)}")
    return str(profile)


def check_profile(profile: Any) -> str:
    """A design that a log can be held to. Raises InputError."""
    if profile not in FOLLOWED:
        raise InputError(f"nothing can be held to {profile!r}; a profile is {', '.join(FOLLOWED)}")
    return str(profile)


def packages_of(factory: Any) -> tuple[str, ...]:
    """What of a target is simulated. Raises InputError."""
    packages = getattr(factory, "packages", (str(getattr(factory, "__module__", "")).partition(".")[0],))
    if isinstance(packages, str) or not all(isinstance(p, str) and p for p in packages):
        raise InputError(f"packages of {factory!r} must be a tuple of names")
    return tuple(packages)


def _factory(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    fault = name.partition(HELD_TO)[0].partition(FAULTY)[2]
    try:
        found = getattr(importlib.import_module(module), attribute)
        found = found(fault) if fault else found
    except (Exception, SystemExit) as error:
        raise InputError(f"cannot load {name}: {type(error).__name__}: {str(error).partition(chr(10))[0]}") from error
    if not callable(found):
        raise InputError(f"{name} is no factory: it cannot be called")
    return found


@contextmanager
def _own(packages: Sequence[str]) -> Iterator[None]:
    """Within this block these packages are imported anew; afterwards they are as they were."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if _belongs(name, packages)}
    try:
        yield
    finally:
        for added in [name for name in sys.modules if _belongs(name, packages)]:
            del sys.modules[added]
        sys.modules.update(before)


@contextmanager
def _with(simulate: bool, packages: Sequence[str]) -> Iterator[None]:
    if not simulate:
        yield
        return
    with simulated(packages):
        yield


def _sources(package: str) -> Iterator[tuple[str, Path]]:
    """The source files of a package, or of a module that is none, with their names in it."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return
    for place in spec.submodule_search_locations or ():
        yield from ((file.relative_to(place).as_posix(), file) for file in Path(place).rglob("*.py"))
    if spec.submodule_search_locations is None and spec.origin is not None and spec.origin.endswith(".py"):
        yield "", Path(spec.origin)


def _belongs(name: str, packages: Sequence[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)
