"""The command line: `hicheck bench WHAT`, what can be measured."""

from __future__ import annotations

from typing import Annotated

import typer

from hicache_checks.cli_frame import JsonOption, app, run_command
from hicache_checks.cli_targets import WheelsOption, names_in
from hicache_checks.reporting import Outcome, Screen

bench = typer.Typer(help="Measure speed and memory, side by side with other ways.", rich_markup_mode=None)
app.add_typer(bench, name="bench")


@bench.command()
def engine(
    states: Annotated[int, typer.Option(min=1, help="About so many distinct states.")] = 10_000_000,
    configuration: Annotated[
        str | None, typer.Option(metavar="NAME", help="A configuration by name, instead of --states.")
    ] = None,
    seconds_max: Annotated[float, typer.Option(min=1.0, help="Stop a tool after so many seconds.")] = 120.0,
    tool: Annotated[
        list[str] | None, typer.Option("--tool", metavar="WORD", help="Only rows named so; may be repeated.")
    ] = None,
    small: Annotated[bool, typer.Option(help="The table of the small protocol, too.")] = True,
    json: JsonOption = None,
) -> int:
    """Our engines beside Spin, TLC and minicheck."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import bench_command

        options = bench_command.BenchOptions(states, configuration, seconds_max, tuple(tool or ()), small)
        return bench_command.run(options, screen)

    return run_command("bench engine", json, body)


@bench.command()
def simulation(
    seconds: Annotated[float, typer.Option(min=0.1, help="For each row.")] = 10.0, json: JsonOption = None
) -> int:
    """Schedules a second of the reference, beside the same work with real threads."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import bench_simulation

        return bench_simulation.run(bench_simulation.SimulationOptions(seconds), screen)

    return run_command("bench simulation", json, body)


@bench.command()
def targets(
    named: Annotated[
        list[str] | None,
        typer.Option(
            "--targets",
            metavar="NAME[,NAME]",
            help="May be given several times. If not given, sglang==0.5.18 and sglang==0.5.23, one of either tree.",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="For each row.")] = 10.0,
    wheels: WheelsOption = None,
    json: JsonOption = None,
) -> int:
    """Schedules a second of published releases on one core, with and without the judge."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import bench_targets

        chosen = bench_targets.TARGETS if named is None else names_in(named)
        return bench_targets.run(bench_targets.TargetsOptions(chosen, seconds, wheels), screen)

    return run_command("bench targets", json, body)


@bench.command()
def finders(
    mutant: Annotated[
        list[str] | None, typer.Option("--mutant", metavar="NAME", help="Instead of the ten; may be repeated.")
    ] = None,
    finder: Annotated[
        list[str] | None, typer.Option("--finder", metavar="NAME", help="Only this one; may be repeated.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="For each mutant and finder.")] = 60.0,
    json: JsonOption = None,
) -> int:
    """How soon faulty implementations are found out, by real threads and by kinds of simulation."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import bench_finders

        chosen = bench_finders.FindersOptions(
            tuple(mutant or bench_finders.MUTANTS), seconds, tuple(finder or bench_finders.COMPARED)
        )
        return bench_finders.run(chosen, screen)

    return run_command("bench finders", json, body)


@bench.command()
def tick(
    rounds: Annotated[int, typer.Option(min=1, help="In so many rounds the variants take turns.")] = 10,
    operations: Annotated[int, typer.Option(min=1, help="So many operations are drained by a busy tick.")] = 8,
    json: JsonOption = None,
) -> int:
    """What a tick of the scheduler costs, with and without a queue for revokes."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import bench_tick

        return bench_tick.run(bench_tick.TickOptions(rounds, operations), screen)

    return run_command("bench tick", json, body)


@bench.command()
def pipeline(
    part: Annotated[
        list[str] | None,
        typer.Option("--part", metavar="NAME", help="fetch, steps, scheduler or trace; may be repeated. Else all."),
    ] = None,
    store: Annotated[
        list[str] | None,
        typer.Option("--store", metavar="NAME", help="memory, lmdb, file, redis or mooncake; may be repeated."),
    ] = None,
    page_kib: Annotated[
        list[int] | None, typer.Option("--page-kib", min=1, help="Pages of this size, instead of 64, 256 and 2,048.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="In so many rounds all take turns.")] = 9,
    round_mib: Annotated[int, typer.Option(min=1, help="So much comes to the host by each round.")] = 256,
    target: Annotated[
        str, typer.Option(metavar="TARGET", help="The release to compare with, or none.")
    ] = "sglang==0.5.18",
    trace: Annotated[
        str | None, typer.Option(metavar="FILE", help="A trace in Mooncake's format, for the part of that name.")
    ] = None,
    requests: Annotated[int | None, typer.Option(min=1, help="So many of the trace; if not given, all.")] = None,
    wheels: WheelsOption = None,
    json: JsonOption = None,
) -> int:
    """From storage to the host beside bare copies and a release; the scheduler's calls; a whole trace."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import bench_pipeline

        options = bench_pipeline.PipelineOptions(
            parts=names_in(part or bench_pipeline.PARTS),
            stores=names_in(store or bench_pipeline.STORES),
            page_kib=tuple(page_kib or bench_pipeline.PAGE_KIB),
            rounds=rounds,
            round_mib=round_mib,
            target=target,
            wheels=wheels,
            trace=trace,
            requests=requests,
        )
        return bench_pipeline.run(options, screen)

    return run_command("bench pipeline", json, body)
