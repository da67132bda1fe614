"""What stands for a release's scheduler where one of its own functions runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from hicache_checks.targets.sglang.own_code import OwnCode
from hicache_checks.targets.sglang.stand_in import Anybody, Batch, StandIn, quiet_scheduler

MODULE = """
class Scheduler:
    def turn(self, running_batch):
        self.tell.somebody.about(running_batch)
        if running_batch.batch_is_full or not self.waiting_queue:
            return None
        return self.first()

    def first(self):
        return self.waiting_queue[0]

    @property
    def waits(self):
        return len(self.waiting_queue)
"""


@pytest.fixture
def code(tmp_path: Path) -> OwnCode:
    file = tmp_path / "scheduler.py"
    file.write_text(MODULE)
    return OwnCode("a.scheduler", file)


def test_its_methods_see_what_it_is_given_and_each_other(code: OwnCode) -> None:
    scheduler = StandIn(code, "Scheduler", {"waiting_queue": ["a", "b"], "tell": Anybody()})
    assert scheduler.turn(Batch(is_full=False)) == "a"
    assert scheduler.turn(Batch(is_full=True)) is None
    assert scheduler.waits == 2
    scheduler.waiting_queue.pop()
    assert scheduler.waits == 1


def test_what_it_does_not_have_is_none(code: OwnCode) -> None:
    scheduler = StandIn(code, "Scheduler", quiet_scheduler())
    assert scheduler.chunked_req is None
    assert not hasattr(scheduler, "__nothing__")
    assert scheduler.enable_hierarchical_cache
    assert scheduler.dp_attn_adapter.maybe_prepare_mlp_sync_batch("batch", need_sync=True) == "batch"


def test_a_batch_is_full_or_empty() -> None:
    full, empty = Batch(is_full=True), Batch(is_full=False)
    assert (full.is_empty(), full.batch_size()) == (False, 1)
    assert (empty.is_empty(), empty.batch_size()) == (True, 0)
