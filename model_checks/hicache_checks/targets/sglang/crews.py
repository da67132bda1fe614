"""Who makes the calls on the ranks of a release: tasks of this process, for a simulation, or processes, for real.

A crew has one system at a time. `all` has a call made by the scheduler of every rank at the same time; `each` and `one`
are for what needs no other rank: between two calls nobody is in a cache. All give the answers by rank, and raise what
the first of them raised.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from hicache_checks.simulation.standins.collectives import of_rank
from hicache_checks.targets.sglang.device import COPIES
from hicache_checks.targets.sglang.rank import Rank
from hicache_checks.targets.sglang.rank_process import Answer, serve
from hicache_checks.targets.sglang.release import Release
from hicache_checks.targets.sglang.shelf import SHELVES

ANSWER_S_MAX = 45.0
"""For so long a call of a real rank may take; the longest that it waits on purpose is a few seconds."""


class ThreadDied(Exception):
    """P31: a thread of a rank died."""


class Hung(Exception):
    """A call does not return. `place`: see findings."""

    place = "hang"


class Crew(Protocol):
    """See the module."""

    def begin(self, config: Mapping[str, Any]) -> None:
        """New ranks, whatever was before."""

    def all(self, name: str, *args: Any) -> list[Any]:
        """A call of Rank, by every scheduler."""

    def each(self, name: str, *args: Any) -> list[Any]:
        """A call of Rank on every rank, of something that needs no other rank."""

    def one(self, number: int, name: str, *args: Any) -> Any:
        """The same on one rank."""

    def end(self) -> None:
        """Let go of the ranks."""


class Tasks:
    """Schedulers as threads of this process, which are simulated."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self._jobs: list[SimpleQueue[tuple[str, tuple[Any, ...]] | None]] = []
        self._answers: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._threads: list[Any] = []
        self._ranks: dict[int, Rank] = {}

    def begin(self, config: Mapping[str, Any]) -> None:
        """See Crew."""
        self.end()
        SHELVES.clear()
        self._ranks.clear()
        COPIES.clear()
        self._release.prepare(config)
        self._answers = SimpleQueue()
        self._jobs = [SimpleQueue() for _ in range(config["ranks"])]
        self._threads = [self._start(number, config) for number in range(config["ranks"])]
        self._collect()

    def all(self, name: str, *args: Any) -> list[Any]:
        """See Crew."""
        for jobs in self._jobs:
            jobs.put((name, args))
        return self._collect()

    def each(self, name: str, *args: Any) -> list[Any]:
        """See Crew."""
        return [self.one(number, name, *args) for number in sorted(self._ranks)]

    def one(self, number: int, name: str, *args: Any) -> Any:
        """See Crew."""
        return getattr(self._ranks[number], name)(*args)

    def end(self) -> None:
        """See Crew. The schedulers end, their storage threads after them."""
        threads, self._threads = self._threads, []
        if not threads:
            # The shelves are those of a system before, if there are any.
            return
        for shelf in SHELVES.values():
            shelf.heal()
        for jobs in self._jobs:
            jobs.put(("close", ()))
            jobs.put(None)
        for thread in threads:
            thread.join()

    def _start(self, number: int, config: Mapping[str, Any]) -> threading.Thread:
        def scheduler() -> None:
            try:
                rank = Rank(number, config, self._release, self._release.groups(number))
            except Exception as error:
                self._answers.put((number, error))
                return
            self._ranks[number] = rank
            self._answers.put((number, None))
            while (job := self._jobs[number].get()) is not None:
                self._answers.put((number, _attempt(partial(getattr(rank, job[0]), *job[1]))))

        thread = threading.Thread(target=scheduler, name=f"scheduler-{number}", daemon=True)
        with of_rank(number):
            thread.start()
        return thread

    def _collect(self) -> list[Any]:
        answers = dict(self._answers.get() for _ in self._jobs)
        return _answered([answers[number] for number in sorted(answers)])


class Processes:
    """A process a rank, with gloo between them. They are kept from one system to the next, until one of them hangs."""

    def __init__(self, tree: Path, kind: str) -> None:
        self._tree = tree
        self._kind = kind
        self._connections: list[Any] = []
        self._processes: list[Any] = []

    def begin(self, config: Mapping[str, Any]) -> None:
        """See Crew."""
        if len(self._processes) != config["ranks"]:
            self.stop()
            self._launch(config["ranks"])
        self._ask_all("begin", dict(config))

    def all(self, name: str, *args: Any) -> list[Any]:
        """See Crew."""
        return self._ask_all(name, *args)

    def each(self, name: str, *args: Any) -> list[Any]:
        """See Crew."""
        return self._ask_all(name, *args)

    def one(self, number: int, name: str, *args: Any) -> Any:
        """See Crew."""
        if not self._connections:
            raise Hung(f"P2 {name} does not return")
        self._connections[number].send((name, args))
        return _answered([_attempt(partial(self._answer, number, name))])[0]

    def end(self) -> None:
        """See Crew. The processes stay, and are ended by `stop`."""
        if self._connections:
            self._ask_all("close")

    def stop(self) -> None:
        """End the processes, whatever they do."""
        for process in self._processes:
            process.kill()
            process.join()
        self._connections, self._processes = [], []

    def _launch(self, ranks: int) -> None:
        context = multiprocessing.get_context("spawn")
        with tempfile.NamedTemporaryFile(prefix="hicheck-ranks-", delete=False) as meeting:
            """A file that gloo's ranks find each other by; they remove it."""
        for number in range(ranks):
            ours, theirs = context.Pipe()
            arguments = (self._tree, self._kind, number, ranks, meeting.name, theirs)
            process = context.Process(target=serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)

    def _ask_all(self, name: str, *args: Any) -> list[Any]:
        for connection in self._connections:
            connection.send((name, args))
        # All answers are taken before anything is raised: what is not, would be the answer to the next call.
        return _answered([_attempt(partial(self._answer, n, name)) for n in range(len(self._connections))])

    def _answer(self, number: int, name: str) -> Any:
        """What a rank answers, or the error that it raised."""
        if not self._connections:
            raise Hung(f"P2 {name} does not return")
        connection = self._connections[number]
        try:
            if not connection.poll(ANSWER_S_MAX if name != "begin" else None):
                raise Hung(f"P2 {name} does not return on rank {number}")
            answer: Answer = connection.recv()
        except (EOFError, ConnectionError, Hung) as error:
            self.stop()
            raise error if isinstance(error, Hung) else ThreadDied(f"P31 the process of rank {number} died") from error
        if answer.died:
            # The others may wait for this one.
            self.stop()
            raise ThreadDied(f"P31 {answer.died[0]} of rank {number} died")
        return answer.value


def _attempt(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except Exception as error:
        return error


def _answered(answers: Sequence[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return list(answers)
