"""A recorded run as a test of its own: a file for pytest that fails while the target does what it did then."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from pprint import pformat
from typing import Any

from hicache_checks.conformance.findings import cause
from hicache_checks.conformance.replay_file import Replay, from_document, to_document
from hicache_checks.conformance.replaying import Again, replay_again, sameness
from hicache_checks.reporting import InputError, Verdict, printable, story_lines

WIDTH = 100


class NotJudged(Exception):
    """The run could not be judged: the message says why."""


def assert_conforms(document: Mapping[str, Any]) -> None:
    """Run a recorded run again, in a process of its own, on its target.

    AssertionError, which tells the run: it shows something wrong. NotJudged: it needs what has no stand-in, or the
    target cannot be used. A run that may have gone another way than the recorded one, and shows nothing, passes with a
    warning.
    """
    __tracebackhide__ = True
    replay = from_document(document, "the recorded run")
    try:
        again = replay_again(replay.target, replay)
    except InputError as error:
        raise NotJudged(str(error)) from None
    if again.verdict is Verdict.FAIL:
        raise AssertionError(_told(again))
    if again.finding is not None:
        raise NotJudged(_told(again))
    if again.verdict is not Verdict.PASS:
        warnings.warn(f"not the run that was recorded: {sameness(again, replay)}", stacklevel=2)


def write_pytest(replay: Replay, path: Path) -> None:
    """Write the file, its directory too. Raises InputError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pytest_text(replay), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def pytest_text(replay: Replay) -> str:
    """The program as comments, the choices as data, and one test."""
    finding = replay.found
    what = "what is said of this run" if finding is None else f"{finding.property}: {finding.message}"
    name = "a_recorded_run" if finding is None else f"{_name_of(finding.property)}_{cause(finding)}"
    comments = [what, f"Found on {replay.target}: {replay.system}", "", *replay.program]
    return "\n".join(
        [
            '"""A run that hicheck found and made small: the test fails as long as the run shows something wrong."""',
            "",
            "from __future__ import annotations",
            "",
            "from hicache_checks.conformance.regression import assert_conforms",
            "",
            *(f"# {printable(line)}".rstrip() for line in comments),
            "# fmt: off",
            f"RUN = {pformat(to_document(replay), width=WIDTH, compact=True, sort_dicts=False)}",
            "# fmt: on",
            "",
            "",
            f"def test_{name}() -> None:",
            "    assert_conforms(RUN)",
            "",
        ]
    )


def _told(again: Again) -> str:
    assert again.finding is not None
    lines = [] if again.story is None else story_lines(again.story)
    return "\n".join([printable(f"{again.finding.property}: {again.finding.message}"), *lines])


def _name_of(property_: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", property_.lower()).strip("_") or "finding"
