"""The same specification in the languages of other model checkers: TLA+ for TLC, Promela for Spin."""

from __future__ import annotations

from hicache_checks.export.functions import ExportError
from hicache_checks.export.promela import Promela
from hicache_checks.export.tla import Tla

__all__ = ["ExportError", "Promela", "Tla"]
