"""§11 The part *storing*: storage that remembers, and a backup thread on every rank. It needs *copying* beneath it."""

from __future__ import annotations

from dataclasses import replace

from ..bounds import WRITE_BACK, Bounds
from ..language import Part
from . import storing_properties, storing_rules
from .copying import COPY_SOLO
from .storing_rules import WithStorage

STORING = Part(
    name="storing",
    summary="storage remembers what backup threads put there",
    shape=WithStorage,
    modules=(storing_rules, storing_properties),
    replaces={
        "at_rest": storing_rules.at_rest_with_backups,
        "forget_from": storing_rules.forget_what_is_stored,
        "finish_copy": storing_rules.store_what_was_copied,
        "run": storing_rules.run_and_store,
        "may_answer": storing_rules.may_answer_what_is_stored,
        "attach": storing_rules.attach_what_is_stored,
        "inv_rest_restores_the_pool": storing_properties.inv_rest_restores_the_pools_with_backups,
        "inv_kept_exactly": storing_properties.inv_kept_exactly_by_loads_and_jobs,
    },
)

STORE_SOLO = replace(
    COPY_SOLO, name="store_solo", chain_pages=2, threshold_pages=3, host_pages=2, device_pages=2, put_fails=True
)
STORE_LONG = replace(COPY_SOLO, name="store_long", ranks=1, put_fails=True)
STORE_PRESSURE = replace(
    STORE_SOLO,
    name="store_pressure",
    ranks=1,
    host_pages=3,
    device_pages=3,
    load_quota=2,
    resident_pages=(0, 1),
    stored_pages=(0, 0),
)
"""Two chains, and fewer host pages than their four: what is being stored keeps its pages from others."""

STORE_REPLICATED = replace(STORE_SOLO, name="store_replicated", replicated=True)
STORE_FORGETS = replace(STORE_SOLO, name="store_forgets", ranks=1, forgets=True)
STORE_BACK = replace(STORE_SOLO, name="store_back", write_policy=WRITE_BACK)

STORE_FETCH = Bounds(
    "store_fetch",
    requests=1,
    ranks=2,
    host_pages=2,
    chain_pages=2,
    resident_pages=(0,),
    stored_pages=(0,),
    device_pages=2,
    load_quota=2,
)
"""With prefetch: what comes to storage is stored in the run, on each rank in its own time."""

STORE_FETCH_CHURN = replace(STORE_FETCH, name="store_fetch_churn", ranks=1, put_fails=True, forgets=True, churn=True)

STORE_FETCH_PAIR = replace(STORE_FETCH, name="store_fetch_pair", requests=2, ranks=1)
STORE_FETCH_BACK = replace(STORE_FETCH, name="store_fetch_back", ranks=1, write_policy=WRITE_BACK)

STORING_BOUNDS = (
    *(STORE_SOLO, STORE_LONG, STORE_PRESSURE, STORE_REPLICATED, STORE_FORGETS, STORE_BACK),
    *(STORE_FETCH, STORE_FETCH_CHURN, STORE_FETCH_PAIR, STORE_FETCH_BACK),
)
