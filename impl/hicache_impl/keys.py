"""What a page is known by: the tokens of its prefix, and the hash chain over them."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

HASH_BYTES = 32


@dataclass(frozen=True)
class PrefixKey:
    """A page-aligned run of tokens in a namespace.

    `pages[i]` holds the token ids of page i as little-endian int32 bytes. A key made by `after` is the rest of a
    longer key: its hashes need the hash of the page before it (`chain_hashes(key, parent)`).
    """

    namespace: str
    pages: tuple[bytes, ...]

    @classmethod
    def from_tokens(cls, tokens: Sequence[int], page_size: int, namespace: str = "") -> PrefixKey:
        """The key of all whole pages of `tokens`; a last partial page is dropped. ValueError: bad size or token id."""
        if page_size < 1:
            raise ValueError(f"page_size must be >= 1 token, not {page_size}")
        page_format = struct.Struct(f"<{page_size}i")
        whole = len(tokens) // page_size * page_size
        try:
            pages = tuple(page_format.pack(*tokens[i : i + page_size]) for i in range(0, whole, page_size))
        except struct.error as error:
            raise ValueError(f"token ids must fit in a signed 32-bit integer: {error}") from None
        return cls(namespace, pages)

    def __len__(self) -> int:
        """Pages in the key."""
        return len(self.pages)

    def first(self, n: int) -> PrefixKey:
        """The first n pages (all when the key is shorter). ValueError: n < 0."""
        return PrefixKey(self.namespace, self.pages[: _page_count(n)])

    def after(self, n: int) -> PrefixKey:
        """What follows the first n pages. ValueError: n < 0."""
        return PrefixKey(self.namespace, self.pages[_page_count(n) :])


def namespace_hash(namespace: str) -> bytes:
    """The parent of every first page of a namespace; length-prefixed, so that no two namespaces share it."""
    name = namespace.encode()
    return hashlib.sha256(struct.pack("<Q", len(name)) + name).digest()


def chain_hashes(key: PrefixKey, parent: bytes | None = None) -> tuple[bytes, ...]:
    """One sha256 a page: h_i = H(h_{i-1} + tokens of page i); the first parent is `parent` or the namespace's hash.

    A hash thus names the page *and* everything before it. ValueError: `parent` is not a hash of this chain's size.
    """
    if parent is None:
        parent = namespace_hash(key.namespace)
    if len(parent) != HASH_BYTES:
        raise ValueError(f"a parent hash has {HASH_BYTES} bytes, not {len(parent)}")
    sha256 = hashlib.sha256
    return tuple([parent := sha256(parent + page).digest() for page in key.pages])


def pool_hash(page_hash: bytes, pool: str) -> bytes:
    """What is beside a page in an extra pool is known by the page's hash and the pool's name."""
    return hashlib.sha256(b"beside " + pool.encode() + b" " + page_hash).digest()


def _page_count(n: int) -> int:
    if n < 0:
        raise ValueError(f"a number of pages is >= 0, not {n}")
    return n
