"""The part that a model plays: it takes what the tiers have, computes the rest, and inserts it."""

from __future__ import annotations

from dataclasses import dataclass

from hicache_impl.audit import check_bytes, check_slots
from hicache_impl.content import page_on_rank
from hicache_impl.keys import PrefixKey, chain_hashes
from hicache_impl.tiers import Tiers


@dataclass(frozen=True)
class Prefill:
    """Pages of the key by where they came from. `wrong`: loaded pages that do not hold their bytes, one line each."""

    device_pages: int
    host_pages: int
    computed_pages: int
    wrong: tuple[str, ...] = ()


def prefill(cache: Tiers, key: PrefixKey) -> Prefill:
    """Run `key` on one rank: match, load back, check the loaded bytes, compute, insert.

    A part that the device has no room for is left out: a host part that cannot be loaded is computed again if that
    fits, and a rest that does not fit is not computed. Same calls, same answer on every rank.
    """
    match = cache.match(key)
    on_device, on_host, node = len(match.device_pages), len(match.host_pages), match.host_node
    hashes = chain_hashes(key)
    loaded = cache.load_back(match)
    if loaded is None:
        on_device, on_host, node = match.ready_pages, 0, match.ready_node
    done = on_device + on_host
    # A model would wait for each layer when it comes to it, also for what others load.
    cache.wait_loaded()
    wrong = check_bytes(cache, hashes[on_device:done], loaded or (), cache.device, f"pages {on_device} to {done}")
    wrong += check_slots(cache, hashes[:done], node)
    cache.lock(node)
    try:
        computed = cache.alloc_device(len(key) - done) or ()
        for page, page_hash in zip(computed, hashes[done:], strict=False):
            cache.device.view(page).copy_(page_on_rank(cache.config, cache.rank, page_hash))
        reached = key.first(done + len(computed))
        slots = cache.compute_beside(hashes[: len(reached)], done, node)
        pages = [*match.device_pages[:on_device], *(loaded or ()), *computed]
        inserted = cache.insert(reached, pages, slots)
    finally:
        cache.unlock(node)
    cache.free_device(inserted.duplicate_pages)
    cache.counters.hit_pages["device"] += on_device
    cache.counters.hit_pages["host"] += on_host
    return Prefill(on_device, on_host, len(computed), tuple(wrong))
