"""What is done to a system under test: a setup and steps, drawn from choices, so that they can be replayed and shrunk.

Choice 0 of a step is the end of the program; the steps that follow it in `MENU` come from plain to rare. What goes
wrong is a step like any other. When it strikes, the switches say; what is expected then:

| fault | step | capability | afterwards |
|---|---|---|---|
| a store raises, refuses, answers short | `break_storage`, `fetch_in_vain` | `faults` | everything holds |
| a store takes its time | the same with `stall` | `faults` | everything holds |
| a page in storage is cut off | `cut` | `files` | everything holds |
| a disk is full in the middle of a page | `fill_disk` | `disk` | everything holds |
| somebody else stores his pages in the same store | `share_store` | `shared` | everything holds |
| the user has the store cleared | `clear_store` | `clears` | everything holds |
| a page goes between `exists` and `get` | `vanish`; `lose`, until it is healed | `faults` | everything holds |
| `get` fills in wrong bytes | `lie` with `wrong_bytes` | `faults` | all but bytes; these, too, with `checked_bytes` |
| `get` says no and writes later | `lie` with `late_write` | `faults` | the same |
| the host pool is full of pages that stay | `squeeze` | `tiers` | everything holds |
| all clocks jump; the wall clock does | `wait`; `set_clock` | | everything holds |
| a rank is slow: none of its threads runs for a while | `slow_rank` | `threads` | everything holds |
| a thread dies, or all of a rank, in its next step | `kill_thread`, `kill_rank` | `deaths` | see below |

After a death no state is judged, but what was before it. Each call returns, or raises an error that is no slip of the
program (see `session.SLIPS`), and so may other threads; after that only `close` is called. It ends all threads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from hicache_checks.simulation.choices import Chooser

Tokens = tuple[int, ...]

RIDS = ("a", "b", "c")
# Prompts in pages of one token. They share prefixes, differ in the middle, one is longer than small pools, and some end
# in what is a prompt of its own, so that a hash chain that starts at the wrong place finds something.
PROMPTS: tuple[Tokens, ...] = (
    *((1, 2, 3, 4), (1, 2, 3), (1, 2), (1,), (5, 6, 7), (5, 6)),
    *((5,), (1, 2, 8), (1, 9, 3), (1, 5), (1, 5, 6), (1, 2, 5, 6)),
)
TENANTS = ("adapter", "tenant")
TIMEOUT_S = 1.0
# No sum of these is near the time-out, so that a request is late or it is not.
WAITS_S = (0.7, 1.5, 0.4)
CLOCK_STEPS_S = (3600.0, -3600.0)
THREADS_MAX = 8
"""Of one rank: a greater number says the same as a smaller one."""
STEPS_MAX = 24
BREAKS = ("raise", "miss", "short", "stall")
LIES = ("wrong_bytes", "late_write")


@dataclass(frozen=True)
class Setup:
    """The system at the start: sizes in pages of one token."""

    ranks: int = 1
    policy: str = "wait_complete"
    host_pages: int = 6
    threshold_pages: int = 1
    limit_pages: int = 16
    stored: tuple[Tokens, ...] = ()
    more: tuple[tuple[str, Any], ...] = ()
    """What a target may be told besides, by name."""

    def config(self) -> dict[str, Any]:
        """What an adapter's `reset` is given."""
        return {
            "ranks": self.ranks,
            "policy": self.policy,
            "namespace": "mine",
            "page_size": 1,
            "page_bytes": 16,
            "host_pages": self.host_pages,
            "device_pages": 6,
            "threshold_pages": self.threshold_pages,
            "limit_pages": self.limit_pages,
            "timeout_s_base": TIMEOUT_S,
            "timeout_s_per_page": 0.0,
            "timeout_s_max": TIMEOUT_S,
            **dict(self.more),
        }


@dataclass(frozen=True)
class Step:
    """One call, or something that the world does: `kind` is a name in MENU."""

    kind: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(repr, self.args))})"


@dataclass(frozen=True)
class Item:
    """A kind of step: how often it is chosen, and the capability that it needs of a target."""

    kind: str
    weight: int
    needs: str | None = None


END = "end"
MENU = (
    Item(END, 4),
    Item("submit", 24),
    Item("turn", 20),
    Item("tick", 8),
    Item("poll", 8),
    Item("abort", 8),
    Item("settle", 8),
    Item("fetch", 20),
    Item("leave", 6),
    Item("submit_again", 4),
    Item("wait", 4),
    Item("stop", 4, "stop"),
    Item("store", 8, "store"),
    Item("store_elsewhere", 4, "store"),
    Item("prefill", 12, "tiers"),
    Item("converse", 4, "tiers"),
    Item("evict_device", 4, "tiers"),
    Item("break_storage", 8, "faults"),
    Item("lose", 4, "faults"),
    Item("heal_storage", 4, "faults"),
    Item("vanish", 6, "faults"),
    Item("fetch_in_vain", 6, "faults"),
    Item("flush", 4, "flush"),
    Item("reattach", 4, "attach"),
    Item("squeeze", 4, "tiers"),
    Item("prefill_for", 4, "tenants"),
    Item("overlap", 4, "copies"),
    Item("compute_detached", 3, "detached"),
    Item("cut", 3, "files"),
    Item("fill_disk", 3, "disk"),
    Item("share_store", 3, "shared"),
    Item("clear_store", 2, "clears"),
    Item("slow_rank", 3, "threads"),
    Item("set_clock", 1),
    Item("lie", 1, "faults"),
    Item("kill_thread", 1, "deaths"),
    Item("kill_rank", 1, "deaths"),
)


