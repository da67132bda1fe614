"""Groups and collectives of `torch.distributed`: the ranks are tasks of one world.

A collective is complete when every rank of its group has joined it. Ranks that meet in different ones, and two threads
of a rank in the same group at once, are a desync, which ends the run with who is where.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import wraps
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from hicache_checks.simulation.standins import locks
from hicache_checks.simulation.tasks import Task
from hicache_checks.simulation.world import DESYNC, World, current

Signature = tuple[Any, ...]
Combine = Callable[[list[Any]], Any]


@dataclass(eq=False)
class _Meeting:
    """One collective: who has joined it so far, in what, with what; and what came of it."""

    signatures: dict[int, Signature] = field(default_factory=dict)
    payloads: dict[int, Any] = field(default_factory=dict)
    waiting: list[Task] = field(default_factory=list)
    result: Any = None
    is_complete: bool = False


class Group(locks.Incomplete):
    """A process group: some ranks of the world. Made by `new_group`."""

    _real: ClassVar[object] = dist.ProcessGroup

    def __init__(self, label: str, ranks: Sequence[int], timeout_s: float | None = None) -> None:
        self.label = label
        self.ranks = tuple(ranks)
        self.timeout_s = timeout_s
        self._count = dict.fromkeys(self.ranks, 0)
        self._meetings: dict[int, _Meeting] = {}
        self._inside: dict[int, dict[int, tuple[Task, str]]] = {rank: {} for rank in self.ranks}
        self._destroyed: set[int] = set()
        self.broken: str | None = None

    def rank(self) -> int:
        """The position of the calling rank; -1: it is no member."""
        me = _rank()
        return self.ranks.index(me) if me in self.ranks else -1

    def size(self) -> int:
        """Members."""
        return len(self.ranks)

    def destroy(self) -> None:
        """The calling rank forgets it. As with gloo, whoever still has the group can use it."""
        if self.is_destroyed():
            raise ValueError("Invalid process group specified")
        self._destroyed.add(_rank())

    def is_destroyed(self) -> bool:
        """The calling rank has forgotten it."""
        return _rank() in self._destroyed

    def join(
        self,
        signature: Signature,
        payload: Any,
        combine: Combine,
        deliver: Callable[[Any], object],
        async_op: bool = False,
    ) -> Work:
        """Enter the next collective. `combine` makes the result of what each rank brings; `deliver` puts it there.

        A thread that stays in it must be the only one of its rank; one that does not may have told others to go on.
        """
        world, me = _world(), _rank()
        if me not in self.ranks:
            raise ValueError(f"rank {me} is no member of {self.label}")
        world.point(f"join {signature[0]} of {self.label}", self.label)
        if self.broken:
            raise RuntimeError(self.broken)
        number, task = self._count[me], world.running
        assert task is not None
        self._count[me] += 1
        place = f"{signature[0]} {number} of {self.label}"
        for other, elsewhere in self._inside[me].values():
            if other is not task:
                both = f"{other.name} in {elsewhere}, {task.name} in {place}"
                world.fail(DESYNC, f"two threads of rank {me} are in {self.label}: {both}")
        meeting = self._meetings.setdefault(number, _Meeting())
        for rank, seen in meeting.signatures.items():
            if seen != signature:
                world.fail(DESYNC, f"{place}: rank {rank} is in {_said(seen)}, rank {me} in {_said(signature)}")
        if not async_op:
            self._inside[me][number] = (task, place)
        meeting.signatures[me], meeting.payloads[me] = signature, payload
        world.progress()
        if len(meeting.payloads) == len(self.ranks):
            self._complete(number, meeting, combine)
        return Work(self, meeting, place, deliver)

    def break_off(self, why: str) -> None:
        """As with gloo, nobody can use it any more, and who waits in it hears why."""
        self.broken = why
        for meeting in self._meetings.values():
            locks.hand_over(current(), meeting.waiting)

    def _complete(self, number: int, meeting: _Meeting, combine: Combine) -> None:
        meeting.result = combine([meeting.payloads[rank] for rank in self.ranks])
        meeting.is_complete = True
        del self._meetings[number]
        for inside in self._inside.values():
            inside.pop(number, None)
        locks.hand_over(current(), meeting.waiting)

    def __repr__(self) -> str:
        return self.label


class Work(locks.Incomplete):
    """A collective under way."""

    _real: ClassVar[object] = dist.Work

    def __init__(self, group: Group, meeting: _Meeting, place: str, deliver: Callable[[Any], object]) -> None:
        self._group, self._meeting, self._place, self._deliver = group, meeting, place, deliver
        self._is_delivered = False

    def is_completed(self) -> bool:
        """Whether everybody has joined; then the result is where it belongs."""
        locks.pause(f"look at {self._place}", self._group.label)
        self._take()
        return self._meeting.is_complete

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until everybody has joined; then the result is where it belongs."""
        limit = self._group.timeout_s if timeout is None else timeout.total_seconds()
        meeting = self._meeting
        group, place = self._group, self._place
        came = locks.wait_until(
            lambda: meeting.is_complete or group.broken, meeting.waiting, f"wait in {place}", group.label, limit
        )
        if not meeting.is_complete:
            if not came:
                group.break_off(f"{place}: timed out")
            raise RuntimeError(group.broken)
        self._take()
        return True

    def _take(self) -> None:
        if self._meeting.is_complete and not self._is_delivered:
            self._is_delivered = True
            self._deliver(self._meeting.result)


