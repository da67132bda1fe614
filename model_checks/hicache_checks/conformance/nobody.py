"""A judge who does not look: for measuring without the monitor, and for whoever looks at something else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hicache_checks.conformance.program import Step


class Nobody:
    """See session.Judge."""

    def before(self, step: Step, now: float) -> None:
        """See Judge."""

    def after(self, step: Step, answer: Any, now: float) -> None:
        """See Judge."""

    def at_rest(self, observed: Mapping[str, Any]) -> None:
        """See Judge."""

    def explain_failure(self) -> None:
        """See Judge."""

    def begin_again(self, logs_go_on: bool = False) -> None:
        """See Judge."""

    def finish(self) -> None:
        """See Judge."""
