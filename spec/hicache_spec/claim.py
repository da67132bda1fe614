"""§8 The configurations in which designs are compared: small, with a tight host pool, on one rank.

EQUIVALENCE.md says in its first section why these, and why one rank is enough.
"""

from __future__ import annotations

from dataclasses import replace

from .bounds import BEST_EFFORT, TIMEOUT, Bounds

CLAIM_PAIR = Bounds("claim_pair", requests=2, ranks=1, host_pages=2, resident_pages=(0, 1), stored_pages=(2, 1))
"""Chain 0 can be fetched whole, if the one page of chain 1 is evicted; a request for chain 1 protects that page and
misses."""
CLAIM_TRIO = replace(CLAIM_PAIR, name="claim_trio", requests=3, aborts=False)
CLAIM_NOTHING = replace(CLAIM_TRIO, name="claim_nothing", chain_pages=3, threshold_pages=2)
"""As the trio, with a threshold that a shorter prefix misses: without the page of chain 1 nothing is fetched."""
CLAIM_VICTIMS = replace(
    CLAIM_TRIO, name="claim_victims", host_pages=3, resident_pages=(0, 1, 1), stored_pages=(2, 1, 2)
)
"""Two chains have a page that can be evicted."""
CLAIM_FOUR = replace(CLAIM_TRIO, name="claim_four", requests=4)

CLAIM = (CLAIM_PAIR, CLAIM_TRIO, CLAIM_NOTHING, CLAIM_VICTIMS, CLAIM_FOUR)

CLAIM_MORE = (
    replace(CLAIM_TRIO, name="claim_trio_aborts", aborts=True),
    replace(CLAIM_TRIO, name="claim_trio_churn", churn=True),
    replace(CLAIM_PAIR, name="claim_pair_stops", stops=True),
    replace(CLAIM_PAIR, name="claim_pair_ranks", ranks=2),
    replace(CLAIM_PAIR, name="claim_pair_churn", churn=True),
    replace(CLAIM_PAIR, name="claim_best_effort", policy=BEST_EFFORT, churn=True, aborts=False),
    replace(CLAIM_PAIR, name="claim_timeout", policy=TIMEOUT, churn=True, aborts=False),
)
"""Every kind of call, two ranks, storage that churns, the other policies: each larger, or another question."""

CLAIM_TOLD = replace(
    CLAIM_FOUR, name="claim_told", host_pages=4, chain_pages=3, stored_pages=(3, 1), limit_pages=12, churn=True
)
"""Where four requests and churning storage tell designs apart: too large to be compared whole."""

COMPARED = {"claim": CLAIM, **{b.name: (b,) for b in (*CLAIM, *CLAIM_MORE)}}
"""Named bounds of a comparison: all of the claim's, or one configuration by its name."""
