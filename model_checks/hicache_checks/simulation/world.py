"""The world of a simulated run: who may run, what time it is, and when nobody can go on.

Exactly one task runs. It gives way only at a *point*, before it does something that another task can notice, or when
it has to wait. Who runs next is a choice, so the same choices give the same run. Time stands still while somebody can
run, but for a microsecond at each look at the clock, and jumps to the next deadline when nobody can.
"""

from __future__ import annotations

import contextvars
import gc
import threading
from _thread import get_ident
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import Any, NoReturn, Protocol
from weakref import WeakSet

from hicache_checks.simulation.choices import Choices
from hicache_checks.simulation.tasks import CARRIERS, Carriers, Task

START_S = 1000.0
TICK_S = 1e-6
SLACK_S = 1e-4
"""Waits that end within this of each other end together: which goes on first is a choice, as with real timers."""
FOREVER_S = 1e9
"""A wait of this many seconds or more has no end."""
FAIR_STEPS = 200
"""After so many steps in which nobody handed anything over, those who took them let the others go first."""
READS_PER_POINT = 1000
KILLS_MAX = 100

CLOCK = "clock"
CHOICES = "choices"
"""The resources that every look at the clock touches, and every choice of the program."""

DEADLOCK = "deadlock"
LIVELOCK = "livelock"
DESYNC = "desync"


class TaskKilled(BaseException):
    """The run is over: unwind."""


class TaskStruck(BaseException):
    """The task dies here, because the program of the run wants it to."""


class NotSimulated(Exception):
    """The program uses something that has no stand-in, or would block where nobody can wake it."""


@dataclass(frozen=True)
class Limits:
    """When a run is given up.

    `steps_max`: steps in all. `idle_steps_max`: steps in which no time passed and nothing was handed over or ended, the
    caller's own not counted. `idle_rounds_max`: how often everybody who still waits may see his time run out in vain.
    """

    steps_max: int = 200_000
    idle_steps_max: int = 20_000
    idle_rounds_max: int = 1000


@dataclass(frozen=True)
class Problem:
    """Why a run could not go on: `kind` is deadlock, livelock or desync."""

    kind: str
    message: str


@dataclass(frozen=True)
class Died:
    """A task that ended by an exception that it did not catch. `after_strike`: somebody had been struck by then."""

    task: str
    error: BaseException
    after_strike: bool = False


class Strategy(Protocol):
    """Who runs next."""

    def pick(self, ready: Sequence[Task], running: Task | None) -> Task:
        """One of those who can run, ordered by number; `running` is among them unless it is None."""


class Modes(Protocol):
    """State of the interpreter's thread that belongs to a task."""

    def begin(self) -> Any:
        """A run begins; as it is for whoever began it."""

    def end(self) -> None:
        """The run is over."""

    def save(self) -> Any:
        """As it is now."""

    def restore(self, saved: Any) -> None:
        """As it was then; None: as in a new thread."""


WATCHED: list[World] = []
"""The world of which all that is touched is kept, if there is one."""
_strangers: WeakSet[threading.Thread] = WeakSet()
"""Threads that programs began where threading has no stand-in, in this world or in one before."""
_current: World | None = None


def current() -> World | None:
    """The world that the calling code is simulated in; None outside, and on a thread that is no task's."""
    world = _current
    return world if world is not None and world.running is not None and world.ident == get_ident() else None


def running_world() -> World | None:
    """The world that runs in this process, whoever asks."""
    return _current


