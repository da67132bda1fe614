"""Calls of a store as the suite makes them: in time, without an exception, and with an answer of the right form."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hicache_checks.stores.under_check import Place, Store, Wrong

LAYERS, LAYER_BYTES = 2, 512
HEALED_S, HEALED_POLL_S = 60.0, 0.1


def keys(count: int, first: int = 0, rank: int = 0, ranks: int = 1) -> list[str]:
    """Names of pages: a hash of 32 bytes and the geometry of ranks."""
    return [f"{number:064x}_{rank:x}_{ranks:x}" for number in range(first, first + count)]


def page(number: int, layers: int = LAYERS, layer_bytes: int = LAYER_BYTES) -> torch.Tensor:
    """The bytes of page `number`, uint8 (layers, layer_bytes): no two pages have a row in common."""
    draw = torch.Generator().manual_seed(number)
    return torch.randint(0, 256, (layers, layer_bytes), dtype=torch.uint8, generator=draw)


def pages(count: int, first: int = 0) -> list[torch.Tensor]:
    """The pages that belong to `keys(count, first)`."""
    return [page(number) for number in range(first, first + count)]


def blank(count: int = 1) -> list[torch.Tensor]:
    """Destinations."""
    return [torch.zeros(LAYERS, LAYER_BYTES, dtype=torch.uint8) for _ in range(count)]


class Asking:
    """One handle of a place, through which all is asked."""

    def __init__(self, place: Place, store: Store) -> None:
        self.store = store
        self._answer_s = place.answer_s

    def exists(self, names: Sequence[str]) -> int:
        """Wrong: no number from 0 to as many as were asked for."""
        count = self._call("exists", lambda: self.store.exists(names))
        if type(count) is not int or not 0 <= count <= len(names):
            raise Wrong(f"exists of {len(names)} pages answers {count!r}")
        return count

    def get(self, names: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
        """Wrong: not one bool a page."""
        return _bools("get_into", self._call("get_into", lambda: self.store.get_into(names, into)), len(names))

    def put(self, names: Sequence[str], given: Sequence[torch.Tensor]) -> list[bool]:
        """Wrong: not one bool a page."""
        return _bools("put_from", self._call("put_from", lambda: self.store.put_from(names, given)), len(names))

    def stats(self) -> dict[str, int]:
        """Wrong: not counts by name."""
        counts = self._call("stats", self.store.stats)
        if not isinstance(counts, dict) or not all(
            isinstance(name, str) and type(n) is int for name, n in counts.items()
        ):
            raise Wrong(f"stats answers {counts!r}, not counts by name")
        return counts

    def clear(self) -> None:
        """No answer is wanted."""
        self._call("clear", self.store.clear)

    def close(self) -> None:
        """No answer is wanted."""
        self._call("close", self.store.close)

    def put_all(self, names: Sequence[str], given: Sequence[torch.Tensor]) -> None:
        """Wrong: a page is refused."""
        if not all(stored := self.put(names, given)):
            raise Wrong(f"{stored.count(False)} of {len(names)} pages are refused, though nothing is in the way")

    def holds(self, names: Sequence[str], wanted: Sequence[torch.Tensor], when: str = "") -> None:
        """Wrong: one of these pages is missed, or has other bytes."""
        if missed := len(names) - self.right(names, wanted, when):
            raise Wrong(f"{missed} of {len(names)} pages are missed{when}")

    def right(self, names: Sequence[str], wanted: Sequence[torch.Tensor], when: str = "") -> int:
        """How many of these pages are there. Wrong: one has other bytes."""
        into = [torch.zeros_like(each) for each in wanted]
        got = self.get(names, into)
        for name, each, expected, is_there in zip(names, into, wanted, got, strict=True):
            if is_there and not torch.equal(each, expected):
                raise Wrong(f"wrong bytes are served as {name[-12:]}{when}")
        return got.count(True)

    def lacks(self, names: Sequence[str], when: str = "") -> None:
        """Wrong: one of these pages is served."""
        if got := self.get(names, blank(len(names))).count(True):
            raise Wrong(f"{got} of {len(names)} pages are served{when}")

    def _call(self, name: str, call: Callable[[], Any]) -> Any:
        began_s = time.monotonic()
        try:
            answer = call()
        except Exception as error:
            raise Wrong(f"{name} raises {type(error).__name__}: {error}") from error
        if (seconds := time.monotonic() - began_s) > self._answer_s:
            raise Wrong(f"{name} takes {seconds:.1f} s, at most {self._answer_s:g} s are allowed")
        return answer


def _bools(call: str, answer: Any, count: int) -> list[bool]:
    if not isinstance(answer, list) or len(answer) != count or not all(type(each) is bool for each in answer):
        raise Wrong(f"{call} of {count} pages answers {str(answer)[:60]}, not a list of as many bools")
    return answer


def put_in_the_end(ask: Asking, names: Sequence[str], given: Sequence[torch.Tensor]) -> None:
    """Put these pages, again and again until all are served: what was in the way is over. Wrong: they never are."""
    until_s = time.monotonic() + HEALED_S
    while not (all(ask.put(names, given)) and ask.right(names, given) == len(names)):
        if time.monotonic() > until_s:
            raise Wrong(f"{HEALED_S:g} s after all is well, pages still cannot be put and got")
        time.sleep(HEALED_POLL_S)


def side_by_side(*works: Callable[[], None], seconds_max: float = 60.0) -> None:
    """All at once, a thread each; raises what the first of them raises. Wrong: one does not come to an end."""
    raised: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    until_s = time.monotonic() + seconds_max
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    if raised:
        raise raised[0]
    if any(thread.is_alive() for thread in threads):
        raise Wrong(f"threads that use the store do not come to an end within {seconds_max:g} s")
