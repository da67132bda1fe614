"""Somebody else's cache, without threads and with words of its own: what an outsider brings to hicheck.

It was written from the text of the protocol and shares no code with the reference. It knows nothing of ranks.
"""

from __future__ import annotations

from toy_fork.loop import Loop

__all__ = ["Loop"]
