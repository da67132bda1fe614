"""The model without any cache, and the requests: what every answer is compared with, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from decoding.model import PAGE_TOKENS, STATE_WIDTH, VOCABULARY, Model, forward
from hicache_impl import PrefixKey

SYSTEM_PROMPTS = 2
SYSTEM_PAGES = 4
QUESTIONS = 4
QUESTION_TOKENS = 13
CONVERSATIONS = 10
TURNS = 3


@dataclass(frozen=True)
class Request:
    """A turn of a conversation: all that was said before, and something new.

    `logits` are float32 (tokens to generate, VOCABULARY): those of the last position of the prompt, and of each
    generated token but the last, of which nobody asks what comes next. `tokens` are the likeliest of each. `memories`
    have what was computed, for each rank.
    """

    prompt: tuple[int, ...]
    logits: Tensor
    tokens: tuple[int, ...]
    memories: tuple[Private, ...]
    conversation: int = 0
    turn: int = 0

    @property
    def rid(self) -> str:
        """The request's name."""
        return f"c{self.conversation}.t{self.turn}"

    @property
    def fed(self) -> tuple[int, ...]:
        """The tokens that go through the model."""
        return self.prompt + self.tokens[:-1]


class Private:
    """A memory of its own, of as many pages as are asked for. See model.Memory.

    `kept[pages]` is the state of each layer after so many pages.
    """

    def __init__(self, model: Model) -> None:
        self.kept: dict[int, list[Tensor]] = {}
        self._shard = model.shard
        self._pages: dict[tuple[str, int, int], Tensor] = {}
        self._states: dict[int, Tensor] = {}

    def wait(self, kind: str, layer: int) -> None:
        """Nothing is on its way."""

    def page(self, kind: str, layer: int, page: int) -> Tensor:
        """Zeros at first."""
        if (kind, layer, page) not in self._pages:
            self._pages[kind, layer, page] = self._shard.page_of(torch.zeros(self._shard.page_bytes, dtype=torch.uint8))
        return self._pages[kind, layer, page]

    def state(self, layer: int) -> Tensor:
        """Zeros at first."""
        return self._states.setdefault(layer, torch.zeros(self._shard.channels, STATE_WIDTH))

    def keep(self, pages: int) -> None:
        """So many pages are filled now."""
        self.kept[pages] = [self._states[layer].clone() for layer in sorted(self._states)]


def chunks(start: int, stop: int) -> list[range]:
    """The positions from `start` to `stop`, cut where pages end."""
    cuts = [start, *range((start // PAGE_TOKENS + 1) * PAGE_TOKENS, stop, PAGE_TOKENS), stop]
    return [range(*pair) for pair in pairwise(cuts)]


def generate(models: Sequence[Model], prompt: Sequence[int], count: int) -> Request:
    """The answer to a prompt, of so many tokens, by all shards of the model together."""
    memories = tuple(map(Private, models))
    said, logits = list(prompt), []
    for chunk in [*chunks(0, len(prompt)), *(range(at, at + 1) for at in range(len(prompt), len(prompt) + count - 1))]:
        last = forward(models, [said[at] for at in chunk], chunk.start, memories)[-1]
        if chunk.stop % PAGE_TOKENS == 0:
            for memory in memories:
                memory.keep(chunk.stop // PAGE_TOKENS)
        if chunk.stop >= len(prompt):
            logits.append(last)
            said.append(likeliest(last))
    return Request(tuple(prompt), torch.stack(logits), tuple(said[len(prompt) :]), memories)


def likeliest(logits: Tensor) -> int:
    """The token to go on with."""
    return int(logits.argmax())


def conversations(models: Sequence[Model]) -> list[Request]:
    """All requests in the order in which they come: turn by turn, in each turn one of every conversation.

    Some conversations share a system prompt, and some of these the beginning of their question, which ends within a
    page, and behind no point where anybody keeps a state. Lengths are odd, so that prompts end anywhere in a page.
    """
    draw = random.Random(7)

    def words(count: int) -> tuple[int, ...]:
        return tuple(draw.randrange(VOCABULARY) for _ in range(count))

    systems = [words(SYSTEM_PAGES * PAGE_TOKENS) for _ in range(SYSTEM_PROMPTS)]
    questions = [system + words(QUESTION_TOKENS) for _ in range(QUESTIONS // SYSTEM_PROMPTS) for system in systems]
    said = [questions[number % QUESTIONS] for number in range(CONVERSATIONS)]
    requests: list[Request] = []
    for turn in range(TURNS):
        for number in range(CONVERSATIONS):
            prompt = said[number] + words(draw.randint(5, 16))
            answered = generate(models, prompt, draw.randint(6, 13))
            requests.append(replace(answered, conversation=number, turn=turn))
            said[number] = prompt + answered.tokens
    return requests


def key_of(tokens: Sequence[int], namespace: str) -> PrefixKey:
    """The whole pages of these tokens."""
    return PrefixKey.from_tokens(tokens, PAGE_TOKENS, namespace)
