"""Forks that are broken in ways of their own: each gives one clear line and the right exit code, never a traceback."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from conform_run import Ran, conform
from hicache_checks.conformance import replay_file
from hicache_checks.conformance.last_words import last_words
from hicache_checks.conformance.search import SearchOptions

pytestmark = pytest.mark.heavy

FORK = """
import ctypes, os, signal, sys, time
from toy_adapter import ToyAdapter
from hicache_checks.conformance.observation import UNOBSERVED

def first_time(name):
    try:
        os.close(os.open(os.path.join(os.path.dirname(__file__), name), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True

class Fork(ToyAdapter):
    packages = ("fork", "toy_adapter", "toy_fork")
"""


def conform_fork(directory: Path, monkeypatch: pytest.MonkeyPatch, body: str, **options: Any) -> Ran:
    """Search a fork that is the toy with something broken in it."""
    (directory / "fork.py").write_text(FORK + body)
    monkeypatch.syspath_prepend(directory)
    search = {"ranks": 1, "schedules": 6, **options.pop("search", {})}
    return conform("fork:Fork", SearchOptions(**search), **options)


# ---- adapters that cannot be used: exit code 2, and one line


UNUSABLE = {
    "crash_at_import": ("raise RuntimeError('no GPU here')", "cannot load fork:Fork: RuntimeError: no GPU here"),
    "exit_at_import": ("sys.exit(3)", "cannot load fork:Fork: SystemExit: 3"),
    "syntax": ("def", "cannot load fork:Fork: SyntaxError: "),
    "killed_at_import": ("os.kill(os.getpid(), signal.SIGKILL)", "the process was killed by SIGKILL"),
    "missing": ("del Fork", "cannot load fork:Fork: AttributeError: module 'fork' has no attribute 'Fork'"),
    "not_callable": ("Fork = 3", "fork:Fork is no factory: it cannot be called"),
    "packages": ("Fork.packages = 'fork'", "must be a tuple of names"),
    "arguments": (
        "    def __init__(self, path): pass",
        "fork:Fork cannot be used: the factory: TypeError: Fork.__init__() missing 1 required positional argument",
    ),
    "no_poll": ("    poll = None", "fork:Fork cannot be used: the adapter: it has no poll()"),
    "unknown_capability": (
        "    def capabilities(self): return ('sotre',)",
        "fork:Fork cannot be used: the adapter: capabilities() names 'sotre'; known are events, stop, store",
    ),
    "capability_without_call": (
        "    def capabilities(self): return ('store', 'faults')",
        "the adapter: it is said to have faults, and has no break_storage(), lose(), heal_storage()",
    ),
    "observe_leaves_out": (
        "    def observe(self): seen = dict(super().observe()); del seen['occupied_pages']; return seen",
        "fork:Fork cannot be used: observe: it leaves out occupied_pages; if that cannot be seen, it is UNOBSERVED",
    ),
    "observe_none": (
        "    def observe(self): pass",
        "fork:Fork cannot be used: observe: the answer is None, a mapping is expected",
    ),
    "poll_list": (
        "    def poll(self, rids): return [True for _ in rids]",
        "fork:Fork cannot be used: poll: the answer is [True, True, True], a mapping is expected",
    ),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_adapter_that_cannot_be_used_is_an_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body, line = UNUSABLE[name]
    ran = conform_fork(tmp_path, monkeypatch, body)
    assert ran.code == 2
    assert line in ran.text
    assert "\n" not in ran.text.strip()
    assert "Traceback" not in ran.text


def test_a_hang_at_import_is_an_error_that_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "def wait_for_licence():\n    ctypes.PyDLL(None).sleep(1000)\nwait_for_licence()"
    ran = conform_fork(tmp_path, monkeypatch, body, stall_seconds=8)
    assert ran.code == 2
    assert "the process hung (it said nothing for 40 s) in wait_for_licence (fork.py:" in ran.text


# ---- systems that do what they should not: exit code 1, and the search goes on


def test_a_crash_is_a_finding_and_the_search_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
    def tick(self):
        if first_time("crashed"):
            ctypes.string_at(0)
        super().tick()
"""
    ran = conform_fork(tmp_path, monkeypatch, body)
    (finding,) = ran.keys["findings"]
    assert ran.code == 1
    assert ran.keys["outcomes"], "the schedules after the one that crashed were run"
    assert finding["property"] == "P31 the process survives"
    assert finding["message"] == "the process was killed by SIGSEGV in schedule 0, saying 'Segmentation fault'"
    assert finding["place"].startswith("tick (fork.py:")
    assert finding["replay"] is None
    assert "Traceback" not in ran.text


@pytest.mark.parametrize(
    ("ends", "how"),
    [
        ("sys.exit()", "the process ended with exit code 1 in schedule 0, saying 'it called sys.exit(None)'"),
        ("os._exit(0)", "the process ended with exit code 0 in schedule 0"),
        ("os.kill(os.getpid(), 40)", "the process was killed by signal 40 in schedule 0"),
    ],
)
def test_to_leave_quietly_is_no_way_to_pass(
    ends: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = conform_fork(tmp_path, monkeypatch, f"    def tick(self): first_time('left') and {ends}; super().tick()")
    (finding,) = ran.keys["findings"]
    assert (ran.code, finding["message"]) == (1, how)


def test_what_was_found_before_a_crash_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
    def observe(self):
        return {**super().observe(), "occupied_pages": 7}
    def close(self):
        if not first_time("closed") and first_time("crashed"):
            os.abort()
        super().close()
"""
    ran = conform_fork(tmp_path, monkeypatch, body)
    assert ran.code == 1
    by_property = {finding["property"]: finding for finding in ran.keys["findings"]}
    assert by_property.keys() >= {"P8 inv_occupied_is_sum_of_spans"}


def test_what_was_covered_before_a_crash_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first schedule takes longer than a worker is silent; the last one crashes, and none comes after it."""
    body = """
    closed = 0
    def close(self):
        Fork.closed += 1
        if Fork.closed == 1:
            ctypes.CDLL(None).usleep(700_000)
        if Fork.closed == 6:
            os.abort()
        super().close()
"""
    ran = conform_fork(tmp_path, monkeypatch, body)
    assert "in schedule 5" in ran.keys["findings"][0]["message"]
    assert ran.keys["distinct_traces"] >= 1
    assert ran.keys["outcomes"]
    assert ran.keys["schedules"] <= 6


def test_a_hang_in_native_code_is_a_finding_that_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # PyDLL keeps the interpreter's lock: no other thread of the process can say anything any more.
    body = """
    def tick(self):
        if first_time("hung"):
            ctypes.PyDLL(None).sleep(1000)
        super().tick()
"""
    ran = conform_fork(tmp_path, monkeypatch, body, stall_seconds=8)
    (finding,) = ran.keys["findings"]
    assert ran.code == 1
    assert ran.keys["outcomes"], "the schedules after the one that hung were run"
    assert finding["property"] == "P22 progress"
    assert finding["message"].startswith("the process hung (it said nothing for 8 s) in schedule 0")
    assert finding["place"].startswith("tick (fork.py:")


def test_memory_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
    def submit(self, rid, tokens):
        self.hoard = bytearray(64 << 30)
        return super().submit(rid, tokens)
"""
    ran = conform_fork(tmp_path, monkeypatch, body)
    (finding,) = ran.keys["findings"]
    assert ran.code == 1
    assert (finding["property"], finding["place"]) == ("raises", "submit")
    assert finding["message"].startswith("MemoryError")


def test_what_settle_raises_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = conform_fork(tmp_path, monkeypatch, "    def settle(self): raise OSError('no rest')")
    (finding,) = ran.keys["findings"]
    assert (ran.code, finding["property"], finding["place"]) == (1, "raises", "settle")


def test_what_a_target_says_need_not_be_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "    def tick(self): raise OSError(os.fsdecode(b'no file \\xff'))"
    ran = conform_fork(tmp_path, monkeypatch, body, findings=tmp_path / "found")
    (finding,) = ran.keys["findings"]
    assert (ran.code, finding["message"]) == (1, "OSError: no file ?")
    (found,) = (tmp_path / "found").glob("*.json")
    assert replay_file.read(found).found is not None


# ---- systems that are strange, and conform: exit code 0


@pytest.mark.parametrize("copy", ["pass", "os.setsid(); ctypes.CDLL(None).sleep(50); os._exit(0)"])
def test_a_copy_of_the_process_is_not_taken_for_it(copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that goes on as if it were the process says nothing; one that outlives it is not waited for."""
    body = f"""
    def tick(self):
        if first_time("forked") and not os.fork():
            {copy}
        super().tick()
"""
    start = time.monotonic()
    ran = conform_fork(tmp_path, monkeypatch, body)
    assert (ran.code, ran.keys["schedules"]) == (0, 6)
    assert time.monotonic() - start < 45


def test_garbage_on_every_stream_is_not_taken_for_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
    def tick(self):
        print('{"done": 1}')
        os.write(1, b"\\xff\\x00 {\\n" * 1000)
        os.write(2, b"Traceback (most recent call last):\\n" * 1000)
        super().tick()
print("garbage", flush=True)
"""
    ran = conform_fork(tmp_path, monkeypatch, body)
    assert ran.code == 0
    assert "garbage" not in ran.text
    assert ran.keys["schedules"] == 6


def test_what_cannot_be_seen_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "    def observe(self): return {**super().observe(), 'occupied_pages': UNOBSERVED}"
    ran = conform_fork(tmp_path, monkeypatch, body)
    assert ran.code == 0
    assert ran.keys["unobserved"]["occupied_pages"] > 6
    assert f"occupied_pages {ran.keys['unobserved']['occupied_pages']:,}" in ran.text


def test_a_target_that_never_settles_is_not_misjudged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It works a little in each of its turns: that nothing moves does not mean that everything is done.
    body = "    def capabilities(self): return ('store', 'stop')"
    ran = conform_fork(tmp_path, monkeypatch, body, search={"schedules": 30})
    assert (ran.code, ran.keys["findings"]) == (0, [])


def test_real_threads_are_searched_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = {"mode": "threads", "policies": ("best_effort", "wait_complete"), "schedules": 30}
    ran = conform_fork(tmp_path, monkeypatch, "", search=search)
    assert (ran.code, ran.keys["mode"], ran.keys["schedules"]) == (0, "threads", 30)
    assert ran.keys["distinct_traces"] > 20
    wrong = "    def observe(self): return {**super().observe(), 'free_pages': 0}"
    ran = conform_fork(tmp_path, monkeypatch, wrong, search={**search, "schedules": 3})
    assert ran.code == 1
    assert all(f["confirmed"] and f["replay"]["mode"] == "threads" for f in ran.keys["findings"])


def test_as_many_schedules_as_there_is_time_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = conform_fork(tmp_path, monkeypatch, "", search={"schedules": None, "seconds_max": 1.0})
    assert ran.code == 0
    assert ran.keys["schedules"] >= 1
    cut = conform_fork(tmp_path, monkeypatch, "", search={"schedules": 1_000_000, "seconds_max": 0.5})
    assert cut.code == 3, "what was asked for was not done"


# ---- the text that a process leaves


STACK = """some words
no step for 30.0 s, caller is in `sleep`
Thread 0x01 (most recent call first):
  File "/usr/lib/python3/threading.py", line 5 in wait

Current thread 0x02 (most recent call first):
  File "/x/hicache_checks/simulation/world.py", line 9 in point
  File "/somebody/fork.py", line 12 in poll
  File "/somebody/main.py", line 1 in <module>

Extension modules: numpy (total: 1)
"""


def test_last_words() -> None:
    assert last_words("") == last_words(" \n")
    assert last_words("one\ntwo\n\n").words == "two"
    last = last_words(STACK)
    assert last.words == "no step for 30.0 s, caller is in `sleep`"
    assert last.place == "poll (fork.py:12)"
    assert last_words("Fatal Python error: Segmentation fault\n\n" + STACK[STACK.index("Current") :]).words == (
        "Segmentation fault"
    )
