"""A report as one page that needs nothing else: no script, nothing from outside, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from hicache_checks.reporting.report import Report, ReportedFinding
from hicache_checks.reporting.sequence_diagram import mermaid, svg
from hicache_checks.reporting.story import FINDING, Story, printable
from hicache_checks.reporting.story_table import HEADERS
from hicache_checks.reporting.verdict import Verdict

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c1e21; max-width: 96rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 3rem; border-top: 1px solid #d6d9dc; padding-top: 1.5rem; }
code, pre, table.steps, svg text { font: 12px/1.4 ui-monospace, monospace; }
table { border-collapse: collapse; } td, th { padding: .15rem .8rem; text-align: left; vertical-align: top; }
table.steps td { border-top: 1px solid #e4e6e9; white-space: pre-line; }
table.steps tr.finding td { color: #b3261e; font-weight: bold; }
pre { background: #f5f6f7; padding: .8rem; overflow-x: auto; }
.drawing { overflow-x: auto; } .pass { color: #1a7f37; } .fail, .error { color: #b3261e; } .unknown { color: #9a6700; }
svg.sequence .even { fill: #fff; } svg.sequence .odd { fill: #f5f6f7; } svg.sequence .back.finding { fill: #fbe9e7; }
svg.sequence g.finding text, svg.sequence g.finding circle { fill: #b3261e; }
svg.sequence .life { stroke: #9aa0a6; stroke-dasharray: 3 3; } svg.sequence .arrow { stroke: #1c1e21; }
"""


def html_report(report: Report) -> str:
    """The text of the page."""
    title = f"{report.target}: {report.verdict.value}"
    body = [
        f'<h1>{_text(report.target)}: <span class="{report.verdict.value}">{report.verdict.value}</span></h1>',
        *([f"<p>{_text(report.why)}</p>"] if report.why else []),
        _table(report.summary),
        *(part for finding in report.findings for part in _finding(finding)),
        *_held(report),
    ]
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        f"<title>{_text(title)}</title>",
        f"<style>{STYLE}</style>",
    ]
    lines = ["<!doctype html>", '<html lang="en">', "<head>", *head, "</head>", "<body>", *body, "</body>", "</html>"]
    return "\n".join(lines) + "\n"


def _finding(finding: ReportedFinding) -> Iterable[str]:
    yield f'<h2 id="{_text(finding.id)}">{_text(finding.property)}</h2>'
    yield f"<p>{_text(finding.message)}</p>"
    yield f"<p>{_text(finding.how_often)}; id <code>{_text(finding.id)}</code></p>"
    if finding.story is not None:
        yield from _story(finding.story)
    if finding.program:
        yield "<h3>The program</h3>"
        yield f"<pre>{_block(finding.program)}</pre>"
    if finding.replay_command:
        yield f"<p>Again: <code>{_text(finding.replay_command)}</code></p>"
    if finding.replay:
        yield _folded("The replay file", finding.replay)


def _story(story: Story) -> Iterable[str]:
    yield f"<p>On {_text(story.system)}</p>"
    yield '<table class="steps">'
    yield f"<tr>{''.join(f'<th>{_text(header)}</th>' for header in HEADERS)}</tr>"
    for number, row in enumerate(story.rows, 1):
        cells = (str(number), row.rank, row.thread, _block(row.what), _block(row.changes))
        mark = f' class="{FINDING}"' if row.kind == FINDING else ""
        texts = [*map(_text, cells[:3]), *cells[3:]]
        yield f"<tr{mark}>{''.join(f'<td>{text}</td>' for text in texts)}</tr>"
    yield "</table>"
    if story.about:
        yield f"<p>About step {', '.join(map(str, story.about))}, too.</p>"
    if story.allowed:
        yield f"<p>Allowed instead:</p><pre>{_block(story.allowed)}</pre>"
    yield f'<div class="drawing">{svg(story)}</div>'
    yield _folded("The same for Mermaid", mermaid(story))


def _held(report: Report) -> Iterable[str]:
    """Properties that nothing was found against; not said where not enough was looked at."""
    violated = {word for finding in report.findings for word in finding.property.split()}
    held = [(name, meaning) for name, meaning in report.properties.items() if name not in violated]
    if held and not report.why and report.verdict in (Verdict.PASS, Verdict.FAIL):
        yield "<h2>Nothing was found against</h2>"
        yield _table(held)


def _table(rows: Iterable[Sequence[str]]) -> str:
    lines = [f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows]
    return "\n".join(["<table>", *lines, "</table>"])


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{_text(title)}</summary><pre>{_block(text.splitlines())}</pre></details>"


def _block(lines: Iterable[str]) -> str:
    return "\n".join(map(_text, lines))


def _text(text: str) -> str:
    return escape(printable(text))
