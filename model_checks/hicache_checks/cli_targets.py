"""The command line: the commands about systems under test."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hicache_checks.cli_frame import JsonOption, app, run_command
from hicache_checks.reporting import Outcome, Screen

TARGET = (
    "reference, a variant (reference:revoke_queue), a mutant (reference+NAME), a published release (sglang==0.5.18, or"
    " sglang[unified]==0.5.18 for its other tree, or sglang[events]==0.5.18 to have it judged event by event), path:DIR"
    " of a checkout, or module:factory."
)
HELD_TARGET = f"{TARGET} TARGET@DESIGN: held to that design."
RELEASE_S = 12.0
"""For so long a release is searched, if nothing else is asked for."""
POLICIES = ("best_effort", "wait_complete", "timeout")

TargetArgument = Annotated[str, typer.Argument(metavar="TARGET", help=HELD_TARGET)]
WheelsOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Take the wheel of a release from here, and nothing from the network."),
]
StallOption = Annotated[
    float, typer.Option("--stall-seconds", min=1.0, help="How long a process of the target may be silent.")
]


class PolicyChoice(enum.StrEnum):
    """When a poll stops a prefetch that still runs, or every one of these in turn."""

    BEST_EFFORT = "best_effort"
    WAIT_COMPLETE = "wait_complete"
    TIMEOUT = "timeout"
    ALL = "all"


class Mode(enum.StrEnum):
    """How the target's threads run."""

    SIMULATE = "simulate"
    THREADS = "threads"


class StrategyChoice(enum.StrEnum):
    """How switches are chosen."""

    MIXED = "mixed"
    WALK = "walk"
    PCT = "pct"
    EXHAUSTIVE = "exhaustive"


def names_in(given: Sequence[str]) -> tuple[str, ...]:
    """The names in what is given several times, or with commas."""
    return tuple(name.strip() for words in given for name in words.split(",") if name.strip())


@app.command()
def conform(
    target: TargetArgument,
    mode: Annotated[
        Mode, typer.Option(help="simulate: every switch is chosen. threads: real ones, as they like.")
    ] = Mode.SIMULATE,
    ranks: Annotated[int, typer.Option(min=1, max=16, help="Ranks of the target.")] = 2,
    policy: Annotated[PolicyChoice, typer.Option(help="One, or all in turn.")] = PolicyChoice.ALL,
    schedules: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Schedules in all; 1000, or what --seconds allows, for a release 12. Of an exhaustive search: all.",
        ),
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=0.1, help="Search for so long at most.")] = None,
    strategy: Annotated[
        StrategyChoice,
        typer.Option(help="How switches are chosen; exhaustive: in all ways, in one short program of two requests."),
    ] = StrategyChoice.MIXED,
    preemptions: Annotated[
        int, typer.Option(min=0, help="Of an exhaustive search: switches away from who could go on, at most.")
    ] = 2,
    steps: Annotated[int, typer.Option(min=1, help="Steps of a program, at most; shorter ones are sooner run.")] = 24,
    seed: Annotated[int, typer.Option(help="Equal seeds, equal schedules.")] = 0,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="DESIGN",
            help="The design that it is held to; else the target's own, or the canonical one. As TARGET@DESIGN.",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; 1, and 2 for a release.", show_default=False)
    ] = None,
    confirm: Annotated[bool, typer.Option(help="Try what is found with real threads and real time.")] = True,
    baseline: Annotated[Path | None, typer.Option(metavar="FILE", help="Known failures, which do not fail.")] = None,
    findings: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a replay file and a pytest file for each finding.")
    ] = None,
    junit: Annotated[str | None, typer.Option(metavar="FILE", help="Write a JUnit file.")] = None,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write a report as one page.")] = None,
    wheels: WheelsOption = None,
    stall_seconds: StallOption = 60.0,
    memory_gib: Annotated[float, typer.Option(min=1.0, help="Memory of a process of the target.")] = 16.0,
    json: JsonOption = None,
) -> int:
    """Hold a system to the specification: many programs and schedules, each finding made small and kept."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import conform_command
        from hicache_checks.conformance.search import SearchOptions
        from hicache_checks.conformance.target import fetch
        from hicache_checks.targets.trees import is_release

        fetch(target, wheels, screen.progress.update)
        is_bounded = bool(schedules or seconds) or strategy is StrategyChoice.EXHAUSTIVE
        search = SearchOptions(
            ranks=ranks,
            policies=POLICIES if policy is PolicyChoice.ALL else (policy.value,),
            schedules=schedules if is_bounded or is_release(target) else 1000,
            seconds_max=seconds if is_bounded or not is_release(target) else RELEASE_S,
            mode=mode.value,
            strategy=strategy.value,
            preemptions_max=preemptions,
            seed=seed,
            steps_max=steps,
        )
        options = conform_command.ConformOptions(
            target=target,
            search=search,
            jobs=jobs or (2 if is_release(target) else 1),
            confirm=confirm,
            findings=findings,
            junit=junit,
            html=html,
            baseline=baseline,
            stall_seconds=stall_seconds,
            memory_gib=memory_gib,
            profile=profile,
        )
        return conform_command.run(options, screen)

    return run_command("conform", json, body)


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A replay file, as `hicheck conform` writes it.")],
    real: Annotated[bool, typer.Option("--real", help="Try its program with real threads and real time, too.")] = False,
    target: Annotated[
        str | None, typer.Option(metavar="TARGET", help="Another target than the one that the file is of.")
    ] = None,
    json: JsonOption = None,
) -> int:
    """Run a recorded run once more, exactly: is it the same, and is it still wrong?"""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import replay_command

        return replay_command.run(replay_command.ReplayOptions(file, target, real), screen)

    return run_command("replay", json, body)


@app.command()
def minimise(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A replay file that shows something wrong.")],
    seconds: Annotated[float, typer.Option(min=1.0, help="How long smaller runs are tried.")] = 60.0,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the smaller run goes; else FILE's name with .min.json.")
    ] = None,
    pytest: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write it as a test for pytest.")] = None,
    json: JsonOption = None,
) -> int:
    """Make a recorded run smaller that shows the same."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import minimise_command

        return minimise_command.run(minimise_command.MinimiseOptions(file, seconds, out, pytest), screen)

    return run_command("minimise", json, body)


