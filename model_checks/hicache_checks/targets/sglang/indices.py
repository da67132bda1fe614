"""Indices: what layers of sparse attention look up a page by, beside its keys and values.

An index has no slots of its own: it is where its page is, on the device, on the host, and in the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hicache_checks.targets.sglang.content import content

if TYPE_CHECKING:
    from hicache_checks.targets.sglang.rank_model import RankModel

POOL = "indexer"
"""What the releases call the pool of indices; its name is a part of what stores call an index."""
BUFFER = "index_k_with_scale_buffer"
"""What they call its tensors: by layer, then by page."""
GETTERS = "get_index"
"""How the names of the functions begin by which layers ask for them."""
Prefix = Sequence[object]


def index_stored_as(name: str) -> str:
    """What a store calls the index of the page of this name."""
    return f"{name}.{POOL}"


class NoIndices:
    """Of a model that has none."""

    def write(self, prefix: Prefix, slots: torch.Tensor) -> None:
        """The model's answer for the last page of a prefix, which is in these slots of the device."""

    def wrong_on_device(self, prefix: Prefix, slots: torch.Tensor) -> Iterator[str]:
        """Is the index of the page in these slots that of another prefix? One line each, with the property first."""
        yield from ()

    def wrong_on_host(self, prefix: Prefix, slot: int) -> Iterator[str]:
        """The same of the page that begins at a host slot."""
        yield from ()

    def bytes_of(self, prefix: Prefix) -> torch.Tensor | None:
        """The index of the last page of a prefix as the release would store it."""

    def stored_problems(self, name: str, prefix: Prefix) -> Iterator[str]:
        """At rest: what is wrong with the index of the page that the store has under this name, one line each."""
        yield from ()

    def read_too_early(self) -> Iterator[str]:
        """Functions by which layers ask for indices without waiting until these are loaded, one line each."""
        yield from ()


class Indices(NoIndices):
    """Of the pools of a rank."""

    def __init__(self, rank: RankModel) -> None:
        self._rank = rank
        self._pool = rank.parts.device
        host = rank.controller.mem_pool_host
        entries = getattr(host, "entry_map", {})
        self._host_pool = next((entry.host_pool for name, entry in entries.items() if name == POOL), host)

    def write(self, prefix: Prefix, slots: torch.Tensor) -> None:
        """See NoIndices."""
        for layer, part in enumerate(self._parts(self._pool, int(slots[0]))):
            part.copy_(self._content(prefix, layer, part))

    def wrong_on_device(self, prefix: Prefix, slots: torch.Tensor) -> Iterator[str]:
        """See NoIndices."""
        yield from self._wrong("device", self._pool, prefix, int(slots[0]))

    def wrong_on_host(self, prefix: Prefix, slot: int) -> Iterator[str]:
        """See NoIndices."""
        yield from self._wrong("host", self._host_pool, prefix, slot)

    def bytes_of(self, prefix: Prefix) -> torch.Tensor:
        """See NoIndices."""
        parts = self._parts(self._host_pool, 0)
        return torch.cat([self._content(prefix, layer, part).flatten() for layer, part in enumerate(parts)])

    def stored_problems(self, name: str, prefix: Prefix) -> Iterator[str]:
        """See NoIndices."""
        shelf = self._rank.shelf
        index = shelf.pages.get(index_stored_as(name))
        if index is not None and not torch.equal(index.flatten(), self.bytes_of(prefix)):
            yield f"P30 the store does not hold the index of {list(prefix)}"
        if index is None and name in shelf.pages and not shelf.has_failed_to_put:
            yield f"P20 the store has the page of {list(prefix)} without its index"

    def read_too_early(self) -> Iterator[str]:
        """See NoIndices."""
        for name in sorted(name for name in dir(self._pool) if name.startswith(GETTERS)):
            if not self._waits(name):
                yield f"P6 {name} does not wait until the index is loaded"

    def _waits(self, name: str) -> bool:
        """Does a function of the pool wait for a layer? What it does besides, needs an accelerator."""
        waiting = _Waiting()
        before, self._pool.layer_transfer_counter = self._pool.layer_transfer_counter, waiting
        get = getattr(self._pool, name)
        try:
            get(*(0 for _ in range(get.__code__.co_argcount - 1)))
        except Exception:
            pass
        finally:
            self._pool.layer_transfer_counter = before
        return waiting.has_been_asked

    def _wrong(self, tier: str, pool: Any, prefix: Prefix, slot: int) -> Iterator[str]:
        parts = self._parts(pool, slot)
        if not all(torch.equal(part, self._content(prefix, layer, part)) for layer, part in enumerate(parts)):
            yield f"P6 the {tier}'s index of {list(prefix)} has other bytes"

    def _parts(self, pool: Any, slot: int) -> list[torch.Tensor]:
        """Of the page that begins at a slot, layers first."""
        return [layer[slot // self._rank.page] for layer in getattr(pool, BUFFER)]

    def _content(self, prefix: Prefix, layer: int, like: torch.Tensor) -> torch.Tensor:
        wide = content((POOL, layer, *prefix), self._rank.number, torch.empty(like.shape, dtype=torch.int64))
        return (wide % torch.iinfo(like.dtype).max).to(like.dtype)


class _Waiting:
    """Stands for what counts the layers that are loaded."""

    def __init__(self) -> None:
        self.has_been_asked = False

    def wait_until(self, layer: int) -> None:
        """Somebody waits for a layer."""
        self.has_been_asked = True