@dataclass
class _Ranks:
    """What a world knows of its process groups."""

    everybody: Group
    groups: list[Group] = field(default_factory=list)
    made: dict[int, int] = field(default_factory=dict)


_RANKS: WeakKeyDictionary[World, _Ranks] = WeakKeyDictionary()


def open_ranks(world: World, size: int) -> None:
    """The world has so many ranks; tasks get theirs from `World.spawn(rank=...)`."""
    _RANKS[world] = _Ranks(Group("world", range(size)))


@contextmanager
def of_rank(number: int) -> Iterator[None]:
    """Within this block the calling task is of this rank, and so is what it starts. Outside all worlds: nothing."""
    world = current()
    task = None if world is None else world.running
    if task is None:
        yield
        return
    before, task.rank = task.rank, number
    try:
        yield
    finally:
        task.rank = before


def _world() -> World:
    world = current()
    if world is None or world not in _RANKS:
        raise locks.not_simulated("a collective outside a world with ranks")
    return world


def _rank() -> int:
    world = _world()
    if world.running is None or world.running.rank is None:
        raise locks.not_simulated("a collective outside all ranks")
    return world.running.rank


def _group(group: Any) -> Group:
    if isinstance(group, Group):
        return group
    if group is not None:
        raise ValueError(f"rank {_rank()} is no member of {group!r}")
    everybody = _RANKS[_world()].everybody
    if everybody.is_destroyed():
        raise ValueError("Default process group has not been initialized")
    return everybody


def known_group(group: Any) -> Group:
    """The group, if the calling rank has not destroyed it."""
    known = _group(group)
    if known.is_destroyed():
        raise ValueError(f"Group {known} is not registered")
    return known


def _said(signature: Signature) -> str:
    return " ".join(str(part) for part in signature)


def _finish(work: Work, async_op: bool) -> Work | None:
    if async_op:
        return work
    work.wait()
    return None


def new_group(
    ranks: Sequence[int] | None = None, timeout: timedelta | None = None, *args: Any, **kwargs: Any
) -> Group | Any:
    """The n-th call of every rank makes the same group."""
    world, me = _world(), _rank()
    known = _RANKS[world]
    world.point("make a group", "groups")
    number = known.made.get(me, 0)
    known.made[me] = number + 1
    wanted = tuple(sorted(ranks)) if ranks is not None else known.everybody.ranks
    if number == len(known.groups):
        seconds = None if timeout is None else timeout.total_seconds()
        known.groups.append(Group(f"group {number}", wanted, seconds))
    group = known.groups[number]
    if group.ranks != wanted:
        world.fail(DESYNC, f"new_group {number}: rank {me} wants {wanted}, others {group.ranks}")
    return group if me in wanted else dist.GroupMember.NON_GROUP_MEMBER


