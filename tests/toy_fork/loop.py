"""A prefetch loop that its owner cranks: `turn` is a scheduler's, `work` does a bit of what others do with threads."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from toy_fork.trie import Node, Trie


@dataclass
class Fetch:
    """What is fetched for one request: first it is looked up, then it is given memory, then it is read."""

    rid: str
    number: int
    tokens: list[int]
    key: tuple[int, ...]
    under: Node
    since: float
    found: int = 0
    given: int = 0
    landed: list[int] = field(default_factory=list)
    empty: list[int] = field(default_factory=list)
    over: bool = False


class Loop:
    """A pool of `pages`. A fetch is of at least `least` pages; none begins while `cap` are waited for.

    `mode`: when `done` waits no longer. `patience`: seconds, for the mode `timeout`.
    """

    def __init__(self, pages: int, least: int, cap: int, mode: str, patience: float) -> None:
        self.free = list(range(pages))
        self.trie = Trie()
        self.wanted: dict[str, Fetch] = {}
        self.waited_for = 0
        self._least, self._cap, self._mode, self._patience = least, cap, mode, patience
        self._shelf: set[tuple[int, ...]] = set()
        self._numbers: Counter[str] = Counter()
        self._to_look_up: deque[Fetch] = deque()
        self._looked_up: deque[Fetch] = deque()
        self._to_read: deque[Fetch] = deque()
        self._given_back: list[int] = []

    def shelve(self, prompt: Sequence[int]) -> None:
        """The store has the pages of a prompt."""
        self._shelf |= {tuple(prompt[: n + 1]) for n in range(len(prompt))}

    def unshelve(self, prompt: Sequence[int]) -> None:
        """The store has lost the last page of a prompt."""
        self._shelf.discard(tuple(prompt))

    # ---- what a caller wants

    def want(self, rid: str, prompt: Sequence[int]) -> bool:
        """Fetch what is missing of a prompt; False: not now."""
        node, depth = self.trie.walk(prompt)
        missing = len(prompt) - depth
        if rid in self.wanted or missing < self._least or self.waited_for >= self._cap:
            return False
        self._numbers[rid] += 1
        key = tuple(prompt[:depth])
        fetch = Fetch(rid, self._numbers[rid], list(prompt[depth:]), key, node, time.monotonic())
        node.pins += 1
        self.waited_for += missing
        self.wanted[rid] = fetch
        self._to_look_up.append(fetch)
        return True

    def forget(self, rid: str) -> bool:
        """Nobody wants it any more."""
        if rid not in self.wanted:
            return False
        fetch = self.wanted[rid]
        self._end(fetch)
        self._given_back += fetch.landed
        return True

    def enough(self, rid: str) -> bool:
        """What is there by now will do."""
        if rid not in self.wanted:
            return False
        self.wanted[rid].over = True
        return True

    def done(self, rid: str) -> bool:
        """Need the caller wait no longer? Then what is there by now is kept."""
        fetch = self.wanted.get(rid)
        if fetch is None:
            return True
        complete = fetch.given > 0 and not fetch.empty
        late = self._mode == "timeout" and time.monotonic() - fetch.since > self._patience
        if not (fetch.over or complete or late or self._mode == "best_effort"):
            return False
        self._end(fetch)
        node = fetch.under
        for token, page in zip(fetch.tokens, fetch.landed, strict=False):
            if token in node.below:
                self.free.append(page)
            node = node.below.setdefault(token, Node(page))
        return True

    def _end(self, fetch: Fetch) -> None:
        del self.wanted[fetch.rid]
        fetch.over = True
        fetch.under.pins -= 1
        self.waited_for -= len(fetch.tokens)

    # ---- the crank

    def turn(self) -> None:
        """Decide about all that is looked up, and take back what was given back."""
        self.work()
        while self._looked_up:
            fetch = self._looked_up.popleft()
            if self.wanted.get(fetch.rid) is fetch:
                self._decide(fetch)
        self.free += self._given_back
        self._given_back.clear()

    def _decide(self, fetch: Fetch) -> None:
        pages = min(fetch.found, len(self.free) + self.trie.loose())
        if fetch.over or pages < self._least:
            self._end(fetch)
            return
        while len(self.free) < pages:
            self.free.append(self.trie.drop())
        fetch.given = pages
        fetch.empty, self.free = self.free[:pages], self.free[pages:]
        self._to_read.append(fetch)

    def rest(self) -> None:
        """Work until there is nothing left to do without a turn."""
        while self.work():
            pass

    def work(self) -> bool:
        """Look one fetch up, or read one page. False: there is nothing to do."""
        if self._to_look_up:
            fetch = self._to_look_up.popleft()
            while not fetch.over and fetch.found < len(fetch.tokens) and self._has(fetch, fetch.found):
                fetch.found += 1
            self._looked_up.append(fetch)
        elif self._to_read:
            self._read(self._to_read[0])
        else:
            return False
        return True

    def _read(self, fetch: Fetch) -> None:
        fetch.over |= bool(fetch.empty) and not self._has(fetch, len(fetch.landed))
        if fetch.over:
            self._given_back += fetch.empty
            fetch.empty.clear()
        elif fetch.empty:
            fetch.landed.append(fetch.empty.pop(0))
        if not fetch.empty:
            self._to_read.popleft()

    def _has(self, fetch: Fetch, place: int) -> bool:
        return (*fetch.key, *fetch.tokens[: place + 1]) in self._shelf
