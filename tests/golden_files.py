"""Golden counterexamples: of ten faults of ten kinds a run that shows it, as a replay file and as it is told.

`python tests/golden_files.py [MUTANT...]` finds them again, makes them small, and writes `tests/golden/`. To be done
when the simulation or the reference makes other steps; what is told should stay about the same.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from hicache_checks.conformance import replay_file
from hicache_checks.conformance.findings import Finding
from hicache_checks.conformance.minimise import minimise
from hicache_checks.conformance.replay_file import Recorded, Replay
from hicache_checks.conformance.replaying import Again, sameness
from hicache_checks.conformance.search import SearchOptions, run_numbered, run_once
from hicache_checks.conformance.target import Target, opened
from hicache_checks.conformance.told_schedule import tell_schedule
from hicache_checks.reporting import Story, story_lines
from hicache_checks.reporting.story import FINDING
from hicache_checks.simulation.choices import Choices, Replayed

REFERENCE = "reference"
PLACE = Path(__file__).parent / "golden"
STEPS_MAX = 15
SCHEDULES_MAX = 3000
SHRINK_S = 60.0


@dataclass(frozen=True)
class Golden:
    """A fault, and what its run shows: `text` is searched for in the finding."""

    kind: str
    mutant: str
    ranks: int
    text: str

    @property
    def target(self) -> str:
        """Its name for hicheck."""
        return f"{REFERENCE}+{self.mutant}"

    @property
    def replay(self) -> Path:
        """The replay file."""
        return PLACE / f"{self.mutant}.json"

    @property
    def told(self) -> Path:
        """The run as it is told."""
        return PLACE / f"{self.mutant}.txt"

    def is_shown_by(self, finding: Finding | None) -> bool:
        """Is it this one?"""
        return finding is not None and re.search(self.text, str(finding)) is not None


GOLDEN = (
    Golden("deadlock", "sched_slices_the_counts_at_the_old_index", 1, "Stalled: nothing came"),
    Golden("wrong bytes", "sched_loads_without_copying", 1, "^P6: wrong bytes"),
    Golden("leak", "io_drops_the_tail", 1, "^P3 live_control_queues_drain"),
    Golden("double free", "io_releases_the_tail_twice", 1, "^io_release_page"),
    Golden("desync", "sched_marks_the_first_rank_only", 2, "^P7 lockstep"),
    Golden("stale record", "sched_finds_records_by_request_id", 1, "^step_drain_decides_its_own_attempt"),
    Golden("founding", "sched_revokes_before_the_count_is_agreed", 2, "is that of nothing"),
    Golden("dead thread", "io_dies_of_a_raising_store", 1, "^P31 threads_survive"),
    Golden("late", "sched_ignores_the_clock", 1, "^P5 may_end"),
    Golden("race", "io_counts_after_termination", 1, "^io_land_page"),
)


def replayed(target: Target, replay: Replay) -> tuple[Again, Story]:
    """The run of a file once more, told, on a target that may be another than the file's."""
    again = Replayed(replay.choices, replay.counts)
    result, story = tell_schedule(target, replay.ranks, replay.policy, again, replay.steps_max)
    diverged = again.diverged if again.diverged is not None and again.diverged < len(replay.choices) else None
    is_other = target.name != replay.target
    return Again(result.finding, result.digest == replay.digest, diverged, is_other=is_other, story=story), story


def told(golden: Golden, story: Story, repaired: Again, replay: Replay) -> str:
    """The golden text: the kind, the story, and what becomes of the run on the reference."""
    lines = [f"{golden.kind}: {golden.mutant}", *story_lines(story)]
    return "\n".join([*lines, f"{REFERENCE}: {repaired.verdict.value}; {sameness(repaired, replay)}", ""])


def steps_of(story: Story) -> int:
    """Rows, but what is said to be wrong."""
    return sum(row.kind != FINDING for row in story.rows)


def find(golden: Golden, target: Target) -> tuple[Replay, Story]:
    """A run that shows the fault, made small, and short enough. Raises LookupError."""
    options = SearchOptions(golden.ranks)
    for number in range(SCHEDULES_MAX):
        result, choices = run_numbered(target, options, number)
        if golden.is_shown_by(result.finding):
            policy = options.policy_of(number)

            def fails(tried: Choices, policy: str = policy) -> bool:
                return golden.is_shown_by(run_once(target, options, policy, tried).finding)

            again = Replayed(minimise(fails, choices, SHRINK_S).taken)
            result = run_once(target, options, policy, again)
            replay = replay_file.record(target, Recorded(golden.ranks, policy, options.steps_max), again, result)
            story = replayed(target, replay)[1]
            if steps_of(story) <= STEPS_MAX:
                return replay, story
    raise LookupError(f"{golden.mutant} does not show {golden.text!r} shortly enough in {SCHEDULES_MAX} schedules")


def make(golden: Golden) -> None:
    """Find, shrink, and write both files."""
    with opened(golden.target, simulate=True) as target:
        replay, story = find(golden, target)
    with opened(REFERENCE, simulate=True) as reference:
        repaired, _ = replayed(reference, replay)
    replay_file.write(replay, golden.replay)
    golden.told.write_text(told(golden, story, repaired, replay), encoding="utf-8")


def main(names: list[str]) -> None:
    """Make the named ones, or all."""
    for golden in GOLDEN:
        if not names or golden.mutant in names:
            make(golden)
            sys.stdout.write(golden.told.read_text(encoding="utf-8") + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
