"""The command line: the commands about the specification and the reference; what one does lives in its own module."""

from __future__ import annotations

import enum
from importlib import import_module
from typing import Annotated

import typer

from hicache_checks import __version__, cli_bench, cli_releases, cli_runs, cli_scenarios, cli_stores, cli_targets
from hicache_checks.cli_frame import JsonOption, app, main, run_command
from hicache_checks.cli_runs import Policy
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict


class Diagram(enum.StrEnum):
    """Text formats of the picture of the life cycle."""

    MERMAID = "mermaid"
    DOT = "dot"


class Bounds(enum.StrEnum):
    """Named sets of configurations to explore."""

    TINY = "tiny"
    SMALL = "small"
    MEDIUM = "medium"
    COPYING = "copying"
    STORING = "copying+storing"
    CONTROL = "control"
    RESETTING = "copying+control+resetting"
    DETACHING = "copying+storing+control+resetting+detaching"
    POOLS = "pools"
    TURNOVER = "control+pools+turnover"
    CARRYING = "copying+pools+carrying"
    DEPOSITING = "copying+storing+pools+carrying+depositing"
    GROUPS = "groups"


class Engine(enum.StrEnum):
    """What explores."""

    AUTO = "auto"
    ARRAY = "array"
    NATIVE = "native"
    OBJECT = "object"


class Device(enum.StrEnum):
    """Where the array engine's columns are."""

    NUMPY = "numpy"
    CPU = "cpu"
    CUDA = "cuda"


_OVERRIDE = "Instead of the bounds' own; alone, of a configuration `custom`."


@app.command()
def spec(
    diagram: Annotated[
        Diagram | None, typer.Option(help="Text format of the life cycle's picture; mermaid by default.")
    ] = None,
    diff: Annotated[
        tuple[str, str] | None, typer.Option(metavar="LEFT RIGHT", help="What differs between two designs.")
    ] = None,
    json: JsonOption = None,
) -> int:
    """Print the life cycle of an operation as a diagram, or what differs between two designs."""

    def body(screen: Screen) -> Outcome:
        if diff is not None:
            from hicache_checks import spec_diff_command

            if diagram is not None:
                raise InputError("give --diagram or --diff, one of them")
            return spec_diff_command.run(*diff, screen)
        shown = diagram or Diagram.MERMAID
        lifecycle = import_module("hicache_spec.lifecycle")
        text: str = lifecycle.mermaid() if shown is Diagram.MERMAID else lifecycle.dot()
        screen.say(text.rstrip("\n"))
        return Outcome(Verdict.PASS, {"diagram": shown.value, "text": text})

    return run_command("spec", json, body)


@app.command()
def explore(
    design: Annotated[str, typer.Option(help="The design to explore.")] = "decide_at_drain",
    bounds: Annotated[
        Bounds | None, typer.Option(help="A named set of configurations; tiny, if no size is given.")
    ] = None,
    requests: Annotated[int | None, typer.Option(min=1, help=_OVERRIDE)] = None,
    ranks: Annotated[int | None, typer.Option(min=1, help=_OVERRIDE)] = None,
    host_pages: Annotated[int | None, typer.Option(min=1, help=_OVERRIDE)] = None,
    pages: Annotated[int | None, typer.Option(min=1, help="Pages a request. " + _OVERRIDE)] = None,
    attempts: Annotated[int | None, typer.Option(min=1, help="Attempts of a request id. " + _OVERRIDE)] = None,
    threshold_pages: Annotated[int | None, typer.Option(min=1, help=_OVERRIDE)] = None,
    policy: Annotated[Policy | None, typer.Option(help=_OVERRIDE)] = None,
    churn: Annotated[bool, typer.Option("--churn", help="Storage changes and fails.")] = False,
    stops: Annotated[bool, typer.Option("--stops", help="Callers stop requests.")] = False,
    engine: Annotated[
        Engine,
        typer.Option(help="object: plain Python, the reference. native: C. array: NumPy or torch. auto: C, or arrays."),
    ] = Engine.AUTO,
    threads: Annotated[int | None, typer.Option(min=1, max=16, help="Threads of the compiled engines.")] = None,
    device: Annotated[
        Device, typer.Option(help="Where the array engine computes; cpu and cuda are torch's.")
    ] = Device.NUMPY,
    symmetry: Annotated[
        bool, typer.Option("--symmetry", help="One state for all that differ by names of requests and ranks; checked.")
    ] = False,
    liveness: Annotated[
        bool, typer.Option("--liveness", help="Decide the liveness properties too; a violation is shown as a lasso.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="PROPERTY", help="Just this property and no outcomes; may be repeated."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Configurations at a time; all cores are used.")] = None,
    max_states: Annotated[
        int | None, typer.Option(min=1, help="Cut each configuration, as unknown, at about so many states.")
    ] = None,
    max_memory: Annotated[
        int | None, typer.Option(min=1, metavar="MIB", help="Cut it when states and tables take more.")
    ] = None,
    json: JsonOption = None,
) -> int:
    """Explore every reachable state of a design within bounds."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import explore_command

        options = explore_command.ExploreOptions(
            design=design,
            bounds=None if bounds is None else bounds.value,
            requests=requests,
            ranks=ranks,
            host_pages=host_pages,
            pages=pages,
            attempts=attempts,
            threshold_pages=threshold_pages,
            policy=None if policy is None else policy.value,
            churn=churn,
            stops=stops,
            jobs=jobs,
            max_states=max_states,
            max_memory_mib=max_memory,
            engine=engine.value,
            threads=threads,
            device=device.value,
            symmetry=symmetry,
            liveness=liveness,
            only=tuple(only or ()),
        )
        return explore_command.run(options, screen)

    return run_command("explore", json, body)


class Observe(enum.StrEnum):
    """What an observer of two designs sees."""

    OUTCOMES = "outcomes"
    TICKS = "ticks"
    EVENTS = "events"


class Polls(enum.StrEnum):
    """Are polls, and time, inputs that an observer sees?"""

    VISIBLE = "visible"
    HIDDEN = "hidden"


@app.command()
def refine(
    left: Annotated[str, typer.Argument(metavar="LEFT", help="The design whose behaviour is to be explained.")],
    right: Annotated[str, typer.Argument(metavar="RIGHT", help="The design that is to explain it.")],
    observe: Annotated[Observe, typer.Option(help="What is seen of a run.")] = Observe.OUTCOMES,
    assume: Annotated[
        list[str] | None, typer.Option(metavar="NAME[,NAME]", help="Assumptions; may be given several times.")
    ] = None,
    bounds: Annotated[str, typer.Option(help="The claim's configurations, or one of them by its name.")] = "claim",
    polls: Annotated[
        Polls | None, typer.Option(help="By default visible where the moment of a poll decides: not for wait_complete.")
    ] = None,
    max_states: Annotated[
        int | None, typer.Option(min=1, help="Cut, as unknown, at so many states of a design.")
    ] = None,
    max_pairs: Annotated[
        int | None, typer.Option(min=1, help="Cut, as unknown, at so many pairs of a state and a set of states.")
    ] = None,
    json: JsonOption = None,
) -> int:
    """Is every observable behaviour of LEFT one of RIGHT's?"""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import refine_command

        options = refine_command.RefineOptions(
            left=left,
            right=right,
            observe=observe.value,
            assume=tuple(name for given in assume or () for name in given.split(",")),
            bounds=bounds,
            polls=None if polls is None else polls.value,
            max_states=max_states,
            max_pairs=max_pairs,
        )
        return refine_command.run(options, screen)

    return run_command("refine", json, body)