def all_reduce(tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """See torch.distributed."""
    name = str(op).rpartition(".")[2]
    if name not in REDUCTIONS:
        raise locks.not_simulated(f"all_reduce with {name} has no stand-in")
    if not tensor.numel():
        if async_op:
            raise locks.not_simulated("all_reduce of nothing, under way, has no stand-in")
        return None
    signature = ("all_reduce", name, *shape_of(tensor))
    work = _group(group).join(
        signature,
        numbers_of(tensor),
        lambda all_: REDUCTIONS[name](torch.stack(all_)).to(tensor.dtype),
        lambda reduced: put(tensor, reduced),
        async_op,
    )
    return _finish(work, async_op)


def all_gather(tensors: list[torch.Tensor], tensor: torch.Tensor, group: Any = None, async_op: bool = False) -> Any:
    """See torch.distributed."""

    def deliver(gathered: list[torch.Tensor]) -> None:
        for into, value in zip(tensors, gathered, strict=True):
            put(into, value)

    members = _group(group)
    if len(tensors) != members.size():
        raise RuntimeError(f"{len(tensors)} tensors to gather into, {members.size()} ranks")
    work = members.join(("all_gather", *shape_of(tensor)), numbers_of(tensor), list, deliver, async_op)
    return _finish(work, async_op)


def broadcast(tensor: torch.Tensor, src: int, group: Any = None, async_op: bool = False) -> Any:
    """See torch.distributed; `src` is a rank of the world."""
    members = _group(group)
    place = members.ranks.index(src)
    work = members.join(
        ("broadcast", f"from {src}", *shape_of(tensor)),
        numbers_of(tensor),
        lambda all_: all_[place],
        lambda sent: put(tensor, sent),
        async_op,
    )
    return _finish(work, async_op)


def all_gather_object(objects: list[Any], value: Any, group: Any = None) -> None:
    """See torch.distributed."""

    def deliver(gathered: list[bytes]) -> None:
        objects[:] = map(pickle.loads, gathered)

    _group(group).join(("all_gather_object",), pickle.dumps(value), list, deliver).wait()


def broadcast_object_list(objects: list[Any], src: int = 0, group: Any = None, device: Any = None) -> None:
    """See torch.distributed; `src` is a rank of the world."""
    members = _group(group)
    place = members.ranks.index(src)

    def deliver(sent: bytes) -> None:
        objects[:] = pickle.loads(sent)

    signature = ("broadcast_object_list", f"from {src}", len(objects))
    members.join(signature, pickle.dumps(list(objects)), lambda all_: all_[place], deliver).wait()


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
    """See torch.distributed."""
    work = _group(group).join(("barrier",), None, lambda all_: None, lambda result: None, async_op)
    return _finish(work, async_op)


def get_rank(group: Any = None) -> int:
    """See torch.distributed."""
    return -1 if group is dist.GroupMember.NON_GROUP_MEMBER else known_group(group).rank()


def get_world_size(group: Any = None) -> int:
    """See torch.distributed."""
    return -1 if group is dist.GroupMember.NON_GROUP_MEMBER else _group(group).size()


def get_process_group_ranks(group: Any = None) -> list[int]:
    """See torch.distributed."""
    return list(_group(group).ranks)


def get_global_rank(group: Any, group_rank: int) -> int:
    """See torch.distributed."""
    return known_group(group).ranks[group_rank]


def get_group_rank(group: Any, global_rank: int) -> int:
    """See torch.distributed."""
    return known_group(group).ranks.index(global_rank)


def get_backend(group: Any = None) -> str:
    """See torch.distributed."""
    _group(group)
    return "gloo"


def is_initialized() -> bool:
    """See torch.distributed; from the beginning, if the world has ranks and the caller is one of them."""
    world = current()
    if world is None or world not in _RANKS or world.running is None or world.running.rank is None:
        return False
    return not _RANKS[world].everybody.is_destroyed()


def destroy_process_group(group: Any = None) -> None:
    """See torch.distributed; without a group, of all."""
    if group is not None:
        _group(group).destroy()
        return
    mine = [known for known in _RANKS[_world()].groups if _rank() in known.ranks and not known.is_destroyed()]
    for known in [*mine, _group(None)]:
        known.destroy()


def shape_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What gloo compares: it sees numbers in a row."""
    return (tensor.numel(),), str(tensor.dtype).rpartition(".")[2]


def numbers_of(tensor: torch.Tensor) -> torch.Tensor:
    """What travels: the tensor may change afterwards."""
    return tensor.detach().flatten().clone()


def put(tensor: torch.Tensor, numbers: torch.Tensor) -> None:
    """What came goes where it belongs."""
    tensor.detach().copy_(numbers.view(tensor.shape))


REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "SUM": lambda stacked: stacked.sum(0),
    "PRODUCT": lambda stacked: stacked.prod(0),
    "MIN": lambda stacked: stacked.min(0).values,
    "MAX": lambda stacked: stacked.max(0).values,
}


def _refused(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise locks.not_simulated(f"torch.distributed.{name} has no stand-in")

    return refuse


def for_members(function: Callable[..., Any]) -> Callable[..., Any]:
    """Whoever is not in the group goes on at once; torch.distributed warns of it."""
    place = list(inspect.signature(function).parameters).index("group")

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        group = args[place] if len(args) > place else kwargs.get("group")
        if group is dist.GroupMember.NON_GROUP_MEMBER:
            return None
        return function(*args, **kwargs)

    return call


OF_MEMBERS: tuple[Callable[..., Any], ...] = (
    *(all_reduce, all_gather, broadcast, all_gather_object, broadcast_object_list, barrier),
)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        name: _refused(name)
        for name in (
            *("init_process_group", "new_subgroups", "new_subgroups_by_enumeration", "split_group", "shrink_group"),
            *("all_gather_coalesced", "all_gather_into_tensor", "all_gather_single", "all_reduce_coalesced"),
            *("all_to_all", "all_to_all_single", "reduce", "reduce_scatter", "reduce_scatter_single"),
            *("reduce_scatter_tensor", "gather", "gather_object", "scatter", "scatter_object_list"),
            *("irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"),
            *("monitored_barrier", "init_device_mesh"),
        )
    },
    **{function.__name__: for_members(function) for function in OF_MEMBERS},
    **{
        function.__name__: function
        for function in (
            new_group,
            *(get_rank, get_world_size, get_process_group_ranks, get_global_rank, get_group_rank, get_backend),
            *(is_initialized, destroy_process_group),
        )
    },
}
"""By the name in torch.distributed; those of `messages` besides."""
