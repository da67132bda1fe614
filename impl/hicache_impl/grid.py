"""Ranks in a grid TP x CP x PP, and replicas of it (DP): who agrees with whom, and in which order.

A call is made in the group of each axis in turn, always CP, TP, PP, each with what came out of the one before; so it is
one of all ranks of a replica. What the first stage can decide alone it hands down the stages (`first_min`). Replicas
share no group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from hicache_impl.events import Log
from hicache_impl.layout import AXES, Axis, Layout
from hicache_impl.ranks import Desync, GlooGroup, Group, GroupAborted, Groups, LocalGroup, local_groups
from hicache_impl.runtime import Queue, Runtime

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup, Work

THREADS = ("sched", "query")


class Words(Protocol):
    """What the stages of a pipeline are told: counts, from each rank to the one at its place in the next stage."""

    @property
    def is_first(self) -> bool:
        """Nobody is above."""
        ...

    def receive(self, number: int, length: int) -> list[int]:
        """Wait for the values of this call from above. Desync: they are another call's, or of another length."""
        ...

    def send(self, number: int, values: Sequence[int]) -> None:
        """Hand the values of this call down, if somebody is below. Does not wait until they are taken."""
        ...

    def abort(self, reason: str) -> None:
        """Wake who waits with GroupAborted, where the transport can."""
        ...


class GridGroup(Group):
    """One thread's groups in the grid as one. `axes`: those of more than one member, in the order of AXES; the last is
    the pipeline's if there are `words`.

    Errors are those of the groups that it is made of. Only the call as a whole is logged.
    """

    def __init__(
        self, name: str, rank: int, size: int, axes: Sequence[Group], words: Words | None = None, log: Log | None = None
    ) -> None:
        super().__init__(name, rank, size, log)
        self._axes = list(axes)
        self._words = words

    @property
    def tells(self) -> bool:
        """There are stages."""
        return self._words is not None

    @property
    def is_told(self) -> bool:
        """In a later stage."""
        return self._words is not None and not self._words.is_first

    def first_min(self, values: Sequence[int]) -> list[int]:
        """The smallest over the ranks of the first stage, which tells the others."""
        return self._call("min", values) if self._words is None else self._call("tell", values, self._follow)

    def restart(self) -> None:
        """Number the calls from 0 again, in every group."""
        super().restart()
        for group in self._axes:
            group.restart()

    def abort(self, reason: str) -> None:
        """Abort every group that the rank is a member of."""
        for group in self._axes:
            group.abort(reason)
        if self._words is not None:
            self._words.abort(reason)

    def _meet(self, call: str, values: list[int]) -> list[int]:
        return _in_turn(self._axes, call, values)

    def _follow(self, call: str, values: list[int]) -> list[int]:
        assert self._words is not None
        if self._words.is_first:
            agreed = _in_turn(self._axes[:-1], "min", values)
        else:
            agreed = self._words.receive(self.number, len(values))
        self._words.send(self.number, agreed)
        return agreed


def _in_turn(groups: Sequence[Group], call: str, values: list[int]) -> list[int]:
    for group in groups:
        if call == "barrier":
            group.barrier()
        else:
            values = group.all_min(values) if call == "min" else group.all_max(values)
    return values


def _checked(number: int, length: int, got_number: int, values: list[int]) -> list[int]:
    if (got_number, len(values)) != (number, length):
        raise Desync(
            f"stages are in different calls: here call {number} of {length} values, from above call {got_number} of "
            f"{len(values)}"
        )
    return values


# --- threads of one process


class _LocalWords:
    """Words between threads: a queue for each rank of a pipeline."""

    def __init__(self, queues: Sequence[Queue], stage: int) -> None:
        self._queues = queues
        self._stage = stage

    @property
    def is_first(self) -> bool:
        return self._stage == 0

    def receive(self, number: int, length: int) -> list[int]:
        word = self._queues[self._stage].get()
        if isinstance(word, Exception):
            raise word
        return _checked(number, length, *word)

    def send(self, number: int, values: Sequence[int]) -> None:
        if self._stage + 1 < len(self._queues):
            self._queues[self._stage + 1].put((number, list(values)))

    def abort(self, reason: str) -> None:
        for queue in self._queues:
            queue.put(GroupAborted(reason))


def thread_groups(layout: Layout, runtime: Runtime, logs: Sequence[Log] = ()) -> list[Groups]:
    """The groups of all ranks of a layout that are threads of this process. `logs`: one a world rank, or none."""
    made: dict[str, list[Group]] = {}
    for thread in THREADS:
        axes = {axis: _local_axis(layout, axis, thread, runtime) for axis in AXES}
        words = _local_words(layout, runtime) if thread == "sched" else {}
        made[thread] = [
            GridGroup(
                thread,
                rank % layout.ranks,
                layout.ranks,
                [axes[axis][rank] for axis in AXES if rank in axes[axis]],
                words.get(rank),
                logs[rank] if logs else None,
            )
            for rank in range(layout.world)
        ]
    return [Groups(*pair) for pair in zip(made["sched"], made["query"], strict=True)]


