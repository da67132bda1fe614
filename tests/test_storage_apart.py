"""Stores in a process of their own: what it does costs a miss at most, and a new one takes its place."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from hicache_impl.layout import ONE_RANK
from hicache_impl.storage import apart, open_storage, storage_key
from hicache_impl.storage.apart import SLOT_BYTES, _parts
from hicache_impl.storage.checksum import HEADER_BYTES
from hicache_impl.storage.dynamic import DynamicStorage
from hicache_impl.storage.pages import whole_runs
from hicache_impl.storage.patience import Patience
from hicache_impl.storage.stranger import FOLDER_VARIABLE, TROUBLE

SHARD = ONE_RANK.shard(0)
KEYS = [storage_key(bytes([i]) * 32, SHARD) for i in range(4)]
PAGES = [torch.full((2, 64), i + 1, dtype=torch.uint8) for i in range(4)]
SPEC = "dynamic:hicache_impl.storage.stranger:Stranger"


def blank(count: int = 1) -> list[torch.Tensor]:
    return [torch.zeros(2, 64, dtype=torch.uint8) for _ in range(count)]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DynamicStorage]:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(apart, "PAUSE_S", 0.05)
    opened = open_storage(SPEC)
    assert isinstance(opened, DynamicStorage)
    yield opened
    opened.close()


def until(happens: Callable[[], bool], seconds_max: float = 60.0) -> None:
    until_s = time.monotonic() + seconds_max
    while not happens():
        assert time.monotonic() < until_s, "it does not happen"
        time.sleep(0.02)


@pytest.mark.heavy
def test_a_process_that_dies_is_replaced_and_its_pages_are_still_there(store: DynamicStorage) -> None:
    assert store.put_from(KEYS, PAGES) == [True] * 4
    first = store.pid
    os.kill(first, signal.SIGKILL)
    assert store.get_into(KEYS, blank(4)) == [False] * 4
    assert store.stats()["unreachable"] == 4
    into = blank(4)
    until(lambda: store.get_into(KEYS, into) == [True] * 4)
    assert all(torch.equal(page, wanted) for page, wanted in zip(into, PAGES, strict=True))
    assert store.pid != first
    assert store.stats()["restarts"] == 1


@pytest.mark.heavy
def test_a_process_that_is_stopped_is_killed_in_time(store: DynamicStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_answer_s", 0.3)
    stopped = store.pid
    os.kill(stopped, signal.SIGSTOP)
    began_s = time.monotonic()
    assert store.get_into(KEYS, blank(4)) == [False] * 4
    assert store.exists(KEYS) == 0
    assert store.put_from(KEYS, PAGES) == [False] * 4
    assert time.monotonic() - began_s < 2.0
    assert not Path(f"/proc/{stopped}").exists()
    until(lambda: store.put_from(KEYS, PAGES) == [True] * 4)


@pytest.mark.heavy
def test_a_call_that_raises_costs_no_process(store: DynamicStorage, tmp_path: Path) -> None:
    (tmp_path / TROUBLE).write_text("raise")
    first = store.pid
    assert store.put_from(KEYS, PAGES) == [False] * 4
    assert store.get_into(KEYS, blank(4)) == [False] * 4
    assert store.exists(KEYS) == 0
    assert store.stats()["errors"] == 3
    (tmp_path / TROUBLE).unlink()
    assert store.put_from(KEYS, PAGES) == [True] * 4
    assert store.pid == first


@pytest.mark.heavy
def test_a_page_that_does_not_fit_is_refused_and_the_others_are_not(store: DynamicStorage) -> None:
    big = torch.zeros(1, SLOT_BYTES, dtype=torch.uint8)
    assert store.put_from(KEYS[:2], [PAGES[0], big]) == [True, False]
    assert store.get_into(KEYS[:2], [blank()[0], big]) == [True, False]
    large = torch.ones(1, SLOT_BYTES // 3, dtype=torch.uint8)
    assert store.put_from(KEYS, [large] * 4) == [True] * 4, "more than fit at once"
    assert store.get_into(KEYS, [torch.zeros_like(large) for _ in range(4)]) == [True] * 4


@pytest.mark.heavy
def test_a_closed_store_has_no_process_and_no_pages(store: DynamicStorage) -> None:
    pid = store.pid
    store.put_from(KEYS, PAGES)
    store.close()
    store.close()
    assert store.pid == 0
    assert not Path(f"/proc/{pid}").exists()
    assert store.get_into(KEYS, blank(4)) == store.put_from(KEYS, PAGES) == [False] * 4
    store.clear()


@pytest.mark.heavy
def test_nothing_is_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    open_storage(SPEC).close()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    open_storage(SPEC).close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("dynamic:no_such_module:Store", r"no_such_module:Store cannot be opened: ModuleNotFoundError"),
        ("dynamic:hicache_impl.storage.stranger:Nobody", r"Nobody cannot be opened: AttributeError"),
        (SPEC, r"Stranger cannot be opened: KeyError"),
    ],
)
def test_what_cannot_be_opened_is_named(spec: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    with pytest.raises(ValueError, match=says):
        open_storage(spec)


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux alone it is known")
@pytest.mark.heavy
def test_a_master_that_is_not_there_makes_every_page_a_miss() -> None:
    pytest.importorskip("mooncake")
    store = open_storage("mooncake://127.0.0.1:1")
    began_s = time.monotonic()
    assert store.get_into(KEYS, blank(4)) == store.put_from(KEYS, PAGES) == [False] * 4
    assert store.exists(KEYS) == 0
    assert time.monotonic() - began_s < 5.0
    store.close()


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("dynamic:module", "named dynamic:MODULE:CLASS"),
        ("dynamic::Store", "named dynamic:MODULE:CLASS"),
        ("redis://127.0.0.1/0", "named redis://HOST:PORT/DATABASE"),
        ("redis://127.0.0.1:x/0", "named redis://HOST:PORT/DATABASE"),
        ("redis://127.0.0.1:6379/pages", "a database of redis has a number, not 'pages'"),
        ("redis://127.0.0.1:6379/0?prefix=a:b", "a prefix has letters"),
        ("redis://127.0.0.1:6379/0?user=me", "the options here are prefix, not 'user'"),
        ("mooncake://:50051", "named mooncake://HOST:PORT"),
        ("mooncake://127.0.0.1:50051?prefix=a*", "a prefix has letters"),
    ],
)
def test_what_is_named_wrongly_is_named(spec: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        open_storage(spec)


def test_batches_are_cut_to_what_fits() -> None:
    def sizes(*pages: int) -> list[tuple[int, int]]:
        runs = [whole_runs(torch.empty(size, dtype=torch.uint8)) for size in pages]
        return [(part.start, part.stop) for part in _parts(runs)]

    third = SLOT_BYTES // 3 - HEADER_BYTES - 64
    assert sizes() == []
    assert sizes(third, third, third, third) == [(0, 3), (3, 4)]
    assert sizes(SLOT_BYTES, 1, SLOT_BYTES) == [(0, 1), (1, 2), (2, 3)]
    assert sizes(*[1] * 600) == [(0, 256), (256, 512), (512, 600)]


def test_patience_grows_and_is_restored() -> None:
    patience = Patience(0.02, 0.05)
    assert not patience.is_pausing()
    for expected_s in (0.02, 0.04, 0.05, 0.05):
        began_s = time.monotonic()
        patience.failed()
        patience.failed()
        assert patience.is_pausing()
        until(lambda: not patience.is_pausing(), 1.0)
        assert time.monotonic() - began_s >= expected_s
    patience.worked()
    assert patience._pause_s == 0.02
