"""Page stores: a bad page is a miss that is counted, a bad medium a refusal, never an exception."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from hicache_impl.content import page_content
from hicache_impl.layout import ONE_RANK, Layout
from hicache_impl.storage import Storage, open_storage, page_namespace, storage_key
from hicache_impl.storage.checksum import HEADER_BYTES
from hicache_impl.storage.faults import FaultyStorage, StorageFault
from hicache_impl.storage.file import FileStorage
from hicache_impl.storage.memory import MemoryStorage

LAYERS, LAYER_BYTES = 2, 8
SHARD = ONE_RANK.shard(0)
KEYS = [storage_key(bytes([i]) * 32, SHARD) for i in range(4)]
PAGES = [page_content(bytes([i]) * 32, SHARD, LAYERS, LAYER_BYTES) for i in range(4)]


def blank(count: int = 1) -> list[torch.Tensor]:
    return [torch.full((LAYERS, LAYER_BYTES), 7, dtype=torch.uint8) for _ in range(count)]


@pytest.fixture
def file_storage(tmp_path: Path) -> FileStorage:
    return FileStorage(tmp_path / "pages")


def spec_of(kind: str, tmp_path: Path) -> str:
    return "memory" if kind == "memory" else f"{kind}:{tmp_path / 'pages'}"


@pytest.fixture(params=["memory", "file", "lmdb", "faulty", "memory unchecked", "file unchecked", "lmdb unchecked"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    kind, _, unchecked = request.param.partition(" ")
    if kind == "faulty":
        yield FaultyStorage(MemoryStorage())
        return
    store = open_storage(spec_of(kind, tmp_path), checksums=not unchecked)
    yield store
    store.close()


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


def test_each_page_of_a_batch_is_answered_for_itself(storage: Storage) -> None:
    storage.put_from(KEYS[1:2], PAGES[1:2])
    into = blank(3)
    assert storage.get_into(KEYS[:3], into) == [False, True, False]
    assert torch.equal(into[1], PAGES[1])
    assert storage.stats()["misses"] == 2
    assert storage.get_into([], []) == storage.put_from([], []) == []


def test_a_page_of_another_size_is_a_miss_and_counted(storage: Storage) -> None:
    storage.put_from(KEYS[:1], PAGES[:1])
    for size in (LAYER_BYTES - 1, LAYER_BYTES + 1):
        into = torch.full((LAYERS, size), 7, dtype=torch.uint8)
        assert storage.get_into(KEYS[:1], [into]) == [False]
    assert storage.stats()["short"] == 2


PLACES = {
    "in one piece": lambda: torch.zeros(LAYERS, LAYER_BYTES, dtype=torch.uint8),
    "rows apart": lambda: torch.zeros(LAYERS, 3, LAYER_BYTES, dtype=torch.uint8)[:, 1],
    "layers of layers": lambda: torch.zeros(LAYERS, 2, LAYER_BYTES, dtype=torch.uint8)[:, :, : LAYER_BYTES // 2],
    "columns": lambda: torch.zeros(LAYER_BYTES, LAYERS, dtype=torch.uint8).t(),
    "every other byte": lambda: torch.zeros(LAYERS, 2 * LAYER_BYTES, dtype=torch.uint8)[:, ::2],
}


@pytest.mark.parametrize("into", PLACES)
@pytest.mark.parametrize("source", PLACES)
def test_a_page_may_lie_anywhere(storage: Storage, source: str, into: str) -> None:
    """Row by row, whatever the strides are; and what lies between the rows is nobody's to write to."""
    page, place = PLACES[source](), PLACES[into]()
    page.copy_(PAGES[0].view(page.shape))
    assert storage.put_from(KEYS[:1], [page]) == [True]
    assert storage.get_into(KEYS[:1], [place]) == [True]
    assert torch.equal(place.reshape(-1), PAGES[0].reshape(-1))
    whole = torch.empty(0, dtype=torch.uint8).set_(place.untyped_storage())
    assert int(whole.sum()) == int(PAGES[0].sum())


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


