"""The hash chain that stands in for the releases' native one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pytest

pytest.importorskip("torch")

from hicache_checks.targets.sglang.surroundings import page_hashes


@dataclass
class Key:
    """A key of the releases: with `is_bigram`, of pairs of neighbours."""

    token_ids: list[int]
    is_bigram: bool = False

    def __len__(self) -> int:
        return len(self.token_ids) - self.is_bigram


def sha(prior: str, *tokens: int) -> str:
    return hashlib.sha256(bytes.fromhex(prior) + b"".join(t.to_bytes(4, "little") for t in tokens)).hexdigest()


def test_a_page_s_hash_covers_all_before_it() -> None:
    first = sha("", 1, 2)
    assert page_hashes([1, 2, 3, 4], None, 2) == [first, sha(first, 3, 4)]
    assert page_hashes([3, 4], bytes.fromhex(first)) == sha(first, 3, 4)


@pytest.mark.parametrize("tokens", [Key([1, 2, 3], is_bigram=True), [(1, 2), (2, 3)]])
def test_of_pairs_both_tokens_count(tokens: object) -> None:
    assert page_hashes(tokens, None, 2) == [sha("", 1, 2, 2, 3)]
    assert page_hashes(Key([1, 2, 3]), None, 3) == [sha("", 1, 2, 3)]
