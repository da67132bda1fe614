"""Published releases for tests: fetched once, or the tests that need them are skipped, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hicache_checks.conformance.program import Setup
from hicache_checks.conformance.target import Target, fetch, opened
from hicache_checks.reporting import InputError
from hicache_checks.simulation.choices import Seeded
from hicache_checks.simulation.isolation import TorchModes
from hicache_checks.simulation.standins.collectives import open_ranks
from hicache_checks.simulation.world import World

NO_NETWORK = "there is no network"


@contextmanager
def release(name: str, simulate: bool = True) -> Iterator[Target]:
    """The release, opened. Skips the test where it cannot be had."""
    have(name)
    with opened(name, simulate) as target:
        yield target


def have(name: str) -> None:
    """See that a release is here. Only a lack of network is a reason to skip."""
    try:
        fetch(name)
    except InputError as error:
        if NO_NETWORK in str(error):
            pytest.skip(str(error))
        raise


class Driven:
    """A release's adapter in a world of its own, with the time to come to rest between two calls."""

    def __init__(self, target: Target, ranks: int, **setup: Any) -> None:
        self._target = target
        self._setup = Setup(ranks, **setup)
        self.seen: dict[str, Any] = {}

    def run(self, body: Any) -> dict[str, Any]:
        """Call `body(adapter, rest, seen)`; what it puts into `seen`, and raises."""
        world = World(Seeded("0"), modes=TorchModes())
        open_ranks(world, self._setup.ranks)
        errors: list[Exception] = []

        def main() -> None:
            adapter = self._target.build()
            adapter.reset(self._setup.config())

            def rest(turns: int = 3) -> None:
                for _ in range(turns):
                    adapter.settle()
                    world.settle()
                    adapter.tick()

            try:
                body(adapter, rest, self.seen)
            except Exception as error:
                errors.append(error)
            adapter.close()

        world.run(main)
        assert not errors, errors
        assert world.problem is None, world.problem
        assert not world.died
        return self.seen
