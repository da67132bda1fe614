"""Known failures: findings by id, each with the reason why it is tolerated and the day until which it is.

A file is JSON or TOML. It comes from outside, so it is checked:

    format = "hicheck-baseline"
    version = 1

    [[known]]
    id = "1a2b3c4d"
    reason = "our issue 123: the drain of 0.5.18 finds records by request id"
    expires = 2026-12-31
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from hicache_checks.reporting import InputError

FORMAT = "hicheck-baseline"
VERSION = 1


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A failure that is known. It is tolerated until the end of the day `expires`."""

    id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{8}$")]
    reason: Annotated[str, msgspec.Meta(pattern=r"\S")]
    expires: datetime.date


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole file."""

    format: str
    version: int
    known: list[Known]


@dataclass(frozen=True)
class Judged:
    """What a baseline says of a run, by id. `known`: what was found and is tolerated; `stale`: why an entry is out of
    date."""

    known: Mapping[str, Known] = field(default_factory=dict)
    stale: Mapping[str, str] = field(default_factory=dict)


def read(path: Path) -> Baseline:
    """A baseline file. Raises InputError, one line."""
    decode = msgspec.toml.decode if path.suffix == ".toml" else msgspec.json.decode
    try:
        baseline = decode(path.read_bytes(), type=Baseline)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a baseline: {error}") from None
    if (baseline.format, baseline.version) != (FORMAT, VERSION):
        found = f"its format is {baseline.format!r}, version {baseline.version}"
        raise InputError(f"{path}: not a baseline: {found}; expected {FORMAT!r}, version {VERSION}")
    ids = [known.id for known in baseline.known]
    if twice := {name for name in ids if ids.count(name) > 1}:
        raise InputError(f"{path}: not a baseline: {min(twice)} is in it twice")
    return baseline


def judge(baseline: Baseline, found: Collection[str], is_complete: bool, today: datetime.date) -> Judged:
    """Hold what was found against what is known. Only a run that did all it was asked to can miss something."""
    known, stale = {}, {}
    for entry in baseline.known:
        if entry.expires < today:
            stale[entry.id] = f"expired on {entry.expires}: {entry.reason}"
        elif entry.id in found:
            known[entry.id] = entry
        elif is_complete:
            stale[entry.id] = f"not found any more: {entry.reason}"
    return Judged(known, stale)
