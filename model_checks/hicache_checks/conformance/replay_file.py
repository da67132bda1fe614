"""A run that can be had again: everything that was chosen in it, as JSON. Files come from outside, so they are checked.

`choices` and `counts` are the whole sequence, `switches` the places in it of those that said who runs next; `system`,
`program` and `finding` say for people what happened; `fingerprint` is the target's at that time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from hicache_checks.conformance.findings import Finding
from hicache_checks.conformance.minimise import Parts, parts_of
from hicache_checks.conformance.schedule import Result
from hicache_checks.conformance.search import MODES, SIMULATE
from hicache_checks.conformance.story import system_of
from hicache_checks.conformance.target import Target
from hicache_checks.reporting import InputError
from hicache_checks.simulation.choices import Choices
from hicache_spec.bounds import POLICY

FORMAT = "hicheck-replay"
VERSION = 1
RANKS_MAX = 16
BYTES_MAX = 1 << 26


class Replay(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One recorded run."""

    format: str
    version: int
    target: str
    fingerprint: str
    ranks: int
    policy: str
    steps_max: int
    system: str
    choices: list[int]
    counts: list[int]
    switches: list[int]
    digest: str
    program: list[str]
    finding: dict[str, str] | None
    mode: str = SIMULATE

    @property
    def found(self) -> Finding | None:
        """What was wrong."""
        return None if self.finding is None else Finding(**self.finding)

    @property
    def recorded(self) -> Choices:
        """What was chosen."""
        return Choices(self.choices, self.counts, self.switches)

    @property
    def how(self) -> Recorded:
        """What a run of it needs besides."""
        return Recorded(self.ranks, self.policy, self.steps_max, self.mode)


@dataclass(frozen=True)
class Recorded:
    """How a run was made: what a replay needs besides its choices."""

    ranks: int
    policy: str
    steps_max: int
    mode: str = SIMULATE


def record(target: Target, how: Recorded, choices: Choices, result: Result) -> Replay:
    """The file's content for a run that just ended."""
    return Replay(
        FORMAT,
        VERSION,
        target.name,
        target.fingerprint(),
        how.ranks,
        how.policy,
        how.steps_max,
        system_of(result.setup),
        choices.taken,
        choices.counts,
        choices.switches,
        result.digest,
        [str(step) for step in result.steps],
        None if result.finding is None else asdict(result.finding),
        how.mode,
    )


def program_of(replay: Replay) -> Choices:
    """Its program alone, for a run whose switches nobody chooses."""
    _, program = parts_of(replay.recorded)
    left = iter(program)
    return Parts((), lambda count: min(next(left, 0), count - 1))


def to_document(replay: Replay) -> dict[str, Any]:
    """As plain data."""
    document: dict[str, Any] = msgspec.to_builtins(replay)
    return document


def from_document(document: Any, where: str) -> Replay:
    """Checked. Raises InputError, one line that begins with `where`."""
    try:
        replay = msgspec.convert(document, Replay)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: not a replay file: {error}") from None
    problem = _problem(replay)
    if problem:
        raise InputError(f"{where}: not a replay file: {problem}")
    return replay


def read(path: Path) -> Replay:
    """A replay file. Raises InputError."""
    try:
        with path.open("rb") as file:
            text = file.read(BYTES_MAX + 1)
        if len(text) > BYTES_MAX:
            raise InputError(f"{path}: not a replay file: it is longer than {BYTES_MAX:,} bytes")
        document = msgspec.json.decode(text)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    return from_document(document, str(path))


def write(replay: Replay, path: Path) -> None:
    """Write the file, its directory too. Raises InputError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(replay), indent=1) + b"\n")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _problem(replay: Replay) -> str | None:
    if replay.format != FORMAT:
        return f"its format is {replay.format!r}"
    if replay.version != VERSION:
        return f"its version is {replay.version}, this program reads {VERSION}"
    if not 1 <= replay.ranks <= RANKS_MAX:
        return f"ranks is {replay.ranks}"
    if replay.mode not in MODES:
        return f"mode is {replay.mode!r}"
    if replay.policy not in POLICY.members:
        return f"policy is {replay.policy!r}"
    if len(replay.choices) != len(replay.counts):
        return f"{len(replay.choices)} choices, {len(replay.counts)} counts"
    if any(not 0 <= choice < count for choice, count in zip(replay.choices, replay.counts, strict=True)):
        return "a choice is not below its count"
    if replay.switches != sorted(set(replay.switches)) or any(
        not 0 <= place < len(replay.choices) for place in replay.switches
    ):
        return "switches are not places of choices"
    if replay.finding is not None and set(replay.finding) != {"property", "message", "kind", "place"}:
        return "a finding has property, message, kind and place"
    return None
