"""Faulty variants of the implementation: the proof that each check of it can fail. Nothing in the product imports them.

Each is named for its fault and made by subclassing one part. `MUTANTS` show in prefetches, the tiers and the store;
`CONTROL` only when the store is detached and attached, the cache is reset, copies between the tiers are under way, or
pages are read several at a time;
`POOLS` only with models that keep more than pages.
"""

from __future__ import annotations

from hicache_impl.mutants.abort import ABORTS
from hicache_impl.mutants.copies import COPIES
from hicache_impl.mutants.drain import DRAIN
from hicache_impl.mutants.founding import FOUNDING, FOUNDING_CONTROL
from hicache_impl.mutants.io import BATCHES, IO
from hicache_impl.mutants.mutant import ImplMutant
from hicache_impl.mutants.poll import POLL
from hicache_impl.mutants.pools import POOLS, POOLS_CONTROL
from hicache_impl.mutants.query import QUERY
from hicache_impl.mutants.records import RECORDS
from hicache_impl.mutants.stores import STORES
from hicache_impl.mutants.tiers import TIERS

MUTANTS: tuple[ImplMutant, ...] = (
    *QUERY,
    *IO,
    *DRAIN,
    *RECORDS,
    *POLL,
    *ABORTS,
    *TIERS,
    *STORES,
    *FOUNDING,
)
CONTROL: tuple[ImplMutant, ...] = (*FOUNDING_CONTROL, *COPIES, *POOLS_CONTROL, *BATCHES)

__all__ = ["CONTROL", "MUTANTS", "POOLS", "ImplMutant"]
