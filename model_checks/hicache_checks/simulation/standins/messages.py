"""Messages of `torch.distributed` between two ranks of a group, as gloo has them.

A message goes to whoever asks for one of its sender and its tag. As with gloo, only `wait` sees that a send is over: it
lasts until the message is taken.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from hicache_checks.simulation.standins import locks
from hicache_checks.simulation.standins.collectives import Group, for_members, known_group, numbers_of, put, shape_of
from hicache_checks.simulation.tasks import Task
from hicache_checks.simulation.world import DESYNC, current

Address = tuple[int, int, int]
"""Sender, receiver, tag."""


@dataclass(eq=False)
class _Letter:
    """`waiting`: who wants to know that it is taken."""

    shape: tuple[Any, ...]
    numbers: torch.Tensor
    waiting: list[Task] = field(default_factory=list)
    is_taken: bool = False


@dataclass(eq=False)
class _Box:
    letters: deque[_Letter] = field(default_factory=deque)
    waiting: list[Task] = field(default_factory=list)


_BOXES: WeakKeyDictionary[Group, dict[Address, _Box]] = WeakKeyDictionary()


class Sent(locks.Incomplete):
    """A send under way."""

    _real: ClassVar[object] = dist.Work

    def __init__(self, group: Group, letter: _Letter, place: str) -> None:
        self._group, self._letter, self._place = group, letter, place
        self._is_over = False

    def is_completed(self) -> bool:
        """Has somebody waited for it?"""
        return self._is_over

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until the message is taken."""
        limit = self._group.timeout_s if timeout is None else timeout.total_seconds()
        letter = self._letter
        if not locks.wait_until(
            lambda: letter.is_taken, letter.waiting, f"wait in {self._place}", self._group.label, limit
        ):
            raise RuntimeError(f"{self._place}: timed out")
        self._is_over = True
        return True


def isend(
    tensor: torch.Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Sent:
    """See torch.distributed; `dst` is a rank of the world, `group_dst` one of the group."""
    members = known_group(group)
    address = (members.rank(), _place_of(members, dst, group_dst), tag)
    place = f"send to {members.ranks[address[1]]} in {members}"
    locks.pause(place, members.label)
    letter = _Letter(shape_of(tensor), numbers_of(tensor))
    box = _box(members, address)
    box.letters.append(letter)
    locks.hand_over(current(), box.waiting)
    return Sent(members, letter, place)


def send(
    tensor: torch.Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """See torch.distributed."""
    isend(tensor, dst, group, tag, group_dst).wait()


def recv(
    tensor: torch.Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """See torch.distributed; from one sender, which is named. A message of another shape is a desync."""
    members = known_group(group)
    sender = _place_of(members, src, group_src)
    place = f"receive from {members.ranks[sender]} in {members}"
    locks.pause(place, members.label)
    box = _box(members, (sender, members.rank(), tag))
    if not locks.wait_until(lambda: box.letters, box.waiting, f"wait in {place}", members.label, members.timeout_s):
        raise RuntimeError(f"{place}: timed out")
    letter = box.letters.popleft()
    world = current()
    if world is not None and letter.shape != shape_of(tensor):
        world.fail(DESYNC, f"{place}: {letter.shape} comes, {shape_of(tensor)} is expected")
    put(tensor, letter.numbers)
    letter.is_taken = True
    locks.hand_over(world, letter.waiting)
    return members.ranks[sender]


def _place_of(group: Group, of_world: int | None, of_group: int | None) -> int:
    if (of_world is None) == (of_group is None):
        raise locks.not_simulated("a message of anybody has no stand-in")
    return group.ranks.index(of_world) if of_world is not None else int(of_group or 0)


def _box(group: Group, address: Address) -> _Box:
    return _BOXES.setdefault(group, {}).setdefault(address, _Box())


FUNCTIONS = {function.__name__: for_members(function) for function in (isend, send, recv)}
"""By the name in torch.distributed."""
