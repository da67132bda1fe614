"""Rows of differences: clocks and waits, threads and what belongs to them."""

from __future__ import annotations

import contextvars
import ctypes
import gc
import importlib
import os
import sys
import threading as real_threading
import time as real_time
import types
import warnings
from collections.abc import Callable
from pathlib import Path

from standin_difference_rows import Modules, compute, differs, same, started

# --- time


@differs({"its time is up"}, {"it gets the item"})
def somebody_computes_for_longer_than_another_waits(m: Modules) -> object:
    items, got, waiting = m.queue.Queue(), [], []

    def get() -> None:
        waiting.append(1)
        try:
            items.get(timeout=0.02)
            got.append("it gets the item")
        except m.queue.Empty:
            got.append("its time is up")

    thread = started(m, get)
    while not waiting:
        m.time.sleep(0.001)
    compute(0.1)
    items.put(1)
    thread.join()
    return got[0]


@differs({"it goes on"}, {"it stands still"})
def a_clock_during_a_call_that_nobody_simulates(m: Modules) -> object:
    before = m.time.monotonic()
    real_time.sleep(0.05)
    return "it goes on" if m.time.monotonic() - before >= 0.05 else "it stands still"


@differs({"the thread is alive"}, {"the thread has ended"})
def joining_a_thread_in_a_call_that_nobody_simulates(m: Modules) -> object:
    thread = started(m, lambda: real_time.sleep(0.2))
    thread.join(0.02)
    seen = "the thread is alive" if thread.is_alive() else "the thread has ended"
    thread.join()
    return seen


@same("its time comes")
def somebody_spins_until_a_timer_has_fired(m: Modules) -> object:
    gate = m.threading.Event()
    m.threading.Timer(0.05, gate.set).start()
    while not gate.is_set():
        m.time.sleep(0)
    return "its time comes"


@differs({"it ends"}, {"deadlock"})
def somebody_sleeps_again_and_again(m: Modules) -> object:
    end = m.time.monotonic() + m.rounds_max * 2 * 0.001
    while m.time.monotonic() < end:
        m.time.sleep(0.001)
    return "it ends"


@same("everybody has a turn")
def somebody_hands_things_over_for_ever(m: Modules) -> object:
    is_over = m.threading.Event()

    def hand_over() -> None:
        items = m.queue.Queue()
        while not is_over.is_set():
            items.put(1)
            items.get()

    for thread in [*(started(m, hand_over) for _ in range(3)), started(m, is_over.set)]:
        thread.join()
    return "everybody has a turn"


@differs({"some readings are equal"}, {"all differ"})
def a_clock_is_read_again_and_again(m: Modules) -> object:
    seen = [m.time.time() for _ in range(1000)]
    return "all differ" if len(set(seen)) == len(seen) else "some readings are equal"


@same("the first", "the second")
def two_waits_end_within_50_microseconds(m: Modules) -> object:
    order: list[str] = []

    def sleeper(name: str, end: float) -> Callable[[], None]:
        def go() -> None:
            m.time.sleep(max(0.0, end - m.time.monotonic()))
            order.append(name)

        return go

    end = m.time.monotonic() + 0.01
    threads = [started(m, sleeper("the second", end + 5e-5)), started(m, sleeper("the first", end))]
    for thread in threads:
        thread.join()
    return order[0]


@differs({(False, False)}, {(True, True)})
def are_all_clocks_one(m: Modules) -> object:
    before = m.time.process_time()
    m.time.sleep(0.2)
    return m.time.process_time() - before >= 0.2, abs(m.time.time() - m.time.monotonic()) < 1


@differs({"OverflowError"}, {"it waits"})
def a_wait_of_ten_thousand_years(m: Modules) -> object:
    seen = ["it waits"]

    def wait() -> None:
        try:
            m.threading.Event().wait(3e11)
        except OverflowError:
            seen.append("OverflowError")

    started(m, wait).join(0.2)
    return seen[-1]


# --- threads


@same("it is apart")
def the_context_of_a_new_thread(m: Modules) -> object:
    variable = contextvars.ContextVar("variable", default="it is apart")
    variable.set("it is the starter's")
    seen: list[str] = []
    started(m, lambda: seen.append(variable.get())).join()
    return seen[0]


