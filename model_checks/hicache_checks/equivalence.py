"""The numbers of spec/EQUIVALENCE.md: each marked block of that page is computed here.

`python -m hicache_checks.equivalence spec/EQUIVALENCE.md` writes them anew; a test compares them.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from rich.console import Console

from hicache_checks.refine_command import Compared, RefineOptions, compare_all, say_outcome, says, shortest, tell
from hicache_checks.reporting import Screen
from hicache_checks.reporting.progress import Progress
from hicache_spec import DESIGNS, Bounds, BoundSpec, Refused
from hicache_spec.assumptions import ASSUMPTIONS
from hicache_spec.claim import CLAIM, CLAIM_MORE, CLAIM_PAIR, CLAIM_TOLD, CLAIM_TRIO
from hicache_spec.designs import ALLOC_FIRST, DECIDE_AT_DRAIN, REVOKE_QUEUE, REVOKE_QUEUE_SAMPLED
from hicache_spec.observations import (
    DRAINS,
    EVENTS,
    OBSERVATIONS,
    OUTCOMES,
    TICKS,
    Word,
    observation,
    outcome,
    say_letter,
)
from hicache_spec.watched import watched

CANONICAL = DECIDE_AT_DRAIN.name
REVOKING = REVOKE_QUEUE.name
SAMPLED = REVOKE_QUEUE_SAMPLED.name
FIRST = ALLOC_FIRST.name
WHOLE = ("whole_ticks",)
AMPLE = ("no_host_pressure",)
BEHIND, AHEAD, ELSE = "nothing_from_behind", "nothing_short_ahead", "nothing_else_evicted"
OVERTAKEN = "no_revoke_overtaken"
BLOCK = re.compile(r"(<!-- (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


@lru_cache(None)
def answers(
    left: str, right: str, observe: str, assume: tuple[str, ...] = (), bounds: str = "claim", polls: str | None = None
) -> tuple[Compared, ...]:
    """How two designs compare in each configuration."""
    return compare_all(RefineOptions(left, right, observe, assume, bounds, polls))


def cell(found: Sequence[Compared]) -> str:
    """One cell: holds in all configurations, or the shortest run that refutes and where."""
    refuted = shortest(found)
    return says(found) + (f" (`{refuted.bounds.name}`)" if refuted is not None and len(found) > 1 else "")


def markdown(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def both_ways(left: str, right: str, columns: Sequence[tuple[str, tuple[str, ...]]]) -> str:
    """Observation and direction against assumptions."""
    rows = [
        (observe, f"`{one}` in `{other}`", *(cell(answers(one, other, observe, assume)) for _, assume in columns))
        for observe in OBSERVATIONS
        for one, other in ((left, right), (right, left))
    ]
    return markdown(("seen", "is what the first can do in the second?", *(title for title, _ in columns)), rows)


def claim() -> str:
    """The founding claim."""
    columns = (
        ("one reading a tick", WHOLE),
        ("one reading, ample host memory", WHOLE + AMPLE),
        ("any numbers", ()),
        ("any numbers, ample host memory", AMPLE),
    )
    return both_ways(REVOKING, CANONICAL, columns)


def sampled() -> str:
    """The same with lengths read one after the other."""
    columns = (("host pressure", WHOLE), ("ample host memory", WHOLE + AMPLE))
    return both_ways(SAMPLED, CANONICAL, columns)


def first() -> str:
    """Host pages at submission against host pages at the drain."""
    columns = (("host pressure", WHOLE), ("ample host memory", WHOLE + AMPLE))
    return both_ways(FIRST, CANONICAL, columns)


def observations() -> str:
    """What is seen."""
    return markdown(("observation", "what is seen"), [(f"`{o.name}`", o.summary) for o in OBSERVATIONS.values()])


def assumptions() -> str:
    """What may be assumed."""
    return markdown(("assumption", "what it says"), [(f"`{a.name}`", a.summary) for a in ASSUMPTIONS.values()])


def configurations() -> str:
    """The configurations, their sizes, and in which of them the claim fails by outcomes."""
    by_outcomes = dict(zip(CLAIM, answers(REVOKING, CANONICAL, OUTCOMES.name, WHOLE), strict=True))
    other_way = dict(zip(CLAIM, answers(CANONICAL, REVOKING, OUTCOMES.name, WHOLE), strict=True))
    rows = [
        (
            *_sizes(b),
            f"{found.left_states:,}, {found.right_states:,}",
            cell([found]),
            cell([other_way[b]]),
        )
        for b, found in by_outcomes.items()
    ]
    headers = (*_SIZES, "states", f"`{REVOKING}` in `{CANONICAL}`", "the other way")
    return markdown(headers, rows)


_SIZES = ("configuration", "requests", "host pages", "threshold", "chains", "may happen")


def _sizes(b: Bounds) -> tuple[str, ...]:
    chains = zip(b.resident_pages, b.stored_pages, strict=True)
    happens = [name for name in ("aborts", "stops", "churn") if getattr(b, name)]
    return (
        f"`{b.name}`",
        str(b.requests),
        str(b.host_pages),
        str(b.threshold_pages),
        ", ".join(f"{resident}/{stored}/{b.chain_pages}" for resident, stored in chains),
        ", ".join(happens) or "nothing else",
    )


def condition() -> str:
    """What must hold of LEFT's ticks for the designs to be equivalent, and that no part of it can go."""
    asked: list[tuple[str, str, tuple[str, ...]]] = [
        (REVOKING, CANONICAL, ()),
        (REVOKING, CANONICAL, (BEHIND,)),
        (SAMPLED, CANONICAL, (BEHIND,)),
        (SAMPLED, CANONICAL, (OVERTAKEN,)),
        (SAMPLED, CANONICAL, (BEHIND, OVERTAKEN)),
        (CANONICAL, REVOKING, ()),
        (CANONICAL, REVOKING, (AHEAD,)),
        (CANONICAL, REVOKING, (ELSE,)),
        (CANONICAL, REVOKING, (AHEAD, ELSE)),
    ]
    rows = [
        (
            f"`{left}` in `{right}`",
            ", ".join(f"`{name}`" for name in parts) or "nothing",
            *(cell(answers(left, right, observe, WHOLE + parts)) for observe in (OUTCOMES.name, TICKS.name)),
        )
        for left, right, parts in asked
    ]
    return markdown(
        ("is what the first can do in the second?", "assumed of the first", OUTCOMES.name, TICKS.name), rows
    )


