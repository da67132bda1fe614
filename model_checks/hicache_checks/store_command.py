"""`hicheck store NAME|MODULE:CLASS`: hold a store of pages to what every store must do, with the faults it can have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hicache_checks.conformance.workers import Allowed, Crash, work
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, counted, print_rows, printable
from hicache_checks.stores.suite import CHECKS, FAIL, OK, SKIP, Checked

NO_LIMIT_BYTES = 0
"""A map of LMDB takes address space and no memory: what a limit counts."""


@dataclass(frozen=True)
class StoreOptions:
    """What the user asked for. `only`: these checks; all, if empty. `stall_seconds`: how long one may take."""

    target: str
    only: tuple[str, ...] = ()
    stall_seconds: float = 120.0


def run(options: StoreOptions, screen: Screen) -> Outcome:
    """Make the checks and report. Raises InputError for a store that cannot be had, and for a check there is none."""
    checked = check_store(options, screen)
    screen.progress.clear()
    print_rows(screen.console, [], [[each.check, each.verdict, printable(each.reason)] for each in checked])
    verdict = _verdict(checked)
    counts = {said: sum(each.verdict == said for each in checked) for said in (OK, FAIL, SKIP)}
    screen.say(
        f"{options.target}: {counted(counts[OK], 'check')} passed, {counts[FAIL]} failed, {counts[SKIP]} do not apply"
    )
    screen.say(f"verdict: {verdict.value}")
    return Outcome(verdict, {"target": options.target, "checks": [asdict(each) for each in checked]})


def check_store(options: StoreOptions, screen: Screen) -> list[Checked]:
    """What came of each check, in a process that is begun anew after a crash or a hang."""
    names = _chosen(options.only)
    done: list[Checked] = []

    def hear(said: Mapping[str, Any]) -> None:
        done.append(Checked(**said))
        screen.progress.update(f"{options.target}: {len(done)} of {len(names)} checks, {done[-1].check}")

    screen.progress.update(f"{options.target}: opening")
    allowed = Allowed(options.stall_seconds, NO_LIMIT_BYTES)
    while len(done) < len(names):
        job = {"do": "store", "target": options.target, "checks": names[len(done) :]}
        crash = work(job, hear, allowed)
        if crash is None:
            break
        if crash.number is None:
            raise InputError(f"{options.target} cannot be used: {_said(crash)}")
        done.append(Checked(names[len(done)], FAIL, _said(crash)))
    return done


def _chosen(only: Sequence[str]) -> list[str]:
    if unknown := [name for name in only if name not in CHECKS]:
        raise InputError(f"there is no check {unknown[0]!r}; there are {', '.join(CHECKS)}")
    return [name for name in CHECKS if not only or name in only]


def _said(crash: Crash) -> str:
    place = f", in {crash.place}" if crash.place else ""
    words = f": {crash.words}" if crash.words and not crash.is_hung else ""
    return f"the process {crash.how}{words}{place}"


def _verdict(checked: Sequence[Checked]) -> Verdict:
    """Not one check that applied is an error: nothing was checked."""
    if any(each.verdict == FAIL for each in checked):
        return Verdict.FAIL
    return Verdict.PASS if any(each.verdict == OK for each in checked) else Verdict.ERROR
