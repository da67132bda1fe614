"""The process that a target runs in: `python -m hicache_checks.conformance.worker`.

It reads one job, a JSON document, from its standard input, and writes JSON lines to what was its standard output when
it started; whatever the target prints goes to its standard error. In the file that the job names it keeps the number of
the schedule that is running, for whoever has to say where it crashed.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import mmap
import os
import resource
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TextIO

import msgspec
from hypothesis.configuration import set_hypothesis_home_dir

from hicache_checks.conformance import replay_file
from hicache_checks.conformance import scenario as scenarios
from hicache_checks.conformance.adapter_checks import ADAPTER
from hicache_checks.conformance.apart import causes_job, programs_job
from hicache_checks.conformance.differ import compare_job
from hicache_checks.conformance.end_to_end import fetch_job
from hicache_checks.conformance.findings import HARNESS
from hicache_checks.conformance.judges import built
from hicache_checks.conformance.program import Setup
from hicache_checks.conformance.properties import shows_the_same
from hicache_checks.conformance.rarity import rarity
from hicache_checks.conformance.real_threads import run_real
from hicache_checks.conformance.replay_file import Recorded, program_of
from hicache_checks.conformance.schedule import Result
from hicache_checks.conformance.search import (
    SIMULATE,
    THREADS,
    Cause,
    Searched,
    SearchOptions,
    options_from,
    search,
    shrink,
)
from hicache_checks.conformance.smoke import smoke
from hicache_checks.conformance.target import Target, opened
from hicache_checks.conformance.time_to_find import find_each
from hicache_checks.conformance.told_schedule import tell_real, tell_schedule, tell_script
from hicache_checks.conformance.workers import UNNUMBERED
from hicache_checks.reporting import InputError, Story
from hicache_checks.simulation.choices import Choices, Replayed
from hicache_checks.simulation.watchdog import Watchdog
from hicache_checks.stores.job import store_job

PROGRESS_S = 0.5
CONFIRM_RUNS = 20
TELL_RUNS = 5

Say = Callable[[Mapping[str, Any]], None]


def main() -> int:
    """Do the job. 0: done, and the last line says so; 2: the target or the job cannot be used, and it says why."""
    out = _take_stdout()
    # Nobody takes a copy of this process, which a target may begin, for the process.
    os.register_at_fork(after_in_child=out.close)
    # Whoever kills this process asks first where it is.
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)

    def say(document: Mapping[str, Any]) -> None:
        out.write(json.dumps(document, ensure_ascii=False) + "\n")
        out.flush()

    job = json.load(sys.stdin)
    sys.path += [place for place in job["path"] if place not in sys.path]
    if job["memory_bytes"]:
        resource.setrlimit(resource.RLIMIT_AS, (job["memory_bytes"],) * 2)
    try:
        with tempfile.TemporaryDirectory(prefix="hicheck-shrinking-") as directory:
            # Else it leaves one where the user is.
            set_hypothesis_home_dir(directory)
            JOBS[job["do"]](job, say)
    except InputError as error:
        say({"error": str(error)})
        return 2
    except SystemExit as error:
        sys.stderr.write(f"it called sys.exit({error.code!r})\n")
        return 1
    say({"end": True})
    return 0


def _take_stdout() -> TextIO:
    """The real standard output for ourselves; the target's goes to standard error. Not all that it says is text."""
    sys.stdout.flush()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)
    return out


class _Running:
    """The number of the running schedule, where the parent can see it even when this process is dead."""

    def __init__(self, path: str) -> None:
        with Path(path).open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 8)

    def __call__(self, number: int) -> None:
        struct.pack_into("<q", self._memory, 0, number)


