"""§3.13 The tree, as far as the pipeline needs it: chains of pages with protected anchors.

A chain is one continuation of the root, `chain_pages` long; the tree holds a prefix of it on the host. An operation
hangs under the end of that prefix and protects it down to there. Pages leave from the ends of chains, unprotected
ones only.
"""

from __future__ import annotations

from .events import ON_EVICTED
from .language import State, emit
from .state import CHAINS, DEPTHS, RANKS


def anchor_depth(s: State, chain: int) -> int:
    """How deep in a chain a new operation hangs."""
    return s.resident[chain]


def protect(s: State, op: int) -> None:
    """The anchor of the operation, and with it the prefix above it, stays resident."""
    s.protected[s.chain[op]][s.base[op]] += 1


def unprotect(s: State, op: int) -> None:
    """The operation no longer needs its anchor."""
    s.protected[s.chain[op]][s.base[op]] -= 1


def protected_depth(s: State, chain: int) -> int:
    """The deepest protected anchor of a chain: pages up to it stay."""
    return max(depth if s.protected[chain][depth] > 0 else 0 for depth in DEPTHS)


def resident_pages(s: State) -> int:
    """Host pages in the tree."""
    return sum(s.resident[c] for c in CHAINS)


def evictable_pages(s: State) -> int:
    """Host pages that may leave the tree."""
    return sum(s.resident[c] - protected_depth(s, c) for c in CHAINS)


def room(s: State) -> int:
    """Host pages that can be had now: free, or after an eviction."""
    return s.free[0] + evictable_pages(s)


def evict(s: State, missing: int) -> None:
    """Unprotected host pages leave the tree until `missing` pages are free, from the ends of the chains."""
    left = missing
    for chain in CHAINS:
        out = min(left, s.resident[chain] - protected_depth(s, chain))
        if out > 0:
            left -= out
            s.resident[chain] -= out
            emit(s, ON_EVICTED, chain, out)
            for r in RANKS:
                s.free[r] += out


def known_pages(s: State, op: int, pages: int) -> int:
    """How many of the first `pages` pages below the operation's anchor the tree already has."""
    return min(pages, s.resident[s.chain[op]] - s.base[op])


def attach(s: State, op: int, pages: int) -> None:
    """The tree takes over `pages` host pages at the end of the operation's chain."""
    s.resident[s.chain[op]] += pages
