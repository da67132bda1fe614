"""What a page is called in a store: hexadecimal digits and underscores, so that no name is a path or a pattern."""

from __future__ import annotations

import re
from collections.abc import Sequence

KEY_LENGTH_MIN, KEY_LENGTH_MAX = 3, 200
_ALPHABET = b"0123456789abcdef_"
_KEY = re.compile(rf"[0-9a-f_]{{{KEY_LENGTH_MIN},{KEY_LENGTH_MAX}}}")


def storage_key(page_hash: bytes, shard: str) -> str:
    """The page's name: its hash, and which part of it that is (see Layout.shard), because a page of 1 of 2 ranks is not
    a page of 1 of 4."""
    return f"{page_hash.hex()}_{shard}"


def storage_keys(page_hashes: Sequence[bytes], shard: str) -> list[str]:
    """`storage_key` of each."""
    ending = f"_{shard}"
    return [page_hash.hex() + ending for page_hash in page_hashes]


def page_namespace(*, model: str, layout: str = "", dtype: str = "", adapter: str = "", salt: str = "") -> str:
    """The namespace of a hash chain, and so of every page's name: whatever makes the same tokens other bytes.

    `layout` is how a page is laid out (page size, layers, parts), `salt` tells tenants apart. Each part is preceded by
    its length, so that no two different lists of parts make the same namespace. Ranks are told apart by `storage_key`.
    """
    return "".join(f"{len(part)}:{part}" for part in (model, layout, dtype, adapter, salt))


def is_key(name: str) -> bool:
    """Is it made of hexadecimal digits and underscores, at least 3 of them, and no longer than a file name may be?"""
    return _KEY.fullmatch(name) is not None


def check_keys(keys: Sequence[str]) -> None:
    """ValueError unless all are keys: so a key can never be a path."""
    if not keys:
        return
    # All at once, without a look at each: this is on the way of every page.
    lengths = list(map(len, keys))
    if min(lengths) >= KEY_LENGTH_MIN and max(lengths) <= KEY_LENGTH_MAX:
        letters = "".join(keys)
        if letters.isascii() and not letters.encode().translate(None, _ALPHABET):
            return
    raise ValueError(f"not a storage key: {next(key for key in keys if not is_key(key))!r}")
