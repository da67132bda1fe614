"""Programs with real threads: a target that can settle is at rest when the session says so."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hicache_checks.conformance.program import PROMPTS, RIDS
from hicache_checks.conformance.real_threads import RealPlace
from hicache_impl.adapter import Reference
from hicache_impl.runtime import ThreadRuntime
from hicache_impl.storage.memory import MemoryStorage

SLOW_S = 0.2
CONFIG = {"ranks": 2, "host_pages": 6, "device_pages": 6, "page_bytes": 16}


class SlowStorage(MemoryStorage):
    """Looks for a while at what it has: much longer than a turn without a rest."""

    def exists(self, keys: Any) -> int:
        time.sleep(SLOW_S)
        return super().exists(keys)


@pytest.mark.heavy
def test_the_reference_on_plain_threads_settles() -> None:
    reference = Reference(CONFIG, SlowStorage(), ThreadRuntime())
    assert "settle" in reference.capabilities()
    place = RealPlace(reference, "settle" in reference.capabilities(), timed=False)
    reference.store(PROMPTS[0])
    assert reference.submit(RIDS[0], PROMPTS[0])["accepted"]
    place.settle()
    assert [seen["queues"]["hit"] for seen in reference.observe()["ranks"]] == [1, 1]
    reference.tick()
    place.settle()
    assert reference.poll(RIDS[:1])[RIDS[0]]["pages"] == len(PROMPTS[0])
    reference.close()
