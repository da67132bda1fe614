"""`hicheck conform`, run by a test: the exit code, what a user reads, and the JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from hicache_checks import conform_command
from hicache_checks.conform_command import ConformOptions
from hicache_checks.conformance.search import SearchOptions
from hicache_checks.reporting import InputError, Outcome, Progress, Screen


@dataclass
class Ran:
    """What came of a command. Of an error there is one line, and no keys."""

    code: int
    text: str
    keys: dict[str, Any] = field(default_factory=dict)


def ran(command: Callable[[Screen], Outcome]) -> Ran:
    """Run the body of a command as the command line does."""
    text = io.StringIO()
    screen = Screen(Console(file=text, width=200, emoji=False, highlight=False), Progress(io.StringIO()))
    try:
        outcome = command(screen)
    except InputError as error:
        return Ran(2, str(error))
    return Ran(outcome.verdict.exit_code, text.getvalue(), json.loads(json.dumps(dict(outcome.keys))))


def conform(target: str, search: SearchOptions, **options: Any) -> Ran:
    """Search a target, without trying findings with real threads."""
    chosen = ConformOptions(target, search, confirm=False, **options)
    return ran(lambda screen: conform_command.run(chosen, screen))
