"""`hicheck conform`, `replay` and `minimise`: what they say of a finding, and the test that is made of it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from rich.console import Console

from hicache_checks import conform_command, minimise_command, replay_command
from hicache_checks.conform_command import ConformOptions
from hicache_checks.conformance import replay_file
from hicache_checks.conformance.findings import HARNESS, UNKNOWN, Finding
from hicache_checks.conformance.regression import NotJudged, assert_conforms, pytest_text, write_pytest
from hicache_checks.conformance.replay_file import Replay
from hicache_checks.conformance.replaying import Again, sameness
from hicache_checks.conformance.search import SearchOptions
from hicache_checks.minimise_command import MinimiseOptions
from hicache_checks.replay_command import ReplayOptions
from hicache_checks.reporting import InputError, Outcome, Progress, Screen, Story, Verdict

WRONG = Finding("P13 tail", "it comes\nback twice")
STORY = Story("1 rank", [], [], [])
REPLAY = Replay(
    format=replay_file.FORMAT,
    version=replay_file.VERSION,
    target="fork:build",
    fingerprint="00",
    ranks=1,
    policy="wait_complete",
    steps_max=24,
    system="1 rank, 4 host pages",
    choices=[1, 0, 0, 0, 1, 0],
    counts=[5, 3, 3, 5, 2, 38],
    switches=[4],
    digest="aa",
    program=["submit('a', (1,))"],
    finding=msgspec.to_builtins(WRONG),
)


# ---- the test that is made of a run


def test_the_pytest_file() -> None:
    assert pytest_text(REPLAY) == (
        '"""A run that hicheck found and made small: the test fails as long as the run shows something wrong."""\n'
        "\n"
        "from __future__ import annotations\n"
        "\n"
        "from hicache_checks.conformance.regression import assert_conforms\n"
        "\n"
        "# P13 tail: it comes\\nback twice\n"
        "# Found on fork:build: 1 rank, 4 host pages\n"
        "#\n"
        "# submit('a', (1,))\n"
        "# fmt: off\n"
        "RUN = {'format': 'hicheck-replay',\n"
        " 'version': 1,\n"
        " 'target': 'fork:build',\n"
        " 'fingerprint': '00',\n"
        " 'ranks': 1,\n"
        " 'policy': 'wait_complete',\n"
        " 'steps_max': 24,\n"
        " 'system': '1 rank, 4 host pages',\n"
        " 'choices': [1, 0, 0, 0, 1, 0],\n"
        " 'counts': [5, 3, 3, 5, 2, 38],\n"
        " 'switches': [4],\n"
        " 'digest': 'aa',\n"
        " 'program': [\"submit('a', (1,))\"],\n"
        " 'finding': {'property': 'P13 tail',\n"
        "             'message': 'it comes\\nback twice',\n"
        "             'kind': 'protocol',\n"
        "             'place': ''},\n"
        " 'mode': 'simulate'}\n"
        "# fmt: on\n"
        "\n"
        "\n"
        "def test_p13_tail_3c2a00ac() -> None:\n"
        "    assert_conforms(RUN)\n"
    )


def test_the_pytest_file_holds_the_run_whatever_its_texts_are(tmp_path: Path) -> None:
    hostile = '"""\n# fmt: on\nimport os\r\x1b[31m\u2028 \\'
    finding = {"property": hostile, "message": hostile, "kind": "protocol", "place": hostile}
    run = msgspec.structs.replace(REPLAY, target=hostile, program=[hostile], finding=finding)
    path = tmp_path / "made" / "test_it.py"
    write_pytest(run, path)
    names: dict[str, Any] = {}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    assert names["RUN"] == replay_file.to_document(run)
    assert "os" not in names
    assert [name for name in names if name.startswith("test_")]


# ---- what is said of a replay


@pytest.mark.parametrize(
    ("again", "text", "verdict"),
    [
        (Again(WRONG, is_same=True, story=STORY), "the same run, step by step", Verdict.FAIL),
        (Again(WRONG, story=STORY), "the same choices, but other steps", Verdict.FAIL),
        (Again(None, story=STORY), "the same choices; it goes on where it was wrong before", Verdict.PASS),
        (
            Again(None, diverged=2, has_changed=True, story=STORY),
            "diverged at choice 3 of 6: the target has changed since",
            Verdict.UNKNOWN,
        ),
        (
            Again(None, diverged=2, has_changed=True, is_other=True, story=STORY),
            "diverged at choice 3 of 6: it is another target",
            Verdict.UNKNOWN,
        ),
        (
            Again(WRONG, diverged=0, story=STORY),
            "diverged at choice 1 of 6: the target is not deterministic",
            Verdict.FAIL,
        ),
        (Again(WRONG), "the process did not survive it", Verdict.FAIL),
        (
            Again(None, is_same=True, by_chance=True, story=STORY),
            "the same program, with real threads that run as they like",
            Verdict.UNKNOWN,
        ),
        (Again(replace(WRONG, kind=HARNESS), is_same=True, story=STORY), "the same run, step by step", Verdict.ERROR),
        (Again(replace(WRONG, kind=UNKNOWN), is_same=True, story=STORY), "the same run, step by step", Verdict.UNKNOWN),
    ],
)
def test_a_replay_says_whether_it_was_the_same_run(again: Again, text: str, verdict: Verdict) -> None:
    assert (sameness(again, REPLAY), again.verdict) == (text, verdict)


