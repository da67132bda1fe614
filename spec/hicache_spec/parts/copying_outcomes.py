"""§10.8 What must be reachable where pages are copied between device and host."""

from __future__ import annotations

from ..bounds import WRITE_BACK, WRITE_THROUGH, WRITE_THROUGH_SELECTIVE
from ..events import ON_DECLINED, ON_REVOKED
from ..language import State, emitted, sometimes
from ..properties import newly
from ..state import ALLOCATED, CHAINS, FETCHED, NO_MEMORY, OPS, RANKS, REQUESTS
from .copying_properties import begins_to_arrive, has_run, is_copied, is_written, leaves_the_host
from .copying_rules import is_due
from .copying_state import (
    ARRIVING,
    LOAD_QUOTA,
    NO_ANCHOR,
    NOWHERE,
    POSITIONS,
    READABLE,
    RUNS_BEFORE_WRITE,
    WRITE_POLICY_NOW,
)


@sometimes
def sometimes_a_run_is_written_through(s: State, t: State) -> bool:
    """§10.8 A copy begins in the step that computes its pages."""
    return WRITE_POLICY_NOW == WRITE_THROUGH and begins(s, t) and any(has_run(s, t, c) for c in CHAINS)


@sometimes
def sometimes_a_later_run_is_written(s: State, t: State) -> bool:
    """§10.8 Under the selective policy, a copy begins because the pages are run on again."""
    return (
        WRITE_POLICY_NOW == WRITE_THROUGH_SELECTIVE
        and begins(s, t)
        and any(
            any(s.runs[c][p] == RUNS_BEFORE_WRITE - 1 and begins_to_arrive(s, t, c, p) for p in POSITIONS)
            for c in CHAINS
        )
    )


@sometimes
def sometimes_an_eviction_is_written_back(s: State, t: State) -> bool:
    """§10.8 Under write_back, a copy begins because the device is short."""
    return WRITE_POLICY_NOW == WRITE_BACK and begins(s, t)


@sometimes
def sometimes_two_copies_are_under_way(s: State, t: State) -> bool:
    """§10.8 A copy begins while another one is under way."""
    return len(s.copies) > 0 and begins(s, t)


@sometimes
def sometimes_a_copy_lands_on_one_rank_first(s: State, t: State) -> bool:
    """§10.8 A copy has landed on one rank and not on another."""
    return any(t.copied[r] != t.copied[0] for r in RANKS)


@sometimes
def sometimes_a_node_is_split_while_it_is_copied(s: State, t: State) -> bool:
    """§10.8 A cut comes into a range that is being copied."""
    return any(any(is_cut_now(s, t, c, p) and s.host[c][p] == ARRIVING for p in POSITIONS) for c in CHAINS)


@sometimes
def sometimes_the_copy_of_a_split_node_ends(s: State, t: State) -> bool:
    """§10.8 A copy ends whose pages are in two nodes by now."""
    return any(
        any(s.cut[c][p] and is_written(s, t, c, p) and is_written(s, t, c, p - 1) for p in POSITIONS if p > 0)
        for c in CHAINS
    )


@sometimes
def sometimes_a_copy_needs_an_eviction(s: State, t: State) -> bool:
    """§10.8 Host pages leave the tree for a copy."""
    return begins(s, t) and any(any(leaves_the_host(s, t, c, p) for p in POSITIONS) for c in CHAINS)


@sometimes
def sometimes_there_is_no_room_for_a_copy(s: State, t: State) -> bool:
    """§10.8 A run leaves pages unwritten that the policy would have written."""
    return WRITE_POLICY_NOW != WRITE_BACK and any(
        any(has_run(s, t, c) and p < t.on_device[c] and is_due(t, c, p) for p in POSITIONS) for c in CHAINS
    )


@sometimes
def sometimes_a_page_stays_on_the_host(s: State, t: State) -> bool:
    """§10.8 A page leaves the device and stays in the tree."""
    return any(t.on_device[c] < s.on_device[c] and t.resident[c] == s.resident[c] for c in CHAINS)


