"""A scenario: the shortest story of one bug, as a file. It says on what system what is done, and what goes wrong then.

Only who runs next is left open: first nobody is interrupted, then it is chosen at random, so many times.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from hicache_checks.conformance.findings import Finding, cause
from hicache_checks.conformance.program import MENU, Setup, Step
from hicache_checks.conformance.properties import properties_of
from hicache_checks.conformance.schedule import run_script
from hicache_checks.conformance.search import STRATEGIES
from hicache_checks.conformance.target import Target
from hicache_checks.reporting import InputError
from hicache_checks.simulation.choices import Choices, Plainest, Seeded
from hicache_spec.bounds import POLICY

SUFFIX = ".toml"
BESIDES = (
    *("observe", "hold", "hold_copies", "hold_copies_of", "release_copies", "detach", "attach"),
    *("damage", "store_by", "pin", "compute", "lose_beside", "evict_states"),
    *("turns", "full_turns", "look", "miss", "poll_apart", "leave_by", "prefill_chunk"),
    *("audit_written", "audit_consumers", "audit_waits"),
)
"""Steps of a scenario that no random program takes."""
STEPS = {item.kind for item in MENU} | set(BESIDES)


class System(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Sizes in pages; `more`: what a release's adapter may be told besides."""

    ranks: int = 1
    policy: str = "wait_complete"
    host_pages: int = 6
    threshold_pages: int = 1
    limit_pages: int = 16
    stored: list[list[int]] = []
    more: dict[str, Any] = {}


class Scenario(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`source`: where the bug is told; `shows`: properties, any of which says that it is there, alone or with words
    that its message must have; `affected` and `repaired`: releases to show it on, neighbours if there are; `schedules`:
    how many are tried; `note`: what a reader should know besides.
    """

    title: str
    source: list[str]
    shows: list[str]
    affected: list[str]
    repaired: list[str]
    steps: list[list[Any]]
    system: System = System()
    schedules: int = 50
    note: str = ""

    @property
    def setup(self) -> Setup:
        """The system at the start."""
        system = self.system
        stored = tuple(tuple(prompt) for prompt in system.stored)
        sizes = (system.host_pages, system.threshold_pages, system.limit_pages)
        return Setup(system.ranks, system.policy, *sizes, stored, tuple(sorted(system.more.items())))

    @property
    def program(self) -> list[Step]:
        """What is done."""
        return [Step(kind, tuple(_frozen(argument) for argument in arguments)) for kind, *arguments in self.steps]


@dataclass
class Played:
    """What a target did: `found` what the scenario is about, in schedule number `number`; `others`: findings that it is
    not about, by their text."""

    schedules: int = 0
    number: int | None = None
    found: Finding | None = None
    choices: Choices | None = None
    others: dict[str, int] = field(default_factory=dict)


def names() -> list[str]:
    """Of all scenarios."""
    folder = files("hicache_checks") / "scenarios"
    return sorted(entry.name.removesuffix(SUFFIX) for entry in folder.iterdir() if entry.name.endswith(SUFFIX))


def read(name: str) -> Scenario:
    """By its name, or from a file. Raises InputError."""
    if name.endswith(SUFFIX):
        place = Path(name)
        try:
            return parsed(place.read_text(encoding="utf-8"), name)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{name}: {getattr(error, 'strerror', None) or error}") from None
    if name not in names():
        raise InputError(f"no scenario {name!r}; there are {', '.join(names())}, or a file that ends in {SUFFIX}")
    return parsed((files("hicache_checks") / "scenarios" / f"{name}{SUFFIX}").read_text(encoding="utf-8"), name)


def parsed(text: str, where: str) -> Scenario:
    """Checked. Raises InputError, one line that begins with `where`."""
    try:
        scenario = msgspec.convert(tomllib.loads(text), Scenario)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InputError(f"{where}: not a scenario: {error}") from None
    for step in scenario.steps:
        if not step or step[0] not in STEPS:
            raise InputError(f"{where}: not a scenario: there is no step {step!r}")
    if scenario.system.policy not in POLICY.members:
        raise InputError(f"{where}: not a scenario: there is no policy {scenario.system.policy!r}")
    return scenario


def play(target: Target, scenario: Scenario, schedules: int, note: Callable[[int], object] = lambda n: None) -> Played:
    """Try schedules until one shows what the scenario is about."""
    played = Played()
    for number in range(schedules):
        note(number)
        finding, choices = _play_once(target, scenario, number)
        played.schedules += 1
        if finding is None:
            continue
        if _is_about(finding, scenario):
            played.number, played.found, played.choices = number, finding, choices
            break
        played.others[str(finding)] = played.others.get(str(finding), 0) + 1
    return played


def causes(target: Target, scenario: Scenario, schedules: int, note: Callable[[int], object]) -> dict[str, Finding]:
    """What the scenario is about, as these schedules show it, by cause."""
    found: dict[str, Finding] = {}
    for number in range(schedules):
        note(number)
        finding, _ = _play_once(target, scenario, number)
        if finding is not None and _is_about(finding, scenario):
            found.setdefault(cause(finding), finding)
    return found


def _play_once(target: Target, scenario: Scenario, number: int) -> tuple[Finding | None, Choices]:
    choices = Plainest() if number == 0 else Seeded(f"scenario/{number}")
    kinds = STRATEGIES["mixed"]
    strategy = kinds[number % len(kinds)](choices.random) if isinstance(choices, Seeded) else None
    result = run_script(target.build, scenario.setup, scenario.program, choices, strategy, target.judge)
    return result.finding, choices


def _is_about(finding: Finding, scenario: Scenario) -> bool:
    return any(is_shown(finding, what) for what in scenario.shows)


def is_shown(finding: Finding, what: str) -> bool:
    """Is a finding what a scenario is about? `what`: a property, or `PROPERTY: words` for its findings that say so."""
    property_, _, words = what.partition(": ")
    return property_ in (finding.property, *properties_of(finding)) and words in finding.message


def to_document(scenario: Scenario) -> Mapping[str, Any]:
    """As plain data."""
    document: Mapping[str, Any] = msgspec.to_builtins(scenario)
    return document


def from_document(document: Mapping[str, Any]) -> Scenario:
    """What `to_document` made."""
    return msgspec.convert(document, Scenario)


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted((name, _frozen(inner)) for name, inner in value.items()))
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
