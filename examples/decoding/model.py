"""A small transformer in plain torch, float32: attention, attention within a window, a state-space layer.

What is computed for a token is computed in its own row of a matrix with a row for each token of a page, whether all of
the page is computed together (prefill) or one token after the other (decoding). So all matrix products have the same
shapes, and a token's row is the same, bit for bit, in whichever company it was computed.

With two ranks, each has half of the heads, and the outputs are summed over them. (With more, the order of the sum would
matter, and it is not ours to choose.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

PAGE_TOKENS = 8
VOCABULARY = 61
WIDTH = 32
HEADS = 4
HEAD_WIDTH = 8
STATE_WIDTH = 4
WINDOW_PAGES = 2
WEIGHTS_SEED = 20

FULL, WINDOW, STATE = "full", "window", "state"
SHAPES: dict[str, tuple[str, ...]] = {
    "hiradix": (FULL, FULL, FULL),
    "hi_mamba": (FULL, STATE, FULL),
    "unified": (FULL, WINDOW, STATE, FULL),
}
"""The layers of the model for each tree."""


class Memory(Protocol):
    """What the model remembers of the tokens so far. `layer` counts the layers of one kind."""

    def wait(self, kind: str, layer: int) -> None:
        """Return when what is remembered for this layer may be read."""
        ...

    def page(self, kind: str, layer: int, page: int) -> Tensor:
        """float32 (2, PAGE_TOKENS, heads, HEAD_WIDTH): keys and values of a page, written in place."""
        ...

    def state(self, layer: int) -> Tensor:
        """float32 (channels, STATE_WIDTH): what the last token left, written in place."""
        ...


def alone(summand: Tensor) -> Tensor:
    """The sum over one rank."""
    return summand


@dataclass(frozen=True)
class Shard:
    """Which part of the heads and channels this rank has. `add` sums a tensor over the ranks, on all of them."""

    rank: int = 0
    ranks: int = 1
    add: Callable[[Tensor], Tensor] = alone

    @property
    def heads(self) -> int:
        """Of this rank."""
        return HEADS // self.ranks

    @property
    def channels(self) -> int:
        """Of this rank's part of a state-space layer."""
        return WIDTH // self.ranks

    @property
    def page_bytes(self) -> int:
        """Keys and values of one layer of one page."""
        return 2 * PAGE_TOKENS * self.heads * HEAD_WIDTH * torch.float32.itemsize

    @property
    def state_bytes(self) -> int:
        """The state of one layer."""
        return self.channels * STATE_WIDTH * torch.float32.itemsize

    def page_of(self, layer_bytes: Tensor) -> Tensor:
        """One layer of a page of a pool, as `Memory.page` gives it."""
        return layer_bytes.view(torch.float32).view(2, PAGE_TOKENS, self.heads, HEAD_WIDTH)

    def state_of(self, layer_bytes: Tensor) -> Tensor:
        """One layer of a slot of a pool, as `Memory.state` gives it."""
        return layer_bytes.view(torch.float32).view(self.channels, STATE_WIDTH)


class Weights:
    """Draws the weights of the whole model, always the same, and gives this rank its part of each."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self._generator = torch.Generator().manual_seed(WEIGHTS_SEED)

    def whole(self, rows: int, columns: int) -> Tensor:
        """(rows, columns), the same on every rank."""
        return torch.randn(rows, columns, generator=self._generator) / rows**0.5

    def columns(self, rows: int, columns: int) -> Tensor:
        """This rank's columns of such a matrix."""
        return self.whole(rows, columns).chunk(self.shard.ranks, dim=1)[self.shard.rank].contiguous()

    def rows(self, rows: int, columns: int) -> Tensor:
        """This rank's rows of such a matrix."""
        return self.whole(rows, columns).chunk(self.shard.ranks, dim=0)[self.shard.rank].contiguous()


class Mixer(Protocol):
    """The part of a layer that looks at other tokens."""

    def __call__(self, x: Tensor, page: int, rows: range, memory: Memory) -> Tensor:
        """x, the answer: (PAGE_TOKENS, WIDTH), of which `rows` count. The answer is this rank's summand."""
        ...


