"""`hicheck store`: each check passes on a store that is right, and fails on one that is wrong just there."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faulty_toy_stores import FAULTY, place_of
from hicache_checks.cli import main
from hicache_checks.stores import asking, medium_checks, page_checks, server_checks
from hicache_checks.stores.asking import side_by_side
from hicache_checks.stores.suite import CHECKS, FAIL, OK, SKIP, Checked, make_checks
from hicache_checks.stores.under_check import CALLS, DoesNotApply, Place, Wrong
from toy_store import ToyPlace, ToyStore

PROCESSES = {"processes_share_pages"}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_checks, "LATE_S", 0.4)
    monkeypatch.setattr(asking, "HEALED_S", 1.0)
    monkeypatch.setattr(page_checks, "RACING_TURNS", 20)


def outcome(factory: Callable[[], object], check: str) -> Checked:
    (checked,) = make_checks(factory, [check], lambda name: None)
    return checked


def named(names: list[str]) -> list[object]:
    return [pytest.param(name, marks=pytest.mark.heavy) if name in PROCESSES else name for name in names]


def test_there_is_a_faulty_store_for_each_check() -> None:
    assert list(FAULTY) == list(CHECKS)


@pytest.mark.parametrize("check", named(list(CHECKS)))
def test_a_check_passes_on_a_right_store_and_fails_on_a_faulty_one(check: str) -> None:
    assert outcome(ToyPlace, check) == Checked(check, OK)
    found = outcome(place_of(FAULTY[check]), check)
    assert found.verdict == FAIL, f"{FAULTY[check].__name__} is not found out"
    assert found.reason
    assert "\n" not in found.reason


def test_all_checks_in_a_row_share_a_place_that_is_clean() -> None:
    places: list[ToyPlace] = []

    def make() -> ToyPlace:
        places.append(ToyPlace())
        return places[-1]

    names = [name for name in CHECKS if name not in PROCESSES]
    begun: list[str] = []
    assert [each.verdict for each in make_checks(make, names, begun.append)] == [OK] * len(names)
    assert begun == names
    assert len(places) == 1
    assert not places[0].folder.exists()


def test_after_a_failure_the_place_is_a_new_one() -> None:
    made: list[object] = []

    def make() -> ToyPlace:
        made.append(place_of(FAULTY["clear_removes_every_page"])())
        return made[-1]  # type: ignore[return-value]

    names = ["clear_removes_every_page", "what_was_put_is_got"]
    assert [each.verdict for each in make_checks(make, names, lambda name: None)] == [FAIL, OK]
    assert len(made) == 2


def test_of_a_bare_class_only_its_calls_are_checked(tmp_path: Path) -> None:
    names = [name for name in CHECKS if name not in PROCESSES]
    numbers = iter(range(100))
    checked = list(make_checks(lambda: ToyStore(tmp_path / str(next(numbers))), names, lambda name: None))
    assert {each.verdict for each in checked} == {OK, SKIP}
    assert {each.check for each in checked if each.verdict == OK} >= {"what_was_put_is_got", "pages_are_atomic"}
    reasons = {each.check: each.reason for each in checked if each.verdict == SKIP}
    assert reasons["a_stopped_server_is_a_miss"] == "the store is given without 'servers'"
    assert reasons["handles_see_the_same_pages"].startswith("only a class is given")


def test_a_place_says_itself_what_it_lacks() -> None:
    class Without(ToyPlace):
        def __init__(self) -> None:
            super().__init__()
            self.lacks = {"servers": "there is no server"}
            self.servers = None  # type: ignore[assignment]

    with pytest.raises(DoesNotApply, match=r"^there is no server$"):
        Place.of(Without).need("servers")


def test_what_is_no_store_is_named() -> None:
    with pytest.raises(Wrong, match="neither `open` nor " + ", ".join(CALLS)):
        Place.of(object)


@pytest.mark.parametrize(
    ("method", "answer", "says"),
    [
        ("exists", 99, "exists of 6 pages answers 99"),
        ("exists", None, "exists of 6 pages answers None"),
        ("get_into", [True], "get_into of 8 pages answers .True., not a list of as many bools"),
        ("put_from", None, "put_from of 8 pages answers None"),
        ("put_from", [1] * 8, "put_from of 8 pages answers"),
        ("stats", [], "stats answers .., not counts by name"),
    ],
)
def test_answers_have_a_form(method: str, answer: object, says: str) -> None:
    answering = type("Answering", (ToyStore,), {method: lambda self, *arguments: answer})
    checks = {"exists": "exists_is_a_leading_run", "stats": "counts_grow"}
    found = outcome(place_of(answering), checks.get(method, "what_was_put_is_got"))
    assert found.verdict == FAIL
    assert re.search(says, found.reason)


def test_a_call_that_raises_or_is_slow_is_wrong() -> None:
    class Raises(ToyStore):
        def stats(self) -> dict[str, int]:
            raise KeyError("hits")

    class Slow(ToyStore):
        def stats(self) -> dict[str, int]:
            time.sleep(0.05)
            return super().stats()

    class Quick(ToyPlace):
        store_class = Slow
        answer_s = 0.01

    assert outcome(place_of(Raises), "counts_grow").reason == "stats raises KeyError: 'hits'"
    assert "at most 0.01 s are allowed" in outcome(Quick, "counts_grow").reason


def test_threads_that_do_not_end_are_wrong() -> None:
    go = threading.Event()

    def wait() -> None:
        go.wait(5.0)

    with pytest.raises(Wrong, match="do not come to an end"):
        side_by_side(lambda: None, wait, seconds_max=0.05)
    go.set()


def test_a_writer_that_cannot_use_the_store_is_wrong() -> None:
    class Elsewhere(ToyPlace):
        elsewhere = "raise SystemExit('no')\n"

    assert "another process cannot use the store" in outcome(Elsewhere, "processes_share_pages").reason


def test_a_medium_that_is_not_full_is_no_check() -> None:
    class Roomy(ToyPlace):
        def open_small(self) -> ToyStore:
            return self.store_class(self.folder / "small")

    assert "nothing was checked" in outcome(Roomy, "a_full_medium_refuses").reason


def test_identities_would_be_mistaken_if_they_were_only_joined() -> None:
    joined = ["".join(map(str, parts.values())) for parts in medium_checks._identities()]
    assert len(set(joined)) < len(joined)


# --- the command ---------------------------------------------------------------------------------------------------


HANGS = """
import time
from toy_store import ToyPlace, ToyStore

