"""Profiles and limits that every test runs under."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, settings

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
