"""`hicheck soak`: random work on an implementation for a long time; nothing may break, leak, hang or grow."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hicache_checks.implementations import SOAKS, load
from hicache_checks.rank_layout import RankLayout, described
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, print_rows

Runner = Callable[[Mapping[str, object], Callable[[str], None]], dict[str, Any]]

SHOWN_VIOLATIONS = 10
TWO_RANKS = RankLayout(tp=2)
# What must have happened, or nothing was soaked.
NEEDED = ("submitted", "fetched_complete", "attached", "detach", "reset", "abort", "loaded_pages", "break_storage")


@dataclass(frozen=True)
class SoakOptions:
    """How long, and on what. `target` is the name under which an implementation registered its runner.

    `more`: what else the runner is told, by name.
    """

    minutes: float
    layout: RankLayout = TWO_RANKS
    store: str = "lmdb"
    seed: int = 0
    target: str = "reference"
    more: Mapping[str, object] | None = None
    device: str = "cpu"
    backend: str = "gloo"


def run(options: SoakOptions, screen: Screen) -> Outcome:
    """Soak and report. Errors: see `soak`."""
    outcome = soak(options, screen.progress.update)
    screen.progress.clear()
    _print(outcome, screen)
    return outcome


def soak(options: SoakOptions, progress: Callable[[str], None]) -> Outcome:
    """Run, and judge what came of it. Raises InputError for options that cannot be used."""
    runner: Runner = load(SOAKS, options.target)
    with tempfile.TemporaryDirectory(prefix="hicheck-soak-") as folder:
        given = {
            "folder": folder,
            "seconds": options.minutes * 60,
            "layout": asdict(options.layout),
            "store": options.store,
            "seed": options.seed,
            "device": options.device,
            "backend": options.backend,
            **(options.more or {}),
        }
        try:
            keys = runner(given, progress)
        except ValueError as error:
            # The runner's contract: a ValueError is one line about the options.
            raise InputError(str(error)) from error
    keys["never_happened"] = [name for name in NEEDED if not keys["happened"].get(name)]
    return Outcome(_verdict(keys), keys)


def _verdict(keys: Mapping[str, Any]) -> Verdict:
    """No round at all is an error: nothing was soaked."""
    if keys["violations"]:
        return Verdict.FAIL
    if not keys["rounds"]:
        return Verdict.ERROR
    return Verdict.PASS if keys["memory_judged"] and not keys["never_happened"] else Verdict.UNKNOWN


def _print(outcome: Outcome, screen: Screen) -> None:
    keys: Mapping[str, Any] = outcome.keys
    rows = [
        ["soak", f"{keys['seconds']:,.0f} s, {described(keys['layout'])}, {keys['store']} store, seed {keys['seed']}"],
        ["rounds", f"{keys['rounds']:,} on {keys['lives']:,} caches"],
        ["happened", _counts(keys["happened"])],
        ["pages", _counts(keys["moved_pages"])],
        *([["servers", _counts(keys["servers"])]] if keys.get("servers") else []),
        ["memory", _memory(keys)],
        ["verdict", f"{outcome.verdict.value}: {_reasons(keys)}"],
    ]
    print_rows(screen.console, [], rows)
    for violation in keys["violations"][:SHOWN_VIOLATIONS]:
        screen.say(f"violation: {violation}")
    for line in keys["recent"][-SHOWN_VIOLATIONS:]:
        screen.say(f"    before it: {line}")


def _reasons(keys: Mapping[str, Any]) -> str:
    reasons = [f"{len(keys['violations'])} violations"]
    if not keys["memory_judged"]:
        reasons.append("memory was not judged, for want of time")
    if keys["never_happened"]:
        reasons.append(f"never happened: {', '.join(keys['never_happened'])}")
    return "; ".join(reasons)


def _memory(keys: Mapping[str, Any]) -> str:
    if not keys["memory_judged"]:
        return "not judged"
    grown: Sequence[tuple[float, float]] = [
        (sizes["after_warm_up_bytes"], sizes["at_the_end_bytes"]) for sizes in keys["resident"]
    ]
    before, after = max(grown, key=lambda pair: pair[1] / pair[0])
    return (
        f"{before / 2**20:,.1f} MiB after the warm-up, {after / 2**20:,.1f} MiB at the end, {after / before - 1:+.1%}"
    )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in sorted(counts.items())) or "none"
