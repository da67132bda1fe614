"""sglang 0.5.16 and 0.5.17: the query thread revokes, by a queue that each tick drains before it looks at hits.

So a revoke gives back before any hit of the same tick is granted, also before a hit that was answered earlier. Lengths
are read one after the other, as in the releases: a tick may count a hit that was answered after a revoke that it does
not count (in the specification, `revoke_queue_sampled`). Operations are known by their attempt, as in the reference, so
that the two differ in nothing but the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hicache_impl.adapter import Reference
from hicache_impl.cache import HiCache
from hicache_impl.config import CacheConfig
from hicache_impl.controller import Controller
from hicache_impl.gated import GatedRuntime
from hicache_impl.operation import Operation
from hicache_impl.runtime import Queue, ThreadRuntime
from hicache_impl.storage import Storage


class RevokingController(Controller):
    """The query thread compares the agreed hit with the threshold; one that was terminated before has no hit."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.revoke_queue = self.runtime.queue()

    def queue_lengths(self) -> dict[str, int]:
        """Items in every queue now."""
        return {**super().queue_lengths(), "revoke": self.revoke_queue.qsize()}

    def _hand_over(self, op: Operation) -> None:
        """By the agreed hit alone, because the terminated flag may reach the query threads at different moments."""
        if op.hit_pages < self.config.threshold_pages:
            self.revoke_queue.put(op)
        else:
            super()._hand_over(op)


class RevokingCache(HiCache):
    """One queue more to agree on and to drain. What becomes of its operations is what the reference makes of them."""

    controller: RevokingController

    def _control_queues(self) -> tuple[tuple[Queue, Callable[[list[Any]], None]], ...]:
        return ((self.controller.revoke_queue, self._drain_hits), *super()._control_queues())


def open_reference(
    config: CacheConfig | Mapping[str, Any] | None = None,
    storage: str | Storage | Sequence[Storage] = "memory",
    runtime: GatedRuntime | ThreadRuntime | None = None,
    *,
    timeout_s: float = 60,
) -> Reference:
    """The adapter of this variant; arguments as of `Reference`."""
    return Reference(
        config,
        storage,
        runtime,
        cache_class=RevokingCache,
        controller_class=RevokingController,
        timeout_s=timeout_s,
    )
