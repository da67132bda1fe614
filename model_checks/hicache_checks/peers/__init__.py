"""Other model checkers on our models: run, measured and compared."""

from __future__ import annotations

from hicache_checks.peers.measure import PeerMissing, PeerResult

__all__ = ["PeerMissing", "PeerResult"]
