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

from hicache_checks.refine_command import Compared, RefineOptions, check, compare, tell
from hicache_checks.reporting import Screen
from hicache_checks.reporting.progress import Progress
from hicache_spec import Bounds
from hicache_spec.assumptions import ASSUMPTIONS
from hicache_spec.claim import CLAIM, CLAIM_MORE
from hicache_spec.observations import OBSERVATIONS

CANONICAL = "decide_at_drain"
REVOKING = "revoke_queue"
SAMPLED = "revoke_queue_sampled"
FIRST = "alloc_first"
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
    options = RefineOptions(left, right, observe, assume, bounds, polls)
    return tuple(compare(options, configuration) for configuration in check(options))


def cell(found: Sequence[Compared]) -> str:
    """One cell: holds in all configurations, or the shortest run that refutes and where."""
    refuted = [c for c in found if c.steps is not None]
    if refuted:
        shortest = min(refuted, key=lambda c: c.steps or 0)
        where = f" (`{shortest.bounds.name}`)" if len(found) > 1 else ""
        return f"refuted in {shortest.steps} step{'' if shortest.steps == 1 else 's'}{where}"
    return "holds" if all(c.holds for c in found) else "unknown"


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
    by_outcomes = dict(zip(CLAIM, answers(REVOKING, CANONICAL, "outcomes", WHOLE), strict=True))
    other_way = dict(zip(CLAIM, answers(CANONICAL, REVOKING, "outcomes", WHOLE), strict=True))
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
            *(cell(answers(left, right, observe, WHOLE + parts)) for observe in ("outcomes", "ticks")),
        )
        for left, right, parts in asked
    ]
    return markdown(("is what the first can do in the second?", "assumed of the first", "outcomes", "ticks"), rows)


def polls() -> str:
    """Whether polls, and time, are seen."""
    rows = [
        (
            f"`{bounds}`",
            f"`{left}` in `{right}`",
            *(cell(answers(left, right, "outcomes", WHOLE, bounds, kind)) for kind in ("visible", "hidden")),
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
            answers(left, right, "outcomes", WHOLE, b.name)[0]
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


BLOCKS: dict[str, Callable[[], str]] = {
    "observations": observations,
    "assumptions": assumptions,
    "configurations": configurations,
    "claim": claim,
    "tick_run": lambda: run(REVOKING, CANONICAL, "ticks", "claim_pair"),
    "outcome_run": lambda: run(REVOKING, CANONICAL, "outcomes", "claim_trio"),
    "other_way_run": lambda: run(CANONICAL, REVOKING, "events", "claim_trio"),
    "sampled": sampled,
    "sampled_run": lambda: run(SAMPLED, CANONICAL, "outcomes", "claim_pair"),
    "condition": condition,
    "polls": polls,
    "larger": larger,
    "first": first,
    "first_run": lambda: run(FIRST, CANONICAL, "outcomes", "claim_pair"),
}
SLOW = ("larger",)
"""Blocks that take more than half a minute with the object engine."""


def rewrite(page: str) -> str:
    """The page with every marked block computed anew. Raises KeyError for a block that is not known."""
    return BLOCK.sub(lambda found: found[1] + BLOCKS[found[2]]() + found[4], page)


def main(path: str) -> None:
    """Rewrite a page in place."""
    page = Path(path)
    page.write_text(rewrite(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
