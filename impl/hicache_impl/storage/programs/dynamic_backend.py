"""A store from outside, in the process that `serve.py` is the program of: its pages are records in mapped memory."""

from __future__ import annotations

import importlib
import mmap
from collections.abc import Sequence
from typing import Any

import torch
from serve import Unusable  # type: ignore[import-not-found]  # the program's own module


class Backend:
    """`CLASS()` of `MODULE`: its `exists`, `get_into`, `put_from` and `clear` are called, and their answers judged."""

    def __init__(self, memory: mmap.mmap, module: str, name: str) -> None:
        try:
            self._store: Any = getattr(importlib.import_module(module), name)()
        except Exception as error:
            raise Unusable(f"{module}:{name} cannot be opened: {type(error).__name__}: {error}") from error
        self._memory = torch.frombuffer(memory, dtype=torch.uint8)

    def exists(self, keys: Sequence[str]) -> list[bool]:
        """ValueError: an answer that is no leading run."""
        count = self._store.exists(keys)
        if type(count) is not int or not 0 <= count <= len(keys):
            raise ValueError(f"exists of {len(keys)} pages answers {count!r}")
        return [index < count for index in range(len(keys))]

    def get(self, keys: Sequence[str], places: Sequence[tuple[int, int]]) -> list[int]:
        """As long as its place, or -1. ValueError: an answer of another form."""
        # Each read has memory that nobody else ever gets: the store may write to it when it likes.
        lent = [torch.zeros(size, dtype=torch.uint8) for _, size in places]
        got = _bools(self._store.get_into(keys, lent), len(keys))
        for is_there, page, (offset, size) in zip(got, lent, places, strict=True):
            if is_there:
                self._memory[offset : offset + size].copy_(page)
        return [size if is_there else -1 for is_there, (_, size) in zip(got, places, strict=True)]

    def put(self, keys: Sequence[str], places: Sequence[tuple[int, int]]) -> list[bool]:
        """ValueError: an answer of another form."""
        pages = [self._memory[offset : offset + size].clone() for offset, size in places]
        return _bools(self._store.put_from(keys, pages), len(keys))

    def clear(self) -> list[int]:
        """What it does is its own matter."""
        self._store.clear()
        return []


def _bools(answer: Any, count: int) -> list[bool]:
    if not isinstance(answer, list) or len(answer) != count or not all(type(each) is bool for each in answer):
        raise ValueError(f"a call with {count} pages answers {str(answer)[:60]}, not a list of as many bools")
    return answer
