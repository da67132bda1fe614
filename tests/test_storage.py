"""Page stores: a bad page is a miss that is counted, a bad medium a refusal, never an exception."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hicache_impl.content import page_content
from hicache_impl.layout import ONE_RANK, Layout
from hicache_impl.storage import Storage, open_storage, storage_key
from hicache_impl.storage.faults import FaultyStorage, StorageFault
from hicache_impl.storage.file import HEADER_BYTES, FileStorage
from hicache_impl.storage.memory import MemoryStorage

LAYERS, LAYER_BYTES = 2, 8
SHARD = ONE_RANK.shard(0)
KEYS = [storage_key(bytes([i]) * 32, SHARD) for i in range(4)]
PAGES = [page_content(bytes([i]) * 32, SHARD, LAYERS, LAYER_BYTES) for i in range(4)]


def blank(count: int = 1) -> list[torch.Tensor]:
    return [torch.full((LAYERS, LAYER_BYTES), 7, dtype=torch.uint8) for _ in range(count)]


def is_blank(page: torch.Tensor) -> bool:
    return bool((page == 7).all())


@pytest.fixture
def file_storage(tmp_path: Path) -> FileStorage:
    return FileStorage(tmp_path / "pages")


@pytest.fixture(params=["memory", "file", "faulty"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "faulty":
        return FaultyStorage(MemoryStorage())
    return open_storage("memory" if request.param == "memory" else f"file:{tmp_path / 'pages'}")


def test_what_was_put_is_got(storage: Storage) -> None:
    assert storage.exists(KEYS) == 0
    assert storage.put_from(KEYS, PAGES) == [True] * 4
    into = blank(4)
    assert storage.get_into(KEYS, into) == [True] * 4
    assert all(torch.equal(page, expected) for page, expected in zip(into, PAGES, strict=True))
    assert storage.stats()["puts"] == storage.stats()["hits"] == 4


def test_exists_counts_the_leading_run(storage: Storage) -> None:
    storage.put_from([KEYS[0], KEYS[1], KEYS[3]], [PAGES[0], PAGES[1], PAGES[3]])
    assert storage.exists(KEYS) == 2
    assert storage.exists(KEYS[2:]) == 0
    assert storage.exists([]) == 0


def test_a_miss_leaves_the_destination_alone(storage: Storage) -> None:
    storage.put_from(KEYS[1:2], PAGES[1:2])
    into = blank(3)
    assert storage.get_into(KEYS[:3], into) == [False, True, False]
    assert is_blank(into[0])
    assert torch.equal(into[1], PAGES[1])
    assert is_blank(into[2])
    assert storage.stats()["misses"] == 2


def test_a_page_of_another_size_is_a_miss_and_counted(storage: Storage) -> None:
    storage.put_from(KEYS[:1], PAGES[:1])
    for size in (LAYER_BYTES - 1, LAYER_BYTES + 1):
        into = torch.full((LAYERS, size), 7, dtype=torch.uint8)
        assert storage.get_into(KEYS[:1], [into]) == [False]
        assert is_blank(into)
    assert storage.stats()["short"] == 2


def test_a_destination_may_be_a_strided_view(storage: Storage) -> None:
    storage.put_from(KEYS[:1], [PAGES[0].t().contiguous().t()])
    into = torch.zeros(LAYERS, 2 * LAYER_BYTES, dtype=torch.uint8)[:, ::2]
    assert storage.get_into(KEYS[:1], [into]) == [True]
    assert torch.equal(into, PAGES[0])


def test_the_store_keeps_a_copy(storage: Storage) -> None:
    page = PAGES[0].clone()
    storage.put_from(KEYS[:1], [page])
    page.zero_()
    into = blank()
    assert storage.get_into(KEYS[:1], into) == [True]
    assert torch.equal(into[0], PAGES[0])


def test_a_later_put_wins_and_clear_forgets(storage: Storage) -> None:
    storage.put_from(KEYS[:1], PAGES[:1])
    storage.put_from(KEYS[:1], PAGES[1:2])
    into = blank()
    assert storage.get_into(KEYS[:1], into) == [True]
    assert torch.equal(into[0], PAGES[1])
    storage.clear()
    assert storage.exists(KEYS) == 0
    storage.close()
    storage.close()


@pytest.mark.parametrize("key", ["", "ab", "../../x", "a/bcd", "ABCD", "abc.", "abc\n", "abc\0", "xyz", "a" * 300])
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_name_that_could_be_a_path_is_refused(kind: str, key: str, tmp_path: Path) -> None:
    store = open_storage("memory" if kind == "memory" else f"file:{tmp_path / 'pages'}")
    for call in (
        lambda: store.exists([key]),
        lambda: store.get_into([key], blank()),
        lambda: store.put_from([key], blank()),
    ):
        with pytest.raises(ValueError, match="not a storage key"):
            call()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_lists_and_types_must_fit(storage: Storage) -> None:
    with pytest.raises(ValueError):
        storage.get_into(KEYS[:2], blank(1))
    with pytest.raises(ValueError):
        storage.put_from(KEYS[:1], [torch.zeros(4)])


def test_keys_tell_rank_geometries_apart() -> None:
    keys = {storage_key(b"\1" * 32, Layout(tp=ranks).shard(rank)) for ranks in (1, 2, 17) for rank in range(ranks)}
    assert len(keys) == 20


@pytest.mark.parametrize("spec", ["", "disk", "file", "file:", "memory:x"])
def test_open_storage_names_what_it_knows(spec: str) -> None:
    with pytest.raises(ValueError, match="'memory' or 'file:DIRECTORY'"):
        open_storage(spec)


def test_open_storage_says_when_the_directory_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ValueError, match="cannot use"):
        open_storage(f"file:{tmp_path / 'taken'}")


# --- files ---------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_is_a_miss(file_storage: FileStorage) -> None:
    file_storage.put_from(KEYS[:1], PAGES[:1])
    path = file_storage.path(KEYS[0])
    good = path.read_bytes()
    for index in range(len(good)):
        path.write_bytes(good[:index] + bytes([good[index] ^ (1 << index % 8)]) + good[index + 1 :])
        into = blank()
        assert file_storage.get_into(KEYS[:1], into) == [False], index
        assert is_blank(into[0])
    stats = file_storage.stats()
    assert stats["short"] == 8, "the length field"
    assert stats["corrupt"] == len(good) - 8


def test_every_truncation_and_any_excess_is_a_miss(file_storage: FileStorage) -> None:
    file_storage.put_from(KEYS[:1], PAGES[:1])
    path = file_storage.path(KEYS[0])
    good = path.read_bytes()
    assert len(good) == HEADER_BYTES + LAYERS * LAYER_BYTES
    for wrong in [good[:size] for size in range(len(good))] + [good + b"\0", good + good]:
        path.write_bytes(wrong)
        into = blank()
        assert file_storage.get_into(KEYS[:1], into) == [False]
        assert is_blank(into[0])
    assert file_storage.stats()["short"] == len(good) + 2
    assert file_storage.exists(KEYS[:1]) == 1, "only reading tells"
    assert file_storage.put_from(KEYS[:1], PAGES[:1]) == [True]
    assert file_storage.get_into(KEYS[:1], blank()) == [True], "a put mends the file"


def test_a_file_under_another_name_is_not_that_page(file_storage: FileStorage) -> None:
    file_storage.put_from(KEYS[:2], PAGES[:2])
    shutil.copy(file_storage.path(KEYS[0]), file_storage.path(KEYS[1]))
    assert file_storage.get_into(KEYS[:2], blank(2)) == [True, False]
    assert file_storage.stats()["corrupt"] == 1


def test_a_page_that_cannot_be_read_is_counted(file_storage: FileStorage) -> None:
    file_storage.path(KEYS[0]).mkdir(parents=True)
    assert file_storage.exists(KEYS[:1]) == 0
    assert file_storage.get_into(KEYS[:1], blank()) == [False]
    assert file_storage.stats()["unreadable"] == 1
    assert file_storage.put_from(KEYS[:1], PAGES[:1]) == [False], "a page cannot replace a directory"
    assert file_storage.stats()["put_failures"] == 1
    assert not list(file_storage.directory.rglob(".tmp-*"))


def test_a_deleted_directory_loses_pages_and_nothing_else(file_storage: FileStorage) -> None:
    file_storage.put_from(KEYS, PAGES)
    shutil.rmtree(file_storage.directory)
    assert file_storage.exists(KEYS) == 0
    assert file_storage.get_into(KEYS, blank(4)) == [False] * 4
    file_storage.clear()
    assert file_storage.put_from(KEYS, PAGES) == [True] * 4
    assert file_storage.get_into(KEYS, blank(4)) == [True] * 4


def test_a_directory_that_cannot_be_made_again_refuses_puts(file_storage: FileStorage) -> None:
    shutil.rmtree(file_storage.directory)
    file_storage.directory.write_text("in the way")
    assert file_storage.exists(KEYS) == 0
    assert file_storage.get_into(KEYS[:1], blank()) == [False]
    assert file_storage.put_from(KEYS[:2], PAGES[:2]) == [False, False]
    file_storage.clear()
    assert file_storage.directory.read_text() == "in the way"


def test_pages_outlive_the_store(file_storage: FileStorage) -> None:
    file_storage.put_from(KEYS, PAGES)
    file_storage.close()
    again = FileStorage(file_storage.directory)
    assert again.exists(KEYS) == 4
    assert again.get_into(KEYS, blank(4)) == [True] * 4


def test_clear_takes_pages_and_leftovers_and_leaves_the_rest(file_storage: FileStorage) -> None:
    file_storage.put_from(KEYS, PAGES)
    folder = file_storage.path(KEYS[0]).parent
    (folder / ".tmp-dead-0").write_text("half")
    (folder / "00notes.txt").write_text("kept")
    (file_storage.directory / "README").write_text("kept")
    file_storage.clear()
    left = {path.name for path in file_storage.directory.rglob("*") if path.is_file()}
    assert left == {"00notes.txt", "README"}


def run_threads(*targets: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def guarded(target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_readers_of_one_key_see_one_whole_page(kind: str, tmp_path: Path) -> None:
    store = open_storage("memory" if kind == "memory" else f"file:{tmp_path / 'pages'}")
    key, size = KEYS[0], 4096
    store.put_from([key], [torch.zeros(size, dtype=torch.uint8)])

    def write(value: int) -> Callable[[], None]:
        page = torch.full((size,), value, dtype=torch.uint8)

        def repeat() -> None:
            for _ in range(60):
                assert store.put_from([key], [page]) == [True]

        return repeat

    def read() -> None:
        into = torch.zeros(size, dtype=torch.uint8)
        for _ in range(120):
            assert store.get_into([key], [into]) == [True]
            assert len(set(into.tolist())) == 1, "half of one page and half of another"

    run_threads(write(1), write(2), read, read)
    stats = store.stats()
    assert (stats["hits"], stats["puts"]) == (240, 121)
    assert stats["misses"] == stats.get("corrupt", 0) == stats["short"] == 0


def test_a_directory_that_vanishes_under_readers_and_writers(file_storage: FileStorage) -> None:
    done = threading.Event()

    def vanish() -> None:
        while not done.is_set():
            shutil.rmtree(file_storage.directory, ignore_errors=True)

    def use() -> None:
        into = blank(4)
        for _ in range(40):
            answers = file_storage.put_from(KEYS, PAGES)
            assert len(answers) == 4
            got = file_storage.get_into(KEYS, into)
            assert all(torch.equal(into[i], PAGES[i]) for i in range(4) if got[i])
            assert 0 <= file_storage.exists(KEYS) <= 4

    def use_all() -> None:
        try:
            run_threads(use, use)
        finally:
            done.set()

    run_threads(vanish, use_all)
    stats = file_storage.stats()
    assert stats["puts"] + stats["put_failures"] == 320
    assert stats["corrupt"] == stats["short"] == 0
    assert file_storage.put_from(KEYS, PAGES) == [True] * 4
    assert file_storage.exists(KEYS) == 4


# --- faults --------------------------------------------------------------------------------------------------------


@pytest.fixture
def faulty() -> FaultyStorage:
    store = FaultyStorage(MemoryStorage())
    store.put_from(KEYS, PAGES)
    return store


def only(*keys: str) -> Callable[[str], bool]:
    return lambda key: key in keys


def test_raise_on_hits_the_call_and_the_keys_it_names(faulty: FaultyStorage) -> None:
    faulty.raise_on("get", only(KEYS[1]), times=2)
    assert faulty.get_into(KEYS[:1], blank()) == [True]
    for _ in range(2):
        with pytest.raises(StorageFault):
            faulty.get_into(KEYS[:2], blank(2))
    assert faulty.get_into(KEYS[:2], blank(2)) == [True, True]
    assert faulty.exists(KEYS) == 4
    assert faulty.struck() == {"raise": 2}


def test_raise_on_put_stores_nothing(faulty: FaultyStorage) -> None:
    faulty.clear()
    faulty.raise_on("put")
    with pytest.raises(StorageFault):
        faulty.put_from(KEYS, PAGES)
    faulty.heal()
    assert faulty.exists(KEYS) == 0


def test_miss_hides_pages_from_each_call(faulty: FaultyStorage) -> None:
    faulty.miss("get", only(KEYS[1]))
    into = blank(4)
    assert faulty.get_into(KEYS, into) == [True, False, True, True]
    assert is_blank(into[1])
    faulty.miss("exists", only(KEYS[2]))
    assert faulty.exists(KEYS) == 2
    faulty.miss("put", only(KEYS[0]), times=1)
    assert faulty.put_from(KEYS[:2], PAGES[:2]) == [False, True]
    faulty.heal()
    assert faulty.get_into(KEYS, into) == [True] * 4


def test_short_answers_cover_one_page_less(faulty: FaultyStorage) -> None:
    for call in ("exists", "get", "put"):
        faulty.short(call, times=1)
    assert faulty.exists(KEYS) == 3
    assert faulty.get_into(KEYS[:1], blank()) == []
    assert faulty.put_from(KEYS[:2], PAGES[:2]) == [True]
    assert faulty.exists(KEYS) == 4
    assert faulty.stats()["faults"] == 3


def test_wrong_bytes_are_announced_as_right(faulty: FaultyStorage) -> None:
    faulty.wrong_bytes(only(KEYS[0]), times=1)
    into = blank(2)
    assert faulty.get_into(KEYS[:2], into) == [True, True]
    assert not torch.equal(into[0], PAGES[0])
    assert torch.equal(into[1], PAGES[1])
    assert faulty.get_into(KEYS[:1], into[:1]) == [True]
    assert torch.equal(into[0], PAGES[0])
