"""The reference as a system under test: what is registered under `hicheck.targets`. Each factory takes nothing.

`profile`: the design of the specification that it is to be held to, if not the canonical one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hicache_impl.adapter import Reference
from hicache_impl.config import POOL_LAYOUTS, WRITE_POLICIES, CacheConfig
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
    "read_batch_pages": (1, 2),
    "host_layout": POOL_LAYOUTS,
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
    """The reference on plain threads, with all that it may be told of its tiers, and `more` as of `Reference`."""

    def __init__(self, **more: Any) -> None:
        self._copies = LateCopies()
        super().__init__(**{"runtime": self._copies, "variants": TIERS, **more})

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


REPLICATED = {"replicated": (False, True)}

# What a model keeps beside its pages, by how much room there is for it: the values of the variant `beside`.
DRAFT = {"name": "draft", "kind": "sidecar"}
PACKED = {"name": "index", "kind": "sidecar", "place": "packed"}
STATE = {"name": "state", "kind": "state", "host_slots": 8, "device_slots": 8}
FEW_STATES = {**STATE, "host_slots": 2, "device_slots": 1}
WINDOW = {"name": "window", "kind": "window", "window_pages": 2, "host_slots": 16, "device_slots": 16}
NARROW_WINDOW = {**WINDOW, "host_slots": 3, "device_slots": 2}
BESIDE: dict[str, dict[str, tuple[dict[str, Any], ...]]] = {
    "hiradix": {"separate": (DRAFT,), "packed": (PACKED,), "both": (PACKED, DRAFT)},
    "hi_mamba": {"roomy": (STATE,), "tight": (FEW_STATES,), "draft": (DRAFT, FEW_STATES)},
    "unified": {
        "roomy": (WINDOW, STATE),
        "tight": (NARROW_WINDOW, FEW_STATES),
        "window": (NARROW_WINDOW,),
        "all": (DRAFT, PACKED, NARROW_WINDOW, FEW_STATES),
    },
}


class WithPools(WithTiers):
    """The reference with a tree and its pools, of which the programs choose by the variant `beside`."""

    def __init__(self, tree: str) -> None:
        super().__init__(settings={"tree": tree}, variants={"beside": tuple(BESIDE[tree]), **TIERS, **REPLICATED})
        self._pools: Mapping[str, Sequence[Mapping[str, Any]]] = BESIDE[tree]

    def reset(self, config: CacheConfig | Mapping[str, Any]) -> None:
        """`beside`, if it is not given, is the first."""
        if not isinstance(config, CacheConfig):
            fields = dict(config)
            beside = fields.pop("beside", next(iter(self._pools)))
            config = {"pools": self._pools[beside], **fields}
        super().reset(config)


def sidecars() -> WithPools:
    """The reference with sidecars, on plain threads."""
    return WithPools("hiradix")


def hi_mamba() -> WithPools:
    """The reference with states, on plain threads."""
    return WithPools("hi_mamba")


def unified() -> WithPools:
    """The reference with windows and states, on plain threads."""
    return WithPools("unified")


# It drains in another order than the canonical design.
revoke_queue.profile = "revoke_queue_sampled"  # type: ignore[attr-defined]