@app.command()
def export(
    tla: Annotated[bool, typer.Option("--tla", help="A TLA+ module and its configuration file, for TLC.")] = False,
    promela: Annotated[bool, typer.Option("--promela", help="A Promela model, for Spin.")] = False,
    design: Annotated[str, typer.Option(help="The design to export.")] = "decide_at_drain",
    bounds: Annotated[
        Bounds | None,
        typer.Option(help="A named set of configurations, one model each; tiny, if no size and no name is given."),
    ] = None,
    configuration: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this configuration of the named bounds.")
    ] = None,
    requests: Annotated[int | None, typer.Option(min=1, help=_OVERRIDE)] = None,
    ranks: Annotated[int | None, typer.Option(min=1, help=_OVERRIDE)] = None,
    host_pages: Annotated[int | None, typer.Option(min=1, help=_OVERRIDE)] = None,
    pages: Annotated[int | None, typer.Option(min=1, help="Pages a request. " + _OVERRIDE)] = None,
    attempts: Annotated[int | None, typer.Option(min=1, help="Attempts of a request id. " + _OVERRIDE)] = None,
    threshold_pages: Annotated[int | None, typer.Option(min=1, help=_OVERRIDE)] = None,
    policy: Annotated[Policy | None, typer.Option(help=_OVERRIDE)] = None,
    churn: Annotated[bool, typer.Option("--churn", help="Storage changes and fails.")] = False,
    stops: Annotated[bool, typer.Option("--stops", help="Callers stop requests.")] = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE|DIR", help="Where to; one model may go to stdout.")
    ] = None,
    json: JsonOption = None,
) -> int:
    """Write a design down in TLA+ or Promela, one model a configuration."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import explore_command, export_command

        what = explore_command.ExploreOptions(
            design=design,
            bounds=None if bounds is None else bounds.value,
            requests=requests,
            ranks=ranks,
            host_pages=host_pages,
            pages=pages,
            attempts=attempts,
            threshold_pages=threshold_pages,
            policy=None if policy is None else policy.value,
            churn=churn,
            stops=stops,
        )
        languages = tuple(name for name, wanted in (("tla", tla), ("promela", promela)) if wanted)
        return export_command.run(export_command.ExportOptions(languages, what, configuration, output), screen)

    return run_command("export", json, body)


@app.command()
def verify(
    workload: Annotated[str | None, typer.Option(metavar="FILE", help="A request trace; else a synthetic one.")] = None,
    target: Annotated[
        str | None, typer.Option(metavar="TARGET", help="Search this one, too, for 20 s: sglang==0.5.18, say.")
    ] = None,
    json: JsonOption = None,
) -> int:
    """The main job: specification, implementation and workload, one summary."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import verify_command

        return verify_command.run(verify_command.VerifyOptions(workload, target), screen)

    return run_command("verify", json, body)


@app.command()
def version(json: JsonOption = None) -> int:
    """Print the version."""

    def body(screen: Screen) -> Outcome:
        screen.say(f"hicheck {__version__}")
        return Outcome(Verdict.PASS)

    return run_command("version", json, body)


__all__ = ["app", "cli_bench", "cli_releases", "cli_runs", "cli_scenarios", "cli_stores", "cli_targets", "main"]

if __name__ == "__main__":
    main()