@app.command(name="diff-targets")
def diff_targets(
    left: Annotated[str, typer.Argument(metavar="LEFT", help=TARGET)],
    right: Annotated[str, typer.Argument(metavar="RIGHT", help="Another one.")],
    assume: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[,NAME]", help="no_host_pressure, whole_ticks; may be given several times."),
    ] = None,
    programs: Annotated[int, typer.Option(min=1, help="So many programs, each run on both.")] = 1000,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Look for so long at most, before what differs is made small.")
    ] = 120.0,
    ranks: Annotated[
        int | None, typer.Option(min=1, max=16, help="Ranks of both; one, and now and then two, if not given.")
    ] = None,
    policy: Annotated[PolicyChoice, typer.Option(help="One, or all in turn.")] = PolicyChoice.ALL,
    seed: Annotated[int, typer.Option(help="Equal seeds, equal programs.")] = 0,
    json: JsonOption = None,
) -> int:
    """The same programs on two targets, and the shortest that ends differently on them."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import diff_targets_command
        from hicache_checks.conformance.differ import DiffOptions

        options = DiffOptions(
            left=left,
            right=right,
            assume=tuple(name for given in assume or () for name in given.split(",")),
            programs=programs,
            seconds_max=seconds,
            seed=seed,
            ranks=ranks,
            policies=DiffOptions.policies if policy is PolicyChoice.ALL else (policy.value,),
        )
        return diff_targets_command.run(options, screen)

    return run_command("diff-targets", json, body)


@app.command()
def trace(
    files: Annotated[list[str], typer.Argument(metavar="LOG", help="Traces of one run, in the format of EVENTS.md.")],
    profile: Annotated[str, typer.Option(metavar="DESIGN", help="The design to hold it to.")] = "decide_at_drain",
    json: JsonOption = None,
) -> int:
    """Hold a recorded log to the specification, line by line."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import trace_command

        return trace_command.run(trace_command.TraceOptions(files, profile), screen)

    return run_command("trace", json, body)


@app.command()
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of your system, as a Python module.")],
    directory: Annotated[Path, typer.Option(metavar="DIR", help="Where the two files go.")] = Path(),
    json: JsonOption = None,
) -> int:
    """Write a commented adapter to fill in, and a test that uses it; nothing is overwritten."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import init_command

        return init_command.run(init_command.InitOptions(name, directory), screen)

    return run_command("init", json, body)


@app.command()
def smoke(target: TargetArgument, stall_seconds: StallOption = 60.0, json: JsonOption = None) -> int:
    """Is an adapter usable? Step by step, with a reason for each."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import smoke_command

        return smoke_command.run(smoke_command.SmokeOptions(target, stall_seconds), screen)

    return run_command("smoke", json, body)


@app.command()
def mutants(
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="This mutant; may be repeated.")
    ] = None,
    stages: Annotated[
        str, typer.Option(help="Where to look, separated by commas.")
    ] = "exploration,liveness,simulation",
    seconds: Annotated[float, typer.Option(min=1.0, help="For each mutant in each stage.")] = 60.0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; one a core, if not given.")] = None,
    json: JsonOption = None,
) -> int:
    """Every faulty variant of the specification and of the reference, and what catches it."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import mutants_command

        options = mutants_command.MutantsOptions(tuple(only or ()), tuple(stages.split(",")), seconds, jobs)
        return mutants_command.run(options, screen)

    return run_command("mutants", json, body)
