"""What a process said before it ended, and where it was, read from what it and the interpreter wrote."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

WORDS_MAX = 300
FATAL = "Fatal Python error: "
THREAD = re.compile(r"^(Current thread|Thread|Stack) .*\(most recent call first\):")
FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')


@dataclass(frozen=True)
class LastWords:
    """`words`: its last line, or what the interpreter said of its end. `place`: the function that it was in."""

    words: str = ""
    place: str = ""


def last_words(text: str) -> LastWords:
    """Of all that a process wrote."""
    lines = text.strip().splitlines()
    threads = [place for place, line in enumerate(lines) if THREAD.match(line)]
    if not threads:
        return LastWords(lines[-1][:WORDS_MAX] if lines else "")
    said = [line for line in lines[: threads[0]] if line.strip()]
    words = said[-1].removeprefix(FATAL)[:WORDS_MAX] if said else ""
    threads.sort(key=lambda place: not lines[place].startswith("Current"))
    return LastWords(words, _place([frame for place in threads for frame in _frames(lines[place + 1 :])]))


def _frames(lines: Sequence[str]) -> list[re.Match[str]]:
    """Those of one thread, from the innermost on."""
    frames = []
    for line in lines:
        frame = FRAME.match(line)
        if frame is None:
            break
        frames.append(frame)
    return frames


def _place(frames: Sequence[re.Match[str]]) -> str:
    """The first that is neither the standard library's nor ours."""
    for frame in frames:
        file, line, function = frame.groups()
        if not _is_known(file):
            return f"{function} ({Path(file).name}:{line})"
    return ""


def _is_known(file: str) -> bool:
    path = Path(file)
    is_library = Path(sysconfig.get_path("stdlib")) in path.parents and "site-packages" not in path.parts
    return is_library or "hicache_checks" in path.parts or file.startswith("<")
