"""The store in LMDB: damaged and full maps, several processes, and what of the environment is not ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hicache_impl.content import page_content
from hicache_impl.layout import ONE_RANK
from hicache_impl.storage import open_storage, storage_key
from hicache_impl.storage.lmdb import HEADERS, PAYLOADS, LmdbStorage

SHARD = ONE_RANK.shard(0)
KEYS = [storage_key(bytes([i]) * 32, SHARD) for i in range(4)]
PAGES = [page_content(bytes([i]) * 32, SHARD, 2, 8) for i in range(4)]


def blank(count: int = 1) -> list[torch.Tensor]:
    return [torch.zeros(2, 8, dtype=torch.uint8) for _ in range(count)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbStorage]:
    opened = LmdbStorage(tmp_path / "pages")
    yield opened
    opened.close()


def change(store: LmdbStorage, name: bytes, key: str, value: bytes) -> None:
    """Put a value into a database of the environment, past the store."""
    environment = store._environment
    assert environment is not None
    with environment._lmdb.begin(write=True) as transaction:
        transaction.put(key.encode(), value, db=environment._lmdb.open_db(name, txn=transaction))


def read(store: LmdbStorage, name: bytes, key: str) -> bytes:
    environment = store._environment
    assert environment is not None
    db = environment.payloads if name == PAYLOADS else environment.headers
    with environment._lmdb.begin() as transaction:
        value = transaction.get(key.encode(), db=db)
    assert value is not None
    return bytes(value)


@pytest.mark.parametrize("name", [HEADERS, PAYLOADS])
def test_every_flipped_bit_is_a_miss(store: LmdbStorage, name: bytes) -> None:
    store.put_from(KEYS[:1], PAGES[:1])
    good = read(store, name, KEYS[0])
    for index in range(len(good)):
        change(store, name, KEYS[0], good[:index] + bytes([good[index] ^ (1 << index % 8)]) + good[index + 1 :])
        assert store.get_into(KEYS[:1], blank()) == [False], index
    assert store.stats()["corrupt"] + store.stats()["short"] == len(good)
    assert store.put_from(KEYS[:1], PAGES[:1]) == [True]
    assert store.get_into(KEYS[:1], blank()) == [True], "a put mends the page"


def test_a_page_under_another_name_or_without_a_header_is_a_miss(store: LmdbStorage) -> None:
    store.put_from(KEYS[:1], PAGES[:1])
    for name in (HEADERS, PAYLOADS):
        change(store, name, KEYS[1], read(store, name, KEYS[0]))
    change(store, PAYLOADS, KEYS[2], read(store, PAYLOADS, KEYS[0]))
    assert store.exists(KEYS) == 3, "only reading tells"
    assert store.get_into(KEYS[:3], blank(3)) == [True, False, False]
    assert store.stats()["corrupt"] == 2


def test_a_full_map_refuses_and_goes_on(tmp_path: Path) -> None:
    """What is refused is not there, what was stored stays, and after `clear` there is room again."""
    store = open_storage(f"lmdb:{tmp_path / 'pages'}?map_bytes={1 << 20}")
    pages = [torch.full((1, 32_768), number, dtype=torch.uint8) for number in range(64)]
    keys = [storage_key(bytes([number]) * 32, SHARD) for number in range(64)]
    for _ in range(2):
        stored = store.put_from(keys, pages)
        assert any(stored)
        assert not all(stored)
        for key, page, is_stored in zip(keys, pages, stored, strict=True):
            into = torch.zeros(1, 32_768, dtype=torch.uint8)
            assert store.get_into([key], [into]) == [is_stored]
            assert not is_stored or torch.equal(into, page)
        store.clear()
        assert store.exists(keys) == 0
    assert store.stats()["put_failures"] > 0
    store.close()


def test_clear_leaves_what_else_is_in_the_environment(store: LmdbStorage) -> None:
    store.put_from(KEYS, PAGES)
    change(store, b"notes", "mine", b"kept")
    store.clear()
    assert store.exists(KEYS) == 0
    environment = store._environment
    assert environment is not None
    notes = environment._lmdb.open_db(b"notes")
    with environment._lmdb.begin() as transaction:
        assert transaction.get(b"mine", db=notes) == b"kept"


def test_what_is_not_an_environment_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"something else" * 1000)
    with pytest.raises(ValueError, match=r"cannot use .* not an LMDB environment"):
        open_storage(f"lmdb:{tmp_path}")


def test_stores_of_one_directory_share_it_until_the_last_is_closed(store: LmdbStorage) -> None:
    other = LmdbStorage(store.directory / "." / ".." / store.directory.name)
    store.put_from(KEYS, PAGES)
    store.close()
    store.close()
    assert store.exists(KEYS) == 0
    assert store.get_into(KEYS, blank(4)) == store.put_from(KEYS, PAGES) == [False] * 4
    store.clear()
    assert other.get_into(KEYS, blank(4)) == [True] * 4
    other.close()
    again = LmdbStorage(store.directory)
    assert again.get_into(KEYS, blank(4)) == [True] * 4
    again.close()


def test_a_store_may_be_closed_under_its_readers(store: LmdbStorage) -> None:
    pages = [torch.full((1, 1 << 20), number, dtype=torch.uint8) for number in range(4)]
    store.put_from(KEYS, pages)
    seen: list[list[bool]] = []

    def use() -> None:
        into = [torch.zeros(1, 1 << 20, dtype=torch.uint8) for _ in range(4)]
        while not seen or all(seen[-1]):
            seen.append(store.get_into(KEYS, into))

    reader = threading.Thread(target=use)
    reader.start()
    while not seen:
        time.sleep(0.001)
    store.close()
    reader.join(10.0)
    assert not reader.is_alive()
    assert seen[0] == [True] * 4
    assert seen[-1] == [False] * 4


WRITER = """
import sys, time
from hicache_impl.storage.lmdb import LmdbStorage
store = LmdbStorage(sys.argv[1])
def work(transaction):
    transaction.put(b"abc", b"half", db=store._environment.payloads)
    print("writing", flush=True)
    time.sleep(60)
store._environment.write(work)
"""


@pytest.fixture
def writer(store: LmdbStorage) -> Iterator[subprocess.Popen[str]]:
    """Another process, in the middle of a put."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(store.directory)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.heavy
def test_a_writer_that_is_stopped_holds_nobody_up_for_long(
    store: LmdbStorage, writer: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hicache_impl.storage.lmdb.PUT_WAIT_S", 0.2)
    os.kill(writer.pid, signal.SIGSTOP)
    began_s = time.monotonic()
    assert store.put_from(KEYS[:1], PAGES[:1]) == [False]
    assert store.put_from(KEYS[:2], PAGES[:2]) == [False, False]
    assert store.get_into(KEYS[:1], blank()) == [False]
    assert time.monotonic() - began_s < 5.0
    assert store.stats()["put_failures"] == 3


@pytest.mark.heavy
def test_of_a_writer_that_is_killed_nothing_is_left(store: LmdbStorage, writer: subprocess.Popen[str]) -> None:
    writer.kill()
    writer.wait()
    assert store.put_from(KEYS, PAGES) == [True] * 4
    assert store.exists(["abc"]) == 0
    assert store.get_into(KEYS, blank(4)) == [True] * 4
