"""What a user sees: verdicts, exit codes, tables, progress. A report reads results; it never reaches into an engine."""

from __future__ import annotations

from hicache_checks.reporting.html_page import sections_page
from hicache_checks.reporting.html_report import html_report
from hicache_checks.reporting.junit import junit
from hicache_checks.reporting.progress import Progress
from hicache_checks.reporting.report import Report, ReportedFinding
from hicache_checks.reporting.screen import Screen
from hicache_checks.reporting.sections import Section, print_sections
from hicache_checks.reporting.story import Row, Story, printable
from hicache_checks.reporting.story_table import print_story, story_lines
from hicache_checks.reporting.tables import VerifyRow, aligned, counted, print_rows, print_verify_summary
from hicache_checks.reporting.verdict import (
    InputError,
    Outcome,
    Verdict,
    check_file,
    check_json_target,
    envelope,
    write_file,
    write_json,
)

__all__ = [
    "InputError",
    "Outcome",
    "Progress",
    "Report",
    "ReportedFinding",
    "Row",
    "Screen",
    "Section",
    "Story",
    "Verdict",
    "VerifyRow",
    "aligned",
    "check_file",
    "check_json_target",
    "counted",
    "envelope",
    "html_report",
    "junit",
    "print_rows",
    "print_sections",
    "print_story",
    "print_verify_summary",
    "printable",
    "sections_page",
    "story_lines",
    "write_file",
    "write_json",
]
