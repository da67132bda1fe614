"""§8.11 sglang 0.5.21 to 0.5.23, but for attempts: what was missed or declined is asked for again, boundedly.

The releases have a name for a request's stay in the queue, not for a look-up (§8.12). Here every retry is an attempt,
and an answer or an ack belongs to the attempt that it is of.
"""

from __future__ import annotations

from . import retrying
from .progress_ack import PROGRESS_ACK
from .retrying import RETRIES_WHAT_WAS_MISSED, WithRetries

ATTEMPTS = PROGRESS_ACK.variant(
    name="attempts",
    summary="acks, and a request that missed or was declined by the limiter asks again, as a further attempt",
    shape=WithRetries,
    modules=(retrying,),
    replaces=RETRIES_WHAT_WAS_MISSED,
)
