"""Reports of what was found: diagrams, the page, the JUnit file; letter by letter, and with hostile texts."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hicache_checks.reporting import (
    InputError,
    Report,
    ReportedFinding,
    Row,
    Story,
    Verdict,
    check_file,
    html_report,
    junit,
    printable,
    story_lines,
    write_file,
)
from hicache_checks.reporting.sequence_diagram import lifelines, mermaid, svg

STORY = Story(
    system="2 ranks, wait_complete",
    rows=[
        Row("call", [], "caller", "scheduler", ["submit('a', (1,))"], []),
        Row("event", [0, 1], "scheduler", "query", ["submitted a#1 span=1"], ["occupied: 0 -> 1"]),
        Row("call", [], "caller", "", ["store((1,))"], []),
        Row("event", [1], "io", "scheduler", ["io_failed a#1 page=0", "io_released a#1 page=0"], ["given: 0 -> 1"]),
        Row("event", [1], "io", "", ["io_started a#1 page=0"], []),
        Row("finding", [1], "io", "", ["io_start_page (§3.7.1)", "page 1 is next"], []),
    ],
    about=[4],
    allowed=["io thread of rank 1: nothing"],
)
FINDING = ReportedFinding(
    id="50fcc937",
    property="io_start_page (§3.7.1)",
    message="page 1 is next",
    is_violation=True,
    how_often="protocol, 3 schedules, also with real threads",
    program=["submit('a', (1,))", "turn()"],
    story=STORY,
    replay='{"version": 1}',
    replay_command="hicheck replay found/50fcc937.json",
)
REPORT = Report(
    target="fork:build",
    verdict=Verdict.FAIL,
    seconds=12.5,
    summary=[("schedules", "1,000 on 2 ranks"), ("verdict", "fail")],
    properties={"inv_pages_conserved": "P4. No page is lost.", "step_hit_is_everywhere": "P7. All agree."},
    findings=[FINDING],
)
HOSTILE = "x;y\nend\n%% <script>alert(1)</script> \"q\" 'a' `b` ${z} & # }{ ]]> --> A->>B: no \x1b[31m\x00\u202e\ud800"


def hostile() -> Report:
    rows = [
        Row("call", [], "caller", "scheduler", [HOSTILE], [HOSTILE]),
        Row("event", [0, 1], HOSTILE, "caller", [HOSTILE, "end"], [HOSTILE]),
        Row("finding", [1], HOSTILE, "", [HOSTILE, HOSTILE], []),
    ]
    texts = dict.fromkeys(("id", "property", "message", "how_often", "replay", "replay_command"), HOSTILE)
    finding = ReportedFinding(is_violation=True, program=[HOSTILE], story=Story(HOSTILE, rows, [1], [HOSTILE]), **texts)
    return Report(HOSTILE, Verdict.FAIL, 0.0, [(HOSTILE, HOSTILE)], {HOSTILE: HOSTILE}, [finding], HOSTILE)


def test_what_is_not_printable_is_written_as_an_escape() -> None:
    assert printable("a\nb\x1b[31m\x00\u202e\ud800 §") == "a\\nb\\x1b[31m\\x00\\u202e\\ud800 §"


def test_a_table_keeps_its_lines_whatever_stands_in_it() -> None:
    (finding,) = hostile().findings
    assert finding.story is not None
    lines = story_lines(finding.story)
    assert len(lines) == 1 + 1 + 1 + 2 + 3
    assert all(line.isprintable() for line in lines)


# ---- diagrams


def test_the_diagram_for_mermaid() -> None:
    assert mermaid(STORY) == (
        "sequenceDiagram\n"
        "    participant p0 as caller\n"
        "    participant p1 as rank 0 scheduler\n"
        "    participant p2 as rank 0 query\n"
        "    participant p3 as rank 1 scheduler\n"
        "    participant p4 as rank 1 query\n"
        "    participant p5 as rank 1 io\n"
        "    p0->>p1: 1. submit('a', (1,))\n"
        "    p0->>p3: 1. submit('a', (1,))\n"
        "    p1->>p2: 2. submitted a#35;1 span=1\n"
        "    p3->>p4: 2. submitted a#35;1 span=1\n"
        "    Note over p0: 3. store((1,))\n"
        "    p5->>p3: 4. io_failed a#35;1 page=0<br/>io_released a#35;1 page=0\n"
        "    Note over p5: 5. io_started a#35;1 page=0\n"
        "    Note over p5: 6. io_start_page (§3.7.1)<br/>page 1 is next\n"
    )


def test_hostile_texts_are_entities_in_mermaid() -> None:
    (finding,) = hostile().findings
    assert finding.story is not None
    text = mermaid(finding.story)
    assert len(text.splitlines()) == 1 + len(lifelines(finding.story)) + 2 + 2 + 1
    assert not set('<>"`${}&%\\\x00') & set(text.replace("<br/>", "").replace("->>p", ""))
    assert not re.search(r"(?<!#\d\d)(?<!#\d\d\d);", text)
    assert "x#59;y#92;nend" in text


def drawing(story: Story) -> ElementTree.Element:
    return ElementTree.fromstring(svg(story))


def test_the_drawing_has_an_arrow_for_each_hand_over_and_a_mark_for_each_other_step() -> None:
    groups = [element for element in drawing(STORY) if element.tag.endswith("}g")]
    drawn = [[child.tag.partition("}")[2] for child in group] for group in groups]
    arrow = ["line", "polygon"]
    assert drawn == [
        ["text", *arrow, *arrow],
        ["text", *arrow, *arrow],
        ["text", "circle"],
        ["text", "text", *arrow],
        ["text", "circle"],
        ["text", "text", "circle"],
    ]
    for group in groups:
        for line, head in zip(group.iterfind("{*}line"), group.iterfind("{*}polygon"), strict=True):
            tip, *base = [int(point.partition(",")[0]) for point in head.get("points", "").split()]
            start, end = int(line.get("x1", "")), int(line.get("x2", ""))
            assert tip == end
            assert all(min(start, end) < x < max(start, end) for x in base)
    assert [group.get("class") for group in groups] == ["call", "event", "call", "event", "event", "finding"]


def test_the_drawings_texts_are_the_steps_and_the_lifelines() -> None:
    texts = [element.text for element in drawing(STORY).iter() if element.tag.endswith("}text")]
    assert texts == [
        *("caller", "rank 0", "scheduler", "rank 0", "query", "rank 1", "scheduler", "rank 1", "query", "rank 1", "io"),
        *("  1  submit('a', (1,))", "  2  submitted a#1 span=1", "  3  store((1,))"),
        *("  4  io_failed a#1 page=0", "     io_released a#1 page=0", "  5  io_started a#1 page=0"),
        *("  6  io_start_page (§3.7.1)", "     page 1 is next"),
    ]


def test_nothing_is_drawn_outside_the_drawing_and_rows_do_not_overlap() -> None:
    root = drawing(STORY)
    width, height = int(root.get("width", "0")), int(root.get("height", "0"))
    for element in root.iter():
        for name in ("x", "x1", "x2", "cx"):
            assert 0 <= int(element.get(name, "0")) <= width
        for name in ("y", "y1", "y2", "cy"):
            assert 0 <= int(element.get(name, "0")) <= height
    backs = [element for element in root if element.tag.endswith("}rect")]
    edges = [(int(back.get("y", "")), int(back.get("y", "")) + int(back.get("height", ""))) for back in backs]
    assert [top for top, _ in edges[1:]] == [bottom for _, bottom in edges[:-1]]
    last_text = max(int(e.get("y", "0")) for e in root.iter() if e.tag.endswith("}text"))
    assert edges[-1][0] < last_text <= edges[-1][1]


# ---- the page

VOID = ("meta",)
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "span", "code", "pre", "div", "details"),
    *("summary", "table", "tr", "th", "td", "svg", "g", "rect", "line", "circle", "polygon", "text"),
}


class Page(HTMLParser):
    """Tags, attributes and the text of a page; fails where they are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("report", [REPORT, hostile()], ids=["plain", "hostile"])
