"""A published release as files: fetched as a wheel without what it depends on, verified, unpacked, never installed.

The cache holds whole releases only: one appears there in one step, under a lock, and one of which a file is gone or cut
short is fetched again.
"""

from __future__ import annotations

import csv
import fcntl
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hicache_checks.reporting import InputError

CACHE_VARIABLE = "HICHECK_CACHE"
FETCH_S_MAX = 600
UNPACKED_BYTES_MAX = 1 << 30
RECORD_BYTES_MAX = 1 << 26
CHUNK_BYTES = 1 << 20
PINNED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==v?(?P<version>[0-9][A-Za-z0-9.+!_-]*)")
RECORD = re.compile(r"[^/]+\.dist-info/RECORD")
UNRECORDED = re.compile(r"[^/]+\.dist-info/RECORD(\.jws|\.p7s)?")
ALGORITHMS = ("sha256", "sha384", "sha512")
ELSEWHERE = (
    *("--python-version", "3.11", "--platform", "manylinux_2_35_x86_64", "--platform", "manylinux_2_34_x86_64"),
    *("--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64"),
)
"""Where there is no wheel for this machine, another machine's will do: what is read of it is Python."""
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, csv.Error),
    *(FileExistsError, NotADirectoryError, IsADirectoryError),
)
"""What reading a wheel raises that is none, or one that would put two files in one place."""

Record = dict[str, tuple[str, str]]
"""Digest and size by file; either may be empty."""


def quiet(line: str) -> None:
    """Tells nobody."""


def any_tree(directory: Path) -> None:
    """Takes whatever has been unpacked."""


@dataclass(frozen=True)
class Release:
    """A distribution in one version. `name`: as indexes know it."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def release_of(text: str) -> Release | None:
    """The release that `NAME==VERSION` names; None: the text is something else."""
    found = PINNED.fullmatch(text)
    return Release(_normal(found["name"]), found["version"].lower()) if found else None


def cache_directory() -> Path:
    """Where fetched releases stay: $HICHECK_CACHE, else the user's cache."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hicheck"


def fetched(
    release: Release,
    wheels: Path | None = None,
    tell: Callable[[str], object] = quiet,
    accept: Callable[[Path], object] = any_tree,
) -> Path:
    """The directory that holds the release's packages; fetched and unpacked if it is not in the cache.

    `wheels`: take the wheel from this directory, and nothing from the network. `tell` gets a line before a wheel is
    fetched. `accept` raises InputError if what a wheel holds will not do: it is not kept then. Raises InputError.
    """
    cache = cache_directory()
    place = cache / f"{release.name}-{release.version}"
    if wheels is not None and not wheels.is_dir():
        raise InputError(f"there is no directory {wheels}")
    try:
        if not _is_whole(place):
            cache.mkdir(parents=True, exist_ok=True)
            with _alone(cache / "lock"):
                if not _is_whole(place):
                    _fetch(release, wheels, tell, accept, place)
        if wheels is not None:
            _check_same(release, place, wheels)
    except OSError as error:
        raise InputError(f"{release} cannot be kept in {cache}: {error.strerror or error}") from error
    return place


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(
    release: Release,
    wheels: Path | None,
    tell: Callable[[str], object],
    accept: Callable[[Path], object],
    place: Path,
) -> None:
    room = place.with_name(f"{place.name}.fetching")
    shutil.rmtree(room, ignore_errors=True)
    room.mkdir()
    try:
        tell(f"fetching {release}" + (f" from {wheels}" if wheels is not None else ""))
        unpack(_download(release, room, wheels), room / "unpacked")
        accept(room / "unpacked")
        if place.exists():
            place.rename(room / "damaged")
        (room / "unpacked").rename(place)
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _is_whole(place: Path) -> bool:
    """Is every file there that its record says, in its size?"""
    try:
        (file,) = place.glob("*.dist-info/RECORD")
        sizes = {place / name: size for name, (_, size) in _rows(file.read_bytes())}
        return bool(sizes) and all(file.stat().st_size == int(size) for file, size in sizes.items() if size)
    except (OSError, ValueError, csv.Error):
        return False


def _check_same(release: Release, place: Path, wheels: Path) -> None:
    """Raises InputError: the directory has wheels of the release, and none with the Python that is in the cache."""
    there = [_python(_record_in(wheel)) for wheel in sorted(wheels.glob("*.whl")) if _release_in(wheel) == release]
    (kept,) = place.glob("*.dist-info/RECORD")
    if there and _python(kept.read_bytes()) not in there:
        raise InputError(f"{place} is another {release} than {wheels} has: remove it, or set {CACHE_VARIABLE}")


def _python(record: bytes) -> dict[str, str]:
    return {name: digest for name, (digest, _) in _rows(record) if name.endswith(".py")}


def _release_in(wheel: Path) -> Release | None:
    """By its file name."""
    name, _, rest = wheel.name.partition("-")
    return release_of(f"{name}=={rest.partition('-')[0]}")


def _record_in(wheel: Path) -> bytes:
    with _reading(wheel) as archive:
        return _record(archive)


