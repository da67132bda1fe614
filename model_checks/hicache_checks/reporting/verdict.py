"""Verdicts, their exit codes, and the JSON document that every command writes."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hicache_checks import __version__

STDOUT = "-"


class InputError(Exception):
    """What the user gave cannot be used. The message is the one line that the user reads; the exit code is 2."""


class Verdict(enum.Enum):
    """The answer of a command. A budget that runs out is `UNKNOWN`, never `PASS`."""

    PASS = "pass"
    FAIL = "fail"
    ERROR = "error"
    UNKNOWN = "unknown"

    @property
    def exit_code(self) -> int:
        """The exit status of the process: 0 pass, 1 fail, 2 error, 3 unknown."""
        return _EXIT_CODES[self]

    @classmethod
    def worst(cls, verdicts: list[Verdict]) -> Verdict:
        """The verdict of a whole from the verdicts of its parts: error, then fail, then unknown, then pass.

        No parts at all is an error: nothing was checked.
        """
        for verdict in (cls.ERROR, cls.FAIL, cls.UNKNOWN, cls.PASS):
            if verdict in verdicts:
                return verdict
        return cls.ERROR


_EXIT_CODES = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.ERROR: 2, Verdict.UNKNOWN: 3}


@dataclass(frozen=True)
class Outcome:
    """What a command's body hands back: its verdict and the keys of its JSON document."""

    verdict: Verdict
    keys: Mapping[str, object] = field(default_factory=dict)


def envelope(command: str, outcome: Outcome, seconds: float) -> dict[str, object]:
    """The JSON document of one run: `command, version, verdict, seconds`, then the command's own keys.

    A body that measured its own `seconds` keeps them; no other key of the envelope may be overwritten.
    """
    document: dict[str, object] = {
        "command": command,
        "version": __version__,
        "verdict": outcome.verdict.value,
        "seconds": round(seconds, 3),
    }
    taken = {"command", "version"} & outcome.keys.keys()
    if taken:
        raise ValueError(f"the keys {sorted(taken)} belong to the envelope")
    if outcome.keys.get("verdict", outcome.verdict.value) != outcome.verdict.value:
        raise ValueError("the body's verdict differs from the outcome's")
    return document | dict(outcome.keys)


def check_json_target(target: str | None) -> None:
    """Refuse a `--json` target that cannot be written, before the work is done and not after it.

    Raises InputError.
    """
    if target != STDOUT:
        check_file(target, "--json")


def check_file(target: str | None, option: str) -> None:
    """Refuse a file that cannot be written. Raises InputError, which names the option."""
    if target is None:
        return
    path = Path(target)
    if path.is_dir():
        raise InputError(f"{option} {target}: is a directory")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{option} {target}: no such directory: {path.parent}")


def write_json(document: Mapping[str, object], target: str | None) -> None:
    """Write the document to a file, to stdout for `-`, or nowhere for None. Raises InputError when it cannot."""
    if target is None:
        return
    text = json.dumps(document, indent=2) + "\n"
    if target != STDOUT:
        write_file(text, target, "--json")
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"--json {target}: {error.strerror}") from error


def write_file(text: str, target: str, option: str) -> None:
    """Write a file. Raises InputError, which names the option, when it cannot."""
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{option} {target}: {error.strerror}") from error
