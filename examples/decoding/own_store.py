"""A store of one's own, for `dynamic:decoding.own_store:OwnStore`: five calls are all that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import torch


class OwnStore:
    """Pages in a dictionary. What is handed to it is on loan for the time of the call."""

    def __init__(self) -> None:
        self._pages: dict[str, torch.Tensor] = {}

    def exists(self, keys: Sequence[str]) -> int:
        """How many from the first are here without a gap."""
        return sum(1 for _ in takewhile(self._pages.__contains__, keys))

    def get_into(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
        """Fill what is here."""
        return [self._fill(key, page) for key, page in zip(keys, into, strict=True)]

    def put_from(self, keys: Sequence[str], pages: Sequence[torch.Tensor]) -> list[bool]:
        """Keep copies."""
        self._pages.update((key, page.clone()) for key, page in zip(keys, pages, strict=True))
        return [True] * len(keys)

    def stats(self) -> dict[str, int]:
        """Pages now."""
        return {"pages": len(self._pages)}

    def clear(self) -> None:
        """Forget all."""
        self._pages.clear()

    def close(self) -> None:
        """There is nothing to let go of."""

    def _fill(self, key: str, page: torch.Tensor) -> bool:
        kept = self._pages.get(key)
        if kept is None or kept.shape != page.shape:
            return False
        page.copy_(kept)
        return True
