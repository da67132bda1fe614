"""A draft model: what it knows of a page is kept in pools of its own, at the same slots as the page itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hicache_checks.targets.sglang import building
from hicache_checks.targets.sglang.content import content
from hicache_checks.targets.sglang.indices import NoIndices

if TYPE_CHECKING:
    from hicache_checks.targets.sglang.rank_model import RankModel

DRAFT = "draft"
Prefix = Sequence[object]


class Draft(NoIndices):
    """Of a rank. `others`: what else is beside a page."""

    def __init__(self, rank: RankModel, others: NoIndices) -> None:
        self._rank = rank
        self._others = others
        self._pool = building.draft_pool(rank.parts.allocator.size, rank.page)
        tell = getattr(rank.controller, "set_draft_kv_pool", None)
        if tell is not None:
            # The oldest cannot be told of a draft model, and run beside one.
            tell(self._pool, building.draft_host_pool(self._pool, rank.host.size, rank.page))

    def write(self, prefix: Prefix, slots: torch.Tensor) -> None:
        """See NoIndices."""
        self._others.write(prefix, slots)
        for place, rows in enumerate(self._rows()):
            rows[slots] = self._content(prefix, place, rows[slots])

    def wrong_on_device(self, prefix: Prefix, slots: torch.Tensor) -> Iterator[str]:
        """See NoIndices."""
        yield from self._others.wrong_on_device(prefix, slots)
        pages = [rows[slots] for rows in self._rows()]
        if not all(torch.equal(page, self._content(prefix, place, page)) for place, page in enumerate(pages)):
            yield f"P6 the draft model's device page of {list(prefix)} holds other bytes"

    def wrong_on_host(self, prefix: Prefix, slot: int) -> Iterator[str]:
        """See NoIndices."""
        yield from self._others.wrong_on_host(prefix, slot)

    def bytes_of(self, prefix: Prefix) -> torch.Tensor | None:
        """See NoIndices."""
        return self._others.bytes_of(prefix)

    def stored_problems(self, name: str, prefix: Prefix) -> Iterator[str]:
        """See NoIndices."""
        yield from self._others.stored_problems(name, prefix)

    def read_too_early(self) -> Iterator[str]:
        """See NoIndices."""
        yield from self._others.read_too_early()

    def _rows(self) -> list[Any]:
        """Keys, then values, of each layer."""
        return [*self._pool.k_buffer, *self._pool.v_buffer]

    def _content(self, prefix: Prefix, place: int, like: torch.Tensor) -> torch.Tensor:
        return content((DRAFT, place, *prefix), self._rank.number, like)
