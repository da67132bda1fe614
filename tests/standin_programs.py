"""Small programs over `threading`, `queue`, `time` and `concurrent.futures`, whose answer no order of threads changes.

Each takes the modules, so that it runs with the real ones as well as with the stand-ins, and returns what it saw.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Sized
from functools import partial
from typing import Any

Modules = types.SimpleNamespace
PROGRAMS: dict[str, Callable[[Modules], Any]] = {}
SHORT_S = 0.01
LONG_S = 30.0


def program(function: Callable[[Modules], Any]) -> Callable[[Modules], Any]:
    PROGRAMS[function.__name__] = function
    return function


def error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def in_threads(m: Modules, *targets: Callable[[], object]) -> None:
    threads = [m.threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def wait_for(m: Modules, condition: Callable[[], Any]) -> None:
    while not condition():
        m.time.sleep(0.001)


def is_long(items: Sized, length: int) -> bool:
    return len(items) == length


# --- locks


@program
def lock_excludes(m: Modules) -> Any:
    lock, total = m.threading.Lock(), [0]

    def add() -> None:
        for _ in range(5):
            with lock:
                before = total[0]
                m.time.sleep(0)
                total[0] = before + 1

    in_threads(m, add, add, add)
    return total


@program
def lock_calls(m: Modules) -> Any:
    lock = m.threading.Lock()
    seen = [lock.locked(), lock.acquire(), lock.locked(), lock.acquire(False), lock.acquire(timeout=SHORT_S)]
    seen += [lock.acquire(True, 0), lock.release(), lock.locked()]
    with lock as inside:
        seen.append(inside)
    return seen


@program
def lock_errors(m: Modules) -> Any:
    lock = m.threading.Lock()
    return [
        error_of(lock.release),
        error_of(lambda: lock.acquire(False, 1)),
        error_of(lambda: lock.acquire(timeout=-2)),
        error_of(lambda: lock.acquire(timeout=1e12)).partition(":")[0],
    ]


@program
def lock_is_released_by_anybody(m: Modules) -> Any:
    lock = m.threading.Lock()
    lock.acquire()
    in_threads(m, lock.release)
    return lock.acquire(False)


@program
def lock_waits_no_longer_than_it_should(m: Modules) -> Any:
    lock = m.threading.Lock()
    lock.acquire()
    before = m.time.monotonic()
    taken = lock.acquire(timeout=0.05)
    return taken, 0.05 <= m.time.monotonic() - before < 5


@program
def rlock_is_taken_again_by_its_owner_only(m: Modules) -> Any:
    lock, seen = m.threading.RLock(), []
    with lock, lock:
        in_threads(m, lambda: seen.append(lock.acquire(blocking=False)))
        in_threads(m, lambda: seen.append(error_of(lock.release)))
        in_threads(m, lambda: seen.append(lock.acquire(timeout=SHORT_S)))
    in_threads(m, lambda: seen.append(lock.acquire(blocking=False) and lock.release()))
    return seen, error_of(lock.release)


@program
def rlock_is_free_only_when_released_as_often(m: Modules) -> Any:
    lock, seen = m.threading.RLock(), []
    for _ in range(3):
        lock.acquire()
    for _ in range(3):
        in_threads(m, lambda: seen.append(lock.acquire(blocking=False)))
        lock.release()
    return seen


# --- conditions


@program
def condition_hands_over(m: Modules) -> Any:
    condition, items, got = m.threading.Condition(), deque[int](), deque[int]()

    def take() -> None:
        with condition:
            while not items:
                condition.wait()
            got.append(items.pop())

    def give() -> None:
        for i in range(3):
            with condition:
                items.append(i)
                condition.notify()

    in_threads(m, take, take, give, take)
    return sorted(got)


@program
def condition_wakes_in_the_order_of_arrival(m: Modules) -> Any:
    condition, waiting, order = m.threading.Condition(m.threading.Lock()), [], []

    def wait(name: str) -> Callable[[], None]:
        def go() -> None:
            with condition:
                waiting.append(name)
                condition.wait()
                order.append(name)

        return go

    threads = []
    for count, name in enumerate("abc", 1):
        threads.append(m.threading.Thread(target=wait(name)))
        threads[-1].start()
        wait_for(m, partial(is_long, waiting, count))
    for count in (1, 2):
        with condition:
            condition.notify()
        wait_for(m, partial(is_long, order, count))
    with condition:
        condition.notify_all()
    for thread in threads:
        thread.join()
    return order


@program
def condition_times_out_with_its_lock_held(m: Modules) -> Any:
    condition = m.threading.Condition()
    with condition:
        outcome = condition.wait(SHORT_S)
        condition.notify_all()
    return outcome, error_of(condition.wait), error_of(condition.notify)


@program
def condition_lets_go_of_a_lock_taken_twice(m: Modules) -> Any:
    condition, seen = m.threading.Condition(), []

    def notify() -> None:
        with condition:
            seen.append("inside")
            condition.notify()

    with condition, condition:
        thread = m.threading.Thread(target=notify)
        thread.start()
        seen.append(condition.wait(LONG_S))
        condition.notify()
    thread.join()
    return seen


@program
def condition_waits_for_a_predicate(m: Modules) -> Any:
    condition, state = m.threading.Condition(), []

    def add() -> None:
        for i in range(3):
            with condition:
                state.append(i)
                condition.notify_all()

    thread = m.threading.Thread(target=add)
    thread.start()
    with condition:
        found = condition.wait_for(lambda: len(state) == 3 and "three", LONG_S)
        none = condition.wait_for(lambda: len(state) == 4, SHORT_S)
    thread.join()
    return found, none


# --- semaphores, events


@program
def semaphore_lets_so_many_in(m: Modules) -> Any:
    semaphore, inside, most = m.threading.Semaphore(2), [], [0]

    def enter() -> None:
        with semaphore:
            inside.append(1)
            most[0] = max(most[0], len(inside))
            m.time.sleep(0)
            inside.pop()

    in_threads(m, enter, enter, enter, enter)
    return most[0] <= 2, semaphore.acquire(False), semaphore.acquire(timeout=SHORT_S), semaphore.acquire(False)


@program
def semaphore_errors(m: Modules) -> Any:
    bounded = m.threading.BoundedSemaphore(1)
    return [
        error_of(lambda: m.threading.Semaphore(-1)),
        error_of(lambda: m.threading.Semaphore().release(0)),
        error_of(lambda: m.threading.Semaphore().acquire(False, 1)),
        error_of(bounded.release),
        bounded.acquire(),
        error_of(bounded.release),
    ]


@program
def semaphore_gives_to_those_who_wait(m: Modules) -> Any:
    semaphore, got = m.threading.Semaphore(0), []

    def take() -> None:
        semaphore.acquire()
        got.append(1)

    in_threads(m, take, take, lambda: semaphore.release(2))
    return got, semaphore.acquire(False)


@program
def event_lets_everybody_go(m: Modules) -> Any:
    event, seen = m.threading.Event(), []
    in_threads(m, lambda: seen.append(event.wait()), lambda: seen.append(event.wait(LONG_S)), event.set)
    return seen, event.is_set(), event.wait(0), event.clear(), event.is_set(), event.wait(SHORT_S), event.wait(0)


@program
def event_that_is_only_pulsed_wakes_those_who_wait(m: Modules) -> Any:
    event, seen, ready = m.threading.Event(), [], []

    def wait() -> None:
        ready.append(1)
        seen.append(event.wait(LONG_S))

    threads = [m.threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_for(m, lambda: len(ready) == 2)
    m.time.sleep(0.05)
    event.set()
    event.clear()
    for thread in threads:
        thread.join()
    return seen


@program
def barrier_meets(m: Modules) -> Any:
    barrier, places = m.threading.Barrier(3), deque[int]()

    def meet() -> None:
        places.extend(barrier.wait() for _ in range(2))

    in_threads(m, meet, meet, meet)
    broken = error_of(lambda: barrier.wait(SHORT_S))
    return sorted(places), broken.partition(":")[0], barrier.broken


# --- threads


@program
def thread_lives_from_start_to_join(m: Modules) -> Any:
    gate = m.threading.Event()
    thread = m.threading.Thread(target=gate.wait, name="worker", daemon=True)
    seen = [thread.is_alive(), thread.ident, thread.name, thread.daemon, error_of(thread.join)]
    thread.start()
    seen += [thread.is_alive(), thread.ident is not None, error_of(thread.start), thread.join(SHORT_S)]
    seen += [thread.is_alive(), thread.join(-1), thread.is_alive(), gate.set(), thread.join(), thread.is_alive()]
    return seen, thread.join(), thread.getName(), thread.isDaemon()


@program
def thread_subclass_runs(m: Modules) -> Any:
    class Worker(m.threading.Thread):  # type: ignore[name-defined]
        def __init__(self, number: int) -> None:
            super().__init__(name=f"worker-{number}")
            self.number = number
            self.result: Any = None

        def run(self) -> None:
            self.result = self.number**2, m.threading.current_thread() is self, m.threading.get_ident() == self.ident

    workers = [Worker(i) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [(worker.name, worker.result) for worker in workers]


@program
def thread_arguments_reach_the_target(m: Modules) -> Any:
    seen: list[Any] = []
    thread = m.threading.Thread(None, lambda *args, **named: seen.append((args, named)), None, (1, 2), {"three": 3})
    thread.start()
    thread.join()
    return seen


@program
def thread_errors(m: Modules) -> Any:
    class Forgetful(m.threading.Thread):  # type: ignore[name-defined]
        def __init__(self) -> None:
            pass

    return error_of(Forgetful().start), error_of(Forgetful().join), error_of(m.threading.current_thread().join)


@program
def thread_inherits_that_it_is_a_daemon(m: Modules) -> Any:
    seen = []

    def outer() -> None:
        seen.append(m.threading.Thread().daemon)
        seen.append(m.threading.Thread(daemon=False).daemon)

    for daemon in (True, False):
        thread = m.threading.Thread(target=outer, daemon=daemon)
        thread.start()
        thread.join()
    return seen


@program
def thread_default_name_says_what_it_runs(m: Modules) -> Any:
    def work() -> None:
        pass

    name, nameless = m.threading.Thread(target=work).name, m.threading.Thread().name
    return name.startswith("Thread-"), name.endswith(" (work)"), nameless.startswith("Thread-"), "(" in nameless


@program
def thread_leaves_the_list_when_it_ends(m: Modules) -> Any:
    gate, before = m.threading.Event(), m.threading.active_count()
    threads = [m.threading.Thread(target=gate.wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    seen = [m.threading.active_count() - before, all(thread in m.threading.enumerate() for thread in threads)]
    gate.set()
    for thread in threads:
        thread.join()
    return seen, m.threading.active_count() - before, m.threading.main_thread() in m.threading.enumerate()


@program
def timer_fires_or_is_cancelled(m: Modules) -> Any:
    fired: list[str] = []
    timers = [m.threading.Timer(SHORT_S, fired.append, [name]) for name in ("on", "off")]
    for timer in timers:
        timer.start()
    timers[1].cancel()
    for timer in timers:
        timer.join()
    return fired


# --- local


@program
def local_is_apart_in_each_thread(m: Modules) -> Any:
    local, seen = m.threading.local(), deque[Any]()
    local.x = "outer"

    def work(value: int) -> Callable[[], None]:
        def go() -> None:
            seen.append((value, hasattr(local, "x"), error_of(lambda: local.y).partition(":")[0]))
            local.x = value
            m.time.sleep(0)
            seen.append((value, local.x, vars(local)))
            del local.x
            seen.append((value, hasattr(local, "x")))

        return go

    in_threads(m, work(1), work(2))
    return sorted(seen, key=repr), local.x


@program
def local_subclass_is_initialised_in_each_thread(m: Modules) -> Any:
    class Numbers(m.threading.local):  # type: ignore[name-defined]
        shared = "class attribute"

        def __init__(self, start: int) -> None:
            self.values = [start]

        @property
        def last(self) -> int:
            return self.values[-1]

        def add(self, value: int) -> None:
            self.values.append(value)

    numbers, seen = Numbers(7), []
    numbers.add(8)

    def work() -> None:
        seen.append((list(numbers.values), numbers.shared, numbers.last))
        numbers.add(9)
        numbers.shared = "mine"
        seen.append((list(numbers.values), numbers.shared, numbers.last))

    in_threads(m, work, work)
    return sorted(seen), numbers.values, numbers.shared, error_of(lambda: m.threading.local(1))


# --- queues


@program
def queues_keep_their_order(m: Modules) -> Any:
    seen = []
    for kind in ("Queue", "LifoQueue", "PriorityQueue", "SimpleQueue"):
        items = getattr(m.queue, kind)()
        for item in (2, 3, 1):
            items.put(item)
        seen.append((kind, items.qsize(), items.empty(), [items.get() for _ in range(3)], items.empty()))
    return seen


@program
def queues_say_empty_and_full(m: Modules) -> Any:
    items, simple = m.queue.Queue(1), m.queue.SimpleQueue()
    seen = [items.full(), items.put(1), items.full()]
    calls: tuple[Callable[[], Any], ...] = (
        *(lambda: items.put(2, False), lambda: items.put_nowait(2), lambda: items.put(2, timeout=SHORT_S)),
        *(lambda: items.put(2, timeout=0), lambda: items.put(2, timeout=-1), items.get_nowait, items.get_nowait),
        *(lambda: items.get(timeout=SHORT_S), lambda: items.get(timeout=0), lambda: items.get(timeout=-1)),
        *(simple.get_nowait, lambda: simple.get(False), lambda: simple.get(timeout=SHORT_S)),
        *(lambda: simple.get(timeout=-1), lambda: simple.put(1, False, -1), lambda: items.get(False, -1)),
    )
    seen += [error_of(call) for call in calls]
    return seen, simple.get()


@program
def queue_of_one_makes_producers_wait(m: Modules) -> Any:
    items, got = m.queue.Queue(1), deque[Any]()

    def produce() -> None:
        for i in range(4):
            items.put(i)

    in_threads(m, produce, produce, lambda: got.extend(items.get() for _ in range(8)))
    return sorted(got), items.qsize()


@program
def queue_joins_when_all_is_done(m: Modules) -> Any:
    items, done = m.queue.Queue(), []

    def work() -> None:
        while (item := items.get()) is not None:
            done.append(item)
            items.task_done()

    threads = [m.threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for i in range(4):
        items.put(i)
    items.join()
    seen = sorted(done), items.unfinished_tasks
    for _ in threads:
        items.put(None)
    for thread in threads:
        thread.join()
    for _ in threads:
        items.task_done()
    return seen, error_of(items.task_done)


@program
def queue_can_be_emptied_from_inside(m: Modules) -> Any:
    items = m.queue.Queue()
    for i in range(3):
        items.put(i)
    with items.mutex:
        items.queue.clear()
    return items.empty(), type(items.queue).__name__, error_of(items.get_nowait)


@program
def queue_subclass_keeps_what_it_wants(m: Modules) -> Any:
    class Unique(m.queue.Queue):  # type: ignore[name-defined]
        def _init(self, maxsize: int) -> None:
            self.queue: dict[Any, None] = {}

        def _put(self, item: Any) -> None:
            self.queue[item] = None

        def _get(self) -> Any:
            return self.queue.popitem()[0]

    items = Unique(2)
    for item in (1, 1, 2):
        items.put(item)
    return (
        items.qsize(),
        items.get(),
        items.get(),
        m.queue.Queue[int] is not None,
        hasattr(m.queue.SimpleQueue(), "join"),
    )


@program
def queue_gives_to_the_first_who_waits(m: Modules) -> Any:
    items, got, waiting = m.queue.Queue(), dict[str, Any](), deque[str]()

    def take(name: str) -> Callable[[], None]:
        def go() -> None:
            waiting.append(name)
            got[name] = items.get()

        return go

    threads = []
    for count, name in enumerate("abc", 1):
        threads.append(m.threading.Thread(target=take(name)))
        threads[-1].start()
        wait_for(m, partial(is_long, waiting, count))
        m.time.sleep(0.02)
    for count in range(1, 4):
        items.put(count)
        wait_for(m, partial(is_long, got, count))
    for thread in threads:
        thread.join()
    return got


# --- time


@program
def clocks_go_forward(m: Modules) -> Any:
    seen = []
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
        clock, nanoseconds = getattr(m.time, name), getattr(m.time, f"{name}_ns")
        first, second = clock(), nanoseconds() / 1e9
        seen.append((name, 0 <= second - first < 5, isinstance(first, float), isinstance(nanoseconds(), int)))
    return seen


@program
def sleep_lasts_as_long_as_it_should(m: Modules) -> Any:
    before = m.time.monotonic()
    m.time.sleep(0.05)
    m.time.sleep(0)
    return 0.05 <= m.time.monotonic() - before < 5, error_of(lambda: m.time.sleep(-1))


@program
def sleepers_wake_in_order(m: Modules) -> Any:
    order: list[int] = []

    def sleeper(number: int) -> Callable[[], None]:
        def go() -> None:
            m.time.sleep(number / 20)
            order.append(number)

        return go

    in_threads(m, *map(sleeper, (3, 1, 2)))
    return order


@program
def dates_are_of_the_present(m: Modules) -> Any:
    now = m.time.time()
    return [
        0 <= m.time.mktime(m.time.localtime()) - int(now) < 5,
        m.time.strftime("%Y") == m.time.strftime("%Y", m.time.localtime(now)),
        m.time.ctime(now)[:10] == m.time.asctime()[:10],
        m.time.gmtime(0).tm_year,
        0 <= m.time.clock_gettime(m.time.CLOCK_MONOTONIC) - m.time.monotonic() < 5 or "later",
        abs(m.time.clock_gettime_ns(m.time.CLOCK_REALTIME) / 1e9 - now) < 5,
    ]


# --- futures


@program
def futures_give_results_and_errors(m: Modules) -> Any:
    with m.futures.ThreadPoolExecutor(max_workers=2) as pool:
        good, bad = pool.submit(pow, 2, 5), pool.submit(divmod, 1, 0)
        mapped = list(pool.map(abs, [-1, 2, -3]))
        seen = good.result(timeout=LONG_S), type(bad.exception()).__name__, mapped, good.done()
    return seen, error_of(lambda: pool.submit(pow, 1, 1)).partition(":")[0], error_of(bad.result).partition(":")[0]


@program
def futures_time_out(m: Modules) -> Any:
    gate = m.threading.Event()
    with m.futures.ThreadPoolExecutor(1) as pool:
        slow = pool.submit(gate.wait)
        queued = pool.submit(pow, 1, 1)
        timed_out = error_of(lambda: slow.result(timeout=SHORT_S)).partition(":")[0]
        seen = [timed_out, slow.running(), queued.cancel(), queued.cancelled(), slow.cancel()]
        gate.set()
        seen.append(slow.result())
    return seen, error_of(queued.result).partition(":")[0]


@program
def futures_are_waited_for(m: Modules) -> Any:
    gate = m.threading.Event()
    with m.futures.ThreadPoolExecutor(3) as pool:
        slow, fast = pool.submit(gate.wait), pool.submit(pow, 3, 2)
        first = m.futures.wait([slow, fast], return_when=m.futures.FIRST_COMPLETED)
        none = m.futures.wait([slow], timeout=SHORT_S)
        gate.set()
        every = m.futures.wait([slow, fast])
        ended = sorted(map(str, (future.result() for future in m.futures.as_completed([slow, fast], LONG_S))))
        called: list[Any] = []
        slow.add_done_callback(lambda future: called.append(future.result()))
    return [len(done) for done, _ in (first, none, every)], fast in first.done, ended, called


@program
def futures_pool_starts_its_threads(m: Modules) -> Any:
    started: list[str] = []
    with m.futures.ThreadPoolExecutor(2, "io", initializer=started.append, initargs=("yes",)) as pool:
        names = {pool.submit(lambda: m.threading.current_thread().name).result() for _ in range(3)}
    pool.shutdown()
    return names <= {"io_0", "io_1"}, set(started)
