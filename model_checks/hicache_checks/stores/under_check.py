"""A store as the suite handles it: what it is opened by, and what else can be done to it.

A target is a class, or any callable without arguments. It makes either a store, which is then all there is; or
something with `open`, the *place* of a store, which may have more: each of the features below that it has makes more
checks apply.

| feature | what it is |
| --- | --- |
| `open(checksums=True)` | a handle: all handles of a place see the same pages |
| `close()` | the place is gone, and all that lies there |
| `answer_s` | any call has returned after so many seconds, whatever happens to the medium; 10, if not given |
| `durable` | pages are still there when all handles are closed |
| `damage(key, how)` | the stored page has a byte `flip`ped, is `cut`, or `grow`n, behind the store's back |
| `misname(key, other)` | the stored page of `key` now lies under the name of `other` |
| `put_foreign()`, `foreign_is_left()` | something that is no page lies in the same medium; whether it still does |
| `open_small()` | a handle to a new, empty medium that has room for about `small_bytes`; 1 MiB, if not given |
| `evicts` | when it is full, older pages go, and none is refused |
| `page_name(**parts)` | the name of a page, from `model, layout, dtype, adapter, salt, rank, ranks` |
| `elsewhere` | the code of a program that opens one more handle, `store`, in another process |
| `servers` | by name, what can `stop()`, `go_on()`, `kill()` and `restart()`: whoever holds the pages, or knows them |
| `misbehave(how)` | what is wrapped does so: `raise`, `hang`, `short`, `nonsense`, `lie`, `late`; None: no more |
| `lacks` | why there is none of the others: a mapping of feature to reason |
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

ANSWER_S = 10.0
CALLS = ("exists", "get_into", "put_from", "stats", "clear", "close")


class Wrong(Exception):
    """A store does not do what it should; one line."""


class DoesNotApply(Exception):
    """A check cannot be made for this store; why, one line."""


class Store(Protocol):
    """The calls of a store; pages are uint8 CPU tensors, names are hexadecimal digits and underscores."""

    def exists(self, keys: Any) -> Any: ...
    def get_into(self, keys: Any, into: Any) -> Any: ...
    def put_from(self, keys: Any, pages: Any) -> Any: ...
    def stats(self) -> Any: ...
    def clear(self) -> Any: ...
    def close(self) -> Any: ...


class _OnlyAStore:
    """The place of a store of which no more is known than its class."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def open(self, checksums: bool = True) -> Store:
        return self._store

    def close(self) -> None:
        self._store.close()


@dataclass
class Place:
    """A place, and the handles that were opened in it."""

    made: Any
    handles: list[Store] = field(default_factory=list)

    @classmethod
    def of(cls, factory: Callable[[], Any]) -> Place:
        """A new one. Wrong: what the factory makes has neither `open` nor the calls of a store."""
        made = factory()
        if not hasattr(made, "open"):
            if missing := [call for call in CALLS if not callable(getattr(made, call, None))]:
                raise Wrong(f"it has neither `open` nor {', '.join(missing)}")
            made = _OnlyAStore(made)
        return cls(made)

    @property
    def is_bare(self) -> bool:
        """Nothing is known but the store."""
        return isinstance(self.made, _OnlyAStore)

    @property
    def answer_s(self) -> float:
        """Within this any call must have returned."""
        return float(getattr(self.made, "answer_s", ANSWER_S))

    def need(self, feature: str) -> Any:
        """The feature; DoesNotApply without it."""
        found = getattr(self.made, feature, None)
        if found is None:
            lacks = getattr(self.made, "lacks", {})
            raise DoesNotApply(lacks.get(feature, f"the store is given without {feature!r}"))
        return found

    def open(self, checksums: bool = True) -> Store:
        """One more handle; it is closed with the place."""
        return self.keep(self.made.open() if checksums else self.made.open(checksums=False))

    def another(self, checksums: bool = True) -> Store:
        """A handle besides; DoesNotApply where there can be but one."""
        if self.is_bare:
            raise DoesNotApply("only a class is given: a second handle need not see the same pages")
        return self.open(checksums)

    def keep(self, handle: Store) -> Store:
        """Close this handle with the place."""
        self.handles.append(handle)
        return handle

    def close(self) -> None:
        """All handles, and the place. How handles are closed is a check of its own."""
        while self.handles:
            with suppress(Exception):
                self.handles.pop().close()
        self.made.close()