def test_a_replay_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text('{"format": "other"}')
    with pytest.raises(InputError, match=r"run\.json: not a replay file: "):
        replay_command.run(ReplayOptions(path), screen())
    with pytest.raises(InputError, match=r"none\.json: No such file or directory"):
        minimise_command.run(MinimiseOptions(tmp_path / "none.json"), screen())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"[" * 200_000, "not JSON: maximum recursion depth exceeded"),
        (b" " * 67_108_865, "not a replay file: it is longer than 67,108,864 bytes"),
        (b'"\xff"', "not JSON: "),
        (b"1", "not a replay file: Expected `object`, got `int`"),
    ],
    ids=["deep", "long", "no_text", "no_object"],
)
def test_a_replay_file_of_any_kind_is_refused_in_one_line(text: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(text)
    with pytest.raises(InputError, match=rf"run\.json: {why}") as refused:
        replay_file.read(path)
    assert "\n" not in str(refused.value)


def screen() -> Screen:
    return Screen(Console(file=io.StringIO(), highlight=False, soft_wrap=True, width=300), Progress(io.StringIO()))


def printed(run: Callable[[Screen], Outcome]) -> tuple[Outcome, list[str]]:
    shown = screen()
    outcome = run(shown)
    assert isinstance(shown.console.file, io.StringIO)
    return outcome, shown.console.file.getvalue().splitlines()


# ---- a fork with a fault, found, replayed, repaired

FORK = """
from hicache_impl.adapter import Reference
from hicache_impl.mutants import MUTANTS
from hicache_impl.runtime import ThreadRuntime

FAULT = {fault!r}

def build():
    builds = next((mutant.builds for mutant in MUTANTS if mutant.name == FAULT), {{}})
    return Reference(runtime=ThreadRuntime(), **builds)

build.packages = ("hicache_impl", "story_fork")
"""
FAULT = "sched_reuses_attempts"
PROPERTY = "inv_records_name_their_attempt"


class Fork:
    """A target that somebody repairs; what was found in it before."""

    def __init__(self, folder: Path) -> None:
        self.found = folder / "found"
        self.junit, self.html = folder / "out.xml", folder / "out.html"
        self._module = folder / "story_fork.py"
        self.write(FAULT)

    def write(self, fault: str) -> None:
        self._module.write_text(FORK.format(fault=fault))

    @property
    def run(self) -> Path:
        (path,) = self.found.glob("*.json")
        return path


@pytest.fixture(scope="module")
def fork(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fork]:
    folder = tmp_path_factory.mktemp("fork")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield Fork(folder)


@pytest.fixture(scope="module")
def conformed(fork: Fork) -> tuple[Outcome, list[str]]:
    search = SearchOptions(ranks=1, policies=("wait_complete",), schedules=200, stop_at_first=True)
    options = ConformOptions(
        "story_fork:build", search, findings=fork.found, junit=str(fork.junit), html=str(fork.html)
    )
    return printed(lambda shown: conform_command.run(options, shown))


@pytest.fixture
def faulty(fork: Fork, conformed: object) -> Fork:
    fork.write(FAULT)
    return fork


@pytest.fixture
def repaired(fork: Fork, conformed: object) -> Fork:
    fork.write("none")
    return fork


def only_finding(outcome: Outcome) -> Any:
    keys: Any = outcome.keys
    (finding,) = keys["findings"]
    return finding


@pytest.mark.heavy
def test_a_finding_is_printed_as_a_story_and_kept(conformed: tuple[Outcome, list[str]], faulty: Fork) -> None:
    outcome, lines = conformed
    assert outcome.verdict is Verdict.FAIL
    finding = only_finding(outcome)
    assert len(finding["story"]["rows"]) <= 15
    assert lines[0] == f"{finding['id']}  {finding['property']}: {finding['message']}"
    assert f"  finding  {PROPERTY}: attempt 2 is next" in lines
    assert f"  hicheck replay {faulty.run}" in lines
    assert finding["replay"] == json.loads(faulty.run.read_bytes())
    assert (faulty.found / f"test_{finding['id']}.py").exists()


@pytest.mark.heavy
def test_a_finding_is_in_both_reports(conformed: tuple[Outcome, list[str]], faulty: Fork) -> None:
    finding = only_finding(conformed[0])
    suites = ElementTree.parse(faulty.junit).getroot()
    (failed,) = [case.get("name") for case in suites.iter("testcase") if case.find("failure") is not None]
    assert failed == f"{finding['property']} [{finding['id']}]"
    assert len(list(suites.iter("testcase"))) > 20
    page = faulty.html.read_text(encoding="utf-8")
    assert f'<h2 id="{finding["id"]}">' in page
    assert "<svg" in page
    assert "sequenceDiagram" in page


@pytest.mark.heavy
def test_a_replay_is_the_same_run(faulty: Fork) -> None:
    outcome, lines = printed(lambda shown: replay_command.run(ReplayOptions(faulty.run), shown))
    assert outcome.verdict is Verdict.FAIL
    assert lines[-2:] == ["run       the same run, step by step", "verdict   fail: it is still wrong"]
    assert (outcome.keys["same_run"], outcome.keys["target_changed"], outcome.keys["real"]) == (True, False, None)
    assert outcome.keys["finding"] == outcome.keys["recorded"]


@pytest.mark.heavy
def test_a_replay_can_be_tried_with_real_threads(faulty: Fork) -> None:
    outcome, lines = printed(lambda shown: replay_command.run(ReplayOptions(faulty.run, real=True), shown))
    assert outcome.keys["real"]["finding"]["property"] == PROPERTY  # type: ignore[index]
    (line,) = [line for line in lines if line.startswith("real threads")]
    assert line.startswith("real threads  seen in run ")


@pytest.mark.heavy
def test_a_repaired_target_passes_its_replay(repaired: Fork) -> None:
    outcome, lines = printed(lambda shown: replay_command.run(ReplayOptions(repaired.run), shown))
    assert outcome.verdict is Verdict.PASS
    assert lines[2:] == [
        "now       nothing wrong",
        "run       the same choices; it goes on where it was wrong before",
        "verdict   pass: the target has changed since; the recorded finding does not show any more",
    ]
    assert outcome.verdict.exit_code == 0


@pytest.mark.heavy
def test_a_replay_on_another_target_says_what_it_says_of_that_one(repaired: Fork, tmp_path: Path) -> None:
    run = replay_file.read(repaired.run)
    renamed, sound = tmp_path / "renamed.json", tmp_path / "sound.json"
    replay_file.write(msgspec.structs.replace(run, target="elsewhere:fork"), renamed)
    replay_file.write(msgspec.structs.replace(run, finding=None), sound)
    for options, why in (
        (ReplayOptions(renamed, target=run.target), "the recorded finding does not show on this target"),
        (ReplayOptions(sound), "nothing is wrong with this run now"),
    ):
        outcome, lines = printed(partial(replay_command.run, options))
        assert (outcome.verdict, lines[-1]) == (Verdict.PASS, f"verdict   pass: {why}")


@pytest.mark.heavy
def test_a_replay_that_goes_another_way_and_finds_nothing_is_unknown(repaired: Fork, tmp_path: Path) -> None:
    run = replay_file.read(repaired.run)
    other = msgspec.structs.replace(run, counts=[*run.counts[:9], run.counts[9] + 1, *run.counts[10:]])
    path = tmp_path / "other.json"
    replay_file.write(other, path)
    outcome, lines = printed(lambda shown: replay_command.run(ReplayOptions(path), shown))
    assert outcome.verdict is Verdict.UNKNOWN
    assert outcome.keys["diverged"] == 9
    assert f"run       diverged at choice 10 of {len(run.choices)}: the target has changed since" in lines
    assert lines[-1] == "verdict   unknown: it shows nothing wrong, but it is another run"
    with pytest.warns(UserWarning, match=r"not the run that was recorded: diverged at choice 10 of"):
        assert_conforms(replay_file.to_document(other))


@pytest.mark.heavy
def test_the_test_made_of_a_run_fails_until_the_target_is_repaired(faulty: Fork) -> None:
    (path,) = faulty.found.glob("test_*.py")
    names: dict[str, Any] = {}
    exec(path.read_text(encoding="utf-8"), names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    with pytest.raises(AssertionError, match=rf"{PROPERTY}[\s\S]*step  rank  thread"):
        test()
    faulty.write("none")
    test()


@pytest.mark.heavy
def test_a_run_of_a_target_that_is_gone_is_not_judged() -> None:
    gone = msgspec.structs.replace(REPLAY, target="story_fork_that_is_gone:build")
    with pytest.raises(NotJudged, match="cannot load story_fork_that_is_gone:build"):
        assert_conforms(replay_file.to_document(gone))


@pytest.mark.heavy
def test_a_minimised_run_is_written_and_still_wrong(faulty: Fork, tmp_path: Path) -> None:
    out, test = tmp_path / "small.json", tmp_path / "test_small.py"
    options = MinimiseOptions(faulty.run, 2.0, out, test)
    outcome, lines = printed(lambda shown: minimise_command.run(options, shown))
    assert outcome.verdict is Verdict.PASS
    small = replay_file.read(out)
    assert small.found is not None
    assert small.found.property == PROPERTY
    assert len(small.program) <= len(replay_file.read(faulty.run).program)
    assert [line.split("  ")[0] for line in lines[-5:]] == ["finding", "before", "after", "written", "pytest"]
    assert test.read_text(encoding="utf-8") == pytest_text(small)


@pytest.mark.heavy
def test_a_run_that_shows_nothing_wrong_cannot_be_minimised(repaired: Fork) -> None:
    with pytest.raises(InputError, match="the run of this file shows nothing wrong now"):
        minimise_command.run(MinimiseOptions(repaired.run, 2.0), screen())
