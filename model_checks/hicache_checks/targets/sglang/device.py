"""The accelerator, as a release sees it on a machine without one: streams and events that are done as soon as they are
recorded, unless copies are held up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Copies:
    """Whether copies between the pools are held up: what is recorded then, is done when they go on."""

    def __init__(self) -> None:
        self.are_held = False
        self._late: list[Event] = []

    def recorded(self, event: Event) -> None:
        """An event stands behind the copies that were begun before it."""
        event.is_done = not self.are_held
        if self.are_held:
            self._late.append(event)

    def go_on(self) -> None:
        """All copies come to their end."""
        self.are_held = False
        for event in self._late:
            event.is_done = True
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
        COPIES.go_on()

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
