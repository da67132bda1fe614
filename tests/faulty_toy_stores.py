"""For each check of the suite for stores, a toy store that it must find wrong."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from toy_store import UNCHECKED, ToyPlace, ToyStore, late


class FlipsAByte(ToyStore):
    def fill(self, into: torch.Tensor, payload: bytes) -> None:
        super().fill(into, payload[:-1] + bytes([payload[-1] ^ 1]))


class CountsAllThatExist(ToyStore):
    def exists(self, keys: Sequence[str]) -> int:
        self.check(keys)
        return sum(self.path(key).is_file() for key in keys)


class GivesUpAtTheFirstGap(ToyStore):
    def get_into(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
        got = super().get_into(keys, into)
        first = got.index(False) if False in got else len(got)
        return [index < first for index in range(len(got))]


class DropsWhatIsBeyondAThousand(ToyStore):
    def put_from(self, keys: Sequence[str], pages: Sequence[torch.Tensor]) -> list[bool]:
        return super().put_from(keys[:1024], pages[:1024]) + [True] * len(keys[1024:])


class KeepsTheFirst(ToyStore):
    def write(self, key: str, page: torch.Tensor) -> bool:
        return self.path(key).is_file() or super().write(key, page)


class KeepsNoCopy(ToyStore):
    kept: dict[str, torch.Tensor]

    def put_from(self, keys: Sequence[str], pages: Sequence[torch.Tensor]) -> list[bool]:
        self.kept = {**getattr(self, "kept", {}), **dict(zip(keys, pages, strict=True))}
        return super().put_from(keys, pages)

    def read(self, key: str, into: torch.Tensor) -> bool:
        if key not in self.kept:
            return super().read(key, into)
        into.copy_(self.kept[key])
        return True


class ServesAnySize(ToyStore):
    def read(self, key: str, into: torch.Tensor) -> bool:
        if not self.path(key).is_file():
            return False
        payload = self.path(key).read_bytes()[16:].ljust(into.numel(), b"\0")
        self.fill(into, payload[: into.numel()])
        return True


class FillsACopyOfScatteredPages(ToyStore):
    def fill(self, into: torch.Tensor, payload: bytes) -> None:
        super().fill(into.reshape(-1), payload)


class TakesAnyName(ToyStore):
    def check(self, keys: Sequence[str], pages: Sequence[torch.Tensor] | None = None) -> None:
        super().check(["000"] * len(keys), pages)

    def path(self, key: str) -> Path:
        return self.folder / f"page-{key.encode(errors='replace').hex()[:200]}"


class TakesTheShorterList(ToyStore):
    def check(self, keys: Sequence[str], pages: Sequence[torch.Tensor] | None = None) -> None:
        super().check(keys)

    def get_into(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
        count = min(len(keys), len(into))
        return super().get_into(keys[:count], into[:count])


class CutsNames(ToyStore):
    def path(self, key: str) -> Path:
        return super().path(key[:64])

    def digest(self, key: str, payload: bytes) -> bytes:
        return super().digest(key[:64], payload)


class CountsNothing(ToyStore):
    def stats(self) -> dict[str, int]:
        return {"hits": 0}


class ClearsAlmostAll(ToyStore):
    def clear(self) -> None:
        for path in sorted(self.folder.glob("page-*"))[1:]:
            path.unlink()


class ClearsEverything(ToyStore):
    def clear(self) -> None:
        shutil.rmtree(self.folder)
        self.folder.mkdir()


class WritesInPlace(ToyStore):
    """In two halves, and believes what it reads."""

    def is_right(self, key: str, digest: bytes, payload: bytes) -> bool:
        return True

    def put_file(self, path: Path, record: bytes) -> None:
        with path.open("r+b" if path.is_file() else "wb") as file:
            file.write(record[: len(record) // 2])
            file.flush()
            time.sleep(0.002)
            file.write(record[len(record) // 2 :])


class HasOneBuffer(ToyStore):
    """All threads read by way of the same memory."""

    buffer = b""

    def fill(self, into: torch.Tensor, payload: bytes) -> None:
        self.buffer = payload
        time.sleep(0.0005)
        super().fill(into, self.buffer)


class RemembersByItself(ToyStore):
    """What it has read, it has for ever."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.remembered: dict[str, bytes] = {}

    def write(self, key: str, page: torch.Tensor) -> bool:
        self.remembered[key] = page.contiguous().numpy().tobytes()
        return super().write(key, page)

    def read(self, key: str, into: torch.Tensor) -> bool:
        payload = self.remembered.get(key, b"")
        if len(payload) != into.numel():
            return super().read(key, into)
        self.fill(into, payload)
        return True


class WritesWhenItIsClosed(ToyStore):
    waiting: dict[Path, bytes]

    def put_file(self, path: Path, record: bytes) -> None:
        self.waiting = {**getattr(self, "waiting", {}), path: record}

    def close(self) -> None:
        for path, record in getattr(self, "waiting", {}).items():
            super().put_file(path, record)


