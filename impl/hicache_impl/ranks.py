"""What ranks agree on: MIN, MAX and barrier over a group, alone, as threads of one process, or as processes.

A rank has two groups, because two of its threads agree with their peers independently of each other: the scheduler
("sched") and the query thread ("query"). Within a group every rank makes the same calls in the same order; a rank that
does not is a *desync*, which is reported and never silently reduced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hicache_impl.events import JOINED, LEFT, Log, NullLog
from hicache_impl.runtime import Queue, Runtime

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_CALLS = ("min", "max", "barrier")
Meet = Callable[[str, list[int]], list[int]]
"""How ranks meet: the call and a rank's values to the agreed ones."""


class Desync(Exception):
    """Ranks met in different collectives, or in the same one with a different number of values."""


class GroupAborted(Exception):
    """A peer gave up, so that this collective can never complete."""


class Group:
    """One rank's membership of a group. Calls come from one thread; each is numbered, and logged before and after.

    Desync and GroupAborted come out of every call.
    """

    def __init__(self, name: str, rank: int, size: int, log: Log | None = None) -> None:
        self.name = name
        self.rank = rank
        self.size = size
        self.number = 0
        self._log = log if log is not None else NullLog()

    def all_min(self, values: Sequence[int]) -> list[int]:
        """Element by element, the smallest over all ranks."""
        return self._call("min", values)

    def all_max(self, values: Sequence[int]) -> list[int]:
        """Element by element, the largest over all ranks."""
        return self._call("max", values)

    @property
    def tells(self) -> bool:
        """Whether some rank is told what `first_min` says. The same on every rank."""
        return False

    @property
    def is_told(self) -> bool:
        """Whether others decide what `first_min` says, so that this rank may have less than that."""
        return False

    def first_min(self, values: Sequence[int]) -> list[int]:
        """Element by element, the smallest over the ranks of the first stage, which decide for all; here, of every one.

        A rank that is told may have less than that itself. So where the group `tells`, a value may count only what
        comes to every rank without anybody's doing.
        """
        return self._call("min", values)

    def barrier(self) -> None:
        """Return when every rank has called."""
        self._call("barrier", ())

    def restart(self) -> None:
        """Number the calls from 0 again; every rank does, between the same two calls."""
        self.number = 0

    def abort(self, reason: str) -> None:
        """Make every present and later call of the group raise GroupAborted, where the transport can."""

    def _call(self, call: str, values: Sequence[int], meet: Meet | None = None) -> list[int]:
        number = self.number
        self.number += 1
        self._log.emit(JOINED, group=self.name, number=number, call=call)
        agreed = (meet or self._meet)(call, list(values))
        self._log.emit(LEFT, group=self.name, number=number, call=call)
        return agreed

    def _meet(self, call: str, values: list[int]) -> list[int]:
        raise NotImplementedError


class SoloGroup(Group):
    """A group of one."""

    def __init__(self, name: str, rank: int = 0, log: Log | None = None) -> None:
        super().__init__(name, rank, 1, log)

    def _meet(self, call: str, values: list[int]) -> list[int]:
        return values


class _Meeting:
    """Where the ranks of a LocalGroup meet. The last one to come reduces and hands the result to the others."""

    def __init__(self, name: str, size: int, runtime: Runtime) -> None:
        self._name = name
        self._size = size
        self._lock = runtime.lock()
        self._arrived: dict[int, tuple[str, list[int]]] = {}
        self._results: list[Queue] = [runtime.queue() for _ in range(size)]
        self._aborted: str | None = None

    def meet(self, rank: int, call: str, values: list[int]) -> list[int]:
        with self._lock:
            if self._aborted is not None:
                raise GroupAborted(self._aborted)
            self._arrived[rank] = (call, values)
            if len(self._arrived) == self._size:
                self._hand_out(self._reduce())
        result = self._results[rank].get()
        if isinstance(result, Exception):
            raise result
        return list(result)

    def abort(self, reason: str) -> None:
        with self._lock:
            if self._aborted is None:
                self._aborted = reason
                self._hand_out(GroupAborted(reason))

    def _hand_out(self, result: list[int] | Exception) -> None:
        for rank in self._arrived:
            self._results[rank].put(result)
        self._arrived.clear()

    def _reduce(self) -> list[int] | Exception:
        shapes = {(call, len(values)) for call, values in self._arrived.values()}
        if len(shapes) > 1:
            seen = ", ".join(
                f"rank {rank}: {call} of {len(values)}" for rank, (call, values) in sorted(self._arrived.items())
            )
            self._aborted = f"ranks met in different collectives of {self._name}: {seen}"
            return Desync(self._aborted)
        reduce = min if next(iter(shapes))[0] == "min" else max
        return [reduce(column) for column in zip(*(values for _, values in self._arrived.values()), strict=True)]


