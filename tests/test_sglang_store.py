"""The files of a release's own store, as the harness reads, damages and limits them."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from hicache_checks.targets.sglang.files import Files, FileShelf, new_directory  # noqa: E402

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


def test_a_full_disk_takes_half_a_page_until_it_is_healed(files: Files) -> None:
    shelf = FileShelf(files, PAGE.nbytes)
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
