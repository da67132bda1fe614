"""The reference as a system under test: what is registered under `hicheck.targets`. Each factory takes nothing.

`profile`: the design of the specification that it is to be held to, if not the canonical one.
"""

from __future__ import annotations

from hicache_impl.adapter import Reference
from hicache_impl.config import LAYOUTS, WRITE_POLICIES
from hicache_impl.events import OpId
from hicache_impl.gated import GatedRuntime
from hicache_impl.runtime import ThreadRuntime, Waiter
from hicache_impl.variants.revoke_queue import open_reference


def reference() -> Reference:
    """The reference on plain threads: real ones, or those of a simulation."""
    return Reference(runtime=ThreadRuntime())


def gated() -> Reference:
    """The reference on threads that a test can hold at gates."""
    return Reference(runtime=GatedRuntime())


# What a system may be told of its tiers: the values of each, the plainest first.
TIERS: dict[str, tuple[object, ...]] = {
    "async_copies": (True, False),
    "write_policy": WRITE_POLICIES,
    "load_back_pages_max": (0, 2),
    "host_layout": LAYOUTS,
}


class LateCopies(ThreadRuntime):
    """Plain threads, of which those that copy to the host can be held back."""

    def __init__(self) -> None:
        self._go_on: Waiter | None = None

    def hold_copies(self) -> None:
        """From now on no copy to the host begins."""
        self._go_on = self.event()

    def release_copies(self) -> None:
        """All begin that should have."""
        if self._go_on is not None:
            self._go_on.set()
            self._go_on = None

    def gate(self, name: str, rank: int, op: OpId | None = None) -> None:
        """Open, but for copies that are held."""
        if name == "write.take" and (go_on := self._go_on) is not None:
            go_on.wait()


class WithTiers(Reference):
    """The reference on plain threads, with all that it may be told of its tiers."""

    def __init__(self) -> None:
        self._copies = LateCopies()
        super().__init__(runtime=self._copies, variants=TIERS)

    def capabilities(self) -> frozenset[str]:
        """Copies can be held, too."""
        return super().capabilities() | {"copies"}

    def hold_copies(self) -> None:
        """No copy to the host begins. Not where the device waits for them before it gives pages to others."""
        if self.config.write_policy != "write_back":
            self._copies.hold_copies()

    def release_copies(self) -> None:
        """They begin."""
        self._copies.release_copies()

    def close(self) -> None:
        """See Reference."""
        self.release_copies()
        super().close()


def tiers() -> WithTiers:
    """The reference on plain threads, with all that it may be told of its tiers."""
    return WithTiers()


def revoke_queue() -> Reference:
    """The variant with a queue for revokes, on plain threads."""
    return open_reference(runtime=ThreadRuntime())


# It drains in another order than the canonical design.
revoke_queue.profile = "revoke_queue_sampled"  # type: ignore[attr-defined]