@pytest.mark.parametrize(
    "key", ["", "ab", "../../x", "a/bcd", "ABCD", "abc.", "abc\n", "abc\0", "xyz", "abc\u0661", "\udc80bc", "a" * 300]
)
@pytest.mark.parametrize("kind", ["memory", "file", "lmdb"])
def test_a_name_that_could_be_a_path_is_refused(kind: str, key: str, tmp_path: Path) -> None:
    store = open_storage(spec_of(kind, tmp_path))
    before = [path for path in tmp_path.rglob("*") if path.is_file()]
    for call in (
        lambda: store.exists([key]),
        lambda: store.get_into([key], blank()),
        lambda: store.put_from([key], blank()),
    ):
        with pytest.raises(ValueError, match="not a storage key"):
            call()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == before
    assert not store.stats()["puts"]
    store.close()


def test_lists_and_types_must_fit(storage: Storage) -> None:
    with pytest.raises(ValueError):
        storage.get_into(KEYS[:2], blank(1))
    with pytest.raises(ValueError):
        storage.put_from(KEYS[:1], [torch.zeros(4)])


def test_keys_tell_rank_geometries_apart() -> None:
    keys = {storage_key(b"\1" * 32, Layout(tp=ranks).shard(rank)) for ranks in (1, 2, 17) for rank in range(ranks)}
    assert len(keys) == 20


def test_a_name_among_others_is_refused_too(storage: Storage) -> None:
    for key in ("../x", "ab", "a" * 201, "XYZ"):
        with pytest.raises(ValueError, match=f"not a storage key: {key!r}"):
            storage.exists([KEYS[0], key, KEYS[1]])


def test_namespaces_are_told_apart_by_every_part() -> None:
    parts = ("model", "layout", "dtype", "adapter", "salt")
    given = [
        dict(zip(parts, values, strict=True))
        for values in itertools.product(["m", "m1", "1:m"], *[["", "1:", "m"]] * 4)
    ]
    assert len({page_namespace(**each) for each in given}) == len(given)
    assert page_namespace(model="ab") != page_namespace(model="a", layout="b")


@pytest.mark.parametrize("spec", ["", "disk", "file", "file:", "memory:x", "lmdb:"])
def test_open_storage_names_what_it_knows(spec: str) -> None:
    with pytest.raises(ValueError, match=r"^storage must be 'memory', 'file:DIRECTORY'.* not "):
        open_storage(spec)


@pytest.mark.parametrize("kind", ["file", "lmdb"])
def test_open_storage_says_when_the_directory_cannot_be(kind: str, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ValueError, match="cannot use"):
        open_storage(f"{kind}:{tmp_path / 'taken'}")


@pytest.mark.parametrize("options", ["map_bytes=0", "map_bytes=x", "map_bytes", "size=3"])
def test_open_storage_says_which_option_is_wrong(options: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a number above 0 is wanted|the options here are map_bytes"):
        open_storage(f"lmdb:{tmp_path / 'pages'}?{options}")


@pytest.mark.parametrize("kind", ["file", "lmdb"])
def test_a_page_without_a_digest_is_nothing_to_who_checks(kind: str, tmp_path: Path) -> None:
    trusting, checking = (open_storage(spec_of(kind, tmp_path), checksums=on) for on in (False, True))
    trusting.put_from(KEYS[:1], PAGES[:1])
    checking.put_from(KEYS[1:2], PAGES[1:2])
    assert trusting.get_into(KEYS[:2], blank(2)) == [True, True], "who does not check takes either"
    assert checking.get_into(KEYS[:2], blank(2)) == [False, True]
    assert checking.stats()["unchecked"] == 1
    assert checking.put_from(KEYS[:1], PAGES[:1]) == [True]
    assert checking.get_into(KEYS[:1], blank()) == [True]
    trusting.close()
    checking.close()


# --- files ---------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_is_a_miss(file_storage: FileStorage) -> None:
    file_storage.put_from(KEYS[:1], PAGES[:1])
    path = file_storage.path(KEYS[0])
    good = path.read_bytes()
    for index in range(len(good)):
        path.write_bytes(good[:index] + bytes([good[index] ^ (1 << index % 8)]) + good[index + 1 :])
        into = blank()
        assert file_storage.get_into(KEYS[:1], into) == [False], index
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
        assert file_storage.get_into(KEYS[:1], blank()) == [False]
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


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("kind", ["memory", "file", "lmdb"])
def test_readers_of_one_key_see_one_whole_page(kind: str, checksums: bool, tmp_path: Path) -> None:
    store = open_storage(spec_of(kind, tmp_path), checksums)
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
    assert stats["misses"] == 0
    store.close()


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
