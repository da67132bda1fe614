"""Programs with real threads: a target that can settle is at rest when the session says so."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hicache_checks.conformance.findings import HARNESS
from hicache_checks.conformance.program import PROMPTS, RIDS
from hicache_checks.conformance.real_threads import RealPlace, run_real
from hicache_checks.conformance.session import Session
from hicache_checks.simulation.choices import Plainest
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


class Stumbling(Reference):
    """Cannot be reset."""

    def reset(self, config: Any) -> None:
        """See Reference."""
        raise OSError("no room\nat all")


def test_what_a_target_raises_is_its_own() -> None:
    result = run_real(Stumbling, 1, "wait_complete", Plainest())
    assert str(result.finding) == "raises: OSError: no room at reset"


def test_what_the_harness_raises_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "run", lambda *parts: 1 / 0)
    result = run_real(Reference, 1, "wait_complete", Plainest())
    assert result.finding is not None
    assert (result.finding.property, result.finding.kind) == ("harness", HARNESS)
