"""A report as one page that needs nothing else: no script, nothing from outside, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable

from hicache_checks.reporting.html_page import block, escaped, folded, page, table
from hicache_checks.reporting.report import Report, ReportedFinding
from hicache_checks.reporting.sequence_diagram import mermaid, svg
from hicache_checks.reporting.story import FINDING, Story
from hicache_checks.reporting.story_table import HEADERS
from hicache_checks.reporting.verdict import Verdict


def html_report(report: Report) -> str:
    """The text of the page."""
    title = f"{report.target}: {report.verdict.value}"
    body = [
        f'<h1>{escaped(report.target)}: <span class="{report.verdict.value}">{report.verdict.value}</span></h1>',
        *([f"<p>{escaped(report.why)}</p>"] if report.why else []),
        table(report.summary),
        *(part for finding in report.findings for part in _finding(finding)),
        *_held(report),
    ]
    return page(title, body)


def _finding(finding: ReportedFinding) -> Iterable[str]:
    yield f'<h2 id="{escaped(finding.id)}">{escaped(finding.property)}</h2>'
    yield f"<p>{escaped(finding.message)}</p>"
    yield f"<p>{escaped(finding.how_often)}; id <code>{escaped(finding.id)}</code></p>"
    if finding.story is not None:
        yield from _story(finding.story)
    if finding.program:
        yield "<h3>The program</h3>"
        yield f"<pre>{block(finding.program)}</pre>"
    if finding.replay_command:
        yield f"<p>Again: <code>{escaped(finding.replay_command)}</code></p>"
    if finding.replay:
        yield folded("The replay file", finding.replay)


def _story(story: Story) -> Iterable[str]:
    yield f"<p>On {escaped(story.system)}</p>"
    yield '<table class="steps">'
    yield f"<tr>{''.join(f'<th>{escaped(header)}</th>' for header in HEADERS)}</tr>"
    for number, row in enumerate(story.rows, 1):
        cells = (str(number), row.rank, row.thread, block(row.what), block(row.changes))
        mark = f' class="{FINDING}"' if row.kind == FINDING else ""
        texts = [*map(escaped, cells[:3]), *cells[3:]]
        yield f"<tr{mark}>{''.join(f'<td>{text}</td>' for text in texts)}</tr>"
    yield "</table>"
    if story.about:
        yield f"<p>About step {', '.join(map(str, story.about))}, too.</p>"
    if story.allowed:
        yield f"<p>Allowed instead:</p><pre>{block(story.allowed)}</pre>"
    yield f'<div class="drawing">{svg(story)}</div>'
    yield folded("The same for Mermaid", mermaid(story))


def _held(report: Report) -> Iterable[str]:
    """Properties that nothing was found against; not said where not enough was looked at."""
    violated = {word for finding in report.findings for word in finding.property.split()}
    held = [(name, meaning) for name, meaning in report.properties.items() if name not in violated]
    if held and not report.why and report.verdict in (Verdict.PASS, Verdict.FAIL):
        yield "<h2>Nothing was found against</h2>"
        yield table(held)
