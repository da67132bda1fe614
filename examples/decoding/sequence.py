"""One request while it runs: it takes what the tiers have, computes the rest, and generates token by token."""

from __future__ import annotations

import torch
from torch import Tensor

from decoding.model import PAGE_TOKENS, Model
from decoding.paged import NotThere, Paged
from decoding.reference import Request, chunks, key_of, likeliest
from hicache_impl import HiCache, PrefixKey

CHECKPOINT_PAGES = 4
"""After so many pages, and so many more, a prefix is inserted by itself, so that others can go on from there: with a
window or a state beside the pages, a prefix serves only where one is kept."""


class Sequence:
    """`device_pages`, `host_pages`: what the tiers had of the prompt. `wrong`: why it is not what it should be."""

    def __init__(self, cache: HiCache, model: Model, request: Request) -> None:
        self.cache, self.model, self.request = cache, model, request
        self.tokens: list[int] = []
        self.device_pages = 0
        self.host_pages = 0
        self.computed_tokens = 0
        self.wrong: str | None = None
        self._memory = Paged(cache, model)
        self._ends = _ends(request)

    @property
    def is_over(self) -> bool:
        """All tokens are there, or something is wrong."""
        return self.wrong is not None or len(self.tokens) == len(self.request.tokens)

    def start(self) -> bool:
        """Load back what there is, compute the rest of the prompt, and generate the first token. False: no room."""
        request = self.request
        self._memory = Paged(self.cache, self.model)
        try:
            match = self.cache.match(asked(request, self.cache.config.namespace))
            found = self._memory.begin(match, -(-len(request.fed) // PAGE_TOKENS), self._ends)
        except NotThere as error:
            self._fail(str(error))
            return True
        if found is None:
            return False
        self.device_pages, self.host_pages = found
        for chunk in chunks(sum(found) * PAGE_TOKENS, len(request.prompt)):
            if not self.is_over:
                self._compute([request.prompt[at] for at in chunk], chunk.start)
        return True

    def step(self) -> None:
        """Generate one more token."""
        self._compute(self.tokens[-1:], len(self.request.prompt) + len(self.tokens) - 1)

    def _compute(self, tokens: list[int], start: int) -> None:
        """One forward pass, of which the last logits are judged if they are of the prompt's last token or a later one.

        When it fills a page, what is filled may go to the tree.
        """
        end = start + len(tokens)
        try:
            logits = self.model.forward(tokens, start, self._memory)
            self.computed_tokens += len(tokens)
            if end % PAGE_TOKENS == 0:
                self._fill(end // PAGE_TOKENS)
            if end >= len(self.request.prompt):
                self._judge(logits[-1])
        except NotThere as error:
            self._fail(str(error))
        if self.is_over:
            self._memory.end()

    def _fill(self, pages: int) -> None:
        """So many pages are filled now."""
        if pages in self._ends:
            said = [*self.request.prompt, *self.tokens]
            self._memory.insert(key_of(said[: pages * PAGE_TOKENS], self.cache.config.namespace))
        self._memory.forget_before(pages)

    def _judge(self, logits: Tensor) -> None:
        """Bit for bit, or it is wrong."""
        step = len(self.tokens)
        expected = self.request.logits[step]
        self.tokens.append(likeliest(logits))
        if not torch.equal(logits, expected):
            difference = float((logits - expected).abs().max())
            self._fail(f"the logits of token {step} of {len(self.request.tokens)} differ by {difference:.2g}")

    def _fail(self, why: str) -> None:
        pages = f"{self.device_pages} pages from the device and {self.host_pages} from the host"
        self.wrong = f"{self.request.rid}, with {pages}: {why}"


def asked(request: Request, namespace: str) -> PrefixKey:
    """What is asked for of a prompt: without its last token, because somebody has to say what comes next."""
    return key_of(request.prompt[:-1], namespace)


def _ends(request: Request) -> tuple[int, ...]:
    """The numbers of pages after which the tree is told: of the prompt, of all that is fed, and some in between."""
    whole = len(request.fed) // PAGE_TOKENS
    ends = {len(request.prompt) // PAGE_TOKENS, whole, *range(CHECKPOINT_PAGES, whole, CHECKPOINT_PAGES)}
    return tuple(sorted(ends - {0}))
