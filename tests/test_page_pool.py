"""Page pools: every misuse is an error at the call that makes it, and changes nothing."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_impl.config import POOL_LAYOUTS, CacheConfig, PoolLayout
from hicache_impl.content import page_content
from hicache_impl.device_pool import DevicePool
from hicache_impl.host_pool import HostPool
from hicache_impl.page_pool import DoubleFree, ForeignPage, FreeUnderWriter, PageAllocator, PoolError, UnownedPage

PAGES = 5


def test_alloc_gives_all_or_nothing() -> None:
    pool = PageAllocator(3)
    assert pool.alloc(2) == (0, 1)
    assert pool.alloc(2) is None
    assert pool.available == 1
    assert pool.alloc(0) == ()
    assert pool.alloc(1) == (2,)


def test_pages_are_handed_out_in_the_order_in_which_they_came_back() -> None:
    pool = PageAllocator(3)
    pool.alloc(3)
    pool.free([2, 0])
    pool.free([1])
    assert pool.alloc(3) == (2, 0, 1)


@pytest.mark.parametrize(
    ("pages", "error"),
    [
        ([0, 0], DoubleFree),
        ([0, 3], DoubleFree),
        ([0, 4], ForeignPage),
        ([0, -1], ForeignPage),
        ([0, 1], FreeUnderWriter),
    ],
)
def test_a_free_that_is_refused_changes_nothing(pages: list[int], error: type[PoolError]) -> None:
    pool = PageAllocator(4)
    pool.alloc(3)
    pool.begin_write(1)
    with pytest.raises(error):
        pool.free(pages)
    assert pool.allocated_pages() == [0, 1, 2]
    assert pool.available == 1
    pool.end_write(1)
    pool.free([0, 1, 2])
    assert pool.alloc(4) == (3, 0, 1, 2)


def test_writer_marks_must_pair_up_on_owned_pages() -> None:
    pool = PageAllocator(2)
    with pytest.raises(UnownedPage, match="while it is free"):
        pool.begin_write(0)
    pool.alloc(1)
    pool.begin_write(0)
    with pytest.raises(UnownedPage, match="two writers"):
        pool.begin_write(0)
    assert pool.writing == 1
    pool.end_write(0)
    with pytest.raises(UnownedPage, match="never began"):
        pool.end_write(0)
    for mark in (pool.begin_write, pool.end_write):
        with pytest.raises(ForeignPage):
            mark(2)


def test_sizes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError):
        PageAllocator(0)
    with pytest.raises(ValueError):
        PageAllocator(1).alloc(-1)
    with pytest.raises(ValueError):
        HostPool(1, 3, 64)


def is_accepted(call: Callable[[Any], None], argument: object) -> bool:
    try:
        call(argument)
    except PoolError:
        return False
    return True


CALLS = st.one_of(
    st.tuples(st.just("alloc"), st.integers(0, PAGES + 1)),
    st.tuples(st.just("free"), st.lists(st.integers(-1, PAGES), max_size=3)),
    st.tuples(st.sampled_from(["begin_write", "end_write"]), st.integers(-1, PAGES)),
)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.lists(CALLS, max_size=25))
def test_the_allocator_is_a_queue_and_two_sets(calls: list[tuple[str, int | list[int]]]) -> None:
    pool = PageAllocator(PAGES)
    free, owned, writing = deque(range(PAGES)), set[int](), set[int]()
    for name, argument in calls:
        if name == "alloc":
            assert isinstance(argument, int)
            expected = tuple(free.popleft() for _ in range(argument)) if argument <= len(free) else None
            assert pool.alloc(argument) == expected
            owned |= set(expected or ())
        elif name == "free":
            assert isinstance(argument, list)
            legal = set(argument) <= owned - writing and len(set(argument)) == len(argument)
            assert is_accepted(pool.free, argument) == legal
            if legal:
                owned -= set(argument)
                free.extend(argument)
        else:
            assert isinstance(argument, int)
            legal = argument in (owned - writing if name == "begin_write" else writing)
            assert is_accepted(pool.begin_write if name == "begin_write" else pool.end_write, argument) == legal
            if legal:
                (writing.add if name == "begin_write" else writing.remove)(argument)
        assert pool.available == len(free)
        assert pool.allocated_pages() == sorted(owned)
        assert pool.writing == len(writing)


def test_threads_never_own_the_same_page() -> None:
    pool = PageAllocator(8)
    errors: list[Exception] = []

    def work() -> None:
        try:
            for turn in range(300):
                pages = pool.alloc(1 + turn % 3)
                for page in pages or ():
                    pool.begin_write(page)  # a second owner would be a second writer
                for page in pages or ():
                    pool.end_write(page)
                pool.free(pages or ())
        except PoolError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert pool.available == 8


def test_bytes_go_down_to_host_and_come_back() -> None:
    config = CacheConfig(host_pages=4, device_pages=3, layers=2, page_bytes=32)
    host, device = HostPool.from_config(config), DevicePool.from_config(config)
    assert host.data.shape == (4, 2, 16)
    assert not host.data.is_pinned()
    assert device.allocator.alloc(3) == (0, 1, 2)
    assert host.allocator.alloc(3) == (0, 1, 2)
    contents = [page_content(bytes([i]), "0_1", 2, 16) for i in range(3)]
    for page in range(3):
        device.view(page).copy_(contents[page])
    host.store_from(device, [0, 1, 2], [2, 0, 1])
    assert torch.equal(host.view(2), contents[0])
    assert torch.equal(host.view(1), contents[2])
    device.data.zero_()
    device.load_from(host, [2, 0], [1, 2])
    assert torch.equal(device.view(1), contents[0])
    assert torch.equal(device.view(2), contents[1])
    assert not device.view(0).any()


def test_a_copy_from_or_to_a_page_that_nobody_owns_is_refused() -> None:
    host, device = HostPool(2, 1, 8), DevicePool(2, 1, 8)
    host.allocator.alloc(1)
    with pytest.raises(UnownedPage):
        device.load_from(host, [0], [0])
    device.allocator.alloc(1)
    with pytest.raises(UnownedPage):
        host.store_from(device, [0], [1])
    with pytest.raises(ValueError):
        device.load_from(host, [0], [])
    with pytest.raises(ForeignPage):
        host.view(-1)
    with pytest.raises(ForeignPage):
        host.view(2)


def test_several_pages_are_marked_together_or_not_at_all() -> None:
    pool = PageAllocator(4)
    pool.alloc(3)
    pool.begin_write(0)
    for pages in ((1, 0), (1, 3), (1, 1)):
        with pytest.raises(UnownedPage):
            pool.begin_write(*pages)
        assert pool.writing == 1
    pool.begin_write(1, 2)
    with pytest.raises(UnownedPage):
        pool.end_write(1, 3)
    assert pool.writing == 3
    pool.end_write(0, 1, 2)
    assert pool.writing == 0


@settings(max_examples=100)
@given(st.lists(st.integers(0, 5)), st.sampled_from(POOL_LAYOUTS))
def test_views_of_many_pages_are_those_of_each(pages: list[int], layout: PoolLayout) -> None:
    host = HostPool(6, 2, 8, layout=layout)
    host.data.copy_(torch.arange(48, dtype=torch.uint8).view(host.data.shape))
    found = host.views(pages)
    assert [view.data_ptr() for view in found] == [host.view(page).data_ptr() for page in pages]
    assert all(torch.equal(view, host.view(page)) for view, page in zip(found, pages, strict=True))
    with pytest.raises(ForeignPage):
        host.views([*pages, 6])