class Hanging(ToyStore):
    def stats(self):
        time.sleep(60)

class Dying(ToyStore):
    def stats(self):
        __import__("os")._exit(7)

class Unavailable(Exception):
    pass

class Hangs(ToyPlace):
    store_class = Hanging

class Dies(ToyPlace):
    store_class = Dying

class CannotBeHad:
    def __init__(self):
        raise Unavailable("there is no such server")
"""


def command(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, dict[str, object]]:
    (tmp_path / "hanging_store.py").write_text(HANGS)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(SystemExit) as ended:
        main(["store", *arguments, "--json", str(tmp_path / "out.json")])
    return int(str(ended.value.code)), json.loads((tmp_path / "out.json").read_text())


SOME = ["--only", "what_was_put_is_got", "--only", "counts_grow", "--only", "close_may_come_twice"]


@pytest.mark.heavy
def test_the_command_prints_a_table_and_ends_with_its_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document = command(["toy_store:ToyPlace", *SOME], tmp_path, monkeypatch)
    assert (code, document["verdict"]) == (0, "pass")
    assert capsys.readouterr().out.splitlines() == [
        "what_was_put_is_got   ok",
        "counts_grow           ok",
        "close_may_come_twice  ok",
        "toy_store:ToyPlace: 3 checks passed, 0 failed, 0 do not apply",
        "verdict: pass",
    ]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "says"), [("Hangs", "hung (it said nothing for 2 s)"), ("Dies", "ended with exit code 7")]
)
def test_a_store_that_hangs_or_dies_fails_one_check_and_is_asked_the_others(
    name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [f"hanging_store:{name}", *SOME, "--stall-seconds", "2"]
    code, document = command(arguments, tmp_path, monkeypatch)
    checks: list[dict[str, str]] = document["checks"]  # type: ignore[assignment]
    assert code == 1
    assert [each["verdict"] for each in checks][:2] == [OK, FAIL]
    assert says in checks[1]["reason"]
    assert len(checks) == 3


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["hanging_store:CannotBeHad"], "hanging_store:CannotBeHad cannot be had here: there is no such server"),
        (["hanging_store:Nothing"], "cannot load hanging_store:Nothing"),
        (["builtins:object"], "builtins:object is no store: it has neither `open` nor exists"),
        (["nothing"], "no 'nothing' is registered in hicheck.stores"),
        (["toy_store:ToyPlace", "--only", "all"], "there is no check 'all'; there are what_was_put_is_got"),
    ],
)
def test_what_cannot_be_checked_is_an_error_in_one_line(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, document = command(arguments, tmp_path, monkeypatch)
    assert code == 2
    assert says in str(document["error"])