@sometimes
def sometimes_a_page_is_dropped(s: State, t: State) -> bool:
    """§10.8 A page leaves the device and the tree, for it was never written."""
    return any(t.on_device[c] < s.on_device[c] and t.resident[c] < s.resident[c] for c in CHAINS)


@sometimes
def sometimes_a_page_is_given_up_for_want_of_room(s: State, t: State) -> bool:
    """§10.8 Under write_back, a page leaves the tree because the host has no room for it."""
    return WRITE_POLICY_NOW == WRITE_BACK and any(
        t.on_device[c] < s.on_device[c] and t.resident[c] < s.resident[c] for c in CHAINS
    )


@sometimes
def sometimes_a_host_page_follows_one_without_a_copy(s: State, t: State) -> bool:
    """§10.8 Under write_back, the host has a page and not the one before it, which is on the device."""
    return any(any(t.host[c][p - 1] == NOWHERE and t.host[c][p] != NOWHERE for p in POSITIONS if p > 0) for c in CHAINS)


@sometimes
def sometimes_pages_are_loaded_back(s: State, t: State) -> bool:
    """§10.8 A load ends."""
    return len(t.loads) < len(s.loads)


@sometimes
def sometimes_the_quota_refuses_a_load(s: State, t: State) -> bool:
    """§10.8 The device has room for all that the host alone has of a chain, and the quota forbids it."""
    return any(
        t.resident[c] - t.on_device[c] > LOAD_QUOTA and t.resident[c] - t.on_device[c] <= t.device_free for c in CHAINS
    )


@sometimes
def sometimes_a_page_is_computed_again(s: State, t: State) -> bool:
    """§10.8 A request computes on the device a page that the host has."""
    return any(
        has_run(s, t, c)
        and any(s.on_device[c] <= p < t.on_device[c] and t.host[c][p] != NOWHERE for p in POSITIONS)
        and t.resident[c] == s.resident[c]
        for c in CHAINS
    )


@sometimes
def sometimes_a_request_runs_on_what_is_copied(s: State, t: State) -> bool:
    """§10.8 A chain grows on the device while its earlier pages are still being copied to the host."""
    return any(has_run(s, t, c) and any(is_copied(s, c, p) for p in POSITIONS) for c in CHAINS)


def begins(s: State, t: State) -> bool:
    """The step begins a copy."""
    return any(any(begins_to_arrive(s, t, c, p) for p in POSITIONS) for c in CHAINS)


def is_cut_now(s: State, t: State, chain: int, p: int) -> bool:
    """The step splits a node at this page."""
    return t.cut[chain][p] and not s.cut[chain][p]


# ---- §10.8 with prefetch


@sometimes
def sometimes_declined_for_want_of_an_anchor(s: State, t: State) -> bool:
    """§10.8 A submission is declined because the last known page is not readable on the host."""
    return any(emitted(t, ON_DECLINED, request=q, reason=NO_ANCHOR) for q in REQUESTS)


@sometimes
def sometimes_a_fetched_page_is_adopted(s: State, t: State) -> bool:
    """§10.8 A page that was computed on the device meanwhile gets the fetched page as its copy."""
    return any(
        any(p < s.resident[c] and s.host[c][p] == NOWHERE and t.host[c][p] == READABLE for p in POSITIONS)
        for c in CHAINS
    )


@sometimes
def sometimes_a_fetched_page_is_being_copied(s: State, t: State) -> bool:
    """§10.8 A fetched page is freed, because the device's own is on its way to the host."""
    return any(
        newly(s, t, op, FETCHED)
        and all(s.counted[r][op] > 0 for r in RANKS)
        and any(s.base[op] == p and s.host[s.chain[op]][p] == ARRIVING for p in POSITIONS)
        for op in OPS
    )


@sometimes
def sometimes_a_grant_competes_with_copies(s: State, t: State) -> bool:
    """§10.8 An operation is refused memory, or gets less than its hit, while pages are being copied to the host."""
    return len(s.copies) > 0 and any(
        emitted(t, ON_REVOKED, op=op, reason=NO_MEMORY) or (newly(s, t, op, ALLOCATED) and t.granted[op] < s.hit[0][op])
        for op in OPS
    )
