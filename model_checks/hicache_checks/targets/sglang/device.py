"""The accelerator, as a release sees it on a machine without one: streams and events that are done as soon as they are
recorded, unless copies are held up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hicache_checks.targets.sglang.grid import rank


class Copies:
    """Whose copies between the pools are held up: what a rank records then, is done when they go on."""

    def __init__(self) -> None:
        self._held: set[int] = set()
        self._late: list[tuple[int, Event]] = []

    def hold(self, of_rank: int) -> None:
        """From now on the copies of this rank do not end."""
        self._held.add(of_rank)

    def recorded(self, event: Event) -> None:
        """An event stands behind the copies that were begun before it."""
        event.is_done = rank() not in self._held
        if not event.is_done:
            self._late.append((rank(), event))

    def go_on(self, of_rank: int) -> None:
        """All copies of this rank come to their end."""
        self._held.discard(of_rank)
        for number, event in self._late:
            event.is_done |= number == of_rank
        self._late = [(number, event) for number, event in self._late if number != of_rank]

    def clear(self) -> None:
        """There are new ranks."""
        self._held.clear()
        self._late.clear()


COPIES = Copies()


class Event:
    """See torch.cuda.Event."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.is_done = True

    def record(self, *_: Any) -> None:
        COPIES.recorded(self)

    def query(self) -> bool:
        return self.is_done

    def synchronize(self) -> None:
        COPIES.go_on(rank())

    def wait(self, *_: Any) -> None:
        pass

    def elapsed_time(self, _: Event) -> float:
        return 0.0


class Stream:
    """See torch.cuda.Stream."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def wait_event(self, _: Event) -> None:
        pass

    def wait_stream(self, _: Stream) -> None:
        pass

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record()
        return event

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


class DeviceModule:
    """What a release uses of torch.cuda."""

    Event = Event
    Stream = Stream
    __name__ = "torch.cpu"

    def __init__(self) -> None:
        self._current: Any = Stream()

    def current_stream(self, *_: Any) -> Any:
        return self._current

    def set_stream(self, stream: Any) -> None:
        self._current = stream

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        yield

    def synchronize(self, *_: Any) -> None:
        pass

    def current_device(self) -> int:
        return 0

    def set_device(self, *_: Any) -> None:
        pass

    def is_available(self) -> bool:
        return False

    def empty_cache(self) -> None:
        pass


DEVICE = DeviceModule()


class TorchOf:
    """torch, with this accelerator as `torch.cuda`."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.cuda = DEVICE

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)