def menu_for(capabilities: Collection[str]) -> tuple[Item, ...]:
    """The kinds of steps that can be done to a target."""
    return tuple(item for item in MENU if item.needs is None or item.needs in capabilities)


Variants = Mapping[str, Sequence[Any]]
"""What else a target may be told, by name: its values, the plainest first."""


def draw_setup(
    choices: Chooser, ranks: int, policy: str, can_store: bool = True, variants: Variants = MappingProxyType({})
) -> Setup:
    """A small system, with up to four prompts in its storage."""
    host_pages = (6, 4, 3, 2, 5)[choices.choose(5)]
    threshold_pages = (1, 2, 1, 3)[choices.choose(4)]
    limit_pages = (16, 4, 2)[choices.choose(3)]
    stored = tuple(_prompt(choices) for _ in range(choices.choose(5))) if can_store else ()
    more = {name: values[choices.choose(len(values))] for name, values in variants.items()}
    plain = {name: values[0] for name, values in variants.items()}
    unlike = tuple((name, value) for name, value in sorted(more.items()) if value != plain[name])
    return Setup(ranks, policy, host_pages, threshold_pages, limit_pages, stored, unlike)


def draw_step(choices: Chooser, menu: Sequence[Item], ranks: int) -> Step | None:
    """The next step; None: the program ends."""
    kind = _weighted(choices, menu)
    if kind == END:
        return None
    if kind in ("submit", "submit_again", "leave"):
        return Step(kind, (_rid(choices), _prompt(choices)))
    if kind == "fetch":
        prompts = [_prompt(choices)]
        while len(prompts) < len(RIDS) and choices.choose(3):
            prompts.append(_prompt(choices))
        return Step(kind, tuple(prompts))
    if kind in ("abort", "stop"):
        return Step(kind, (_rid(choices),))
    if kind == "poll":
        asked = choices.choose(2 ** len(RIDS) - 1) + 1
        return Step(kind, (tuple(rid for i, rid in enumerate(RIDS) if asked >> i & 1),))
    if kind == "wait":
        return Step(kind, (WAITS_S[choices.choose(len(WAITS_S))],))
    if kind in ("store", "store_elsewhere", "share_store", "prefill", "converse"):
        return Step(kind, (_prompt(choices),))
    if kind == "evict_device":
        return Step(kind, (choices.choose(4) + 1,))
    if kind == "prefill_for":
        return Step(kind, (_prompt(choices), TENANTS[choices.choose(len(TENANTS))]))
    if kind in ("overlap", "compute_detached"):
        return Step(kind, (_prompt(choices), _prompt(choices)))
    if kind in ("lose", "vanish", "cut", "fill_disk"):
        return Step(kind, (choices.choose(ranks), _prompt(choices)))
    if kind == "break_storage":
        call = ("get", "exists", "put")[choices.choose(3)]
        return Step(kind, (choices.choose(ranks), call, BREAKS[choices.choose(len(BREAKS))]))
    if kind == "lie":
        return Step(kind, (choices.choose(ranks), LIES[choices.choose(len(LIES))]))
    if kind == "squeeze":
        return Step(kind, (choices.choose(ranks), _prompt(choices), _prompt(choices), _prompt(choices)))
    if kind == "fetch_in_vain":
        call = ("get", "get", "exists")[choices.choose(3)]
        return Step(kind, (choices.choose(ranks), call, BREAKS[choices.choose(len(BREAKS))], _prompt(choices)))
    if kind == "slow_rank":
        return Step(kind, (choices.choose(ranks), WAITS_S[choices.choose(len(WAITS_S))]))
    if kind == "set_clock":
        return Step(kind, (CLOCK_STEPS_S[choices.choose(len(CLOCK_STEPS_S))],))
    if kind == "kill_thread":
        return Step(kind, (choices.choose(ranks), choices.choose(THREADS_MAX)))
    if kind == "kill_rank":
        return Step(kind, (choices.choose(ranks),))
    return Step(kind)


def _weighted(choices: Chooser, menu: Sequence[Item]) -> str:
    place = choices.choose(sum(item.weight for item in menu))
    for item in menu:
        place -= item.weight
        if place < 0:
            return item.kind
    raise AssertionError("a choice is below its count")


def _rid(choices: Chooser) -> str:
    return RIDS[choices.choose(len(RIDS))]


def _prompt(choices: Chooser) -> Tokens:
    return PROMPTS[choices.choose(len(PROMPTS))]