class LocalGroup(Group):
    """A group of ranks that are threads of this process; make them all with `local_groups`."""

    def __init__(self, meeting: _Meeting, name: str, rank: int, size: int, log: Log | None = None) -> None:
        super().__init__(name, rank, size, log)
        self._meeting = meeting

    def abort(self, reason: str) -> None:
        """Wake every waiting rank with GroupAborted, and refuse later calls."""
        self._meeting.abort(reason)

    def _meet(self, call: str, values: list[int]) -> list[int]:
        return self._meeting.meet(self.rank, call, values)


def local_groups(name: str, size: int, runtime: Runtime, logs: Sequence[Log] = ()) -> list[LocalGroup]:
    """One member a rank. `logs`: one a rank, or none at all."""
    meeting = _Meeting(name, size, runtime)
    return [LocalGroup(meeting, name, rank, size, logs[rank] if logs else None) for rank in range(size)]


class GlooGroup(Group):
    """A group of processes over a CPU process group of torch.distributed.

    Every call starts with one MAX all-reduce of a fixed size. It carries the kind and the length of the call in both
    signs, so that ranks in different collectives see it at once, and up to `_INLINE` values; longer calls take a second
    all-reduce. RuntimeError comes from the process group: a peer is gone, or its time-out passed. `device`: where the
    group reduces; a group of the backend nccl wants a CUDA device.
    """

    _HEADER = 6
    _INLINE = 58

    def __init__(self, process_group: ProcessGroup, name: str, log: Log | None = None, device: str = "cpu") -> None:
        import torch.distributed as dist

        super().__init__(name, dist.get_rank(process_group), dist.get_world_size(process_group), log)
        self._process_group = process_group
        self._device = device

    def _meet(self, call: str, values: list[int]) -> list[int]:
        sign = -1 if call == "min" else 1
        signed = [sign * value for value in values]
        shape = [_CALLS.index(call), len(values), self.number]
        inline = signed[: self._INLINE]
        agreed = self._all_max([*shape, *(-s for s in shape), *inline, *([0] * (self._INLINE - len(inline)))])
        largest, smallest = agreed[:3], [-value for value in agreed[3:6]]
        if largest != smallest:
            raise Desync(
                f"ranks met in different collectives of {self.name}: rank {self.rank} is in {call} of {len(values)}, "
                f"its call {self.number}; over all ranks (kind, values, call) are {smallest} to {largest}"
            )
        agreed_values = agreed[self._HEADER : self._HEADER + len(inline)]
        if len(signed) > self._INLINE:
            agreed_values += self._all_max(signed[self._INLINE :])
        return [sign * value for value in agreed_values]

    def _all_max(self, values: list[int]) -> list[int]:
        import torch
        import torch.distributed as dist

        reduced = torch.tensor(values, dtype=torch.int64, device=self._device)
        dist.all_reduce(reduced, op=dist.ReduceOp.MAX, group=self._process_group)
        return [int(value) for value in reduced.tolist()]


@dataclass(frozen=True)
class Groups:
    """One rank's two groups."""

    sched: Group
    query: Group

    @property
    def rank(self) -> int:
        """This rank."""
        return self.sched.rank

    @property
    def size(self) -> int:
        """Ranks."""
        return self.sched.size

    def restart(self) -> None:
        """Restart both."""
        self.sched.restart()
        self.query.restart()

    def abort(self, reason: str) -> None:
        """Abort both."""
        self.sched.abort(reason)
        self.query.abort(reason)


def solo_groups(log: Log | None = None) -> Groups:
    """The groups of a single rank."""
    return Groups(SoloGroup("sched", log=log), SoloGroup("query", log=log))