def _local_axis(layout: Layout, axis: Axis, thread: str, runtime: Runtime) -> dict[int, LocalGroup]:
    """Each rank's group along an axis; groups of one are not made."""
    found: dict[int, LocalGroup] = {}
    for line in layout.lines(axis):
        if len(line) > 1:
            found.update(zip(line, local_groups(f"{thread}.{axis}", len(line), runtime), strict=True))
    return found


def _local_words(layout: Layout, runtime: Runtime) -> dict[int, _LocalWords]:
    found: dict[int, _LocalWords] = {}
    for line in layout.lines("pp"):
        if len(line) > 1:
            queues = [runtime.queue() for _ in line]
            found.update({rank: _LocalWords(queues, stage) for stage, rank in enumerate(line)})
    return found


# --- processes


class _ProcessWords:
    """Words between processes, on a group of their own.

    A word is sent without waiting; before the next one, the last is waited for. So a stage is at most a word ahead.
    """

    def __init__(self, process_group: ProcessGroup, line: Sequence[int], rank: int, device: str) -> None:
        self._process_group = process_group
        self._line = line
        self._stage = line.index(rank)
        self._device = device
        self._sent: list[tuple[Work, Tensor]] = []

    @property
    def is_first(self) -> bool:
        return self._stage == 0

    def receive(self, number: int, length: int) -> list[int]:
        got_number, got_length = self._take(2)
        return _checked(number, length, got_number, self._take(got_length) if got_length else [])

    def _take(self, length: int) -> list[int]:
        import torch
        import torch.distributed as dist

        taken = torch.empty(length, dtype=torch.int64, device=self._device)
        dist.recv(taken, src=self._line[self._stage - 1], group=self._process_group)
        return [int(value) for value in taken.tolist()]

    def send(self, number: int, values: Sequence[int]) -> None:
        if self._stage + 1 < len(self._line):
            self._settle()
            self._hand([number, len(values)])
            if values:
                self._hand(values)

    def _hand(self, values: Sequence[int]) -> None:
        import torch
        import torch.distributed as dist

        handed = torch.tensor(values, dtype=torch.int64, device=self._device)
        work = dist.isend(handed, dst=self._line[self._stage + 1], group=self._process_group)
        assert work is not None
        self._sent.append((work, handed))

    def _settle(self) -> None:
        for work, _ in self._sent:
            work.wait()
        self._sent.clear()

    def abort(self, reason: str) -> None:
        """A process group cannot: who waits gets its time-out, or RuntimeError when this process has ended."""


def process_groups(layout: Layout, log: Log | None = None, timeout_s: float = 60, device: str = "cpu") -> Groups:
    """The two groups of this process's rank; see `process_group`."""
    sched, query = (process_group(layout, name, log, timeout_s, device, tells=name == "sched") for name in THREADS)
    return Groups(sched, query)


def process_group(
    layout: Layout,
    name: str,
    log: Log | None = None,
    timeout_s: float = 60,
    device: str = "cpu",
    *,
    tells: bool = False,
) -> GridGroup:
    """A group of this process's replica, after torch.distributed.init_process_group; collective: every process of the
    layout makes it. Over gloo or, for a CUDA device, over nccl. `tells`: the first stage tells the others.

    ValueError: the world has another size.
    """
    import torch.distributed as dist

    if dist.get_world_size() != layout.world:
        raise ValueError(f"the layout has {layout.world} ranks, the world {dist.get_world_size()}")
    rank = dist.get_rank()
    new_group = _group_maker(timeout_s, device)
    axes = [
        GlooGroup(group, f"{name}.{axis}", device=device)
        for axis in AXES
        for group, line in _process_axis(layout, axis, new_group)
        if rank in line
    ]
    words: Words | None = None
    if tells:
        for group, line in _process_axis(layout, "pp", new_group):
            words = _ProcessWords(group, line, rank, device) if rank in line else words
    return GridGroup(name, rank % layout.ranks, layout.ranks, axes, words, log)


def _process_axis(
    layout: Layout, axis: Axis, new_group: Callable[[Sequence[int]], ProcessGroup]
) -> Iterator[tuple[ProcessGroup, tuple[int, ...]]]:
    """Every group along an axis, made by every process in the same order; groups of one are not made."""
    for line in layout.lines(axis):
        if len(line) > 1:
            yield new_group(line), line


def _group_maker(timeout_s: float, device: str) -> Callable[[Sequence[int]], ProcessGroup]:
    from datetime import timedelta

    import torch.distributed as dist

    make: Any = dist.new_group
    backend = "nccl" if device.startswith("cuda") else "gloo"
    timeout = timedelta(seconds=timeout_s)
    return lambda line: cast("ProcessGroup", make(ranks=list(line), backend=backend, timeout=timeout))
