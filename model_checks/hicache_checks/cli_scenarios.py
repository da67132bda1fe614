"""The command line: public bugs as short stories."""

from __future__ import annotations

from typing import Annotated

import typer

from hicache_checks.cli_frame import JsonOption, app, run_command
from hicache_checks.cli_targets import HELD_TARGET
from hicache_checks.reporting import InputError, Outcome, Screen


@app.command()
def scenario(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Of a scenario, or a file FILE.toml; all, if not given.")
    ] = None,
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help=f"Else each that the scenario names. {HELD_TARGET}")
    ] = None,
    schedules: Annotated[int | None, typer.Option(min=1, help="So many; else as many as the scenario says.")] = None,
    search: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0.1, help="Search the releases for so long each: is what the scenario tells found?"
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Releases searched at a time; one a core.")] = None,
    seed: Annotated[int, typer.Option(help="Of the search.")] = 0,
    json: JsonOption = None,
) -> int:
    """Play the story of a public bug: is it there? Without a target, on releases that have it and on repaired ones."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import scenario_command, scenario_search

        if search is not None:
            if target is not None or schedules is not None:
                raise InputError("--search is for the releases that the scenarios name, with as many schedules as fit")
            return scenario_search.run(scenario_search.SearchedOptions(name, search, jobs, seed), screen)
        return scenario_command.run(scenario_command.ScenarioOptions(name, target, schedules), screen)

    return run_command("scenario", json, body)
