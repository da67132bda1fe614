"""A release gets from a wheel onto the disk whole, or not at all, and the user reads one line why."""

from __future__ import annotations

import os
import stat
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hicache_checks.reporting import InputError
from hicache_checks.targets import releases
from hicache_checks.targets.releases import CACHE_VARIABLE, Release, cache_directory, fetched, release_of, unpack
from tiny_wheels import FILES, wheel

TINY = Release("tiny", "1.0")
LISTED_BYTES = 46
"""Of an entry in a zip's list of files, before the file's name."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(place))
    return place


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A directory with one wheel."""
    return wheel(tmp_path / "wheels").parent


def kept(cache: Path) -> set[str]:
    """What is in the cache, but for the lock."""
    return {path.name for path in cache.iterdir()} - {"lock"} if cache.is_dir() else set()


def line_of(refusal: pytest.ExceptionInfo[InputError]) -> str:
    line = str(refusal.value)
    assert line
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("sglang==0.5.18", Release("sglang", "0.5.18")),
        ("SGLang_KT==0.7.2", Release("sglang-kt", "0.7.2")),
        ("a.-_b==1", Release("a-b", "1")),
        ("sglang==0.5.1.post1", Release("sglang", "0.5.1.post1")),
        ("sglang==v0.5.3RC2", Release("sglang", "0.5.3rc2")),
        ("sglang==1!2.0+local.1", Release("sglang", "1!2.0+local.1")),
        ("sglang", None),
        ("sglang==", None),
        ("sglang==0.5.*", None),
        ("sglang==../0.5", None),
        ("sglang>=0.5.1", None),
        ("==0.5.1", None),
        ("sglang==0.5.1 ", None),
        ("sglang==0.5.1@revoke_queue", None),
        ("path:sglang", None),
    ],
)
def test_a_release_is_a_name_and_a_version(text: str, release: Release | None) -> None:
    assert release_of(text) == release


def test_the_cache_is_where_the_user_says_or_has_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/a/home")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    monkeypatch.setenv(CACHE_VARIABLE, "here")
    assert cache_directory() == tmp_path / "here"
    monkeypatch.setenv(CACHE_VARIABLE, "")
    assert cache_directory() == Path("/caches/hicheck")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path("/a/home/.cache/hicheck")


@pytest.mark.heavy
def test_a_release_is_fetched_once(cache: Path, wheels: Path) -> None:
    told: list[str] = []
    place = fetched(TINY, wheels, told.append)
    assert place == cache / "tiny-1.0"
    assert {name: (place / name).read_text() for name in FILES} == FILES
    assert fetched(TINY, None, told.append) == place
    assert fetched(TINY, wheels, told.append) == place
    assert told == [f"fetching tiny==1.0 from {wheels}"]
    assert kept(cache) == {"tiny-1.0"}


@pytest.mark.heavy
def test_a_name_may_be_written_in_many_ways(cache: Path, tmp_path: Path) -> None:
    wheels = wheel(tmp_path / "wheels", name="Tiny_KT", version="0.7.2.post1").parent
    release = release_of("tiny.kt==0.7.2.post1")
    assert release is not None
    assert fetched(release, wheels) == cache / "tiny-kt-0.7.2.post1"
    assert fetched(release, wheels).is_dir(), "and is the same that is in the directory"


