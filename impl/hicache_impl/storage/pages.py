"""Pages as stores see them: uint8 tensors, and the runs of memory that they lie in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from hicache_impl.storage.keys import check_keys

Run = np.ndarray[Any, np.dtype[np.uint8]]
"""Bytes that lie one behind the other, to be read or written in place; of any shape, C-contiguous."""


def check_pages(keys: Sequence[str], pages: Sequence[torch.Tensor]) -> None:
    """ValueError unless there is one uint8 tensor a key."""
    check_keys(keys)
    if len(keys) != len(pages):
        raise ValueError(f"{len(keys)} keys for {len(pages)} pages")
    for page in pages:
        if page.dtype is not torch.uint8:
            raise ValueError(f"a page is a uint8 tensor, not {page.dtype}")


def page_to_bytes(page: torch.Tensor) -> bytes:
    """The bytes of a page, row by row."""
    return page.detach().cpu().contiguous().numpy().tobytes()


def fill_page(into: torch.Tensor, payload: bytes) -> None:
    """Copy `payload` over a tensor of the same number of bytes."""
    into.copy_(torch.frombuffer(bytearray(payload), dtype=torch.uint8).view(into.shape))


def runs_of(page: torch.Tensor) -> list[Run] | None:
    """The memory of a page, row by row, as few runs as may be; None where even a row is scattered."""
    if page.is_contiguous():
        return [page.numpy()]
    if page.stride(-1) != 1:
        return None
    return _rows(page.numpy())


def whole_runs(page: torch.Tensor) -> list[Run]:
    """The runs of a page, or of a copy of it where it is scattered; to read from."""
    runs = runs_of(page)
    return [page.contiguous().numpy()] if runs is None else runs


def copy_to_runs(source: Run, runs: Sequence[Run]) -> None:
    """Copy as many bytes as `runs` have; other threads may go on meanwhile."""
    if len(runs) == 1:
        run = runs[0]
        np.copyto(run, source.reshape(run.shape))
        return
    at = 0
    for run in runs:
        np.copyto(run, source[at : at + run.size].reshape(run.shape))
        at += run.size


def _rows(array: Run) -> list[Run]:
    if array.flags.c_contiguous:
        return [array]
    return [run for part in array for run in _rows(part)]
