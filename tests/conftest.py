"""Profiles and limits that every test runs under."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

from cache_scenario import Scenario

# The default is the same everywhere, so that a failure in CI is a failure here; `--hypothesis-profile explore` varies.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("explore", parent=settings.get_profile("ci"), derandomize=False, max_examples=1000)
settings.load_profile("ci")

# Test workers share few cores; a second thread in torch only makes them wait for each other.
torch.set_num_threads(1)


@pytest.fixture(params=[1, 2], ids=["1 rank", "2 ranks"])
def scenario(request: pytest.FixtureRequest) -> Iterator[Callable[..., Scenario]]:
    """Makes scenarios and audits each at the end. A module's `SCENARIO` is what all of its own are made with."""
    made: list[Scenario] = []
    always: dict[str, Any] = getattr(request.module, "SCENARIO", {})

    def make(**config: Any) -> Scenario:
        made.append(Scenario(ranks=request.param, **always, **config))
        return made[-1]

    yield make
    for each in made:
        each.finish()
