"""Thread-local modes of torch, which greenlets on one thread would share: kept apart for each task.

What torch keeps for the whole process, such as the default dtype, is shared by tasks as it is by threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

DEVICE_TYPES = ("cpu", "cuda")
# Whoever changes a mode calls one of these. Function modes are entered in other ways too: they are looked for.
SETTERS: tuple[tuple[Any, str], ...] = (
    (torch._C, "_set_grad_enabled"),
    (torch._C, "_InferenceMode"),
    (torch, "set_autocast_enabled"),
    (torch, "set_autocast_dtype"),
    (torch, "set_autocast_cache_enabled"),
)


@dataclass(frozen=True)
class Saved:
    """The modes of a thread: function modes from the bottom of their stack, the default device among them."""

    gradients: bool
    inference: bool
    autocast: tuple[tuple[bool, torch.dtype], ...]
    autocast_cache: bool
    functions: tuple[Any, ...]


class TorchModes:
    """Gradients, inference mode, autocast and function modes; they cost nothing until somebody changes one."""

    def __init__(self) -> None:
        self._changed = False
        self._setters: list[tuple[Any, str, Callable[..., Any]]] = []

    def begin(self) -> Saved:
        """A run begins; the modes of whoever began it."""
        saved = _present()
        self._changed = saved != _of_new_thread()
        self._setters = [(owner, name, getattr(owner, name)) for owner, name in SETTERS]
        for owner, name, setter in self._setters:
            setattr(owner, name, self._noticing(setter))
        return saved

    def end(self) -> None:
        """The run is over."""
        for owner, name, setter in self._setters:
            setattr(owner, name, setter)

    def save(self) -> Saved:
        """As they are now."""
        self._changed = self._changed or _depth() > 0
        return _present() if self._changed else _of_new_thread()

    def restore(self, saved: Saved | None) -> None:
        """As they were then; None: as in a new thread."""
        if not self._changed:
            return
        then, now = saved if saved is not None else _of_new_thread(), _present()
        if now == then:
            return
        if now.inference != then.inference:
            _set_inference(then.inference)
        torch._C._set_grad_enabled(then.gradients)
        for kind, (enabled, dtype) in zip(DEVICE_TYPES, then.autocast, strict=True):
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, dtype)
        torch.set_autocast_cache_enabled(then.autocast_cache)
        if now.functions != then.functions:
            for _ in now.functions:
                torch._C._pop_torch_function_stack()
            for mode in then.functions:
                torch._C._push_on_torch_function_stack(mode)

    def _noticing(self, setter: Callable[..., Any]) -> Callable[..., Any]:
        def set_(*args: Any) -> Any:
            self._changed = True
            return setter(*args)

        return set_


_depth = torch._C._len_torch_function_stack
_guards: list[Any] = []
"""The one that is in force. Torch sets inference mode by objects that put back, when they go, what was before them."""


def _set_inference(wanted: bool) -> None:
    _guards.clear()
    if torch.is_inference_mode_enabled() != wanted:
        _guards.append(torch._C._InferenceMode(wanted))


def _present() -> Saved:
    return Saved(
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        tuple((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in DEVICE_TYPES),
        torch.is_autocast_cache_enabled(),
        tuple(map(torch._C._get_function_stack_at, range(_depth()))),
    )


@cache
def _of_new_thread() -> Saved:
    found: list[Saved] = []
    thread = threading.Thread(target=lambda: found.append(_present()))
    thread.start()
    thread.join()
    return found[0]
