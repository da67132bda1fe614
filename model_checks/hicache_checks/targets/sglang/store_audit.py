"""What is wrong with the store of a rank when nothing is on its way: one line each, with the property first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from hicache_checks.targets.sglang.audit import extra_of, of_others, pages_of

if TYPE_CHECKING:
    from hicache_checks.targets.sglang.rank import Rank

OFTENER = "write_through_threshold_storage"
"""What a tree has that stores only what is asked for often (0.5.1): a page on the host need not be in the store."""

ASKED = "asked"
"""An audit that is made when it is asked for: whether all pages that are looked up are those of prompts."""
PREFIX_KEYS, ALL_PREFIX_KEYS = "prefix_keys", "all_prefix_keys"
"""Audits that are made when they are asked for: whether a store that is told what comes before a page, is told nothing
else, and whether it is told all of it."""

PREFIX_KEYS_BESIDE = "prefix_keys_beside"
"""The same of pages beside which states are read or written: whether the store is told all of it."""

RETRIED = "retried"
"""The same: whether pages that a store refused are stored once it takes them again."""
VAIN_READS, VAIN_READS_MAX = "vain_reads", 3
"""The same: whether a page that is said to exist, and cannot be read, is given up after so many reads."""

STORED_STATES = "stored_states"
"""The same: whether the store of each rank has the states that its host has. That of a first rank has the pages, where
these are the same on all."""

AUDITS = (ASKED, PREFIX_KEYS, ALL_PREFIX_KEYS, PREFIX_KEYS_BESIDE, RETRIED, VAIN_READS, STORED_STATES)


def problems(rank: Rank) -> Iterator[str]:
    """What it holds of prompts that were asked for, and of what is written through to it."""
    for prompt in rank.prompts:
        for place, name in enumerate(rank.keys(prompt)):
            if name not in rank.shelf.damaged:
                yield from _stored(rank, name, prompt[: place + 1])
    yield from rank.strangers.problems()
    if rank.shelf.written_again and not rank.config.get("store_pages_max"):
        yield f"P19 {len(rank.shelf.written_again)} pages that the store had were not found, and written once more"
    if ASKED in rank.audits and not rank.extras:
        known = {name for prompt in rank.prompts for name in rank.keys(prompt)}
        if strange := rank.shelf.asked.keys() - known:
            yield f"P21 {len(strange)} pages are looked up by hashes that belong to no prompt"
    if rank.audits & {PREFIX_KEYS, ALL_PREFIX_KEYS, PREFIX_KEYS_BESIDE}:
        yield from _chains(rank)
    if VAIN_READS in rank.audits:
        yield from _read_in_vain(rank)
    if STORED_STATES in rank.audits:
        yield from rank.states.unstored(list(rank.tree.nodes()))
    if rank.config.get("latent") and rank.number:
        return
    if RETRIED not in rank.audits and (rank.shelf.has_failed_to_put or hasattr(rank.cache, OFTENER)):
        return
    yield from _refused(rank) if rank.config.get("store_pages_max") else _unstored(rank)


def _stored(rank: Rank, name: str, prefix: Sequence[int]) -> Iterator[str]:
    page = rank.shelf.pages.get(name)
    if page is not None and not torch.equal(page, rank.flat(prefix)):
        if any(torch.equal(page, rank.flat(theirs)) for theirs in of_others(rank, prefix)):
            yield f"P19 the page of {list(prefix)} in the store is somebody else's"
        else:
            yield f"P30 the store does not hold the bytes of {list(prefix)}"
    yield from rank.states.stored_problems(name, prefix)
    yield from rank.indices.stored_problems(name, prefix)


def _read_in_vain(rank: Rank) -> Iterator[str]:
    for times in rank.shelf.vain_reads.values():
        if times > VAIN_READS_MAX:
            yield f"P5 a page that cannot be read is read {times} times"


def _chains(rank: Rank) -> Iterator[str]:
    """What a store is told to come before a page is the chain of the page's prompt."""
    before = {}
    for prompt in rank.prompts:
        names = rank.keys(prompt)
        before.update({name: (list(prompt[: place + 1]), names[:place]) for place, name in enumerate(names)})
    beside = rank.shelf.told_beside if PREFIX_KEYS_BESIDE in rank.audits else []
    for key, told in (*rank.shelf.told_before, *beside):
        if key not in before:
            continue
        page, chain = before[key]
        if list(told) != chain[: len(told)]:
            yield f"P21 the store is told that others come before {page} than do"
        elif len(told) < len(chain) and rank.audits & {ALL_PREFIX_KEYS, PREFIX_KEYS_BESIDE}:
            yield f"P21 the store is told {len(told)} of {len(chain)} pages that come before {page}"


def _refused(rank: Rank) -> Iterator[str]:
    """A store with room for some pages forgets old ones for new ones."""
    for newest in list(rank.prompts)[-1:]:
        whole = [node for node in rank.tree.path(rank.tokens(newest)) if len(node.prefix) == len(newest) * rank.page]
        if any(node.host for node in whole) and rank.keys(newest)[-1] not in rank.shelf.pages:
            yield f"P9 the store does not take the page of {list(newest)}, the newest, and there are older ones"


def _unstored(rank: Rank) -> Iterator[str]:
    """A page gets to the host on its way to the store, or from it."""
    for node in rank.tree.nodes():
        pages = pages_of(node.prefix, rank.page)
        if node.host is None or pages is None or extra_of(node) is not None:
            continue
        names = rank.keys(pages)
        for place in range(node.start // rank.page, len(pages)):
            if names[place] not in rank.shelf.pages:
                yield f"P32 the host has a page of {list(pages[: place + 1])}, and the store does not"
