"""A report as a JUnit file: one test case for the run, one a finding, one a property that nothing was found against.

The format is the one that pytest writes and CI servers read: `testsuites / testsuite / testcase`. A `failure` is a
violation, an `error` something that could not be judged, and `skipped` what nobody knows, or is known and tolerated.
"""

from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from hicache_checks.reporting.report import Report, ReportedFinding
from hicache_checks.reporting.story import printable
from hicache_checks.reporting.story_table import story_lines
from hicache_checks.reporting.verdict import Verdict

SUITE = "hicheck conform"
RUN = "the run"


def junit(report: Report) -> str:
    """The text of the file."""
    suites = Element("testsuites")
    suite = SubElement(suites, "testsuite", name=SUITE, time=f"{report.seconds:.3f}")
    _add_run(suite, report)
    for finding in report.findings:
        _add_finding(suite, report, finding)
    violated = {word for finding in report.findings for word in finding.property.split()}
    for name in report.properties:
        if name not in violated:
            case = _case(suite, report, name)
            if report.why:
                SubElement(case, "skipped", message=printable(report.why))
    for element in (suites, suite):
        _count(element)
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'


def _add_run(suite: Element, report: Report) -> None:
    case = _case(suite, report, RUN)
    if report.why:
        name = "error" if report.verdict is Verdict.ERROR else "skipped"
        SubElement(case, name, message=printable(report.why))
    SubElement(case, "system-out").text = "\n".join(printable(f"{name}: {value}") for name, value in report.summary)


def _add_finding(suite: Element, report: Report, finding: ReportedFinding) -> None:
    case = _case(suite, report, f"{finding.property} [{finding.id}]")
    if finding.known:
        SubElement(case, "skipped", message=printable(finding.known))
        return
    name = "failure" if finding.is_violation else "error"
    problem = SubElement(case, name, message=printable(finding.message), type=printable(finding.property))
    lines = [finding.how_often, *(() if finding.story is None else story_lines(finding.story))]
    problem.text = "\n".join(map(printable, [*lines, *filter(None, [finding.replay_command])]))


def _case(suite: Element, report: Report, name: str) -> Element:
    return SubElement(suite, "testcase", classname=printable(report.target), name=printable(name))


def _count(element: Element) -> None:
    counts = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
    for name, tag in counts.items():
        element.set(name, str(sum(1 for _ in element.iter(tag))))
