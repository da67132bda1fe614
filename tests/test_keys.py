"""Keys, hash chain and page content: what a page is known by, and what it must hold."""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hicache_impl.config import CacheConfig
from hicache_impl.content import page_content
from hicache_impl.keys import PrefixKey, chain_hashes, namespace_hash

TOKENS = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=40)


@given(TOKENS, st.integers(1, 5))
def test_from_tokens_keeps_whole_pages_as_little_endian_int32(tokens: list[int], page_size: int) -> None:
    key = PrefixKey.from_tokens(tokens, page_size)
    assert len(key) == len(tokens) // page_size
    assert b"".join(key.pages) == struct.pack(f"<{len(key) * page_size}i", *tokens[: len(key) * page_size])


@pytest.mark.parametrize(("tokens", "page_size"), [([1], 0), ([1], -1), ([2**31], 1), ([-(2**31) - 1], 1)])
def test_from_tokens_refuses_what_has_no_page(tokens: list[int], page_size: int) -> None:
    with pytest.raises(ValueError):
        PrefixKey.from_tokens(tokens, page_size)


@given(TOKENS, st.integers(0, 50))
def test_first_and_after_cut_a_key_in_two(tokens: list[int], n: int) -> None:
    key = PrefixKey.from_tokens(tokens, 2, "ns")
    assert key.first(n).pages + key.after(n).pages == key.pages
    assert key.first(n).namespace == key.after(n).namespace == "ns"
    assert len(key.first(n)) == min(n, len(key))


def test_a_negative_number_of_pages_is_refused() -> None:
    key = PrefixKey.from_tokens([1, 2, 3], 1)
    for cut in (key.first, key.after):
        with pytest.raises(ValueError, match=">= 0"):
            cut(-1)


@given(TOKENS, st.integers(0, 40))
def test_the_chain_of_the_rest_goes_on_from_the_hash_before_it(tokens: list[int], n: int) -> None:
    key = PrefixKey.from_tokens(tokens, 1, "ns")
    whole = chain_hashes(key)
    head = whole[: min(n, len(key))]
    assert head + chain_hashes(key.after(n), head[-1] if head else None) == whole


def test_the_chain_is_sha256_over_parent_and_tokens() -> None:
    parent = hashlib.sha256(struct.pack("<Q", 2) + b"ns").digest()
    first = hashlib.sha256(parent + struct.pack("<2i", 7, -1)).digest()
    second = hashlib.sha256(first + struct.pack("<2i", 7, -1)).digest()
    assert chain_hashes(PrefixKey.from_tokens([7, -1, 7, -1], 2, "ns")) == (first, second)


def test_a_hash_names_its_whole_prefix_and_namespace() -> None:
    keys = [PrefixKey.from_tokens(tokens, 1, name) for name in ("", "a", "ab") for tokens in ([1, 3], [2, 3], [3, 3])]
    assert len({chain_hashes(key)[-1] for key in keys}) == len(keys)
    assert namespace_hash("") != namespace_hash("\0")


def test_a_parent_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        chain_hashes(PrefixKey("", (b"1234",)), b"short")


def test_page_content_is_a_function_of_hash_shard_and_layer() -> None:
    page = page_content(b"h" * 32, "0_2", 3, 64)
    assert page.shape == (3, 64)
    assert page.dtype == torch.uint8
    assert torch.equal(page, page_content(b"h" * 32, "0_2", 3, 64))
    assert torch.equal(page[:2], page_content(b"h" * 32, "0_2", 2, 64))
    others = [page_content(b"g" * 32, "0_2", 3, 64), page_content(b"h" * 32, "1_2", 3, 64)]
    rows = {bytes(row.tolist()) for content in (page, *others) for row in content}
    assert len(rows) == 9


def test_config_takes_its_limit_from_the_host_pool() -> None:
    config = CacheConfig(host_pages=7, device_pages=5)
    assert config.limit_pages == 7
    assert CacheConfig(host_pages=7, device_pages=5, limit_pages=3).limit_pages == 3
    assert config.layer_bytes == 32


def test_config_caps_the_timeout() -> None:
    config = CacheConfig(
        host_pages=1, device_pages=1, policy="timeout", timeout_s_base=1, timeout_s_per_page=0.5, timeout_s_max=3
    )
    assert [config.timeout_s(pages) for pages in (0, 2, 4, 100)] == [1, 2, 3, 3]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("host_pages", 0),
        ("device_pages", -1),
        ("page_size", 0),
        ("layers", 3),
        ("page_bytes", 63),
        ("threshold_pages", 0),
        ("limit_pages", -1),
        ("policy", "never"),
        ("timeout_s_base", -1.0),
        ("timeout_s_per_page", float("nan")),
        ("timeout_s_max", float("inf")),
        ("layout", {"ranks": 2}),
        ("query_batch_pages", 1.5),
    ],
)
def test_config_names_the_field_that_is_wrong(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field) as caught:
        dataclasses.replace(CacheConfig(host_pages=2, device_pages=2), **{field: value})
    assert "\n" not in str(caught.value)