@pytest.mark.heavy
def test_a_wheel_for_another_machine_will_do(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = wheel(tmp_path / "wheels", tag="py3-none-win_amd64").parent
    with pytest.raises(InputError) as refusal:
        fetched(TINY, wheels)
    assert line_of(refusal) == f"tiny==1.0 cannot be fetched: no wheel of it in {wheels}"
    monkeypatch.setattr(releases, "ELSEWHERE", ("--platform", "win_amd64"))
    assert (fetched(TINY, wheels) / "tiny" / "inner" / "part.py").is_file()


@pytest.mark.heavy
def test_the_wheel_of_this_machine_is_preferred(cache: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "ELSEWHERE", ("--platform", "win_amd64"))
    wheel(wheels, files={**FILES, "tiny/foreign.py": ""}, tag="py3-none-win_amd64")
    assert not (fetched(TINY, wheels) / "tiny" / "foreign.py").exists()


# ---- damaged wheels


def added(
    name: str, content: str = "", of: Callable[[zipfile.ZipInfo], object] = lambda entry: None
) -> Callable[[Path], Path]:
    """A wheel that has a file more; its record knows the file."""

    def make(directory: Path) -> Path:
        made = wheel(directory, recorded={**FILES, name: content})
        entry = zipfile.ZipInfo(name)
        of(entry)
        with zipfile.ZipFile(made, "a") as archive:
            archive.writestr(entry, content)
        return made

    return make


def changed(old: bytes, new: bytes) -> Callable[[Path], Path]:
    """A wheel of which some bytes are others."""

    def make(directory: Path) -> Path:
        made = wheel(directory)
        content = made.read_bytes()
        assert old in content
        made.write_bytes(content.replace(old, new))
        return made

    return make


def link(entry: zipfile.ZipInfo) -> None:
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16


def without_a_record(directory: Path) -> Path:
    made = directory / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("tiny/__init__.py", "")
    return made


def listed(offset: int, new: bytes) -> Callable[[Path], Path]:
    """A wheel whose list of files says something else of `tiny/__init__.py`. `offset`: in the entry."""

    def make(directory: Path) -> Path:
        made = wheel(directory)
        content = bytearray(made.read_bytes())
        entry = content.rindex(b"tiny/__init__.py") - LISTED_BYTES
        assert content[entry : entry + 4] == b"PK\x01\x02"
        content[entry + offset : entry + offset + len(new)] = new
        made.write_bytes(content)
        return made

    return make


DAMAGED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "another content": (
        lambda d: wheel(d, recorded={**FILES, "tiny/__init__.py": "ONE = 2\n"}),
        "'tiny/__init__.py' is not what its record says",
    ),
    "another size": (
        lambda d: wheel(d, edited=lambda record: record.replace(",8\n", ",9\n", 1)),
        "'tiny/__init__.py' is not what its record says",
    ),
    "a size that is none": (
        lambda d: wheel(d, edited=lambda record: record.replace(",8\n", ",-\n", 1)),
        "'tiny/__init__.py' is not what its record says",
    ),
    "a line that is none": (
        lambda d: wheel(d, edited=lambda record: record + "tiny\n"),
        "its record has a line that is none",
    ),
    "a file more": (
        lambda d: wheel(d, files={**FILES, "tiny/more.py": ""}, recorded=FILES),
        "its record has no digest of 'tiny/more.py'",
    ),
    "a file less": (lambda d: wheel(d, recorded={**FILES, "tiny/gone.py": ""}), "it lacks 'tiny/gone.py'"),
    "a weak digest": (lambda d: wheel(d, algorithm="md5"), "its record has no digest of 'tiny/__init__.py'"),
    "no record": (without_a_record, "it has 0 records"),
    "two records": (added("other-1.0.dist-info/RECORD"), "it has 2 records"),
    "a file above": (added("../evil.py"), r"it has a file outside itself: '\.\./evil\.py'"),
    "a file above, later": (added("tiny/../../evil.py"), "it has a file outside itself"),
    "a file at the root": (added("/tmp/evil.py"), "it has a file outside itself: '/tmp/evil.py'"),
    "a file above, elsewhere": (added("..\\evil.py"), "it has a file outside itself"),
    "a link": (added("tiny/link", "/etc", link), "it has a link: 'tiny/link'"),
    "a file twice": (added("tiny/__init__.py", "ONE = 1\n"), "File exists"),
    "a file in a file": (added("tiny/__init__.py/part.py"), "File exists|Not a directory"),
    "a file that is locked": (listed(8, b"\x01"), "is encrypted"),
    "a size that lies": (listed(24, b"\x04"), "Bad CRC-32 for file 'tiny/__init__.py'"),
    "bytes that are others": (changed(b"ONE = 1", b"ONE = 3"), "Bad CRC-32 for file 'tiny/__init__.py'"),
    "a way of packing": (listed(10, b"\x0e"), "it is not packed as wheels are"),
    "packed bytes that are none": (listed(10, b"\x08"), "Error -3 while decompressing data"),
    "no list of files": (changed(b"PK\x05\x06", b"PK\x05\x05"), "File is not a zip file"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
@pytest.mark.parametrize(("make", "why"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_wheel_is_refused_in_a_line(make: Callable[[Path], Path], why: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    made = make(tmp_path / "in")
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match=why) as refusal:
        unpack(made, tmp_path / "out" / "unpacked")
    assert line_of(refusal).startswith("tiny-1.0-py3-none-any.whl is damaged: ")
    assert {path.name for path in (tmp_path / "out").iterdir()} <= {"unpacked"}
    assert not list(tmp_path.rglob("evil*"))


def test_any_good_digest_will_do(tmp_path: Path) -> None:
    unpack(wheel(tmp_path, algorithm="sha512"), tmp_path / "unpacked")
    assert {name: (tmp_path / "unpacked" / name).read_text() for name in FILES} == FILES


def test_a_wheel_that_would_fill_the_disk_is_refused_before_a_byte_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "UNPACKED_BYTES_MAX", 3 << 20)
    made = wheel(tmp_path, files={f"tiny/{part}.py": "#" * (1 << 20) for part in "abc"})
    with pytest.raises(InputError) as refusal:
        unpack(made, tmp_path / "unpacked")
    assert line_of(refusal) == "tiny-1.0-py3-none-any.whl is damaged: unpacked it has more than 3 MiB"
    assert not (tmp_path / "unpacked").exists()


def test_a_record_is_not_read_beyond_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "RECORD_BYTES_MAX", 16)
    with pytest.raises(InputError, match="its record has a line that is none"):
        unpack(wheel(tmp_path), tmp_path / "unpacked")


# ---- nothing but whole releases is kept


@pytest.mark.heavy
def test_what_fails_is_not_kept(cache: Path, tmp_path: Path) -> None:
    wheels = wheel(tmp_path / "wheels", recorded={**FILES, "tiny/gone.py": ""}).parent
    with pytest.raises(InputError, match=r"it lacks 'tiny/gone\.py'"):
        fetched(TINY, wheels)
    assert not kept(cache)


@pytest.mark.heavy
@pytest.mark.parametrize("error", [InputError("it will not do"), KeyboardInterrupt()])
def test_what_is_not_accepted_is_not_kept(cache: Path, wheels: Path, error: BaseException) -> None:
    seen: list[bool] = []

    def refuse(unpacked: Path) -> None:
        seen.append((unpacked / "tiny" / "__init__.py").is_file() and not (cache / "tiny-1.0").exists())
        raise error

    with pytest.raises(type(error)):
        fetched(TINY, wheels, accept=refuse)
    assert seen == [True], "all of it was there, and not yet where others look"
    assert not kept(cache)


def empty(place: Path) -> None:
    place.mkdir()


def half(place: Path) -> None:
    """Everything is there, a file is cut short."""
    unpack(wheel(place.parents[1] / "again"), place)
    (place / "tiny" / "inner" / "part.py").write_text("TWO")


def less(place: Path) -> None:
    unpack(wheel(place.parents[1] / "again"), place)
    (place / "tiny" / "inner" / "part.py").unlink()


def unrecorded(place: Path) -> None:
    """The record itself was never written."""
    unpack(wheel(place.parents[1] / "again"), place)
    (place / "tiny-1.0.dist-info" / "RECORD").write_text("")
    (place / "tiny" / "inner" / "part.py").unlink()


def a_file(place: Path) -> None:
    place.write_text("")


def a_room(place: Path) -> None:
    """A run was killed while it unpacked."""
    room = place.with_name(f"{place.name}.fetching")
    (room / "unpacked" / "tiny").mkdir(parents=True)
    (room / "tiny-1.0-py3-none-any.whl").write_text("half of it")


@pytest.mark.heavy
@pytest.mark.parametrize("leave", [empty, half, less, unrecorded, a_file, a_room])
def test_what_a_failed_run_left_is_replaced(leave: Callable[[Path], None], cache: Path, wheels: Path) -> None:
    cache.mkdir()
    leave(cache / "tiny-1.0")
    told: list[str] = []
    place = fetched(TINY, wheels, told.append)
    assert {name: (place / name).read_text() for name in FILES} == FILES
    assert len(told) == 1
    assert kept(cache) == {"tiny-1.0"}


@pytest.mark.heavy
def test_who_comes_while_it_is_fetched_waits_for_it(cache: Path, wheels: Path) -> None:
    told: list[str] = []
    places: list[Path] = []
    together = threading.Barrier(3)

    def fetch() -> None:
        together.wait()
        places.append(fetched(TINY, wheels, told.append))

    threads = [threading.Thread(target=fetch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert places == [cache / "tiny-1.0"] * 3
    assert len(told) == 1


@pytest.mark.heavy
def test_a_directory_with_another_wheel_of_the_release_is_not_mistaken_for_what_is_kept(
    cache: Path, wheels: Path, tmp_path: Path
) -> None:
    place = fetched(TINY, wheels)
    others = wheel(tmp_path / "others", files={"tiny/__init__.py": "ONE = 11\n"}).parent
    wheel(others, version="2.0")
    with pytest.raises(InputError) as refusal:
        fetched(TINY, others)
    assert line_of(refusal).startswith(f"{place} is another tiny==1.0 than {others} has: ")
    wheel(others, tag="py3-none-win_amd64")
    assert fetched(TINY, others) == place, "one of its wheels is the same, for another machine"


# ---- what cannot be fetched


def refused(wheels: Path | None = None, release: Release = TINY) -> str:
    with pytest.raises(InputError) as refusal:
        fetched(release, wheels)
    return line_of(refusal)


def test_a_directory_that_is_not_there(cache: Path, wheels: Path) -> None:
    missing = wheels / "missing"
    assert refused(missing) == f"there is no directory {missing}"
    fetched(TINY, wheels)
    assert refused(missing) == f"there is no directory {missing}", "also if it is not needed"


@pytest.mark.heavy
def test_a_directory_without_the_wheel(cache: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = Release("tiny", "2.0")
    elsewhere = wheel(wheels.parent / "elsewhere", version="2.0").parent
    monkeypatch.setenv("PIP_FIND_LINKS", str(elsewhere))
    assert refused(wheels, release) == f"tiny==2.0 cannot be fetched: no wheel of it in {wheels}"
    assert not kept(cache)


@pytest.mark.heavy
def test_a_wheel_that_is_cut_short(cache: Path, wheels: Path) -> None:
    made = wheels / "tiny-1.0-py3-none-any.whl"
    made.write_bytes(made.read_bytes()[:-100])
    assert refused(wheels) == f"tiny==1.0 cannot be fetched: Wheel 'tiny' located at {made} is invalid."


@pytest.mark.heavy
def test_a_wheel_of_another_name_than_its_file(cache: Path, wheels: Path) -> None:
    (wheels / "tiny-1.0-py3-none-any.whl").rename(wheels / "tiny-3.0-py3-none-any.whl")
    line = refused(wheels, Release("tiny", "3.0"))
    assert line == f"tiny==3.0 cannot be fetched: no wheel of it in {wheels} can be used"


def test_no_place_to_keep_it(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    cache = tmp_path / "file" / "cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(cache))
    assert refused(wheels) == f"tiny==1.0 cannot be kept in {cache}: Not a directory"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of packages, of files, and nothing else to find them by."""
    place = tmp_path / "index"
    place.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", place.as_uri())
    return place


def publish(index: Path, name: str, *files: Path) -> None:
    (index / name).mkdir()
    (index / name / "index.html").write_text("".join(f'<a href="{file.as_uri()}">{file.name}</a>' for file in files))


@pytest.mark.heavy
def test_from_an_index(cache: Path, index: Path, tmp_path: Path) -> None:
    publish(index, "tiny", *(wheel(tmp_path / "files", version=version) for version in ("1.0", "0.9", "1.10", "1.2")))
    told: list[str] = []
    assert (fetched(TINY, tell=told.append) / "tiny" / "__init__.py").is_file()
    assert told == ["fetching tiny==1.0"]
    line = refused(release=Release("tiny", "1.1"))
    assert line == "tiny==1.1 cannot be fetched: there is no such version; the newest is 1.10"
    assert kept(cache) == {"tiny-1.0"}


@pytest.mark.heavy
def test_an_index_that_has_no_wheel(cache: Path, index: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny-1.0.tar.gz").write_text("")
    publish(index, "tiny", tmp_path / "tiny-1.0.tar.gz")
    assert refused() == "tiny==1.0 cannot be fetched: there is no wheel of that name"
    assert refused(release=Release("none", "1")) == "none==1 cannot be fetched: there is no wheel of that name"


@pytest.mark.heavy
def test_no_network(cache: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody listens at the port of `discard`.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert refused() == "tiny==1.0 cannot be fetched: there is no network (NewConnectionError)"


@pytest.mark.heavy
def test_a_fetch_that_takes_too_long(cache: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "FETCH_S_MAX", 0.001)
    assert refused(wheels) == "tiny==1.0 cannot be fetched: it is not here after 0.001 s"
    assert not kept(cache)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("script", "why"),
    [
        (f'exec "{sys.executable}" -S "$@"', "{python} has no pip"),
        ("echo 'ERROR: first' >&2; echo '  error: it is so' >&2; echo but >&2; exit 1", "first"),
        ("echo 'ERROR: first' >&2; echo 'ERROR: second' >&2; exit 2", "second"),
        ("exit 3", "pip does not say why"),
    ],
    ids=["no pip", "another line", "two errors", "silence"],
)
def test_what_pip_says(
    script: str, why: str, cache: Path, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert refused(wheels) == f"tiny==1.0 cannot be fetched: {why.format(python=python)}"
