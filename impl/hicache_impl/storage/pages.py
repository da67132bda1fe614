"""Pages as stores see them: uint8 tensors, and the runs of memory that they lie in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from hicache_impl.storage.keys import check_keys

Run = np.ndarray[Any, np.dtype[np.uint8]]
"""Bytes that lie one behind the other, to be read or written in place: one axis, contiguous."""


class Runs(list[Run]):
    """The runs of one page, row by row, as few as may be, and their `size_bytes`.

    `flat`: the page itself in one dimension, where it lies in one piece (None: it does not).
    """

    def __init__(self, runs: Sequence[Run], flat: torch.Tensor | None = None) -> None:
        super().__init__(runs)
        self.flat = flat
        self.size_bytes = sum(run.size for run in runs)


class KnownPages(list[torch.Tensor]):
    """uint8 tensors with the `runs` of each, looked up once by their pool: stores need not look again."""

    def __init__(self, pages: Sequence[torch.Tensor], runs: Sequence[Runs]) -> None:
        super().__init__(pages)
        self.runs = runs


def check_pages(keys: Sequence[str], pages: Sequence[torch.Tensor]) -> None:
    """ValueError unless there is one uint8 tensor a key."""
    check_keys(keys)
    if len(keys) != len(pages):
        raise ValueError(f"{len(keys)} keys for {len(pages)} pages")
    if isinstance(pages, KnownPages):
        return
    for page in pages:
        if page.dtype is not torch.uint8:
            raise ValueError(f"a page is a uint8 tensor, not {page.dtype}")


def page_to_bytes(page: torch.Tensor) -> bytes:
    """The bytes of a page, row by row."""
    return page.detach().cpu().contiguous().numpy().tobytes()


def fill_page(into: torch.Tensor, payload: bytes) -> None:
    """Copy `payload` over a tensor of the same number of bytes."""
    into.copy_(torch.frombuffer(bytearray(payload), dtype=torch.uint8).view(into.shape))


def runs_of(page: torch.Tensor) -> Runs | None:
    """Where a page lies; None where even a row is scattered."""
    if page.is_contiguous():
        flat = page.view(-1)
        return Runs([flat.numpy()], flat)
    if page.stride(-1) != 1:
        return None
    return Runs(_rows(page.numpy()))


def all_runs(pages: Sequence[torch.Tensor]) -> Sequence[Runs] | None:
    """`runs_of` each; None where a page is scattered."""
    if isinstance(pages, KnownPages):
        return pages.runs
    found = [runs for page in pages if (runs := runs_of(page)) is not None]
    return found if len(found) == len(pages) else None


def whole_runs(page: torch.Tensor) -> Runs:
    """The runs of a page, or of a copy of it where it is scattered; to read from."""
    runs = runs_of(page)
    return Runs([page.contiguous().view(-1).numpy()]) if runs is None else runs


def copy_to_runs(source: Run, runs: Sequence[Run]) -> None:
    """Copy as many bytes as `runs` have; other threads may go on meanwhile."""
    if len(runs) == 1:
        np.copyto(runs[0], source)
        return
    at = 0
    for run in runs:
        np.copyto(run, source[at : at + run.size])
        at += run.size


def _rows(array: np.ndarray[Any, np.dtype[np.uint8]]) -> list[Run]:
    if array.flags.c_contiguous:
        return [array.reshape(-1)]
    return [run for part in array for run in _rows(part)]
