"""Where a command writes for people."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from rich.console import Console

from hicache_checks.reporting.progress import Progress
from hicache_checks.reporting.verdict import STDOUT


@dataclass(frozen=True)
class Screen:
    """The console for results and the progress line. With `--json -` both go to stderr, so stdout is JSON alone."""

    console: Console
    progress: Progress

    @classmethod
    def for_target(cls, json_target: str | None) -> Screen:
        """The screen that goes with a `--json` target."""
        stream = sys.stderr if json_target == STDOUT else sys.stdout
        return cls(Console(file=stream, highlight=False, emoji=False, soft_wrap=True), Progress(sys.stderr))

    def say(self, text: str) -> None:
        """Print one line for people; markup in it is not interpreted."""
        self.progress.clear()
        self.console.print(text, markup=False)
