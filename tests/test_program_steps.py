"""Steps of a program that are more than one call, and stores that stall or lie."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from hicache_checks.conformance.findings import Broken
from hicache_checks.conformance.program import Item, Setup, Step, draw_step
from hicache_checks.conformance.schedule import SimulatedPlace
from hicache_checks.conformance.session import Session
from hicache_checks.conformance.target import Target, opened
from hicache_checks.conformance.white_box import WhiteBox
from hicache_checks.simulation.choices import Plainest, Replayed
from hicache_checks.simulation.standins.collectives import open_ranks
from hicache_checks.simulation.world import World
from hicache_impl.adapter import Reference
from hicache_impl.storage.faults import Call, FaultyStorage
from hicache_impl.storage.memory import MemoryStorage

PROMPT, OTHER = (1, 2), (5, 6)
A, B = "a" * 64, "b" * 64
PAGE = torch.arange(8, dtype=torch.uint8).reshape(1, 8)


@pytest.fixture
def target() -> Iterator[Target]:
    with opened("reference", simulate=True) as simulated:
        yield simulated


def outcomes_of(target: Target, *steps: Step, host_pages: int = 2, said_to_have: str = "events") -> dict[str, int]:
    """What the steps lead to, held to the specification. Raises Broken. `said_to_have`: a capability more."""
    setup = Setup(host_pages=host_pages, stored=(PROMPT, OTHER))
    world = World(Plainest())
    open_ranks(world, setup.ranks)
    judges: list[WhiteBox] = []

    def main() -> None:
        adapter = target.build()
        adapter.reset(setup.config())
        for prompt in setup.stored:
            adapter.store(prompt)
        judges.append(WhiteBox(adapter, setup))
        session = Session(
            adapter, setup, judges[0], SimulatedPlace(world), sorted(adapter.capabilities() | {said_to_have})
        )
        for step in steps:
            session.do(step)
        session.run_out()
        adapter.close()

    world.run(main)
    assert world.problem is None
    return dict(judges[0].outcomes)


# ---- steps


def test_requests_that_come_together_are_fetched(target: Target) -> None:
    assert outcomes_of(target, Step("fetch", (PROMPT, OTHER)), host_pages=4)["fetched: all"] == 2


def test_a_page_vanishes_and_is_there_again(target: Target) -> None:
    outcomes = outcomes_of(target, Step("vanish", (0, PROMPT)), Step("fetch", (PROMPT,)))
    assert outcomes["io_failed: miss"] == 1
    assert outcomes["fetched: failed_page"] == 1
    assert outcomes["fetched: all"] == 1


def test_a_step_draws_as_many_prompts_as_there_are_requests() -> None:
    menu = (Item("fetch", 1),)
    drawn = [draw_step(Replayed(choices), menu, 1) for choices in ([], [1, 0], [1, 2, 3, 0], [1, 2, 3, 1, 5, 2])]
    assert [len(step.args) for step in drawn if step is not None] == [1, 1, 2, 3]


# ---- a store that stalls


def test_memory_is_on_its_way_while_a_store_stalls(target: Target) -> None:
    """A request that comes meanwhile finds none."""
    stalls = Step("break_storage", (0, "get", "stall"))
    first, second = Step("fetch", (PROMPT,)), Step("submit", ("b", OTHER))
    outcomes = outcomes_of(target, stalls, first, second, Step("settle"), Step("turn"))
    assert outcomes["revoked: no_memory"] == 1
    assert outcomes["fetched: all"] == 1


@pytest.mark.parametrize("call", ["exists", "get", "put"])
def test_a_stalled_call_goes_on_when_the_store_is_healed(call: Call) -> None:
    store = FaultyStorage(MemoryStorage())
    store.stall(call, times=1)
    calls: dict[Call, Callable[[], Any]] = {
        "exists": lambda: store.exists([A]),
        "get": lambda: store.get_into([A], [PAGE.clone()]),
        "put": lambda: store.put_from([A], [PAGE.clone()]),
    }
    stalled = threading.Thread(target=calls[call])
    start = time.monotonic()
    stalled.start()
    stalled.join(0.1)
    assert stalled.is_alive()
    store.heal()
    stalled.join()
    assert time.monotonic() - start < 0.9
    assert store.struck() == {"stall": 1}


def test_a_stalled_call_goes_on_in_time() -> None:
    store = FaultyStorage(MemoryStorage())
    store.heal()
    store.stall("exists")
    start = time.monotonic()
    assert store.exists([A]) == 0
    assert 0.9 < time.monotonic() - start < 5


# ---- a store that lies


def test_a_late_write_hits_who_has_the_memory_then() -> None:
    store = FaultyStorage(MemoryStorage())
    store.put_from([A, B], [PAGE, PAGE])
    memory, elsewhere = torch.zeros_like(PAGE), torch.zeros_like(PAGE)
    store.late_write(times=1)
    assert store.get_into([A], [memory]) == [False]
    store.heal()
    assert store.get_into([B], [elsewhere]) == [True]
    assert torch.equal(elsewhere, PAGE)
    assert store.get_into([B], [memory]) == [True]
    assert not torch.equal(memory, PAGE)
    assert store.get_into([B], [memory]) == [True]
    assert torch.equal(memory, PAGE)


@pytest.mark.parametrize("how", ["wrong_bytes", "late_write"])
def test_who_says_that_he_checks_bytes_is_held_to_it(target: Target, how: str) -> None:
    """The reference does not."""
    steps = (Step("lie", (0, how)), Step("fetch", (PROMPT,)), Step("heal_storage"), *[Step("fetch", (OTHER,))] * 2)
    with pytest.raises(Broken, match=r"^P6: wrong bytes"):
        outcomes_of(target, *steps, host_pages=2 if how == "late_write" else 4, said_to_have="checked_bytes")


@pytest.mark.parametrize(("call", "how"), [("put", "late_write"), ("exists", "wrong_bytes"), ("get", "sing")])
def test_what_a_store_cannot(call: str, how: str) -> None:
    reference = Reference({"host_pages": 2, "device_pages": 2})
    with pytest.raises(ValueError, match=f"^a store cannot {how} in {call}$"):
        reference.break_storage(0, call, how)
    reference.close()
