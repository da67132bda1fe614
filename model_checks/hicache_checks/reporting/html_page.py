"""A page that needs nothing else: no script, nothing from outside, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from hicache_checks.reporting.sections import Section
from hicache_checks.reporting.story import printable
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


def page(title: str, body: Sequence[str]) -> str:
    """The text of a page; `body` is HTML, `title` is not."""
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        f"<title>{escaped(title)}</title>",
        f"<style>{STYLE}</style>",
    ]
    lines = ["<!doctype html>", '<html lang="en">', "<head>", *head, "</head>", "<body>", *body, "</body>", "</html>"]
    return "\n".join(lines) + "\n"


def sections_page(about: str, verdict: Verdict, sections: Sequence[Section]) -> str:
    """The text of a page that says what is printed of these sections."""
    body = [f'<h1>{escaped(about)}: <span class="{verdict.value}">{verdict.value}</span></h1>']
    for section in sections:
        body.append(f"<h2>{escaped(section.title)}</h2>")
        if section.rows:
            body.append(table(section.rows, section.headers))
        body += [f"<p>{escaped(line)}</p>" for line in section.below]
    return page(f"{about}: {verdict.value}", body)


def table(rows: Iterable[Sequence[str]], headers: Sequence[str] = ()) -> str:
    """Rows as a table; without a line of headers when there are none."""
    lines = [f"<tr>{''.join(f'<th>{escaped(header)}</th>' for header in headers)}</tr>"] if headers else []
    lines += [f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in row)}</tr>" for row in rows]
    return "\n".join(["<table>", *lines, "</table>"])


def folded(title: str, text: str) -> str:
    """Text that is shown when its title is clicked on."""
    return f"<details><summary>{escaped(title)}</summary><pre>{block(text.splitlines())}</pre></details>"


def block(lines: Iterable[str]) -> str:
    """Lines for where line ends count."""
    return "\n".join(map(escaped, lines))


def escaped(text: str) -> str:
    """Text that means nothing but itself."""
    return escape(printable(text))
