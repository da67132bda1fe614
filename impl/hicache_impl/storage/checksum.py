"""The record that every store keeps of a page: a header of 32 bytes, and the payload.

The header is magic (8 bytes), length of the payload (8, little-endian) and digest (16). The digest is xxh3_128 of the
payload, seeded by the page's name, so that a page that lies under another page's name is found out. A page that was
written without checksums has a magic of its own and no digest: who checks, cannot take it.
"""

from __future__ import annotations

import struct
from typing import Any

from xxhash import xxh3_64_intdigest, xxh3_128, xxh3_128_digest

from hicache_impl.storage.pages import Runs

MAGIC = b"HiCkPg02"
MAGIC_UNCHECKED = b"HiCkPg-2"
DIGEST_BYTES = 16
_HEADER = struct.Struct(f"<8sQ{DIGEST_BYTES}s")
HEADER_BYTES = _HEADER.size
_NO_DIGEST = bytes(DIGEST_BYTES)

# What became of a page that was to be read. All but the first are misses; `ABSENT` is the only one that is no oddity.
HIT = "hit"
ABSENT = "absent"
SHORT = "short"
CORRUPT = "corrupt"
UNCHECKED = "unchecked"
UNREADABLE = "unreadable"


class Records:
    """Makes and judges headers. Without `checksums`, no digest is computed and none is looked at."""

    def __init__(self, checksums: bool) -> None:
        self.checksums = checksums

    def header(self, key: str, runs: Runs) -> bytes:
        """The header of the page whose bytes these are."""
        size_bytes = runs.size_bytes
        if not self.checksums:
            return _HEADER.pack(MAGIC_UNCHECKED, size_bytes, _NO_DIGEST)
        return _HEADER.pack(MAGIC, size_bytes, digest_of(key, runs))

    def judge(self, key: str, header: Any, payload_bytes: int, runs: Runs) -> str:
        """HIT, or why it is none. `header`: 32 bytes; `payload_bytes`: so many were there; `runs`: where they are now,
        as many as were wanted."""
        magic, size_bytes, digest = _HEADER.unpack(header)
        if magic not in (MAGIC, MAGIC_UNCHECKED):
            return CORRUPT
        if not size_bytes == payload_bytes == runs.size_bytes:
            return SHORT
        if not self.checksums:
            return HIT
        if magic == MAGIC_UNCHECKED:
            return UNCHECKED
        return HIT if digest == digest_of(key, runs) else CORRUPT


def digest_of(key: str, runs: Runs) -> bytes:
    """16 bytes: xxh3_128 of the runs, one behind the other, seeded by the key."""
    seed = xxh3_64_intdigest(key.encode())
    if len(runs) == 1:
        return xxh3_128_digest(runs[0].data, seed)
    digest = xxh3_128(seed=seed)
    for run in runs:
        digest.update(run.data)
    return digest.digest()
