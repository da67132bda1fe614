"""The reference as a system under test: what is registered under `hicheck.targets`. Each factory takes nothing.

`profile`: the design of the specification that it is to be held to, if not the canonical one.
"""

from __future__ import annotations

from hicache_impl.adapter import Reference
from hicache_impl.config import LAYOUTS, WRITE_POLICIES
from hicache_impl.gated import GatedRuntime
from hicache_impl.runtime import ThreadRuntime
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


def tiers() -> Reference:
    """The reference on plain threads, with all that it may be told of its tiers."""
    return Reference(runtime=ThreadRuntime(), variants=TIERS)


def revoke_queue() -> Reference:
    """The variant with a queue for revokes, on plain threads."""
    return open_reference(runtime=ThreadRuntime())


# It drains in another order than the canonical design.
revoke_queue.profile = "revoke_queue_sampled"  # type: ignore[attr-defined]