class World:
    """One run. `strategy` None: every switch is taken from `choices` like everything else.

    Afterwards `problem` says why the run could not end, `died` which tasks fell; `trace` holds (task, step) in order.
    `disturbed`: a thread that is no task had to do with the tasks, or might have had.
    """

    def __init__(
        self,
        choices: Choices,
        strategy: Strategy | None = None,
        limits: Limits = Limits(),
        carriers: str = "greenlets",
        modes: Modes | None = None,
    ) -> None:
        self.choices = choices
        self.limits = limits
        self.now = START_S
        self.wall_offset_s = 0.0
        self.steps = 0
        self.switches = 0
        self.running: Task | None = None
        self.ident = 0
        self.tasks: list[Task] = []
        self.trace: list[tuple[str, str]] = []
        self.touched: list[tuple[str, str, object]] | None = None
        self.died: list[Died] = []
        self.problem: Problem | None = None
        self.disturbed: NotSimulated | None = None
        self._others: frozenset[threading.Thread] = frozenset()
        self._strategy = strategy
        self._make_carriers = CARRIERS[carriers]
        self._are_threads = carriers == "threads"
        self._carriers: Carriers
        self._modes = modes
        self._callers_modes: Any = None
        self._caller: Task | None = None
        self._begins: Task | None = None
        self._ready: list[Task] = []
        self._settling: list[Task] = []
        self._labels: dict[tuple[Task | None, str], int] = {}
        self._names: dict[tuple[str, int | None], int] = {}
        self._numbers = 0
        self._progress = 0
        self._idle_from = 0
        self._rounds: dict[Task, tuple[int, int]] = {}
        self._look_at = min(FAIR_STEPS, limits.steps_max + 1)
        self._tired: set[str] = set()
        self._reads = 0
        self._is_struck = False
        self._closing = False
        self._broken: BaseException | None = None

    # ---- a whole run

    def run(self, main: Callable[[], object]) -> None:
        """Run `main` as the first task until it ends or nobody can go on; then unwind the others.

        What `main` raises comes out of here, and what the strategy or the choices raise, and NotSimulated, in whatever
        task, or thread that is none. Garbage is not collected meanwhile: what it does would come at another place in
        every run.
        """
        global _current
        if _current is not None:
            raise RuntimeError("a world is running in this process already")
        if self.tasks:
            raise RuntimeError("a world runs once, and its tasks are spawned meanwhile")
        _current = self
        self._others = frozenset(threading.enumerate()).difference(_strangers)
        collecting = gc.isenabled()
        gc.disable()
        raised: list[BaseException] = []
        try:
            self.ident = get_ident()
            if self._modes is not None:
                self._callers_modes = self._modes.begin()
            self._carriers = self._make_carriers()
            context = contextvars.copy_context()
            caller = self._caller = self.spawn(lambda: self._call(context, main, raised), "caller")
            while not caller.ended and not self._is_over():
                begins, self._begins = self._begins, None
                self._resume(self._next() if begins is None else begins)
            self._unwind()
        finally:
            _current = None
            WATCHED.clear()
            _strangers.update(self._begun())
            if self._modes is not None:
                self._modes.end()
            if collecting:
                gc.enable()
        for error in [self._broken, self.disturbed, *raised]:
            if error is not None:
                raise error

    def spawn(self, target: Callable[[], object], name: str, rank: int | None = None) -> Task:
        """A new task, ready to run; of the running task's rank if none is given."""
        if rank is None and self.running is not None:
            rank = self.running.rank
        times = self._names[name, rank] = self._names.get((name, rank), 0) + 1
        task = Task(len(self.tasks), name if times == 1 else f"{name}#{times}", rank, target)
        self.tasks.append(task)
        self._ready.append(task)
        self.touch(task.label)
        self.progress()
        return task

    def choose(self, count: int) -> int:
        """A choice of the program, below `count`. What goes wrong in choosing ends the run, whichever task it is in."""
        self.touch(CHOICES)
        try:
            return self.choices.choose(count)
        except BaseException as error:
            if self.running is None:
                raise
            self._end(broken=error)

    def fail(self, kind: str, message: str) -> NoReturn:
        """End the run here: the calling task does not go on."""
        self._end(Problem(kind, message))

    def give_up(self, error: BaseException) -> NoReturn:
        """End the run here by an error of whoever simulates, which the program is not to see: it comes out of `run`."""
        self._end(broken=error)

    def digest(self) -> str:
        """A short name of the trace: equal for equal runs, in any process."""
        return blake2b("\n".join(chain.from_iterable(self.trace)).encode(), digest_size=8).hexdigest()

    def whereabouts(self) -> str:
        """Who waits for what."""
        return "; ".join(f"{task}: {task.doing}{' (held)' * task.held}" for task in self.tasks if not task.ended)

    # ---- what stand-ins call

    def label(self, kind: str) -> str:
        """A name for a new object: the kind, a number, and the task that made it if it is not the caller.

        It depends on nothing but what that task did before, so other orders of the same steps give the same names.
        """
        task = self.running
        number = self._labels[task, kind] = self._labels.get((task, kind), 0) + 1
        return f"{kind}-{number}" if task is self._caller or task is None else f"{task.name}.{kind}-{number}"

    def number(self) -> int:
        """A number that no other object of this world gets. As its hash, it gives the same order to sets every time."""
        self._numbers += 1
        return self._numbers

    def watch_touches(self) -> list[tuple[str, str, object]]:
        """From now on, what every step touches: (task, step, resource), and (task, "", resource) for what it touches
        besides. The resource None is everything."""
        self._look_at = 0
        self.touched = []
        WATCHED[:] = [self]
        return self.touched

    def progress(self) -> None:
        """Something was handed over, raised or ended: whoever waits may yet be served."""
        self._progress += 1
        self._idle_from = self.steps

    def touch(self, resource: object | None) -> None:
        """The running task does something to this in the same step, without giving way."""
        if self.touched is not None and self.running is not None:
            self.touched.append((self.running.said, "", resource))

    def point(self, doing: str, touches: object | None = None) -> None:
        """The running task is about to do something that others can notice; somebody else may go first."""
        task = self.running
        if task is None:
            return
        if self._closing:
            self._kill(task)
        task.doing, task.touches = doing, touches
        if len(self._ready) > 1:
            chosen = self._choose(task)
            if chosen is not task:
                self._switch(task, chosen)
        self.steps += 1
        self.trace.append((task.said, doing))
        if self.steps >= self._look_at:
            self._look_around(task, touches)

    def wait(
        self,
        is_ready: Callable[[], Any],
        waiting: list[Task],
        doing: str,
        touches: object | None,
        timeout: float | None = None,
    ) -> bool:
        """A point at which the running task can only go on when `is_ready()`; False: the time ran out first.

        Whoever makes it true wakes `waiting`, whoever makes it false refuses it.
        """
        task = self.running
        assert task is not None
        if self._closing:
            self._kill(task)
        task.doing, task.touches = doing, touches
        if is_ready():
            chosen = task if len(self._ready) == 1 else self._choose(task)
            if chosen is not task:
                self._wait_in(task, waiting, self.deadline(timeout))
                self._switch(task, chosen)
                return self._wait_on(is_ready, waiting)
        elif timeout is None or timeout > 0:
            self._park(task, waiting, self.deadline(timeout))
            return self._wait_on(is_ready, waiting)
        else:
            self.point(doing, touches)
            return bool(is_ready())
        self.steps += 1
        self.trace.append((task.said, doing))
        if self.steps >= self._look_at:
            self._look_around(task, touches)
        return True

    def block(self, waits_in: list[Task], doing: str, touches: object | None, deadline: float | None) -> bool:
        """Wait in a list until woken; False: the deadline came first."""
        task = self.running
        assert task is not None
        if self._closing:
            self._kill(task)
        task.doing, task.touches = doing, touches
        self._park(task, waits_in, deadline)
        self._step(task, f"{doing} timed out" if task.timed_out else doing, touches)
        return not task.timed_out

    def wake(self, waiting: Iterable[Task]) -> None:
        """Those who wait here can go on now."""
        for task in waiting:
            if task.parked:
                task.parked = False
                if not task.held:
                    self._admit(task)

    def refuse(self, waiting: list[Task]) -> None:
        """Those who wait here cannot go on any more, and are the last in it: somebody took what they wait for."""
        for task in [task for task in waiting if not task.parked and not task.timed_out]:
            if task.deadline is not None and task.deadline <= self.now:
                task.timed_out = True
                continue
            waiting.remove(task)
            waiting.append(task)
            task.parked = True
            if not task.held:
                self._ready.remove(task)

    def settle(self) -> None:
        """Let the others run until nobody can without time passing."""
        if len(self._ready) > 1:
            self.block(self._settling, "settle", None, None)

    def read_clock(self) -> float:
        """Seconds, later at every call: equal times would leave an order to chance."""
        self.now += TICK_S
        self.touch(CLOCK)
        self._reads += 1
        if self._reads % READS_PER_POINT == 0:
            # Somebody may be looking at nothing else until the time has come.
            self.point("look at the clock", CLOCK)
        return self.now

    def deadline(self, timeout: float | None) -> float | None:
        """The moment at which a wait of so many seconds ends; None: it does not."""
        return None if timeout is None or timeout >= FOREVER_S else self.now + max(0.0, timeout)

    # ---- faults that belong to the world

    def jump(self, seconds: float) -> None:
        """All clocks move on at once, and everybody whose time has come may run."""
        self.touch(None)
        self.now += seconds
        self._expire()

    def strike(self, task: Task, error: BaseException | None = None) -> None:
        """This task dies by `error` in its next step, which it does not take; what it catches is its own affair."""
        self.touch(None)
        self._is_struck = True
        task.to_raise = error if error is not None else TaskStruck(f"{task} is to die")
        self._look_at = 0

    def hold(self, tasks: Iterable[Task], seconds: float | None = None) -> None:
        """These do not run for so many virtual seconds; None: never again. What they hold, they keep."""
        self.touch(None)
        for task in tasks:
            if not task.held and not task.parked and not task.ended:
                self._ready.remove(task)
            task.held = not task.ended
            task.held_until = None if seconds is None else self.now + seconds
        if self.running is not None and self.running.held:
            self._give_way()

    # ---- steps

    def _step(self, task: Task, doing: str, touches: object | None) -> None:
        self.steps += 1
        self.trace.append((task.said, doing))
        if self.steps >= self._look_at:
            self._look_around(task, touches)

    def _look_around(self, task: Task, touches: object | None) -> None:
        """What need not be looked at in every step: limits, fairness, who is to die, and what is touched."""
        limits = self.limits
        if self.touched is not None:
            self.touched.append((*self.trace[-1], touches))
        if self.steps > limits.steps_max:
            self.fail(LIVELOCK, f"{self.steps} steps and no end; {self.whereabouts()}")
        idle = self.steps - self._idle_from
        if idle >= limits.idle_steps_max and self._caller is not None:
            recent = self.trace[-limits.idle_steps_max :]
            if all(who != self._caller.said for who, _ in recent):
                self.fail(LIVELOCK, f"{idle} steps and nothing handed over; {self.whereabouts()}")
        if idle >= FAIR_STEPS and self.steps % FAIR_STEPS == 0:
            self._tired.update(who for who, _ in self.trace[-FAIR_STEPS:])
            if all(other.said in self._tired for other in self._ready):
                self._let_spinners_spend_time()
        if task.to_raise is not None:
            error, task.to_raise = task.to_raise, None
            self._look_at = 0
            raise error
        everywhere = self.touched is not None or any(other.to_raise for other in self.tasks if not other.ended)
        next_look = self.steps - self.steps % FAIR_STEPS + FAIR_STEPS
        self._look_at = 0 if everywhere else min(next_look, limits.steps_max + 1)

    def _body(self, task: Task) -> None:
        task.started = True
        self.ident = get_ident()
        if self._modes is not None:
            self._modes.restore(self._callers_modes if task is self._caller else None)
        try:
            if not self._closing:
                self._step(task, "start", task.label)
                task.target()
        except (TaskKilled, SystemExit):
            pass
        except BaseException as error:
            if not self._closing:
                self._fell(task, error)
        task.ended = True
        if not self._closing:
            self._ready.remove(task)
        self.touch(task.label)
        self.wake(task.joiners)
        self.progress()

    def _fell(self, task: Task, error: BaseException) -> None:
        self.died.append(Died(task.said, error, self._is_struck))
        self.trace.append((task.said, f"dies: {type(error).__name__}"))
        if not isinstance(error, Exception | TaskStruck):
            # Not the program's doing: an interrupt, or the end that a test runner puts to a test.
            self._broken = error

    def _call(self, context: contextvars.Context, main: Callable[[], object], raised: list[BaseException]) -> None:
        try:
            context.run(main)
        except TaskKilled:
            raise
        except BaseException as error:
            if not self._closing:
                raised.append(error)

    # ---- who runs

    def _choose(self, running: Task | None) -> Task | None:
        """Among those who can run. The running task, if it can go on, is choice 0; the others follow by number."""
        ready = self._ready
        if self._tired:
            ready = self._rested(ready)
            if running not in ready:
                running = None
        count = len(ready)
        if count == 1:
            return ready[0]
        try:
            if self._strategy is None:
                choice = self.choices.switch(count)
                if running is None:
                    return ready[choice]
                return running if choice == 0 else ready[choice - (choice <= ready.index(running))]
            chosen = self._strategy.pick(ready, running)
            if chosen is running:
                self.choices.keep_switch(0, count)
            else:
                choice = ready.index(chosen)
                self.choices.keep_switch(choice + (running is not None and choice < ready.index(running)), count)
            return chosen
        except BaseException as error:
            self._broken = error
            return None

    def _rested(self, ready: list[Task]) -> list[Task]:
        """Those who are not tired; all, if everybody is, or if something was handed over since."""
        rested = [task for task in ready if task.said not in self._tired]
        if not rested or self.steps - self._idle_from < FAIR_STEPS:
            self._tired.clear()
            return ready
        return rested

    def _next(self) -> Task | None:
        """Who runs when the running task cannot; None: nobody, the run is over."""
        while not self._is_over():
            if self._ready:
                return self._choose(None)
            settled = [task for task in self._settling if task.parked and not task.held]
            if settled:
                self.wake(settled)
            else:
                self._pass_time()
        return None

    def _admit(self, task: Task) -> None:
        ready, number = self._ready, task.number
        place = len(ready)
        while place and ready[place - 1].number > number:
            place -= 1
        ready.insert(place, task)

    def _wait_in(self, task: Task, waiting: list[Task], deadline: float | None) -> None:
        task.waits_in, task.deadline, task.timed_out = waiting, deadline, False
        waiting.append(task)

    def _wait_no_more(self, task: Task) -> None:
        if task.waits_in is not None:
            task.waits_in.remove(task)
            task.waits_in = None

    def _wait_on(self, is_ready: Callable[[], Any], waiting: list[Task]) -> bool:
        """Back from others: what it waited for has come, or its time has, or it waits again."""
        task = self.running
        assert task is not None
        self._wait_no_more(task)
        # Some programs empty a queue behind its back.
        while not is_ready():
            if task.timed_out:
                self._step(task, f"{task.doing} timed out", task.touches)
                return False
            self._park(task, waiting, task.deadline)
        self._step(task, task.doing, task.touches)
        return True

    def _park(self, task: Task, waiting: list[Task], deadline: float | None) -> None:
        """Wait until woken or the deadline has come."""
        self._wait_in(task, waiting, deadline)
        task.parked = True
        self._ready.remove(task)
        self._give_way()
        self._wait_no_more(task)

    def _give_way(self) -> None:
        """The running task cannot go on: somebody else runs, or the run is over."""
        task, chosen = self.running, self._next()
        if chosen is not task:
            self._switch(task, chosen)

    # ---- time

    def _moments(self) -> list[float]:
        """At which somebody goes on, if nothing else lets him."""
        return [
            *(task.deadline for task in self.tasks if task.parked and not task.held and task.deadline is not None),
            *(task.held_until for task in self.tasks if task.held and task.held_until is not None),
        ]

    def _pass_time(self) -> None:
        moments = self._moments()
        if not moments or self._is_in_vain():
            self._find_nobody()
            return
        if self.touched is not None:
            self.touched.append(("time", "passes", None))
        first = min(moments)
        self.now = max(self.now, *(moment for moment in moments if moment <= first + SLACK_S))
        self._idle_from = self.steps
        self._expire()

    def _let_spinners_spend_time(self) -> None:
        """Everybody who can run only looks: looking takes time, so the next wait may end."""
        if self._moments() and not self._is_in_vain():
            self._pass_time()

    def _find_nobody(self) -> None:
        """Nobody can go on. If the program has begun threads that are no tasks, they might have been waited for."""
        begun = {thread.name for thread in self._begun()}
        if begun:
            message = f"nobody can go on but {', '.join(sorted(begun))}, begun where threading has no stand-in"
            self.disturbed = self.disturbed or NotSimulated(message)
        self.problem = Problem(DEADLOCK, self.whereabouts())

    def _begun(self) -> list[threading.Thread]:
        """Threads that are neither tasks nor were there before all programs."""
        return [] if self._are_threads else [thread for thread in threading.enumerate() if thread not in self._others]

    def _is_in_vain(self) -> bool:
        """Everybody who could still be moved by time has been, again and again, and did nothing for the others."""
        if any(task.held_until is not None for task in self.tasks if task.held):
            return False
        timed = [task for task in self.tasks if task.parked and not task.held and task.deadline is not None]
        return all(self._rounds_of(task) >= self.limits.idle_rounds_max for task in timed)

    def _rounds_of(self, task: Task) -> int:
        """How often its time ran out since anything was handed over."""
        progress, rounds = self._rounds.get(task, (self._progress, 0))
        return rounds if progress == self._progress else 0

    def _expire(self) -> None:
        """Let go whose time has come."""
        for task in self.tasks:
            if task.held and task.held_until is not None and task.held_until <= self.now:
                task.held, task.held_until = False, None
                if not task.parked:
                    self._admit(task)
            if task.parked and not task.held and task.deadline is not None and task.deadline <= self.now:
                self._rounds[task] = (self._progress, self._rounds_of(task) + 1)
                task.timed_out, task.parked = True, False
                self._admit(task)

    # ---- switches and the end

    def _is_over(self) -> bool:
        return self.problem is not None or self._broken is not None

    def _end(self, problem: Problem | None = None, broken: BaseException | None = None) -> NoReturn:
        self.problem, self._broken = self.problem or problem, self._broken or broken
        self._give_way()
        raise AssertionError("a run that is over goes on")

    def _switch(self, source: Task | None, target: Task | None) -> None:
        carrier = self._carriers.hub if target is None else target.carrier
        if carrier is None and source is not None:
            self._begins, carrier = target, self._carriers.hub
        else:
            self.switches += 1
        self.running = target
        if carrier is None:
            assert target is not None
            carrier = target.carrier = self._carriers.begin(partial(self._body, target), target.name)
        if self._modes is None:
            carrier.switch()
        else:
            saved = self._modes.save()
            carrier.switch()
            self._modes.restore(saved)
        if self._closing and source is not None:
            self._kill(source)
        if self._are_threads:
            self.ident = get_ident()

    def _resume(self, task: Task | None) -> None:
        """From the hub: let a task go on until somebody returns here."""
        if task is not None:
            self._switch(None, task)
            self.running = None

    def _unwind(self) -> None:
        self._closing = True
        for task in self.tasks:
            # What they wait for may outlive this world.
            self._wait_no_more(task)
        for task in self.tasks:
            if task.started and not task.ended:
                self._resume(task)

    def _kill(self, task: Task) -> NoReturn:
        """Unwind this task; one that will not be unwound is left where it is, for ever."""
        task.kills += 1
        while task.kills > KILLS_MAX:
            self._carriers.hub.switch()
        raise TaskKilled
