"""Rows of differences: what threads share, locks, queues, events and conditions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from standin_difference_rows import Modules, compute, differs, same, started

# --- steps


class Box:
    def __init__(self) -> None:
        self.number = 0
        self.is_up = False


def nothing() -> None:
    pass


@differs({"an update is lost"}, {"none is lost"})
def two_threads_add_to_an_attribute(m: Modules) -> object:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(m.tries):
            box = Box()

            def add(box: Box = box) -> None:
                for _ in range(5000):
                    number = box.number
                    nothing()
                    box.number = number + 1

            for thread in [started(m, add) for _ in range(2)]:
                thread.join()
            if box.number < 10_000:
                return "an update is lost"
    finally:
        sys.setswitchinterval(interval)
    return "none is lost"


@differs({"half of a copy is seen"}, {"all or nothing is seen"})
def a_tensor_is_read_while_it_is_written(m: Modules) -> object:
    tensor, is_over = torch.zeros(200 * m.tries), list[str]()

    def write() -> None:
        for number in range(m.tries):
            tensor.fill_(number)
            m.time.sleep(0)
            if is_over:
                return

    thread = started(m, write)
    seen = "all or nothing is seen"
    while thread.is_alive() and not is_over:
        copy = tensor.clone()
        if copy.min() != copy.max():
            is_over.append(seen := "half of a copy is seen")
    is_over.append(seen)
    thread.join()
    return seen


@differs({"it is seen"}, {"it is seen", "never"})
def an_attribute_is_looked_at_until_it_changes(m: Modules) -> object:
    box = Box()
    thread = started(m, lambda: setattr(box, "is_up", True))
    looks = 0
    while not box.is_up and looks < 1000 * m.tries:
        looks += 1
    seen = "it is seen" if box.is_up else "never"
    thread.join()
    return seen


@same("it has begun", "not yet")
def a_thread_begins_before_or_after_its_start_returns(m: Modules) -> object:
    begun: list[int] = []

    def begin() -> None:
        m.pause(0.02)
        begun.append(1)

    thread = started(m, begin)
    m.pause(0.02)
    seen = "it has begun" if begun else "not yet"
    thread.join()
    return seen


@same("who waits", "who comes")
def a_free_lock_goes_to_who_waits_or_to_who_comes(m: Modules) -> object:
    lock = m.threading.Lock()
    lock.acquire()
    thread = started(m, lock.acquire)
    m.time.sleep(0.01)
    lock.release()
    m.pause(0.0003)
    snatched = lock.acquire(False)
    if snatched:
        lock.release()
    thread.join()
    return "who comes" if snatched else "who waits"


@differs({"as they came"}, {"as they came", "otherwise"})
def those_who_wait_for_a_lock_get_it(m: Modules) -> object:
    lock, order, threads = m.threading.Lock(), [], []

    def take(name: str) -> None:
        with lock:
            order.append(name)

    lock.acquire()
    for name in "abc":
        threads.append(started(m, partial(take, name)))
        m.time.sleep(0.05)
    lock.release()
    for thread in threads:
        thread.join()
    return "as they came" if order == ["a", "b", "c"] else "otherwise"


# --- queues, events, conditions


@same("who waits", "who comes")
def an_item_goes_to_who_waits_or_to_who_comes(m: Modules) -> object:
    items, got = m.queue.Queue(), []
    thread = started(m, lambda: got.append(items.get(timeout=5)))
    m.time.sleep(0.01)
    items.put(1)
    m.pause(0.02)
    try:
        items.get_nowait()
    except m.queue.Empty:
        return "who waits"
    items.put(2)
    thread.join()
    return "who comes"


@same("he is not", "then he waits behind the others")
def whoever_waits_for_an_item_is_robbed(m: Modules) -> object:
    items, got, threads = m.queue.Queue(), [], []

    def get(name: str) -> None:
        got.append((items.get(timeout=5), name))

    for name in "ab":
        threads.append(started(m, partial(get, name)))
        m.time.sleep(0.05)
    items.put(1)
    m.pause(0.02)
    try:
        items.get_nowait()
        is_robbed = True
    except m.queue.Empty:
        is_robbed = False
    m.time.sleep(0.05)
    for number in range(2, 4 if is_robbed else 3):
        items.put(number)
        m.time.sleep(0.05)
    for thread in threads:
        thread.join()
    if not is_robbed:
        return "he is not"
    return "then he waits behind the others" if sorted(got) == [(2, "b"), (3, "a")] else "then he is the first"


@same("at its time-out")
def whoever_waits_for_room_that_is_made_behind_its_back_goes_on(m: Modules) -> object:
    items = m.queue.Queue(1)
    items.put(1)
    waited: list[float] = []

    def put() -> None:
        before = m.time.monotonic()
        items.put(2, timeout=0.3)
        waited.append(m.time.monotonic() - before)

    thread = started(m, put)
    m.time.sleep(0.1)
    items.queue.clear()
    thread.join()
    return "at its time-out" if waited[0] >= 0.3 else "before"


@same((False, True, False, "Empty", "Full", False, None))
def waits_of_no_length(m: Modules) -> object:
    event, condition, items = m.threading.Event(), m.threading.Condition(), m.queue.Queue(1)
    seen: list[Any] = [event.wait(-1)]
    event.set()
    seen.append(event.wait(-1))
    with condition:
        seen.append(condition.wait(0))
    for call in (lambda: items.get(timeout=0), lambda: items.put(1) or items.put(2, timeout=0)):
        try:
            call()
        except Exception as error:
            seen.append(type(error).__name__)
    seen.append(m.threading.Semaphore(0).acquire(timeout=-1))
    gate = m.threading.Event()
    thread = started(m, gate.wait)
    seen.append(thread.join(-1))
    gate.set()
    thread.join()
    return tuple(seen)


def late(m: Modules, do: Callable[[], object]) -> None:
    """Do it when the time of somebody who waits 10 ms is up, but before he can go on."""
    m.time.sleep(0.002)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(5)
    try:
        compute(0.02)
        do()
    finally:
        sys.setswitchinterval(interval)


@differs({"it may say no though the flag is up"}, {"its answer is the flag's"})
def an_event_is_set_just_after_the_time_is_up(m: Modules) -> object:
    seen: list[tuple[bool, bool]] = []

    def wait(event: Any) -> None:
        seen.append((event.wait(0.01), event.is_set()))

    for _ in range(m.tries):
        event = m.threading.Event()
        thread = started(m, partial(wait, event))
        late(m, event.set)
        thread.join()
        if seen[-1] == (False, True):
            return "it may say no though the flag is up"
    return "its answer is the flag's"


@differs({"a notification may be lost"}, {"somebody hears it"})
def one_of_two_is_notified_just_after_his_time_is_up(m: Modules) -> object:
    def wait(condition: Any, seconds: float, heard: list[bool]) -> None:
        with condition:
            heard.append(condition.wait(seconds))

    def notify(condition: Any) -> None:
        with condition:
            condition.notify()

    for _ in range(m.tries):
        condition, heard = m.threading.Condition(), list[bool]()
        threads = [started(m, partial(wait, condition, seconds, heard)) for seconds in (0.01, 0.2)]
        late(m, partial(notify, condition))
        for thread in threads:
            thread.join()
        if not any(heard):
            return "a notification may be lost"
    return "somebody hears it"


@differs({"it waits"}, {"it takes the item"})
def a_getter_comes_while_somebody_holds_the_mutex(m: Modules) -> object:
    items, got = m.queue.Queue(), []
    items.put(1)
    with items.mutex:
        thread = started(m, lambda: got.append(items.get()))
        m.time.sleep(0.05)
        seen = "it takes the item" if got else "it waits"
    thread.join()
    return seen


@same("one worker", "two workers")
def a_stop_flag_is_up_for_a_moment_only(m: Modules) -> object:
    stop, items = m.threading.Event(), m.queue.Queue()

    def work() -> None:
        while not stop.is_set():
            try:
                items.get(timeout=0.02)
            except m.queue.Empty:
                continue

    old = started(m, work)
    m.time.sleep(0.01)
    stop.set()
    m.pause(0.03)
    stop.clear()
    new = started(m, work)
    m.time.sleep(0.05)
    alive = old.is_alive() + new.is_alive()
    stop.set()
    for thread in (old, new):
        thread.join()
    return {1: "one worker", 2: "two workers"}[alive]


@same("it takes what comes later")
def a_thread_outlives_its_end(m: Modules) -> object:
    stop, items, got = m.threading.Event(), m.queue.Queue(), []

    def work() -> None:
        while not stop.is_set():
            got.append(items.get())

    thread = started(m, work)
    m.time.sleep(0.02)
    stop.set()
    thread.join(0.05)
    if thread.is_alive():
        items.put("it takes what comes later")
    thread.join()
    return got[0]
