"""The seam: plain threads, and threads that a test holds."""

from __future__ import annotations

import itertools
import queue
import threading

import pytest

from hicache_impl.gated import GatedRuntime
from hicache_impl.runtime import Queue, Runtime, Stalled, ThreadRuntime


def relay(runtime: Runtime, source: Queue, sink: Queue, rank: int = 0) -> None:
    """Start a worker that passes items on, through a gate, until it gets None."""

    def run() -> None:
        while (item := source.get()) is not None:
            runtime.gate("io.page", rank)
            sink.put(item)

    runtime.thread(f"relay-{rank}", run).start()


@pytest.fixture(params=[ThreadRuntime, GatedRuntime])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return request.param()


class TestEveryRuntime:
    def test_queue_is_first_in_first_out(self, runtime: Runtime) -> None:
        items = runtime.queue()
        for item in (1, 2, 3):
            items.put(item)
        assert items.qsize() == 3
        assert [items.get(), items.get(timeout=0), items.get(timeout=1)] == [1, 2, 3]
        with pytest.raises(queue.Empty):
            items.get(timeout=0)

    def test_worker_passes_items_on(self, runtime: Runtime) -> None:
        source, sink = runtime.queue(), runtime.queue()
        relay(runtime, source, sink)
        source.put("a")
        assert runtime.collect(sink, 30) == "a"
        source.put(None)

    def test_event(self, runtime: Runtime) -> None:
        event, done = runtime.event(), runtime.queue()
        assert not event.wait(0)
        thread = runtime.thread("waiter", lambda: done.put(event.wait()))
        thread.start()
        event.set()
        assert event.is_set()
        assert runtime.collect(done, 30) is True
        thread.join(30)
        assert not thread.is_alive()

    def test_lock_excludes(self, runtime: Runtime) -> None:
        lock = runtime.lock()
        with lock:
            assert not lock.acquire(blocking=False)  # type: ignore[attr-defined]

    def test_clock_does_not_go_back(self, runtime: Runtime) -> None:
        assert runtime.now() <= runtime.now()

    def test_what_does_not_come_is_stalled(self, runtime: Runtime) -> None:
        with pytest.raises(Stalled):
            runtime.collect(runtime.queue(), 0)


class TestGates:
    def test_held_worker_goes_on_when_released(self) -> None:
        runtime = GatedRuntime()
        source, sink = runtime.queue(), runtime.queue()
        relay(runtime, source, sink)
        runtime.hold("io.page")
        source.put("a")
        runtime.wait_idle()
        assert runtime.held() == {("io.page", 0)}
        assert runtime.held_ops() == {("io.page", 0, None)}
        assert sink.qsize() == 0
        runtime.release("io.page")
        runtime.wait_idle()
        assert (sink.qsize(), runtime.held()) == (1, set())

    def test_one_rank_only(self) -> None:
        runtime = GatedRuntime()
        pairs = [(runtime.queue(), runtime.queue()) for _ in range(2)]
        for rank, (source, sink) in enumerate(pairs):
            relay(runtime, source, sink, rank)
        runtime.hold("io.page", 1)
        for source, _ in pairs:
            source.put("a")
        runtime.wait_idle()
        assert [sink.qsize() for _, sink in pairs] == [1, 0]
        runtime.hold("io.page")
        runtime.release("io.page", 1)
        runtime.wait_idle()
        assert pairs[1][1].qsize() == 0, "the other hold still keeps it"
        runtime.release_all()
        runtime.wait_idle()
        assert pairs[1][1].qsize() == 1

    def test_step_lets_one_pass_and_holds_the_next(self) -> None:
        runtime = GatedRuntime()
        source, sink = runtime.queue(), runtime.queue()
        relay(runtime, source, sink)
        runtime.hold("io.page")
        for item in (1, 2, 3):
            source.put(item)
        for passed in range(3):
            runtime.wait_idle()
            assert sink.qsize() == passed
            assert runtime.step("io.page", 1) == 0
            assert runtime.step("io.page", 0) == 1
        runtime.wait_idle()
        assert sink.qsize() == 3

    def test_unknown_names_are_errors(self) -> None:
        runtime = GatedRuntime()
        for call in (runtime.hold, lambda name: runtime.gate(name, 0)):
            with pytest.raises(ValueError, match="no gate"):
                call("io.nowhere")
        with pytest.raises(KeyError):
            runtime.release("io.page")


class TestRest:
    def test_a_chain_of_wake_ups_is_not_rest(self) -> None:
        """Items travel through many workers; idle must mean that all have arrived, every time."""
        runtime = GatedRuntime()
        queues = [runtime.queue() for _ in range(9)]
        for source, sink in itertools.pairwise(queues):
            relay(runtime, source, sink)
        for sent in range(1, 101):
            queues[0].put(sent)
            runtime.wait_idle()
            assert [items.qsize() for items in queues] == [0] * 8 + [sent]

    def test_started_worker_is_running_before_it_runs(self) -> None:
        runtime = GatedRuntime()
        for _ in range(50):
            done: list[int] = []
            runtime.thread("short", lambda done=done: done.append(1)).start()  # type: ignore[misc]
            runtime.wait_idle()
            assert done == [1]
        assert runtime.workers() == {}

    def test_a_working_thread_is_not_at_rest(self) -> None:
        runtime = GatedRuntime()
        entered, leave = threading.Event(), threading.Event()

        def work() -> None:
            entered.set()
            leave.wait(30)

        thread = runtime.thread("busy", work)
        thread.start()
        assert entered.wait(30)
        with pytest.raises(Stalled, match="busy runs in wait"):
            runtime.wait_idle(timeout_s=0)
        leave.set()
        runtime.wait_idle()
        thread.join(30)

    def test_a_dead_worker_is_at_rest(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(threading, "excepthook", lambda args: None)
        runtime = GatedRuntime()
        runtime.thread("bad", lambda: runtime.gate("nowhere", 0)).start()
        runtime.wait_idle()

    def test_several_consumers_get_one_item_each(self) -> None:
        runtime = GatedRuntime()
        source, sink = runtime.queue(), runtime.queue()
        for rank in range(3):
            relay(runtime, source, sink, rank)
        for item in range(50):
            source.put(item)
        runtime.wait_idle()
        assert sorted(sink.get() for _ in range(sink.qsize())) == list(range(50))

    def test_where_everybody_is(self) -> None:
        runtime = GatedRuntime()
        source = runtime.queue()
        relay(runtime, source, runtime.queue())
        runtime.wait_idle()
        assert runtime.workers() == {"relay-0": "empty queue"}

    def test_collect_gives_up_as_soon_as_nobody_can_bring_it(self) -> None:
        runtime = GatedRuntime()
        source, sink = runtime.queue(), runtime.queue()
        relay(runtime, source, sink)
        runtime.hold("io.page")
        source.put("a")
        with pytest.raises(Stalled, match=r"relay-0 is parked \(gate io.page of rank 0"):
            runtime.collect(sink, 600)
        runtime.release("io.page")
        assert runtime.collect(sink, 600) == "a"

    def test_the_clock_is_the_tests(self) -> None:
        runtime = GatedRuntime()
        assert runtime.now() == 0
        runtime.advance(2.5)
        assert runtime.now() == 2.5
        with pytest.raises(ValueError, match="does not go back"):
            runtime.advance(-1)