class ForgetsWhenItIsClosed(ToyStore):
    def close(self) -> None:
        self.clear()


class LooksAtNoDigest(ToyStore):
    def is_right(self, key: str, digest: bytes, payload: bytes) -> bool:
        return True


class DigestOfBytesAlone(ToyStore):
    def digest(self, key: str, payload: bytes) -> bytes:
        return super().digest("page", payload)


class TakesPagesWithoutADigest(ToyStore):
    def is_right(self, key: str, digest: bytes, payload: bytes) -> bool:
        return digest == UNCHECKED or super().is_right(key, digest, payload)


class SaysYesWhenItIsFull(ToyStore):
    def refused(self) -> bool:
        return True


class WritesAfterAMiss(ToyStore):
    def get_into(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
        got = super().get_into(keys, into)
        late(lambda: [page.zero_() for page, is_there in zip(into, got, strict=True) if not is_there])
        return got


class RaisesWithoutItsServer(ToyStore):
    def works(self) -> bool:
        if not self.server.is_up:
            raise ConnectionError("no answer")
        return super().works()


class GoesOnWithTheTransfer(ToyStore):
    """What was asked for while the server was stopped, is read when it goes on."""

    def missed(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
        late(lambda: [self.read(key, page) for key, page in zip(keys, into, strict=True)])
        return super().missed(keys, into)


class IsBrokenForEver(ToyStore):
    was_down = False

    def works(self) -> bool:
        self.was_down |= not self.server.is_up
        return not self.was_down


class BelievesWhatItWraps(ToyStore):
    def works(self) -> bool:
        if self.trouble == ["raise"]:
            raise RuntimeError("from outside")
        return super().works()


class IsWrittenToBehindItsBack(ToyStore):
    def missed(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
        if self.trouble == ["late"]:
            late(lambda: [page.zero_() for page in into])
        return super().missed(keys, into)


class ClosesOnce(ToyStore):
    is_closed = False

    def close(self) -> None:
        if self.is_closed:
            raise RuntimeError("it is closed")
        self.is_closed = True


class PutsPartsTogether(ToyPlace):
    """One name for `x` + `` and `` + `x`."""

    def page_name(self, **parts: Any) -> str:
        return super().page_name(name="".join(map(str, parts.values())))


FAULTY: dict[str, type[ToyStore] | type[ToyPlace]] = {
    "what_was_put_is_got": FlipsAByte,
    "exists_is_a_leading_run": CountsAllThatExist,
    "each_page_is_answered_for_itself": GivesUpAtTheFirstGap,
    "big_batches_are_answered": DropsWhatIsBeyondAThousand,
    "a_later_put_wins": KeepsTheFirst,
    "the_store_keeps_a_copy": KeepsNoCopy,
    "another_size_is_a_miss": ServesAnySize,
    "a_page_may_lie_anywhere": FillsACopyOfScatteredPages,
    "bad_names_are_refused": TakesAnyName,
    "lists_that_do_not_fit_are_refused": TakesTheShorterList,
    "names_that_differ_are_other_pages": CutsNames,
    "names_tell_everything_apart": PutsPartsTogether,
    "counts_grow": CountsNothing,
    "clear_removes_every_page": ClearsAlmostAll,
    "clear_leaves_what_is_not_ours": ClearsEverything,
    "pages_are_atomic": WritesInPlace,
    "many_threads_have_their_own_pages": HasOneBuffer,
    "handles_see_the_same_pages": RemembersByItself,
    "processes_share_pages": WritesWhenItIsClosed,
    "pages_outlive_their_handles": ForgetsWhenItIsClosed,
    "damaged_pages_are_misses": LooksAtNoDigest,
    "a_page_under_another_name_is_a_miss": DigestOfBytesAlone,
    "checksums_can_be_turned_off": TakesPagesWithoutADigest,
    "a_full_medium_refuses": SaysYesWhenItIsFull,
    "failed_reads_write_nothing_later": WritesAfterAMiss,
    "a_stopped_server_is_a_miss": RaisesWithoutItsServer,
    "late_transfers_reach_nobody": GoesOnWithTheTransfer,
    "a_killed_server_is_a_miss": IsBrokenForEver,
    "what_misbehaves_is_kept_apart": BelievesWhatItWraps,
    "what_writes_late_reaches_nobody": IsWrittenToBehindItsBack,
    "close_may_come_twice": ClosesOnce,
}


def place_of(faulty: type[ToyStore] | type[ToyPlace]) -> type[ToyPlace]:
    """The place whose stores, or which itself, are so."""
    if issubclass(faulty, ToyPlace):
        return faulty
    return type(f"PlaceOf{faulty.__name__}", (ToyPlace,), {"store_class": faulty})