def polls() -> str:
    """Whether polls, and time, are seen."""
    rows = [
        (
            f"`{bounds}`",
            f"`{left}` in `{right}`",
            *(cell(answers(left, right, OUTCOMES.name, WHOLE, bounds, kind)) for kind in ("visible", "hidden")),
        )
        for bounds in ("claim_best_effort", "claim_timeout")
        for left, right in ((REVOKING, CANONICAL), (CANONICAL, REVOKING))
    ]
    headers = ("configuration", "is what the first can do in the second?", "polls visible", "polls hidden")
    return markdown(headers, rows)


def larger() -> str:
    """Configurations of other kinds: by outcomes, one reading a tick."""
    rows = []
    for b in CLAIM_MORE:
        one, other = (
            answers(left, right, OUTCOMES.name, WHOLE, b.name)[0]
            for left, right in ((REVOKING, CANONICAL), (CANONICAL, REVOKING))
        )
        states = f"{one.left_states:,}, {one.right_states:,}"
        rows.append((*_sizes(b), str(b.ranks), one.polls, states, cell([one]), cell([other])))
    headers = (*_SIZES, "ranks", "polls", "states", f"`{REVOKING}` in `{CANONICAL}`", "the other way")
    return markdown(headers, rows)


def run(left: str, right: str, observe: str, bounds: str, assume: tuple[str, ...] = WHOLE) -> str:
    """The shortest run that tells two designs apart, both sides step by step."""
    (found,) = answers(left, right, observe, assume, bounds)
    assert found.run is not None, f"{left} is included in {right} by {observe} in {bounds}"
    stream = io.StringIO()
    screen = Screen(Console(file=stream, highlight=False, soft_wrap=True, width=200), Progress(io.StringIO()))
    tell(RefineOptions(left, right, observe, assume, bounds), found.bounds, found.run, screen)
    return f"```text\n{stream.getvalue().rstrip()}\n```\n"


SUBMIT, ASK, FAIL = "sched_submit", "query_ask_storage", "io_fail_page"
TOLD_WORD: Word = (
    *((SUBMIT, 0, 0), (SUBMIT, 1, 0), (SUBMIT, 2, 1), (SUBMIT, 3, 0)),
    *((ASK, 0, 3), (ASK, 0, 3), (ASK, 0, 0), (ASK, 0, 0), (FAIL, 0)),
)
"""Two requests that hit, one that misses and protects a page, one more; then a page of the first cannot be read."""