def test_the_page_needs_nothing_and_runs_nothing(report: Report) -> None:
    text = html_report(report)
    page = Page(text)
    assert set(page.tags) <= ALLOWED
    assert not {name for name, _ in page.attributes} & {"src", "href", "style", "srcset", "action"}
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "default-src 'none'; style-src 'unsafe-inline'" in [value for _, value in page.attributes]
    assert "url(" not in text
    assert "@import" not in text
    text.encode("utf-8")


def test_the_page_has_what_was_found_and_how_to_have_it_again() -> None:
    page = Page(html_report(REPORT))
    told = "\n".join(page.texts)
    for text in (
        *("fork:build: fail", "1,000 on 2 ranks", "io_start_page (§3.7.1)", "page 1 is next", "About step 4, too."),
        *("protocol, 3 schedules, also with real threads", "submit('a', (1,))\nturn()", "io thread of rank 1: nothing"),
        *("occupied: 0 -> 1", "hicheck replay found/50fcc937.json", '{"version": 1}', "p0->>p1: 1. submit"),
        *("Nothing was found against", "P7. All agree."),
    ):
        assert text in told
    assert page.tags.count("svg") == 1


def test_the_page_shows_hostile_texts_as_they_are() -> None:
    told = "\n".join(Page(html_report(hostile())).texts)
    assert told.count(printable(HOSTILE)) >= 15


