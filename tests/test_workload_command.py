"""`hicheck workload`: the logs of a run are really held to the specification."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from hicache_checks import workload_command
from hicache_checks.reporting import InputError, Progress, Screen, Verdict
from hicache_checks.workload_command import WorkloadOptions

OPTIONS = WorkloadOptions(
    trace=None,
    synthetic=True,
    requests=40,
    ranks=1,
    storage="memory",
    policy="wait_complete",
    abort_rate=0.1,
    stop_rate=0.1,
    page_bytes=64,
    host_pages=48,
    device_pages=64,
    speed=None,
    seed=3,
    fault=None,
)


def silent() -> Screen:
    return Screen(Console(file=io.StringIO()), Progress(io.StringIO()))


def options(target: str) -> WorkloadOptions:
    return WorkloadOptions(**{**OPTIONS.__dict__, "target": target})


def test_an_honest_run_is_explained() -> None:
    outcome = workload_command.replay(options("reference"), silent())
    assert outcome.verdict is Verdict.PASS
    assert outcome.keys["violations"] == []
    assert int(str(outcome.keys["events_explained"])) > 100


def test_a_log_that_does_not_add_up_is_a_violation() -> None:
    outcome = workload_command.replay(options("altered_runner:run"), silent())
    assert outcome.verdict is Verdict.FAIL
    violations = outcome.keys["violations"]
    assert isinstance(violations, list)
    (violation,) = violations
    assert violation.startswith("step_admitted_for_cause: it is to be declined: too_short at rank 0")
    assert "span=1" in violation


@pytest.mark.parametrize("target", ["nobody", "altered_runner:nothing", "no_such_module:run"])
def test_an_unknown_runner_is_one_line(target: str) -> None:
    with pytest.raises(InputError) as refusal:
        workload_command.replay(options(target), silent())
    assert "\n" not in str(refusal.value)