@contextmanager
def _loaded(job: Mapping[str, Any], mode: str, say: Say) -> Iterator[tuple[Target, _Running]]:
    """The job's target; from now on it is no longer being loaded. Who hangs, says where while somebody still waits."""

    def bark(line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    with opened(job["target"], simulate=mode == SIMULATE) as target, Watchdog(job["silence_s"] / 2, bark):
        running = _Running(job["running"])
        running(UNNUMBERED)
        say({"loaded": True})
        # What is loaded, stays: the collector need not walk through it after every schedule.
        gc.freeze()
        yield target, running


def _search(job: Mapping[str, Any], say: Say) -> None:
    """Causes are said twice: when they are first seen, in case this process does not live to make them small."""
    options = options_from(job["options"])
    said, seen = time.monotonic(), set[str]()

    def note(number: int, searched: Searched) -> None:
        nonlocal said
        tell_new(searched)
        running(number)
        if time.monotonic() - said > PROGRESS_S:
            said = time.monotonic()
            say({**_counts(searched), "covered": _covered(searched)})

    def tell_new(searched: Searched) -> None:
        for name in searched.causes.keys() - seen:
            seen.add(name)
            found = searched.causes[name]
            _refuse_unusable(job, options, found)
            say({"seen": _found(target, options, found, found.choices), "cause": name})

    with _loaded(job, options.mode, say) as (target, running):
        say({"profile": target.profile})
        searched = search(target, options, note)
        running(UNNUMBERED)
        tell_new(searched)
        until = time.monotonic() + job["shrink_seconds"]
        for left, (name, found) in zip(range(len(searched.causes), 0, -1), searched.causes.items(), strict=True):
            share = (until - time.monotonic()) / left
            choices = shrink(_heard(target, say), options, found, share)
            say({"found": _found(target, options, found, choices, job["shrink_seconds"] > 0), "cause": name})
        say({"done": _counts(searched), "covered": _covered(searched)})


def _refuse_unusable(job: Mapping[str, Any], options: SearchOptions, found: Cause) -> None:
    """An adapter that is wrong from the very first schedule on is not worth a second one."""
    finding = found.finding
    if (finding.property, finding.kind, found.number) == (ADAPTER, HARNESS, options.first):
        raise InputError(f"{job['target']} cannot be used: {finding.place or 'its logs'}: {finding.message}")


def _counts(searched: Searched) -> dict[str, Any]:
    return {
        "schedules": searched.schedules,
        "cut": searched.cut,
        "asleep": searched.asleep,
        "seconds": searched.seconds,
        "out_of_time": searched.out_of_time,
        "causes": len(searched.causes),
    }


def _covered(searched: Searched) -> dict[str, Any]:
    """What was seen since this was said last: it is not to be lost with this process."""
    covered = {
        "traces": sorted(searched.traces),
        "states": sorted(searched.states),
        "outcomes": dict(searched.outcomes),
        "unobserved": dict(searched.unobserved),
        "capabilities": sorted(searched.capabilities),
    }
    for told in (searched.traces, searched.states, searched.outcomes, searched.unobserved):
        told.clear()
    return covered


def _found(
    target: Target, options: SearchOptions, found: Cause, choices: Choices, is_weighed: bool = False
) -> dict[str, Any]:
    """`is_weighed`: say how rare its timing is, too."""
    how = Recorded(options.ranks, found.policy, options.steps_max, options.mode)
    if options.mode == THREADS:
        result, recorded, story = _seen_again(target, how, choices, found)
    else:
        result, recorded, story = _replay(target, how, choices)
    replay = replay_file.record(target, how, recorded, result)
    weighed = None
    if is_weighed and options.mode == SIMULATE and result.finding is not None:
        weighed = rarity(target, result.setup, result.steps, result.finding)
    return {
        "rarity": None if weighed is None else asdict(weighed),
        "schedules": found.schedules,
        "numbers": found.numbers,
        "replay": replay_file.to_document(replay),
        "story": msgspec.to_builtins(story),
    }


def _seen_again(target: Target, how: Recorded, choices: Choices, found: Cause) -> tuple[Result, Replayed, Story]:
    """With real threads a run may have to be tried more than once; if it is never seen again, it was seen once."""
    for _ in range(TELL_RUNS):
        result, recorded, story = _replay(target, how, choices)
        if result.finding is not None and result.finding.property == found.finding.property:
            return result, recorded, story
    return replace(result, finding=found.finding), recorded, story


def _replay(target: Target, how: Recorded, choices: Choices, counts: bool = False) -> tuple[Result, Replayed, Story]:
    again = Replayed(choices.taken, choices.counts if counts else None)
    tell = tell_real if how.mode == THREADS else tell_schedule
    result, story = tell(target, how.ranks, how.policy, again, how.steps_max)
    return result, again, story


def _do_replay(job: Mapping[str, Any], say: Say) -> None:
    replay = replay_file.from_document(job["replay"], "the job")
    with _loaded(job, replay.mode, say) as (target, _):
        result, again, story = _replay(target, replay.how, replay.recorded, counts=True)
        say(
            {
                "finding": None if result.finding is None else asdict(result.finding),
                "digest": result.digest,
                "diverged": again.differs_at(),
                "fingerprint": target.fingerprint(),
                "program": [str(step) for step in result.steps],
                "story": msgspec.to_builtins(story),
            }
        )


def _confirm(job: Mapping[str, Any], say: Say) -> None:
    """The programs of replays with real threads, each until the same property is violated or the time is up; for those
    whose turn does not come by then, nobody knows."""
    replays = [replay_file.from_document(replay, "the job") for replay in job["replays"]]
    with _loaded(job, THREADS, say) as (target, _):
        _warm_up(target, replays[0].how)
        until = time.monotonic() + job["seconds"]
        for left, replay in zip(range(len(replays), 0, -1), replays, strict=True):
            start, runs, found, build = time.monotonic(), 0, None, _heard(target, say).build
            if start > until:
                say({"runs": 0, "confirmed": None, "finding": None})
                continue
            share = (until - start) / left
            while runs < CONFIRM_RUNS and (time.monotonic() - start < share or not runs) and found is None:
                runs += 1
                program = program_of(replay)
                result = run_real(build, replay.ranks, replay.policy, program, replay.steps_max, target.judge)
                if result.finding and replay.found and shows_the_same(result.finding, replay.found):
                    found = result.finding
            say({"runs": runs, "confirmed": found is not None, "finding": None if found is None else asdict(found)})


def _warm_up(target: Target, how: Recorded) -> None:
    """Real ranks may be processes that take long to load. What goes wrong here, goes wrong again when it counts."""
    with suppress(Exception):
        adapter = built(target.build)
        adapter.reset(Setup(how.ranks, how.policy).config())
        adapter.close()


def _minimise(job: Mapping[str, Any], say: Say) -> None:
    replay = replay_file.from_document(job["replay"], "the job")
    with _loaded(job, replay.mode, say) as (target, _):
        result, again, _ = _replay(target, replay.how, replay.recorded)
        if result.finding is None:
            raise InputError("the run of this file shows nothing wrong now")
        options = SearchOptions(replay.ranks, (replay.policy,), mode=replay.mode, steps_max=replay.steps_max)
        found = Cause(result.finding, replay.policy, 0, again)
        heard = _heard(target, say)
        say({"found": _found(target, options, found, shrink(heard, options, found, job["shrink_seconds"]))})


def _heard(target: Target, say: Say) -> Target:
    """The same target; it says now and then how often it was built, so that nobody takes this process for dead."""
    built, said = 0, time.monotonic()

    def build() -> Any:
        nonlocal built, said
        built += 1
        if time.monotonic() - said > PROGRESS_S:
            said = time.monotonic()
            say({"runs": built})
        return target.build()

    return replace(target, build=build)


def _smoke(job: Mapping[str, Any], say: Say) -> None:
    with _loaded(job, job["mode"], say) as (target, _):
        for tried in smoke(target, job["mode"]):
            say(asdict(tried))


def _scenario(job: Mapping[str, Any], say: Say) -> None:
    """Play a scenario, and tell the schedule that shows it."""
    scenario = scenarios.from_document(job["scenario"])
    with _loaded(job, SIMULATE, say) as (target, running):
        played = scenarios.play(target, scenario, job["schedules"], running)
        told = None if played.choices is None else tell_script(target, scenario, Replayed(played.choices.taken))
        say(
            {
                "schedules": played.schedules,
                "number": played.number,
                "finding": None if played.found is None else asdict(played.found),
                "others": played.others,
                "story": None if told is None else msgspec.to_builtins(told),
            }
        )


def _find(job: Mapping[str, Any], say: Say) -> None:
    find_each(job, _Running(job["running"]), say)


JOBS: dict[str, Callable[[Mapping[str, Any], Say], None]] = {
    "search": _search,
    "replay": _do_replay,
    "confirm": _confirm,
    "minimise": _minimise,
    "smoke": _smoke,
    "scenario": _scenario,
    "scenario_causes": lambda job, say: causes_job(job, say, _loaded),
    "programs": lambda job, say: programs_job(job, say, _loaded),
    "find": _find,
    "compare": compare_job,
    "fetch": lambda job, say: fetch_job(job, say, _loaded),
    "store": store_job,
}

if __name__ == "__main__":
    raise SystemExit(main())
