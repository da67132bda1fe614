"""The files of a release's own store, as the harness reads, damages and limits them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from hicache_checks.targets.sglang.files import Files, FileShelf, new_directory  # noqa: E402
from hicache_checks.targets.sglang.shelf import SHELVES  # noqa: E402
from hicache_checks.targets.sglang.strangers import Strangers, known, name_of, store_of  # noqa: E402

PAGE = torch.arange(16, dtype=torch.float32)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path, lambda key: f"{key}_mine_0_1")


def test_a_page_is_read_as_it_was_written(files: Files, tmp_path: Path) -> None:
    files["k"] = PAGE
    (tmp_path / "k_theirs_0_1.bin").write_bytes(b"1234")
    assert torch.equal(files["k"], PAGE)
    assert list(files) == ["k"]
    assert "other" not in files


def test_a_damaged_page_is_shorter(files: Files) -> None:
    files["j"], files["k"] = PAGE, PAGE
    FileShelf(files, PAGE.nbytes).damage(["j", "k"])
    assert torch.equal(files["j"], PAGE)
    assert torch.equal(files["k"], PAGE[:8])


def test_a_full_disk_takes_half_a_page_until_it_is_healed(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = FileShelf(files, PAGE.nbytes)
    monkeypatch.setitem(SHELVES, 0, shelf)
    shelf.break_("put", "short")
    try:
        with pytest.raises(OSError, match="large"):
            files["k"] = PAGE
        assert shelf.has_failed_to_put
        assert len(files["k"]) == len(PAGE) // 2
    finally:
        shelf.heal()
    files["k"] = PAGE
    assert torch.equal(files["k"], PAGE)


def test_files_fail_in_no_other_way(files: Files) -> None:
    with pytest.raises(ValueError, match="cannot raise in get"):
        FileShelf(files, PAGE.nbytes).break_("get", "raise")


def test_a_new_directory_takes_the_place_of_the_old_one() -> None:
    old = Path(new_directory())
    (old / "page.bin").write_bytes(b"1")
    new = Path(new_directory())
    assert not old.exists()
    assert not list(new.iterdir())


def test_a_page_that_is_written_again_is_seen(files: Files) -> None:
    files["j"], files["k"] = PAGE, PAGE
    shelf = FileShelf(files, PAGE.nbytes)
    shelf.look()
    files.path("k").write_bytes(files.path("k").read_bytes())
    shelf.look()
    assert shelf.written_again == {"k"}
    files["j"] = PAGE
    shelf.damage(["k"])
    shelf.look()
    files.path("k").write_bytes(PAGE.numpy().tobytes())
    shelf.look()
    assert shelf.written_again == {"k"}, "whoever writes a new page, or mends one, does not write it again"
    shelf.forget()
    files["j"] = PAGE
    files.path("j").write_bytes(PAGE.numpy().tobytes())
    shelf.look()
    assert not shelf.written_again


def test_a_pinned_file_cannot_be_removed_and_is_no_page(files: Files) -> None:
    files["k"] = PAGE
    FileShelf(files, PAGE.nbytes).pin(["k"])
    assert "k" not in files
    assert files.get("k") is None
    assert list(files) == []
    with pytest.raises(OSError, match="directory"):
        files.path("k").unlink()


class Kept:
    """A store as a release may have it: the names of its pages say whose they are, or not."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        self.pages: dict[str, object] = {}
        self.configuration = configuration

    def set(self, key: str, value: object) -> bool:
        self.pages[key] = value
        return key != "refused"

    def exists(self, key: str) -> bool:
        return key in self.pages


@dataclass
class Configuration:
    model_name: str = "mine"
    pp_rank: int = 0


def test_a_stranger_is_the_release_s_own_store_with_another_configuration() -> None:
    assert store_of(Kept(), Configuration(), {"pp_rank": 1}).configuration == Configuration("mine", 1)
    assert store_of(Kept(), Configuration(), {"attn_cp_rank": 1}).configuration == Configuration()
    assert store_of(Kept(), None, {"pp_rank": 1}).configuration is None
    assert name_of({"pp_rank": 1, "model_name": "theirs"}) == "model_name theirs, pp_rank 1"
    with pytest.raises(ValueError, match="not told its colour"):
        known({"colour": "red"})


def test_what_strangers_stored_stays() -> None:
    strangers, store = Strangers(), Kept()
    strangers.put("they", store, {"j": PAGE, "k": PAGE})
    assert list(strangers.problems()) == []
    del store.pages["j"]
    assert list(strangers.problems()) == ["P19 1 pages that 'they' had stored are gone"]
    with pytest.raises(RuntimeError, match="does not take"):
        strangers.put("others", store, {"refused": PAGE})
