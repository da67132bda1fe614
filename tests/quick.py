"""Which tests `make check` runs of many that are alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def one_quick(cases: Iterable[Any]) -> list[Any]:
    """Cases for `parametrize` with one parameter, of which only the first is not heavy."""
    first, *others = cases
    return [first, *(pytest.param(case, marks=pytest.mark.heavy) for case in others)]
