"""The pytest plugin, as somebody else's test suite meets it: in processes of its own, in a directory of its own."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from xml.etree import ElementTree

import pytest

from conform_run import ran
from hicache_checks import init_command
from hicache_checks.conformance.explainer import FOLLOWED
from hicache_checks.conformance.findings import Finding
from hicache_checks.conformance.properties import PROPERTIES, SHOWN_BY, STEPS, properties_of, why_hidden
from hicache_checks.init_command import InitOptions
from hicache_checks.pytest_plugin import JUDGED, POLICIES
from hicache_spec import DESIGNS
from hicache_spec.bounds import POLICY

TESTS = Path(__file__).parent
HEAVY = ("torch", "numpy", "hypothesis", "hicache_spec", "hicache_checks.conformance")

# A page is missing from the first call on; and it notes in which processes it was loaded.
LEAKY = """
import os
from pathlib import Path
from toy_adapter import ToyAdapter

with Path(__file__).with_name("processes.txt").open("a") as file:
    file.write(f"{os.getpid()}\\n")

class Leaky(ToyAdapter):
    packages = ("leaky", "toy_adapter", "toy_fork")

    def observe(self):
        seen = super().observe()
        return {**seen, "free_pages": seen["free_pages"] - 1}
"""


def run_pytest(directory: Path, *arguments: str) -> str:
    """Its output; the exit code is in the last line."""
    (directory / "pytest.ini").write_text(f"[pytest]\naddopts = --strict-markers\npythonpath = . {TESTS}\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rA", "--basetemp", "tmp", *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    return f"{done.stdout}{done.stderr}\nexit code {done.returncode}"


def cases(junit: Path) -> dict[str, str]:
    """By name of a test: passed, failure, error or skipped."""
    found = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        found[str(case.get("name"))] = next((child.tag for child in case), "passed")
    return found


# ---- properties


def test_every_property_of_the_list_is_there_and_every_rule_is_about_some() -> None:
    assert list(PROPERTIES) == [f"P{n}" for n in range(1, 33)]
    assert POLICY.members == POLICIES
    rules = {(rule.kind, rule.name) for design in FOLLOWED for rule in DESIGNS[design].rules()}
    assert ("invariant", "inv_ranks_revoke_alike") in rules, "which the canonical design does not have"
    for kind, name in sorted(rules):
        if kind in ("invariant", "step", "live"):
            about = properties_of(Finding(name, "a message"))
            assert about != (STEPS,), name
            assert all(not why_hidden(property_, ("events",)) for property_ in about), name
    assert {name for shown in SHOWN_BY.values() for name in shown} <= PROPERTIES.keys()


def test_what_a_finding_is_about() -> None:
    assert properties_of(Finding("P4 inv_pages_conserved", "x")) == ("P4",)
    assert properties_of(Finding("inv_rest_restores_the_pool", "x")) == ("P4", "P14", "P15")
    assert properties_of(Finding("raises", "x")) == properties_of(Finding("decide (§3.6)", "x")) == (STEPS,)


def test_why_a_property_is_hidden() -> None:
    assert why_hidden("P4", ()) == why_hidden(STEPS, ()) == why_hidden("P15", ("flush",)) == ""
    assert why_hidden("P3", ("stop",)) == "only a target with events can show it"
    assert why_hidden("P29", tuple(SHOWN_BY)) == "nothing shows it yet"


# ---- the plugin


def test_it_is_installed_and_light() -> None:
    (point,) = [point for point in entry_points(group="pytest11") if point.name == "hicheck"]
    code = f"import sys, {point.value}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_the_option_it_does_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        f"import sys\ndef test_mine():\n    assert not [name for name in {HEAVY!r} if name in sys.modules]\n"
    )
    output = run_pytest(tmp_path)
    assert "1 passed in" in output
    assert output.endswith("exit code 0")


@pytest.mark.heavy
def test_one_test_for_each_property_and_policy_and_one_search_for_each_policy(tmp_path: Path) -> None:
    (tmp_path / "leaky.py").write_text(LEAKY)
    (tmp_path / "test_mine.py").write_text("def test_mine(): pass\n")
    options = ("--hicheck-target", "leaky:Leaky", "--hicheck-schedules", "12", "--hicheck-findings", "findings")
    marked = ("-m", 'not hicheck or hicheck(policy="wait_complete")')
    output = run_pytest(tmp_path, *options, "-n", "2", "--junitxml", "junit.xml", *marked)
    assert output.endswith("exit code 1")
    found = cases(tmp_path / "junit.xml")
    names = [f"{name}[wait_complete]" for name in (JUDGED, *PROPERTIES, STEPS)]
    assert found.keys() == {"test_mine", *names}
    assert [name for name, how in found.items() if how == "failure"] == ["P4[wait_complete]"]
    assert found["test_mine"] == found["judged[wait_complete]"] == found["P8[wait_complete]"] == "passed"
    assert found["P3[wait_complete]"] == "skipped"
    assert "P4 inv_pages_conserved: free_pages is" in output
    (file,) = (tmp_path / "findings").glob("*.json")
    assert f"hicheck replay findings/{file.name}" in output
    assert len(set((tmp_path / "processes.txt").read_text().split())) == 1, "both processes share one search"


@pytest.mark.heavy
def test_a_target_that_cannot_be_used_fails_once_a_policy(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("class Broken: pass\n")
    output = run_pytest(tmp_path, "--hicheck-target", "broken:Broken", "--junitxml", "junit.xml", "-k", "timeout")
    found = cases(tmp_path / "junit.xml")
    assert [name for name, how in found.items() if how != "skipped"] == ["judged[timeout]"]
    assert found["judged[timeout]"] == "failure"
    assert "broken:Broken cannot be used: the adapter: it has no capabilities(), reset()," in output
    assert "Traceback" not in output


@pytest.mark.heavy
def test_the_test_that_init_writes(tmp_path: Path) -> None:
    ran(lambda screen: init_command.run(InitOptions("mine", tmp_path), screen))
    only = ("-k", "best_effort")
    (tmp_path / "mine_adapter.py").write_text("from toy_adapter import ToyAdapter as MineAdapter\n")
    output = run_pytest(tmp_path, *only)
    assert "PASSED test_mine_conforms.py::test_mine_conforms[best_effort]" in output
    (tmp_path / "mine_adapter.py").write_text(
        LEAKY.replace("Leaky", "MineAdapter").replace('"leaky"', '"mine_adapter"')
    )
    output = run_pytest(tmp_path, *only)
    assert output.endswith("exit code 1")
    assert "P4 inv_pages_conserved: free_pages is" in output
