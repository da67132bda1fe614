"""What a simulation cannot follow is never taken for a fault of the target, in whichever thread it happens."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from conform_run import conform
from hicache_checks.conformance.search import SearchOptions
from hicache_checks.simulation.choices import Plainest
from hicache_checks.simulation.standins import queues
from hicache_checks.simulation.world import NotSimulated, World

pytestmark = pytest.mark.heavy

LIBRARY = """
import threading, time

def call(what, delay_s=0.0):
    threading.Thread(target=lambda: (time.sleep(delay_s), what()), name="of-a-library", daemon=True).start()
"""
FORK = """
import queue, threading
from concurrent.futures import ProcessPoolExecutor
from toy_adapter import ToyAdapter
import a_library

class Fork(ToyAdapter):
    packages = ("fork", "toy_adapter", "toy_fork")

    def reset(self, config):
        super().reset(config)
        self.items = queue.Queue()
        threading.Thread(target=self.work, name="worker").start()

    def work(self):
        for answer in iter(self.items.get, None):
            try:
                {work}
            except Exception:
                pass
            answer.set()

    def tick(self):
        super().tick()
        answer = threading.Event()
        self.items.put(answer)
        {wait}

    def close(self):
        self.items.put(None)
        super().close()
"""
WAIT = "answer.wait()"
CASES = {
    "a worker uses what has no stand-in": ("ProcessPoolExecutor()", WAIT, "ProcessPoolExecutor has no stand-in"),
    "a real thread wakes the caller": (
        "pass",
        "late = threading.Event(); a_library.call(late.set); late.wait()",
        "a task is woken from outside its world|nobody can go on",
    ),
    "a real thread may yet wake the caller": (
        "pass",
        "late = threading.Event(); a_library.call(late.set, 5.0); late.wait()",
        "nobody can go on but of-a-library, begun where threading has no stand-in",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_an_error_of_the_harness(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, wait, message = CASES[case]
    (tmp_path / "a_library.py").write_text(LIBRARY)
    (tmp_path / "fork.py").write_text(FORK.format(work=work, wait=wait))
    monkeypatch.syspath_prepend(tmp_path)
    ran = conform("fork:Fork", SearchOptions(ranks=1, schedules=4, stop_at_first=True))
    assert ran.code == 2, ran.text
    (finding,) = ran.keys["findings"]
    assert (finding["property"], finding["kind"]) == ("stand-in", "harness")
    assert re.search(message, finding["message"])


def test_a_thread_of_an_earlier_run_may_be_waited_for_too() -> None:
    """A library keeps its threads: they are strangers in every run that comes after the one that began them."""

    def begins() -> None:
        threading.Thread(target=over.wait, name="of-a-library", daemon=True).start()

    over = threading.Event()
    try:
        World(Plainest()).run(begins)
        with pytest.raises(NotSimulated, match="nobody can go on but of-a-library"):
            World(Plainest()).run(queues.Queue().get)
    finally:
        over.set()


def test_the_same_without_it_conforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_library.py").write_text(LIBRARY)
    (tmp_path / "fork.py").write_text(FORK.format(work="pass", wait=WAIT))
    monkeypatch.syspath_prepend(tmp_path)
    assert conform("fork:Fork", SearchOptions(ranks=1, schedules=12)).code == 0


def test_a_deadlock_among_tasks_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_library.py").write_text(LIBRARY)
    (tmp_path / "fork.py").write_text(FORK.format(work="pass", wait="threading.Event().wait()"))
    monkeypatch.syspath_prepend(tmp_path)
    ran = conform("fork:Fork", SearchOptions(ranks=1, schedules=4, stop_at_first=True))
    assert (ran.code, [f["kind"] for f in ran.keys["findings"]]) == (1, ["protocol"])
