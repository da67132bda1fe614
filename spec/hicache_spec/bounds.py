"""§1.3 Bounds: the sizes and switches of one exploration, and the named sets of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .language import enumeration

POLICY = enumeration("policy", "best_effort wait_complete timeout")
BEST_EFFORT, WAIT_COMPLETE, TIMEOUT = POLICY

WRITE_POLICY = enumeration("write_policy", "write_through write_through_selective write_back")
WRITE_THROUGH, WRITE_THROUGH_SELECTIVE, WRITE_BACK = WRITE_POLICY

POOL_KIND = enumeration("pool_kind", "sidecar state optional_state")
SIDECAR, STATE, OPTIONAL_STATE = POOL_KIND


@dataclass(frozen=True)
class ExtraPool:
    """§12 A further pool of host slots on every rank: its kind, and how many slots it has.

    `stored[c]`: the depths of chain c for which storage has something, as long as it does not churn. Of a sidecar: the
    pages that have theirs. Of a state: the prefixes for whose end there is one. `replicated`: all ranks have the same,
    and rank 0 stores it (§11).
    """

    kind: int
    slots: int
    stored: tuple[tuple[int, ...], ...]
    replicated: bool = False


@dataclass(frozen=True)
class Bounds:
    """One configuration. Pages are the unit of length; `chain_pages` is the length of every request.

    `resident_pages[c]` pages of chain c are in the host tree at the start, `stored_pages[c]` are in storage.
    Raises ValueError, in one line, for a configuration that makes no sense.
    """

    name: str = "custom"
    requests: int = 2
    attempts: int = 1
    ranks: int = 2
    host_pages: int = 3
    chain_pages: int = 2
    threshold_pages: int = 1
    limit_pages: int = 8
    policy: int = WAIT_COMPLETE
    timeout_ticks: int = 1
    resident_pages: tuple[int, ...] = (0, 1)
    stored_pages: tuple[int, ...] = (2, 2)
    churn: bool = False
    aborts: bool = True
    stops: bool = False
    writes: bool = False
    detaches: bool = False
    resets: bool = False
    control_fails: bool = False
    device_pages: int = 0
    write_policy: int = WRITE_THROUGH
    load_quota: int = 0
    replicated: bool = False
    put_fails: bool = False
    forgets: bool = False
    pools: tuple[ExtraPool, ...] = ()

    def __post_init__(self) -> None:
        for name in ("requests", "attempts", "ranks", "host_pages", "chain_pages", "threshold_pages", "limit_pages"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if len(self.resident_pages) != len(self.stored_pages) or not self.resident_pages:
            raise ValueError("resident_pages and stored_pages must name the same chains, at least one")
        if any(not 0 <= n <= self.chain_pages for n in (*self.resident_pages, *self.stored_pages)):
            raise ValueError(f"resident and stored pages of a chain lie in 0..{self.chain_pages}")
        if sum(self.resident_pages) > self.host_pages:
            raise ValueError(f"{sum(self.resident_pages)} resident pages do not fit {self.host_pages} host pages")
        if not 0 <= self.policy < len(POLICY.members):
            raise ValueError(f"policy must be one of {', '.join(POLICY.members)}")
        if not 0 <= self.write_policy < len(WRITE_POLICY.members):
            raise ValueError(f"write_policy must be one of {', '.join(WRITE_POLICY.members)}")
        for pool in self.pools:
            self._check_pool(pool)

    def _check_pool(self, pool: ExtraPool) -> None:
        if not 0 <= pool.kind < len(POOL_KIND.members):
            raise ValueError(f"the kind of a pool must be one of {', '.join(POOL_KIND.members)}")
        if len(pool.stored) != len(self.stored_pages):
            raise ValueError("what storage has of a pool is said for each chain")
        for depths, stored in zip(pool.stored, self.stored_pages, strict=True):
            if any(not 1 <= depth <= stored for depth in depths):
                raise ValueError(f"what storage has of a pool lies at the stored pages, 1..{stored}")
        needed = sum(n if pool.kind == SIDECAR else min(n, 1) for n in self.resident_pages)
        if needed > pool.slots:
            raise ValueError(f"what is resident needs {needed} slots of a pool that has {pool.slots}")


SOLO_CHURN = Bounds(
    "solo_churn", requests=1, host_pages=2, resident_pages=(0,), stored_pages=(2,), churn=True, stops=True
)
AGAIN = Bounds("again", requests=1, attempts=2, host_pages=1, chain_pages=1, resident_pages=(0,), stored_pages=(1,))
PRESSURE = Bounds("pressure", ranks=1, host_pages=2)
PRESSURE_CHURN = replace(PRESSURE, name="pressure_churn", churn=True)
LIMITER = Bounds(
    "limiter", ranks=1, chain_pages=1, host_pages=2, limit_pages=1, resident_pages=(0, 1), stored_pages=(1, 1)
)
_ONE_CHAIN = Bounds(ranks=1, host_pages=2, resident_pages=(0,), stored_pages=(2,))
_ONE_PAGE = Bounds(chain_pages=1, host_pages=1, resident_pages=(0,), stored_pages=(1,))
SOLO_BEST_EFFORT = replace(_ONE_CHAIN, name="solo_best_effort", requests=1, ranks=2, policy=BEST_EFFORT)
SOLO_TIMEOUT = replace(_ONE_CHAIN, name="solo_timeout", requests=1, ranks=2, policy=TIMEOUT, churn=True)

TINY = (SOLO_CHURN, SOLO_BEST_EFFORT, SOLO_TIMEOUT, AGAIN, PRESSURE, PRESSURE_CHURN, LIMITER)
"""Seconds: one request on two ranks, and two requests on one."""

SMALL = (
    replace(PRESSURE, name="pair_pressure", ranks=2),
    replace(_ONE_PAGE, name="pair_churn", churn=True),
    replace(LIMITER, name="pair_limiter", ranks=2, stops=True),
    replace(_ONE_PAGE, name="pair_again", ranks=1, attempts=2),
    SOLO_CHURN,
    AGAIN,
    PRESSURE_CHURN,
    replace(_ONE_CHAIN, name="best_effort", policy=BEST_EFFORT, stops=True),
    replace(_ONE_CHAIN, name="timeout", policy=TIMEOUT, threshold_pages=2),
    replace(_ONE_CHAIN, name="timeout_churn", requests=1, ranks=2, policy=TIMEOUT, threshold_pages=2, churn=True),
    replace(_ONE_CHAIN, name="writes", host_pages=3, threshold_pages=2, writes=True),
)
"""Under a minute: two requests on two ranks at the fine grain, under pressure, churn, resubmission, every policy."""

TRIO_PRESSURE = replace(PRESSURE, name="trio_pressure", requests=3, ranks=2)

MEDIUM = (TRIO_PRESSURE, *SMALL)
"""Millions of states, for the compiled engines: three requests on two ranks."""

BOUNDS = {"tiny": TINY, "small": SMALL, "medium": MEDIUM}