def outcomes_after(design: str, bounds: Bounds, word: Word) -> set[tuple[tuple[str, int], ...]]:
    """Every outcome that a design can have after these inputs; ticks are whole, polls hidden."""
    spec = BoundSpec(watched(DESIGNS[design], bounds, "hidden"), bounds)
    is_whole = spec.function(ASSUMPTIONS["whole_ticks"].step)
    shows = observation(OUTCOMES.name, bounds, "hidden").bind(spec)
    waiting = [(spec.encode(spec.initial()), 0)]
    seen, found = set(waiting), set()
    while waiting:
        key, done = waiting.pop()
        before = spec.decode(key)
        if done == len(word) and spec.is_quiescent(before):
            found.add(outcome(before))
        for number, step in enumerate(spec.steps):
            after = spec.decode(key)
            try:
                step.run(after)
            except Refused:
                continue
            letters = shows(number, after.events)
            is_allowed = step.rule.name not in DRAINS or is_whole(before, after)
            reached = (spec.encode(after), done + len(letters))
            if is_allowed and letters == word[done : reached[1]] and reached not in seen:
                seen.add(reached)
                waiting.append(reached)
    return found


def told() -> str:
    """The ways to end after one word that one of two designs has and the other has not."""
    sides = [outcomes_after(design, CLAIM_TOLD, TOLD_WORD) for design in (CANONICAL, REVOKING)]
    rows = [
        (say_outcome(ended), *("possible" if ended in side else "-" for side in sides))
        for ended in sorted(sides[0] ^ sides[1])
    ]
    seen = f"seen: {'; '.join(map(say_letter, TOLD_WORD))}"
    headers = ("how it ends", f"`{CANONICAL}`", f"`{REVOKING}`")
    return f"{markdown(_SIZES, [_sizes(CLAIM_TOLD)])}\n```text\n{seen}\n```\n\n{markdown(headers, rows)}"


ASKED = (
    RefineOptions(REVOKING, CANONICAL, assume=WHOLE),
    RefineOptions(REVOKING, CANONICAL, TICKS.name, WHOLE + AMPLE),
    RefineOptions(CANONICAL, REVOKING, EVENTS.name, WHOLE, CLAIM_TRIO.name),
)
"""What the page suggests to ask."""


def commands() -> str:
    """A command line for each of ASKED, with its answer."""
    lines = []
    for o in ASKED:
        more = f" --bounds {o.bounds}" if o.bounds != RefineOptions.bounds else ""
        line = f"hicheck refine {o.left} {o.right} --observe {o.observe} --assume {','.join(o.assume)}{more}"
        lines.append((line, says(answers(o.left, o.right, o.observe, o.assume, o.bounds))))
    width = max(len(line) for line, _ in lines)
    return "".join(("```text\n", *(f"{line:<{width}}  # {answer}\n" for line, answer in lines), "```\n"))


BLOCKS: dict[str, Callable[[], str]] = {
    "observations": observations,
    "assumptions": assumptions,
    "configurations": configurations,
    "claim": claim,
    "tick_run": lambda: run(REVOKING, CANONICAL, TICKS.name, CLAIM_PAIR.name),
    "outcome_run": lambda: run(REVOKING, CANONICAL, OUTCOMES.name, CLAIM_TRIO.name),
    "other_way_run": lambda: run(CANONICAL, REVOKING, EVENTS.name, CLAIM_TRIO.name),
    "told": told,
    "sampled": sampled,
    "sampled_run": lambda: run(SAMPLED, CANONICAL, OUTCOMES.name, CLAIM_PAIR.name),
    "condition": condition,
    "polls": polls,
    "larger": larger,
    "first": first,
    "first_run": lambda: run(FIRST, CANONICAL, OUTCOMES.name, CLAIM_PAIR.name),
    "commands": commands,
}
SLOW = ("larger",)
"""Blocks that take more than a minute."""


def rewrite(page: str) -> str:
    """The page with every marked block computed anew. Raises KeyError for a block that is not known."""
    return BLOCK.sub(lambda found: found[1] + BLOCKS[found[2]]() + found[4], page)


def main(path: str) -> None:
    """Rewrite a page in place."""
    page = Path(path)
    page.write_text(rewrite(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
