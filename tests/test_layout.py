"""The packed state: every value of every type comes back, no two fields share a bit, and queues behave as shifts."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from engine_comparison import any_state
from hicache_checks.engine.compile.layout import WORD_BITS, Layout, Slot, element_bits
from hicache_spec import DESIGNS, Bounds, BoundSpec
from random_specs import HEAD, load, random_specs

TYPES: dict[str, list[Any]] = {
    "flag()": [False, True],
    "upto(0)": [0],
    "upto(1)": [0, 1],
    "upto(4)": [0, 1, 2, 3, 4],
    "upto((1 << 31) - 1)": [0, 1, 1 << 30, (1 << 31) - 1],
    "member(COLOUR)": [0, 1, 2],
    "element(A)": [0, 1, 2],
    "element(B)": [0],
    "optional(A)": [-1, 0, 1, 2],
    "optional(B)": [-1, 0],
    "subset(A)": [list(x) for n in range(4) for x in itertools.combinations(range(3), n)],
    "subset(range(31))": [[], [0, 30], [*range(31)]],
    "fifo(A)": [list(x) for n in range(4) for x in itertools.product(range(3), repeat=n)],
    "fifo(A, 1)": [[], [0], [1], [2]],
    "fifo(B)": [[], [0]],
    "fifo(A, 15)": [[], [2] * 15, [0] * 15, [0, 1, 2] * 5],
}
BITS = {"upto(0)": 0, "upto(4)": 3, "element(B)": 0, "optional(B)": 1, "fifo(A)": 6, "fifo(A, 15)": 30, "subset(A)": 3}


def spec_of(folder: Path, *variables: str) -> BoundSpec:
    head = HEAD.format(a=3, b=1, k=2, on=True, costs=(1, 2), grid=((0, 1), (2, 3)))
    return load(head + "".join(f"    {line}\n" for line in variables), folder)


@pytest.mark.parametrize("declared", TYPES)
def test_every_value_of_a_type_comes_back_from_its_own_bits(declared: str, tmp_path: Path) -> None:
    layout = Layout(spec_of(tmp_path, "first = field(upto(2))", f"x = field({declared})", "last = field(flag())"))
    packed = {}
    for value in TYPES[declared]:
        s = layout.spec.initial()
        s.x, s.first, s.last = value, 2, True
        words = layout.pack(s)
        packed[words] = value
        back = layout.unpack(words)
        assert (back.x, back.first, back.last) == (value, 2, True)
        assert type(back.x) is type(value)
        assert back.events == []
    assert len(packed) == len(TYPES[declared])
    slot = layout.slots[layout.number_of["x", ()]]
    assert slot.bits == BITS.get(declared, slot.bits)
    assert all(stored(slot, words) <= slot.high - slot.offset <= slot.mask for words in packed)


def stored(slot: Slot, words: tuple[int, ...]) -> int:
    return words[slot.word] >> slot.shift & slot.mask


@pytest.mark.heavy
def test_any_state_of_a_random_specification_comes_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("specs")

    @settings(max_examples=40)
    @given(random_specs(), st.integers(0, 1 << 32))
    def check(text: str, seed: int) -> None:
        note(text)
        layout = Layout(load(text, folder))
        comes_back(layout, seed)
        shares_no_bit(layout)

    check()


@pytest.mark.parametrize("design", ["decide_at_drain", "revoke_queue_sampled"])
def test_any_state_of_a_design_comes_back(design: str) -> None:
    layout = Layout(BoundSpec(DESIGNS[design], Bounds("wide", requests=3, attempts=2, ranks=3)))
    assert layout.words > 3
    shares_no_bit(layout)
    for seed in range(50):
        comes_back(layout, seed)


def comes_back(layout: Layout, seed: int) -> None:
    s, spec = any_state(layout, seed), layout.spec
    words = layout.pack(s)
    assert len(words) == layout.words
    assert all(0 <= w < 1 << WORD_BITS for w in words)
    assert spec.encode(layout.unpack(words)) == spec.encode(s)


def shares_no_bit(layout: Layout) -> None:
    taken = [0] * layout.words
    for slot in layout.slots:
        field = slot.mask << slot.shift
        assert field < 1 << WORD_BITS, "no field crosses a word"
        assert not taken[slot.word] & field
        taken[slot.word] |= field
    assert sum(word.bit_count() for word in taken) == layout.bits


def test_the_head_of_a_queue_is_a_shift_away(tmp_path: Path) -> None:
    layout = Layout(spec_of(tmp_path, "x = field(fifo(A, 4))", "y = field(flag())"))
    slot = layout.slots[layout.number_of["x", ()]]
    digits = element_bits(slot.variable)
    packed: dict[int, Any] = {}
    for queue in ([2, 0, 1, 1], [0, 1, 1], [1, 1], [1], []):
        s = layout.spec.initial()
        s.x = queue
        packed[len(queue)] = stored(slot, layout.pack(s))
    for length in range(4, 0, -1):
        assert packed[length] >> digits == packed[length - 1]
    assert packed[4] & (1 << digits) - 1 == 2 + 1
