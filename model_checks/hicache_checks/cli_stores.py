"""The command line: `hicheck store`, for stores of pages."""

from __future__ import annotations

from typing import Annotated

import typer

from hicache_checks.cli_frame import JsonOption, app, run_command
from hicache_checks.reporting import Outcome, Screen


@app.command()
def store(
    target: Annotated[
        str,
        typer.Argument(metavar="STORE", help="memory, file, lmdb, redis, mooncake, dynamic, or MODULE:CLASS."),
    ],
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="CHECK", help="Just this check; may be repeated.")
    ] = None,
    stall_seconds: Annotated[float, typer.Option(min=1.0, help="How long one check may take.")] = 120.0,
    json: JsonOption = None,
) -> int:
    """Does a store of pages do what every store must, with the faults that it can have?"""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import store_command

        return store_command.run(store_command.StoreOptions(target, tuple(only or ()), stall_seconds), screen)

    return run_command("store", json, body)
