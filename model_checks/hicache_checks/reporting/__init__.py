"""What a user sees: verdicts, exit codes, tables, progress. A report reads results; it never reaches into an engine."""

from __future__ import annotations

from hicache_checks.reporting.progress import Progress
from hicache_checks.reporting.screen import Screen
from hicache_checks.reporting.tables import VerifyRow, print_rows, print_verify_summary
from hicache_checks.reporting.verdict import InputError, Outcome, Verdict, check_json_target, envelope, write_json

__all__ = [
    "InputError",
    "Outcome",
    "Progress",
    "Screen",
    "Verdict",
    "VerifyRow",
    "check_json_target",
    "envelope",
    "print_rows",
    "print_verify_summary",
    "write_json",
]
