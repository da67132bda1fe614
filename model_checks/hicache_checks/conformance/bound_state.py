"""What followed states have in common: the names of their rules, and that they grow."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any


def section_of(name: str, rule: Callable[..., Any]) -> str:
    """A rule's name, with its section."""
    section = re.match(r"§[0-9.]+", rule.__doc__ or "")
    return f"{name} ({section.group().rstrip('.')})" if section else name


def laid_over(grown: Any, value: Any, dimensions: int) -> Any:
    """The smaller table in the corner of the larger one."""
    if dimensions == 0:
        return value
    for index, part in enumerate(value):
        grown[index] = laid_over(grown[index], part, dimensions - 1)
    return grown
