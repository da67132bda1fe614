"""All schedules of a program with at most so many preemptions, but for those that differ only in what commutes.

A *preemption* is a switch away from a task that could go on; switches from one that waits or has ended are free. Most
bugs need two at most (Musuvathi and Qadeer, PLDI 2007).

The search is depth first and stateless: a run is repeated up to a switch and goes another way there. What the tasks
did so far is summed up by who did what before whom, where two steps that touch different resources have no order. Two
runs with the same sum are in the same state, so a run that comes to a sum that was met with as many preemptions left is
*cut*. A step that is known to lead to such a sum, because the same step was made in another order of the same past, is
*asleep*: it is not even run. That is what a sleep set is for (Godefroid, 1996). Sleep sets themselves lose schedules
under a bound, because of two orders that differ in nothing else one may cost more preemptions than the other (Coons,
Musuvathi and McKinley, OOPSLA 2013); here the preemptions are part of what is compared.

What is promised: if steps that touch different resources commute, every outcome of a schedule with at most
`preemptions_max` is the outcome of a schedule that was run to its end. Every stand-in says what it touches, what it
releases included. What tasks share in a plain attribute or a list is not seen, unless it is declared (`attributes`).
Looks at the clock are taken to commute unless `clock` is set: what they show differs by microseconds. The rule that
lets others go first when nothing was handed over for 200 steps (`world`) counts the steps of all, so a program that
only looks for so long may have outcomes besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple, TypeVar

from hicache_checks.simulation.tasks import Task
from hicache_checks.simulation.world import CLOCK, Strategy, running_world

T = TypeVar("T")
FREE = -1
"""In place of the number of the running task: there is none, so every choice is free."""


class Cut(BaseException):
    """The rest of this run is known."""


class Diverged(BaseException):
    """The program did not do the same again: something that it depends on is not chosen."""


class Past:
    """Who did what before whom, as a number for each task, for each resource, and for all of it: `sum`."""

    def __init__(self) -> None:
        self.sum = 0
        self._tasks: dict[str, int] = {}
        self._resources: dict[object, int] = {}
        self._everything = 0

    def of_task(self, who: str) -> int:
        """All that it did."""
        return self._tasks.get(who, 0)

    def of_resource(self, resource: object) -> int:
        """All that was done to it."""
        return self._resources.get(resource, self._everything)

    def step(self, who: str, doing: str, resource: object) -> None:
        """It comes after all that its task did, and after all that was done to what it touches; None: to everything."""
        if resource is None:
            now = self._everything = hash((self.of_task(who), doing, self.sum))
            self._resources.clear()
        else:
            now = self._resources[resource] = hash((self.of_task(who), doing, resource, self.of_resource(resource)))
        self.sum = self.sum_with(who, now)
        self._tasks[who] = now

    def sum_with(self, who: str, now: int) -> int:
        """What the sum would be if this were all that the task did."""
        return self.sum ^ hash((who, self.of_task(who))) ^ hash((who, now))

    def copy(self) -> Past:
        """As it is now."""
        copied = Past()
        copied.sum, copied._everything = self.sum, self._everything
        copied._tasks, copied._resources = self._tasks.copy(), self._resources.copy()
        return copied


class _Effect(NamedTuple):
    """What a task did when it was chosen: `met` is what it found, `now` all that it did then."""

    met: tuple[tuple[object, int], ...]
    now: int


@dataclass
class _Node:
    """A switch. `ready` by number; `used` preemptions came before; `taken` is chosen now, `left` are to be tried."""

    ready: tuple[int, ...]
    names: tuple[str, ...]
    running: int
    used: int
    past: Past
    left: list[int]
    taken: int = FREE

    def used_with(self, number: int) -> int:
        """Preemptions, if this task is chosen."""
        return self.used + (self.running not in (FREE, number))


@dataclass
class Exhaustive:
    """One search. `schedules` were run, `cut` of them not to the end; `asleep` steps were not run at all.

    `ends`: a hash of all that was done in a run to its end, whatever the order of what commutes. `reduce` False: every
    order is run, also of what commutes.
    """

    preemptions_max: int
    reduce: bool = True
    clock: bool = False
    schedules: int = 0
    cut: int = 0
    asleep: int = 0
    is_complete: bool = False
    ends: set[int] = field(default_factory=set)
    _stack: list[_Node] = field(default_factory=list)
    _met: dict[int, int] = field(default_factory=dict)
    _effects: dict[int, tuple[_Effect, ...]] = field(default_factory=dict)

    @property
    def traces(self) -> int:
        """Runs to the end that differ in more than the order of what commutes."""
        return len(self.ends)

    def run(self, schedule: Callable[[Strategy], T]) -> Iterator[T]:
        """What each run gives that was not cut. `schedule` runs the program in a new world with this strategy.

        Diverged: the program is not determined by its choices.
        """
        while not self.is_complete:
            yield from self.run_next(schedule)

    def run_next(self, schedule: Callable[[Strategy], T]) -> list[T]:
        """The next run, which there must be: what it gives, or nothing if it was cut. See `run`."""
        self.schedules += 1
        strategy = _Following(self)
        results: list[T] = []
        try:
            results.append(schedule(strategy))
        except Cut:
            self.cut += 1
        else:
            self.ends.add(strategy.end())
        while self._stack and not self._take_next(self._stack[-1]):
            self._stack.pop()
        self.is_complete = not self._stack
        return results

    def used(self) -> int:
        """Preemptions up to what follows the last switch."""
        return self._stack[-1].used_with(self._stack[-1].taken) if self._stack else 0

    def _take_next(self, node: _Node) -> bool:
        """Choose the next task that may lead to something new; False: there is none."""
        while node.left:
            node.taken = node.left.pop(0)
            if not self._is_asleep(node, node.taken):
                return True
            self.asleep += 1
        return False

    def _is_asleep(self, node: _Node, number: int) -> bool:
        past, who = node.past, node.names[node.ready.index(number)]
        return self.reduce and any(
            all(past.of_resource(resource) == found for resource, found in effect.met)
            and self._is_met(past.sum_with(who, effect.now), number, node.used_with(number))
            for effect in self._effects.get(hash((who, past.of_task(who))), ())
        )

    def _is_met(self, sum_: int, running: int, used: int) -> bool:
        """Whether all that may follow has been run, or will be."""
        met, never = self._met, self.preemptions_max + 2
        return (
            met.get(hash((sum_, running)), never) <= used
            or met.get(hash((sum_, FREE)), never) <= used
            # From any other of its tasks the same choices cost one preemption more.
            or met.get(sum_, never) < used
        )

    def _keep(self, done: int, effect: _Effect) -> None:
        known = self._effects.get(done, ())
        if effect not in known:
            self._effects[done] = (*known, effect)

    def _meet(self, sum_: int, running: int, used: int) -> None:
        for key in (hash((sum_, running)), sum_):
            self._met[key] = min(used, self._met.get(key, used))


class _Following:
    """One run: as on the stack of the search as far as it goes, then on."""

    def __init__(self, search: Exhaustive) -> None:
        self._search = search
        self._depth = 0
        self._past: Past | None = None
        self._touched: list[tuple[str, str, object]] = []
        self._read = 0
        self._ignored = () if search.clock else (CLOCK,)

    def pick(self, ready: Sequence[Task], running: Task | None) -> Task:
        """See Strategy."""
        stack, depth = self._search._stack, self._depth
        self._depth += 1
        if depth == len(stack):
            if self._past is None:
                self._begin(Past())
            self._extend(ready, FREE if running is None else running.number)
        node = stack[depth]
        numbers = tuple([task.number for task in ready])
        if node.ready != numbers:
            raise Diverged(f"at switch {depth} {list(ready)} can run, it was {list(node.names)}")
        if self._past is None and self._depth == len(stack):
            self._begin(node.past.copy())
        return ready[numbers.index(node.taken)]

    def _begin(self, past: Past) -> None:
        """Follow what is done. What came before was the same in every run, or is known."""
        world = running_world()
        assert world is not None
        self._past, self._touched = past, world.watch_touches()

    def end(self) -> int:
        """All that was done, when the run is over."""
        past, used = self._past or Past(), self._search.used()
        self._learn(past, used)
        self._search._meet(past.sum, FREE, used)
        return past.sum

    def _extend(self, ready: Sequence[Task], running: int) -> None:
        """A switch that is new: go on with what is cheapest, and keep the rest for later runs."""
        search, past = self._search, self._past
        assert past is not None
        used = search.used()
        self._learn(past, used)
        if search.reduce and search._is_met(past.sum, running, used):
            raise Cut
        search._meet(past.sum, running, used)
        names = [task.said for task in ready]
        node = _Node(tuple([task.number for task in ready]), tuple(names), running, used, past, [])
        node.left = sorted((n for n in node.ready if node.used_with(n) <= search.preemptions_max), key=node.used_with)
        if not search._take_next(node):
            raise Cut
        search._stack.append(node)
        if node.left:
            self._past = past.copy()

    def _learn(self, past: Past, used: int) -> None:
        """What the chosen task did since the switch, and those after it who could run alone."""
        entries = self._touched[self._read :]
        self._read = len(self._touched)
        while entries:
            who = entries[0][0]
            own = entries[: sum(1 for _ in takewhile(who.__eq__, [other for other, _, _ in entries]))]
            touched = dict.fromkeys(resource for _, _, resource in own if resource not in self._ignored)
            found = tuple([(resource, past.of_resource(resource)) for resource in touched])
            done = hash((who, past.of_task(who)))
            for _, doing, resource in own:
                if resource not in self._ignored:
                    past.step(who, doing, resource)
                elif doing:
                    past.step(who, doing, f"{who} alone")
            if None not in touched:
                self._search._keep(done, _Effect(found, past.of_task(who)))
            entries = entries[len(own) :]
            if entries:
                self._search._meet(past.sum, FREE, used)
