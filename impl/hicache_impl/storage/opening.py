"""What a store is called on a command line, and how it is opened from that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from hicache_impl.storage import Storage

KNOWN = (
    "'memory', 'file:DIRECTORY', 'lmdb:DIRECTORY[?map_bytes=N]', 'redis://HOST:PORT/DATABASE[?prefix=NAME]', "
    "'mooncake://HOST:PORT[?prefix=NAME&local=ADDRESS]' or 'dynamic:MODULE:CLASS'"
)


def open_storage(spec: str, checksums: bool = True) -> Storage:
    """The store that `spec` names; directories are made if missing. `checksums`: with digests, written and checked.

    ValueError, one line: no such store, or one that cannot be used.
    """
    if spec == "memory":
        from hicache_impl.storage.memory import MemoryStorage

        return MemoryStorage(checksums=checksums)
    kind, _, rest = spec.partition(":")
    opener = _OPENERS.get(kind)
    if opener is None or not rest:
        raise ValueError(f"storage must be {KNOWN}, not {spec!r}")
    return opener(rest, checksums)


def _open_file(directory: str, checksums: bool) -> Storage:
    from hicache_impl.storage.file import FileStorage

    return _in_directory(lambda: FileStorage(directory, checksums=checksums), directory)


def _open_lmdb(rest: str, checksums: bool) -> Storage:
    directory, options = _options(rest, {"map_bytes": _positive})
    with _installed("lmdb"):
        from hicache_impl.storage.lmdb import LmdbStorage
    return _in_directory(lambda: LmdbStorage(directory, checksums=checksums, **options), directory)


def _open_redis(rest: str, checksums: bool) -> Storage:
    place, options = _options(rest, {"prefix": str})
    host, port, database = _address(place, "redis://HOST:PORT/DATABASE")
    if not database.isdecimal():
        raise ValueError(f"a database of redis has a number, not {database!r}")
    with _installed("redis"):
        from hicache_impl.storage.redis import RedisStorage
    return RedisStorage(host, port, int(database), checksums=checksums, **options)


def _open_mooncake(rest: str, checksums: bool) -> Storage:
    place, options = _options(rest, {"prefix": str, "local": str})
    host, port, _ = _address(place, "mooncake://HOST:PORT")
    from hicache_impl.storage.mooncake import MooncakeStorage

    return MooncakeStorage(host, port, checksums=checksums, **options)


def _open_dynamic(rest: str, checksums: bool) -> Storage:
    module, _, name = rest.partition(":")
    if not module or not name.isidentifier():
        raise ValueError(f"a store from outside is named dynamic:MODULE:CLASS, not {rest!r}")
    from hicache_impl.storage.dynamic import DynamicStorage

    return DynamicStorage(module, name, checksums=checksums)


@contextmanager
def _installed(store: str) -> Iterator[None]:
    """Stores are imported when they are opened: what one of them needs may not be installed."""
    try:
        yield
    except ImportError as error:
        raise ValueError(f"the store {store} needs what is not installed: {error}") from error


def _in_directory(opened: Callable[[], Storage], directory: str) -> Storage:
    try:
        return opened()
    except OSError as error:
        raise ValueError(f"cannot use {directory} as a page store: {error.strerror or error}") from None


def _address(place: str, form: str) -> tuple[str, int, str]:
    """Host, port and path of `//HOST:PORT/PATH`. ValueError: it has not this form."""
    parts = urlsplit(place)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port:
        raise ValueError(f"a store is named {form}, not {place!r}")
    return host, port, parts.path.removeprefix("/")


def _options(rest: str, known: Mapping[str, Callable[[str], Any]]) -> tuple[str, dict[str, Any]]:
    """What is before the `?`, and the options behind it. ValueError: one that is not known, or has no such value."""
    place, _, query = rest.partition("?")
    given = dict(parse_qsl(query, keep_blank_values=True))
    for name in given:
        if name not in known:
            raise ValueError(f"the options here are {', '.join(known)}, not {name!r}")
    return place, {name: known[name](value) for name, value in given.items()}


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError(f"a number above 0 is wanted, not {text!r}")
    return int(text)


_OPENERS: dict[str, Callable[[str, bool], Storage]] = {
    "file": _open_file,
    "lmdb": _open_lmdb,
    "redis": _open_redis,
    "mooncake": _open_mooncake,
    "dynamic": _open_dynamic,
}
