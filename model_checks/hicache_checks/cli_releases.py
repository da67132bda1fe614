"""The command line: the commands about many releases."""

from __future__ import annotations

from typing import Annotated

import typer

from hicache_checks.cli_frame import JsonOption, app, run_command
from hicache_checks.cli_targets import POLICIES, PolicyChoice, WheelsOption, names_in
from hicache_checks.reporting import Outcome, Screen

SECONDS_EACH = 8.0


@app.command()
def matrix(
    targets: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[,NAME]",
            help="In their order, the oldest first; may be given several times. If not given, the published releases.",
        ),
    ] = None,
    ranks: Annotated[int, typer.Option(min=1, max=16, help="Ranks of the search.")] = 2,
    policy: Annotated[PolicyChoice, typer.Option(help="One, or all in turn.")] = PolicyChoice.ALL,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="Search each for so long at most; 8, if --schedules are not given.", show_default=False
        ),
    ] = None,
    schedules: Annotated[
        int | None, typer.Option(min=1, help="Schedules of each; as many as there is time for, if not given.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Equal seeds, equal schedules.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Targets at a time; one a core, if not given.")] = None,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write the report as one page.")] = None,
    wheels: WheelsOption = None,
    json: JsonOption = None,
) -> int:
    """Releases and properties, and from which release to which each finding was seen."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import matrix_command
        from hicache_checks.conformance.search import SearchOptions

        search = SearchOptions(
            ranks=ranks,
            policies=POLICIES if policy is PolicyChoice.ALL else (policy.value,),
            schedules=schedules,
            seconds_max=SECONDS_EACH if seconds is None and schedules is None else seconds,
            seed=seed,
        )
        chosen = matrix_command.RELEASES if targets is None else names_in(targets)
        options = matrix_command.MatrixOptions(chosen, search, jobs, wheels, html)
        return matrix_command.run(options, screen)

    return run_command("matrix", json, body)
