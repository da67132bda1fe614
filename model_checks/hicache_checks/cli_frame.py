"""What every command of the command line shares: the application, `--json`, errors in one line, and exit codes."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, check_json_target, envelope, write_json

INTERRUPTED = 130
TRACEBACK_VARIABLE = "HICHECK_TRACEBACK"

app = typer.Typer(
    name="hicheck",
    help="Check the prefetch pipeline of a hierarchical KV cache against its specification.",
    epilog="Exit codes: 0 pass, 1 fail, 2 error, 3 unknown (a budget ran out).",
    add_completion=False,
    rich_markup_mode=None,
)

JsonOption = Annotated[
    str | None, typer.Option("--json", metavar="FILE|-", help="Also write the result as JSON; - is stdout.")
]


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script: runs one command and exits with its code, never with a traceback."""
    try:
        code = typer.main.get_command(app).main(arguments, prog_name="hicheck", standalone_mode=False)
    except TyperException as error:
        # Usage errors arrive here, before any command's body has run.
        context = getattr(error, "ctx", None)
        where = "hicheck" if context is None else context.command_path
        text = " ".join(error.format_message().split()).replace("Value error, ", "")
        sys.stderr.write(f"{where}: {text.rstrip('.')} (see {where} --help)\n")
        code = Verdict.ERROR.exit_code
    except BrokenPipeError:
        # The reader of our output went away (`| head`): say nothing, and keep the interpreter's exit from flushing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = Verdict.ERROR.exit_code
    sys.exit(code)


def run_command(command: str, json_target: str | None, body: Callable[[Screen], Outcome]) -> int:
    """Run a command's body, time it, write its JSON document, and turn what went wrong into one line and exit 2."""
    started_s = time.monotonic()
    try:
        check_json_target(json_target)
        outcome = _outcome(command, body, Screen.for_target(json_target))
        write_json(envelope(command, outcome, time.monotonic() - started_s), json_target)
    except InputError as error:
        return _complain(command, str(error))
    except KeyboardInterrupt:
        _complain(command, "interrupted")
        return INTERRUPTED
    return outcome.verdict.exit_code


def _outcome(command: str, body: Callable[[Screen], Outcome], screen: Screen) -> Outcome:
    """The body's outcome; an error, with its line on stderr and in the document, when the body could not finish."""
    try:
        with screen.progress:
            return body(screen)
    except BrokenPipeError:
        raise
    except InputError as error:
        text = " ".join(str(error).split())
        _complain(command, text)
    except Exception as error:
        text = _describe(error)
        if os.environ.get(TRACEBACK_VARIABLE):
            traceback.print_exception(error)
        _complain(command, f"{text}; {TRACEBACK_VARIABLE}=1 shows the traceback")
    return Outcome(Verdict.ERROR, {"error": text})


def _describe(error: Exception) -> str:
    """One line that says what broke inside the harness, and where."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}::{frames[-1].name})" if frames else ""
    return " ".join(f"internal error: {type(error).__name__}: {error}{place}".split())


def _complain(command: str, text: str) -> int:
    line = " ".join(text.split())
    sys.stderr.write(f"hicheck {command}: {line}\n")
    return Verdict.ERROR.exit_code