@differs({"apart"}, {"shared"})
def what_native_code_keeps_for_a_thread(m: Modules) -> object:
    ctypes.set_errno(0)
    started(m, lambda: ctypes.set_errno(5)).join()
    return "apart" if ctypes.get_errno() == 0 else "shared"


@differs({"one after the other"}, {"both at once"})
def two_threads_in_a_lock_that_nobody_simulates(m: Modules) -> object:
    lock, inside, most = real_threading.RLock(), [], [0]

    def enter() -> None:
        with lock:
            inside.append(1)
            most[0] = max(most[0], len(inside))
            m.time.sleep(0.02)
            inside.pop()

    for thread in [started(m, enter) for _ in range(2)]:
        thread.join()
    return "both at once" if most[0] == 2 else "one after the other"


@differs({"all of it"}, {"half of it"})
def a_module_that_two_threads_import(m: Modules) -> object:
    name = f"imported_by_two_{os.getpid()}"
    Path(m.folder, f"{name}.py").write_text("import hooks_of_import\nhooks_of_import.step()\nis_whole = True\n")
    hooks = types.ModuleType("hooks_of_import")
    hooks.__dict__["step"] = lambda: m.time.sleep(0.02)
    sys.modules["hooks_of_import"] = hooks
    sys.path.insert(0, m.folder)
    importlib.invalidate_caches()
    seen: list[bool] = []
    try:
        for thread in [
            started(m, lambda: seen.append(hasattr(importlib.import_module(name), "is_whole"))) for _ in range(2)
        ]:
            thread.join()
    finally:
        sys.path.remove(m.folder)
        sys.modules.pop(name, None)
        del sys.modules["hooks_of_import"]
    return "all of it" if all(seen) else "half of it"


@differs({"used again"}, {"never used again"})
def the_numbers_of_threads(m: Modules) -> object:
    numbers: list[int] = []
    for _ in range(20):
        started(m, lambda: numbers.append(m.threading.get_ident())).join()
    return "never used again" if len(set(numbers)) == len(numbers) else "used again"


@differs({"it ends"}, {"it stays"})
def a_thread_local_value_whose_thread_has_ended(m: Modules) -> object:
    local, seen = m.threading.local(), []

    class Value:
        def __del__(self) -> None:
            seen.append("it ends")

    thread = started(m, lambda: setattr(local, "value", Value()))
    thread.join()
    seen.append("it stays")
    return seen[0]


@differs({"collected"}, {"kept"})
def garbage_in_a_circle(m: Modules) -> object:
    seen: list[str] = []

    class Circle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            seen.append("collected")

    Circle()
    kept = [list[int]() for _ in range(2 * gc.get_threshold()[0])]  # enough for the collector to begin
    seen.append("kept")
    del kept
    return seen[0]


@differs({"RuntimeError"}, {"none"})
def a_running_thread_is_made_a_daemon(m: Modules) -> object:
    gate = m.threading.Event()
    thread = m.threading.Thread(target=gate.wait)
    thread.start()
    try:
        thread.daemon = True
        seen = "none"
    except RuntimeError as error:
        seen = type(error).__name__
    gate.set()
    thread.join()
    return seen


@differs({"traced"}, {"not traced"})
def a_thread_that_begins_under_settrace(m: Modules) -> object:
    seen: list[str] = ["not traced"]
    before = real_threading.gettrace()
    m.threading.settrace(lambda *event: seen.append("traced"))
    try:
        started(m, int).join()
    finally:
        m.threading.settrace(before)
    return seen[-1]


@differs({"DeprecationWarning"}, {"silence"})
def an_old_name_of_a_method(m: Modules) -> object:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        m.threading.Thread().isDaemon()
    return told[0].category.__name__ if told else "silence"


@differs({min(32, (os.cpu_count() or 1) + 4)}, {8})
def the_threads_of_a_pool(m: Modules) -> object:
    with m.futures.ThreadPoolExecutor() as pool:
        return pool._max_workers