@pytest.mark.parametrize(("verdict", "why"), [(Verdict.FAIL, "a budget ran out"), (Verdict.ERROR, "")])
def test_the_page_claims_nothing_that_is_not_known(verdict: Verdict, why: str) -> None:
    assert "Nothing was found against" not in html_report(replace(REPORT, verdict=verdict, why=why))


# ---- JUnit

# What the elements of a JUnit file may have, in the format that pytest writes and Jenkins reads.
COUNTS = {"tests", "failures", "errors", "skipped"}
ATTRIBUTES = {
    "testsuites": COUNTS,
    "testsuite": {"name", "time", *COUNTS},
    "testcase": {"classname", "name"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
    "system-out": set(),
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "error", "skipped", "system-out"},
}


def suites(report: Report) -> ElementTree.Element:
    root = ElementTree.fromstring(junit(report).encode("utf-8"))
    for element in root.iter():
        assert set(element.keys()) <= ATTRIBUTES[element.tag]
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
    for element in (root, *root.findall("testsuite")):
        for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert element.get(name) == str(len(list(element.iter(tag))))
    return root


def test_the_junit_file() -> None:
    suites(REPORT)
    assert junit(replace(REPORT, findings=[replace(FINDING, story=None)])) == (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<testsuites tests="4" failures="1" errors="0" skipped="0">\n'
        '  <testsuite name="hicheck conform" time="12.500" tests="4" failures="1" errors="0" skipped="0">\n'
        '    <testcase classname="fork:build" name="the run">\n'
        "      <system-out>schedules: 1,000 on 2 ranks\nverdict: fail</system-out>\n"
        "    </testcase>\n"
        '    <testcase classname="fork:build" name="io_start_page (§3.7.1) [50fcc937]">\n'
        '      <failure message="page 1 is next" type="io_start_page (§3.7.1)">'
        "protocol, 3 schedules, also with real threads\nhicheck replay found/50fcc937.json</failure>\n"
        "    </testcase>\n"
        '    <testcase classname="fork:build" name="inv_pages_conserved" />\n'
        '    <testcase classname="fork:build" name="step_hit_is_everywhere" />\n'
        "  </testsuite>\n"
        "</testsuites>\n"
    )


def test_a_finding_carries_its_story() -> None:
    (failure,) = suites(REPORT).iter("failure")
    assert failure.text is not None
    assert "\n".join(story_lines(STORY)) in failure.text


def test_a_property_that_is_violated_has_no_case_that_passes() -> None:
    report = replace(REPORT, findings=[replace(FINDING, property="P4 inv_pages_conserved")])
    names = [case.get("name") for case in suites(report).iter("testcase")]
    assert names == ["the run", "P4 inv_pages_conserved [50fcc937]", "step_hit_is_everywhere"]


def test_what_is_not_known_is_skipped_and_what_cannot_be_judged_is_an_error() -> None:
    report = replace(
        REPORT,
        verdict=Verdict.UNKNOWN,
        why="a budget ran out",
        findings=[replace(FINDING, is_violation=False)],
    )
    outcomes = [[child.tag for child in case if child.tag != "system-out"] for case in suites(report).iter("testcase")]
    assert outcomes == [["skipped"], ["error"], ["skipped"], ["skipped"]]


def test_a_run_that_is_an_error_is_an_error_in_the_file() -> None:
    report = replace(REPORT, verdict=Verdict.ERROR, why="no step of the specification was executed", findings=[])
    (error,) = suites(report).iter("error")
    assert error.get("message") == "no step of the specification was executed"


def test_hostile_texts_are_well_formed_xml() -> None:
    root = suites(hostile())
    assert {case.get("classname") for case in root.iter("testcase")} == {printable(HOSTILE)}


# ---- files


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    check_file(None, "--html")
    check_file(str(tmp_path / "new.html"), "--html")
    with pytest.raises(InputError, match=f"--html {tmp_path}: is a directory"):
        check_file(str(tmp_path), "--html")
    with pytest.raises(InputError, match=r"--junit .*: no such directory"):
        check_file(str(tmp_path / "no" / "out.xml"), "--junit")
    with pytest.raises(InputError, match=r"--junit .*: No such file or directory"):
        write_file("text", str(tmp_path / "no" / "out.xml"), "--junit")