def unpack(wheel: Path, directory: Path) -> None:
    """The files of a wheel, each held to the digest that the wheel itself records. Raises InputError."""
    with _reading(wheel) as archive:
        files = [entry for entry in archive.infolist() if not entry.is_dir()]
        if sum(entry.file_size for entry in files) > UNPACKED_BYTES_MAX:
            raise ValueError(f"unpacked it has more than {UNPACKED_BYTES_MAX >> 20} MiB")
        record: Record = dict(_rows(_record(archive)))
        for entry in files:
            _unpack_one(archive, entry, record, directory)
        lacking = record.keys() - {entry.filename for entry in files}
        if lacking:
            raise ValueError(f"it lacks {min(lacking)!r}")


@contextmanager
def _reading(wheel: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            if not {entry.compress_type for entry in archive.infolist()} <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                raise ValueError("it is not packed as wheels are")
            yield archive
    except DAMAGE as error:
        raise InputError(f"{wheel.name} is damaged: {str(error) or type(error).__name__}") from error


def _unpack_one(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, record: Record, directory: Path) -> None:
    name, path = entry.filename, PurePosixPath(entry.filename)
    if path.is_absolute() or ".." in path.parts or "\\" in name:
        raise ValueError(f"it has a file outside itself: {name!r}")
    if stat.S_ISLNK(entry.external_attr >> 16):
        raise ValueError(f"it has a link: {name!r}")
    digest, size = record.get(name, ("", ""))
    algorithm, _, value = digest.partition("=")
    if algorithm not in ALGORITHMS and not UNRECORDED.fullmatch(name):
        raise ValueError(f"its record has no digest of {name!r}")
    found = hashlib.new(algorithm or ALGORITHMS[0])
    target = directory.joinpath(*path.parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(entry) as source, target.open("xb") as copy:
        while chunk := source.read(CHUNK_BYTES):
            found.update(chunk)
            copy.write(chunk)
    has_value, has_size = urlsafe_b64encode(found.digest()).rstrip(b"=").decode(), str(entry.file_size)
    if value not in ("", has_value) or size not in ("", has_size):
        raise ValueError(f"{name!r} is not what its record says")


def _record(archive: zipfile.ZipFile) -> bytes:
    records = [name for name in archive.namelist() if RECORD.fullmatch(name)]
    if len(records) != 1:
        raise ValueError(f"it has {len(records)} records")
    # A size that lies bounds nothing: what is read at once does.
    with archive.open(records[0]) as record:
        return record.read(RECORD_BYTES_MAX)


def _rows(record: bytes) -> Iterator[tuple[str, tuple[str, str]]]:
    for row in csv.reader(record.decode().splitlines()):
        if len(row) != 3:
            raise ValueError("its record has a line that is none")
        yield row[0], (row[1], row[2])


def _download(release: Release, directory: Path, wheels: Path | None) -> Path:
    """The wheel, by pip: this machine's, or else another one's."""
    said = ""
    for machine in ((), ELSEWHERE):
        said = _pip_download(release, directory, wheels, machine)
        found = sorted(directory.glob("*.whl"))
        if len(found) == 1:
            return found[0]
        if _versions(said) is None or _broken(said):
            break
    raise InputError(f"{release} cannot be fetched: {_why(release, said, wheels)}")


def _pip_download(release: Release, directory: Path, wheels: Path | None, machine: tuple[str, ...]) -> str:
    """What pip says."""
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--no-input"),
        *("--disable-pip-version-check", "--retries", "1", "--dest", str(directory), *machine),
        *(() if wheels is None else ("--no-index", "--find-links", str(wheels))),
        str(release),
    ]
    # A configuration may name more places to look in.
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    environment = None if wheels is None else {**bare, "PIP_CONFIG_FILE": os.devnull}
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=FETCH_S_MAX, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"{release} cannot be fetched: it is not here after {FETCH_S_MAX} s") from None
    return ran.stderr


def _versions(said: str) -> list[str] | None:
    """The versions that pip found where it did not find the one it was to find; None: that is not what it says."""
    found = re.search(r"\(from versions: ([^)]*)\)", said)
    return found and [version for version in found[1].split(", ") if version not in ("", "none")]


def _broken(said: str) -> str | None:
    """What kept pip from an index, if something did and it found nothing elsewhere."""
    found = re.search(r"connection broken by ['\"](\w+)", said)
    return found[1] if found and not _versions(said) else None


def _why(release: Release, said: str, wheels: Path | None) -> str:
    """What pip said, in a line."""
    versions = _versions(said)
    if versions is not None and wheels is not None:
        return f"no wheel of it in {wheels}" + (" can be used" if release.version in versions else "")
    if broken := _broken(said):
        return f"there is no network ({broken})"
    if versions is not None:
        return (
            f"there is no such version; the newest is {versions[-1]}" if versions else "there is no wheel of that name"
        )
    if "No module named pip" in said:
        return f"{sys.executable} has no pip"
    errors = [line.strip() for line in said.splitlines() if line.lower().startswith("error: ")]
    return errors[-1][len("error: ") :] if errors else "pip does not say why"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