class Attention:
    """Over all tokens so far, or over the last `span_pages` pages of tokens. Nearer tokens weigh more (ALiBi)."""

    def __init__(self, weights: Weights, kind: str, layer: int, span_pages: int | None) -> None:
        self.shard, self.kind, self.layer, self.span_pages = weights.shard, kind, layer, span_pages
        self.queries, self.keys, self.values = (weights.columns(WIDTH, HEADS * HEAD_WIDTH) for _ in range(3))
        self.out = weights.rows(HEADS * HEAD_WIDTH, WIDTH)
        slopes = torch.tensor([2.0 ** -(2 + 2 * head) for head in range(HEADS)])
        self.slopes = slopes.chunk(weights.shard.ranks)[weights.shard.rank].view(-1, 1, 1)
        self._biases: dict[int, Tensor] = {}

    def __call__(self, x: Tensor, page: int, rows: range, memory: Memory) -> Tensor:
        """See Mixer. Keys and values of `rows` are written into the page before all of them are read."""
        heads = (PAGE_TOKENS, self.shard.heads, HEAD_WIDTH)
        own, here = memory.page(self.kind, self.layer, page), slice(rows.start, rows.stop)
        own[0, here] = (x @ self.keys).view(heads)[here]
        own[1, here] = (x @ self.values).view(heads)[here]
        first = 0 if self.span_pages is None else max(0, page - self.span_pages)
        seen = torch.cat([memory.page(self.kind, self.layer, at) for at in range(first, page + 1)], dim=1)
        keys, values = seen.transpose(1, 2)
        queries = (x @ self.queries).view(heads).transpose(0, 1)
        scores = queries @ keys.transpose(1, 2) / HEAD_WIDTH**0.5
        if page - first not in self._biases:
            self._biases[page - first] = self._bias(page - first)
        mixed = torch.softmax(scores + self._biases[page - first], dim=2) @ values
        return mixed.transpose(0, 1).reshape(PAGE_TOKENS, -1) @ self.out

    def _bias(self, pages_before: int) -> Tensor:
        """(heads, PAGE_TOKENS, tokens): less for what is farther away, and nothing at all of what is out of sight."""
        positions = torch.arange(pages_before * PAGE_TOKENS, (pages_before + 1) * PAGE_TOKENS)
        distance = positions.view(-1, 1) - torch.arange((pages_before + 1) * PAGE_TOKENS)
        hidden = distance < 0
        if self.span_pages is not None:
            hidden |= distance >= self.span_pages * PAGE_TOKENS
        return torch.where(hidden, float("-inf"), -self.slopes * distance)


class StateSpace:
    """A recurrence over the tokens, in each channel with a state of its own: decay, write and read by the token."""

    def __init__(self, weights: Weights, layer: int) -> None:
        self.shard, self.layer = weights.shard, layer
        self.into, self.decay = weights.columns(WIDTH, WIDTH), weights.columns(WIDTH, WIDTH)
        self.write, self.read = weights.whole(WIDTH, STATE_WIDTH), weights.whole(WIDTH, STATE_WIDTH)
        self.out = weights.rows(WIDTH, WIDTH)

    def __call__(self, x: Tensor, page: int, rows: range, memory: Memory) -> Tensor:
        """See Mixer. The state goes on by one step for each of `rows`."""
        state = memory.state(self.layer)
        into, decay = x @ self.into, torch.sigmoid(x @ self.decay + 2)
        write, read = x @ self.write, x @ self.read
        mixed = torch.zeros_like(into)
        for row in rows:
            state.mul_(decay[row].view(-1, 1)).add_(into[row].view(-1, 1) * write[row])
            mixed[row] = (state * read[row]).sum(1)
        return mixed @ self.out


class Layer:
    """A mixer, and what each token does by itself."""

    def __init__(self, weights: Weights, kind: str, layer: int) -> None:
        self.kind, self.layer = kind, layer
        span_pages = WINDOW_PAGES if kind == WINDOW else None
        self.mix: Mixer = StateSpace(weights, layer) if kind == STATE else Attention(weights, kind, layer, span_pages)
        self.up, self.down = weights.whole(WIDTH, 2 * WIDTH), weights.whole(2 * WIDTH, WIDTH)


class Model:
    """The model for one tree, or this rank's shard of it."""

    def __init__(self, tree: str, shard: Shard) -> None:
        self.tree, self.shard, self.kinds = tree, shard, SHAPES[tree]
        weights = Weights(shard)
        self.embedding, self.unembedding = weights.whole(VOCABULARY, WIDTH), weights.whole(WIDTH, VOCABULARY)
        self.layers = [Layer(weights, kind, self.kinds[:index].count(kind)) for index, kind in enumerate(self.kinds)]

    def count(self, kind: str) -> int:
        """Layers of this kind."""
        return self.kinds.count(kind)

    def forward(self, tokens: Sequence[int], start: int, memory: Memory) -> Tensor:
        """See the function of this name."""
        return forward([self], tokens, start, [memory])


def forward(models: Sequence[Model], tokens: Sequence[int], start: int, memories: Sequence[Memory]) -> Tensor:
    """float32 (tokens, VOCABULARY): the logits after each of these tokens, which stand at `start` and behind it.

    They are of one page; what is before them is in the memories, and afterwards they are, too. `models`: one rank's
    shard, or all shards together, each with a memory of its own.
    """
    page, row = divmod(start, PAGE_TOKENS)
    rows = range(row, row + len(tokens))
    assert len(tokens) >= 1
    assert rows.stop <= PAGE_TOKENS, "a forward pass is of one page"
    first = models[0]
    x = torch.zeros(PAGE_TOKENS, WIDTH)
    x[row : rows.stop] = first.embedding[list(tokens)]
    for layer, *others in zip(*(model.layers for model in models), strict=True):
        for memory in memories:
            memory.wait(layer.kind, layer.layer)
        normed = _normed(x)
        summand = layer.mix(normed, page, rows, memories[0])
        for other, memory in zip(others, memories[1:], strict=True):
            summand = summand + other.mix(normed, page, rows, memory)
        x = x + first.shard.add(summand)
        x = x + functional.silu(_normed(x) @ layer.up) @ layer.down
    return (_normed(x) @ first.unembedding)[row : rows.stop].clone()


def _normed(x: Tensor) -> Tensor:
    """Each row at the same length."""
    return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6)
