"""The pytest plugin: with `--hicheck-target MODULE:FACTORY` a test for each property of the protocol and each policy.

The tests of a policy share one search of the target, also among the processes of pytest-xdist. Without the option there
is nothing but the fixture `hicheck`, which a test may call. Whatever is heavy is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hicache_checks.conformance.policy_search import Found

POLICIES = ("best_effort", "wait_complete", "timeout")
JUDGED = "judged"
MARKER = "hicheck(property, policy): a property of the prefetch protocol under a policy; see --hicheck-target"

Search = Callable[..., "Found"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, in a group of their own."""
    group = parser.getgroup("hicheck", "conformance of a KV cache's prefetch pipeline")
    group.addoption("--hicheck-target", metavar="MODULE:FACTORY", help="add a test for each property and policy")
    group.addoption("--hicheck-schedules", type=int, default=300, metavar="N", help="schedules a policy (300)")
    group.addoption("--hicheck-ranks", type=int, default=2, metavar="R", help="ranks of the target (2)")
    group.addoption("--hicheck-seed", type=int, default=0, metavar="S", help="seed of the search (0)")
    group.addoption("--hicheck-findings", type=Path, metavar="DIR", help="where replay files of findings go")


def pytest_configure(config: pytest.Config) -> None:
    """The marker, for --strict-markers."""
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the tests, before others choose among all tests."""
    target = config.getoption("--hicheck-target")
    if target is None:
        return
    from hicache_checks.conformance.properties import PROPERTIES, STEPS

    parent = Properties.from_parent(session, name="hicheck", nodeid="hicheck")
    for policy in POLICIES:
        for name in (JUDGED, *PROPERTIES, STEPS):
            item = pytest.Function.from_parent(parent, name=f"{name}[{policy}]", callobj=_test_of(target, name, policy))
            item.add_marker(pytest.mark.hicheck(property=name, policy=policy))
            items.append(item)


class Properties(pytest.Collector):
    """Where the tests hang that the option adds."""

    def collect(self) -> list[pytest.Item]:
        """They are added one by one."""
        return []


@pytest.fixture(scope="session")
def hicheck_search(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Search:
    """Search a target under a policy, once in a session: see `hicheck` for the arguments."""
    base = tmp_path_factory.getbasetemp()
    # The processes of pytest-xdist have directories of their own side by side. (Its environment variables are also
    # seen by a pytest that a test starts.)
    shared = base.parent if hasattr(pytestconfig, "workerinput") else base
    findings = pytestconfig.getoption("--hicheck-findings")

    def search(target: str, **options: Any) -> Found:
        from hicache_checks.conformance.policy_search import found_by, found_once
        from hicache_checks.conformance.search import SearchOptions

        chosen = SearchOptions(policies=(options.pop("policy"),), **options)
        name = blake2b(repr((target, chosen)).encode(), digest_size=8).hexdigest()
        return found_once(shared / f"hicheck-{name}.json", partial(found_by, target, chosen, findings))

    return search


@pytest.fixture(scope="session")
def hicheck(hicheck_search: Search) -> Callable[..., None]:
    """Call it as `hicheck(target, policy="wait_complete", schedules=300, ranks=2, seed=0)`: it fails the test with all
    that the search found, or because the target cannot be used."""

    def check(target: str, policy: str, schedules: int = 300, ranks: int = 2, seed: int = 0) -> None:
        found = hicheck_search(target, policy=policy, schedules=schedules, ranks=ranks, seed=seed)
        problems = [violation.text for violation in found.violations]
        if found.not_judged:
            problems.append(f"not judged: {found.not_judged}")
        if problems:
            pytest.fail("\n\n".join(problems), pytrace=False)

    return check


def _test_of(target: str, property_: str, policy: str) -> Callable[..., None]:
    """The test of a property; that of JUDGED says whether the others mean anything."""

    def test(hicheck_search: Search, pytestconfig: pytest.Config) -> None:
        from hicache_checks.conformance.properties import why_hidden

        numbers = {name: pytestconfig.getoption(f"--hicheck-{name}") for name in ("schedules", "ranks", "seed")}
        found = hicheck_search(target, policy=policy, **numbers)
        violations = [violation.text for violation in found.violations if property_ in violation.properties]
        if violations:
            pytest.fail("\n\n".join(violations), pytrace=False)
        if property_ == JUDGED and found.not_judged:
            pytest.fail(found.not_judged, pytrace=False)
        if why := found.not_judged and f"not judged: {found.not_judged}":
            pytest.skip(why)
        if property_ != JUDGED and (why := why_hidden(property_, found.capabilities)):
            pytest.skip(why)

    return test
