"""The parts of the system: pinned sizes, reached outcomes, engines, symmetry, liveness, mutants. What only one of them
has is in a file of its own."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from engine_comparison import findings, without_sizes
from faulty_parts import faulty, shortest
from hicache_checks.engine.counterexample import tell
from hicache_checks.engine.engines import EngineOptions
from hicache_checks.engine.engines import explore as compiled
from hicache_checks.engine.explore import DEADLOCK, Exploration, explore
from hicache_checks.engine.graph_by_kernels import graph_by_kernels
from hicache_checks.engine.liveness import check_liveness
from hicache_checks.engine.native.build import compiler
from hicache_checks.mutants.design_mutants import DESIGN_MUTANTS, STARVING_DESIGNS
from hicache_checks.mutants.faulty_liveness import LIVENESS_MUTANTS, LivenessMutant
from hicache_checks.mutants.part_mutants import IN_PARTS, PART_MUTANTS, STARVING_IN_PARTS, STARVING_PARTS
from hicache_checks.mutants.spec_mutants import SPEC_MUTANTS, SpecMutant
from hicache_spec import Bounds, BoundSpec, SpecError
from hicache_spec.bounds import AGAIN, LIMITER, SOLO_CHURN
from hicache_spec.parts import PART_BOUNDS, design_named, design_of, must_reach
from hicache_spec.parts.carrying import CARRY_FETCH_SIDECAR, CARRY_STATE
from hicache_spec.parts.control import CONTROL_PAIR, CONTROL_SOLO
from hicache_spec.parts.copying import COPY_SOLO
from hicache_spec.parts.depositing import DEPOSIT_FETCH, DEPOSIT_SIDECAR
from hicache_spec.parts.detaching import DETACH_RANKS, DETACH_SOLO
from hicache_spec.parts.groups_design import PAIR
from hicache_spec.parts.pool_bounds import POOL_PAIR, POOL_SIDECARS
from hicache_spec.parts.resetting import RESET_SOLO
from hicache_spec.parts.storing import STORE_FORGETS, STORE_REPLICATED, STORE_SOLO
from hicache_spec.parts.turnover import TURNOVER_MIXED, TURNOVER_SIDECAR
from part_tables import CAUGHT_ALONE, beneath, own
from test_explore import COUNTS

# of each set: configuration: distinct states, transitions, depth
SIZES = {
    "copying": {
        "copy_solo": (466, 3_701, 16),
        "copy_pressure": (1_024, 8_971, 19),
        "copy_tight": (250, 2_064, 12),
        "copy_selective": (636, 5_304, 15),
        "copy_back": (802, 6_895, 22),
        "copy_back_long": (424, 3_273, 19),
        "copy_fetch": (9_152, 54_594, 25),
        "copy_fetch_churn": (18_935, 123_198, 32),
        "copy_fetch_back": (5_489, 43_216, 22),
        "copy_fetch_ranks": (191_804, 1_407_449, 35),
        "copy_fetch_pair": (31_316, 195_961, 30),
    },
    "copying+storing": {
        "store_solo": (18_818, 152_095, 30),
        "store_long": (6_932, 64_461, 28),
        "store_pressure": (43_192, 436_542, 31),
        "store_replicated": (1_779, 13_195, 22),
        "store_forgets": (769, 5_403, 17),
        "store_back": (19_009, 153_486, 31),
        "store_fetch": (89_564, 680_079, 42),
        "store_fetch_churn": (35_768, 267_012, 38),
        "store_fetch_pair": (133_067, 973_711, 39),
        "store_fetch_back": (6_511, 41_952, 31),
    },
    "control": {
        "control_solo": (3_339, 9_583, 28),
        "control_pages": (12_639, 38_630, 32),
        "control_tree": (15_869, 45_070, 44),
        "control_again": (21_575, 75_159, 38),
        "control_pair": (81_757, 313_646, 42),
        "control_trio": (39_290, 151_604, 39),
    },
    "copying+control+resetting": {
        "reset_solo": (835, 1_922, 19),
        "reset_ranks": (1_010, 3_915, 22),
        "reset_pages": (6_757, 23_661, 25),
    },
    "copying+storing+control+resetting+detaching": {
        "detach_solo": (5_955, 19_019, 35),
        "detach_pages": (10_829, 51_905, 38),
        "detach_ranks": (28_536, 146_416, 43),
        "detach_replicated": (13_332, 65_901, 43),
    },
    "pools": {
        "pool_sidecar": (2_216, 7_908, 28),
        "pool_sidecars": (519, 1_698, 22),
        "pool_state": (3_080, 10_259, 24),
        "pool_optional": (3_634, 11_927, 23),
        "pool_mixed": (10_407, 39_426, 33),
        "pool_pair": (84_434, 391_328, 39),
        "pool_known": (8_764, 35_694, 28),
        "pool_scarce": (13_514, 51_392, 36),
        "pool_writes": (16_224, 55_385, 27),
        "pool_best_effort": (6_791, 23_595, 32),
    },
    "control+pools+turnover": {
        "turnover_sidecar": (4_854, 14_566, 32),
        "turnover_state": (11_607, 35_550, 32),
        "turnover_mixed": (14_060, 40_348, 36),
    },
    "copying+pools+carrying": {
        "carry_sidecar": (533, 4_512, 16),
        "carry_state": (5_008, 44_737, 29),
        "carry_back": (100, 531, 11),
        "carry_pressure": (544, 3_725, 24),
        "carry_fetch_sidecar": (757, 3_887, 21),
        "carry_fetch_state": (1_612, 8_281, 22),
    },
    "copying+storing+pools+carrying+depositing": {
        "deposit_ranks": (2_745, 18_179, 24),
        "deposit_shared": (1_935, 11_507, 25),
        "deposit_sidecar": (1_255, 8_691, 21),
        "deposit_state": (2_125, 13_933, 24),
        "deposit_shards": (59_469, 461_659, 48),
        "deposit_fetch": (9_135, 44_087, 42),
        "deposit_fetch_sidecar": (49_848, 361_523, 41),
        "deposit_forgets": (4_826, 39_996, 23),
    },
    "groups": {
        "pair": (5_186, 15_124, 47),
        "pair_two": (169_348, 622_108, 72),
        "trio_deaths": (8_768, 49_302, 68),
        "square": (201_074, 1_042_100, 114),
        "square_death": (140_962, 860_384, 115),
        "stages": (242_276, 1_173_418, 112),
        "stages_line": (83_221, 499_208, 69),
        "square_backup": (18_720, 83_184, 94),
        "stages_backup": (53_948, 313_964, 93),
        "pair_backup": (5_614, 24_624, 49),
    },
}
STATES_MAX = 300_000
SMALLEST = {
    "copying": COPY_SOLO,
    "copying+storing": STORE_FORGETS,
    "control": CONTROL_SOLO,
    "copying+control+resetting": RESET_SOLO,
    "copying+storing+control+resetting+detaching": DETACH_SOLO,
    "pools": POOL_SIDECARS,
    "control+pools+turnover": TURNOVER_SIDECAR,
    "copying+pools+carrying": CARRY_FETCH_SIDECAR,
    "copying+storing+pools+carrying+depositing": DEPOSIT_SIDECAR,
    "groups": PAIR,
}
LIVE_IN_VERIFY_ALONE = {"copy_fetch_ranks", "store_fetch", "store_fetch_pair"}
"""Large ones, whose liveness `hicheck verify` decides, which is a test, too."""
ACTORS = {"sched", "query", "io", "backup"}

CONFIGURATIONS = [pytest.param(name, b, id=f"{name} {b.name}") for name in PART_BOUNDS for b in PART_BOUNDS[name]]
EVERY: list[SpecMutant | LivenessMutant] = [*IN_PARTS, *STARVING_IN_PARTS]
OTHERS = {
    (m.design, m.bounds.name): m
    for m in EVERY
    if m.bounds not in PART_BOUNDS[m.design.removeprefix("decide_at_drain+")]
}
"""Configurations that only mutants are looked for in."""
ARRAY = EngineOptions(engine="array")
ENGINES = [
    pytest.param(EngineOptions(engine="array", stop=False), id="array"),
    pytest.param(
        EngineOptions(engine="native", stop=False),
        id="native",
        marks=pytest.mark.skipif(compiler() is None, reason="there is no C compiler"),
    ),
]


@cache
def explored(name: str, bounds: Any) -> Exploration:
    """A configuration of a set, to its end."""
    return compiled(BoundSpec(design_named(design_of(name)), bounds), ARRAY)


# ---- they hold


@pytest.mark.heavy
@pytest.mark.parametrize(("name", "bounds"), CONFIGURATIONS)
def test_a_part_holds_and_its_size_is_pinned(name: str, bounds: Any) -> None:
    result = explored(name, bounds)
    assert result.violation is None
    assert result.complete
    assert (result.states, result.transitions, result.depth) == SIZES[name][bounds.name]
    assert result.states <= STATES_MAX


@pytest.mark.heavy
@pytest.mark.parametrize("name", list(PART_BOUNDS))
def test_a_set_of_configurations_reaches_every_outcome_of_its_part(name: str) -> None:
    reached = {outcome for b in PART_BOUNDS[name] for outcome in explored(name, b).reached}
    wanted = set(must_reach(design_named(design_of(name)), name))
    assert len(wanted) >= 5
    assert reached == wanted


@pytest.mark.parametrize("name", list(PART_BOUNDS))
def test_a_joined_design_looks_for_the_outcomes_of_its_last_part(name: str) -> None:
    design, under = design_named(design_of(name)), beneath(design_of(name))
    assert design.name == design_of(name)
    assert set(must_reach(design, name)) == {r.name for r in design.rules() if r.kind == "sometimes"}
    known = set() if under is None else {r.name for r in under.rules() if r.kind == "sometimes"}
    assert not known & set(must_reach(design, name))


@pytest.mark.heavy
@pytest.mark.parametrize("options", ENGINES)
@pytest.mark.parametrize("name", list(PART_BOUNDS))
def test_the_engines_agree_on_the_smallest_configuration(name: str, options: EngineOptions) -> None:
    spec = BoundSpec(design_named(design_of(name)), SMALLEST[name])
    assert findings(compiled(spec, options)) == findings(explore(spec, stop=False))


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "bounds", "states"),
    [
        ("copying+storing", STORE_SOLO, 9_929),
        ("control", CONTROL_PAIR, 21_454),
        ("copying+storing+control+resetting+detaching", DETACH_RANKS, 14_620),
        ("pools", POOL_PAIR, 21_701),
        ("copying+pools+carrying", CARRY_STATE, 2_950),
        ("copying+storing+pools+carrying+depositing", DEPOSIT_FETCH, 4_896),
        ("control+pools+turnover", TURNOVER_MIXED, 7_213),
    ],
)
def test_requests_and_ranks_stay_interchangeable(name: str, bounds: Any, states: int) -> None:
    reduced = compiled(BoundSpec(design_named(design_of(name)), bounds), EngineOptions(engine="array", symmetry=True))
    assert reduced.states == states
    assert f"checked on {states:,} of {states:,} states" in reduced.note
    assert without_sizes(reduced) == without_sizes(explored(name, bounds))


def test_ranks_that_store_for_others_are_not_interchangeable() -> None:
    design = design_named(design_of("copying+storing"))
    with pytest.raises(SpecError, match="not enabled alike under the declared symmetry rank"):
        compiled(BoundSpec(design, STORE_REPLICATED), EngineOptions(engine="array", symmetry=True))


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        pytest.param(name, b, id=f"{name} {b.name}")
        for name in PART_BOUNDS
        for b in PART_BOUNDS[name]
        if b.name not in LIVE_IN_VERIFY_ALONE
    ],
)
def test_what_is_promised_happens_in_the_end(name: str, bounds: Any) -> None:
    design = design_named(design_of(name))
    results = check_liveness(graph_by_kernels(BoundSpec(design, bounds)))
    assert {r.name for r in results} == {r.name for r in design.rules() if r.kind == "live"}
    assert not [r.label for r in results if r.lasso is not None]


@pytest.mark.parametrize("bounds", [SOLO_CHURN, AGAIN, LIMITER], ids=lambda b: b.name)
@pytest.mark.parametrize("part", ["control", "pools"])
def test_where_a_part_is_switched_off_the_canonical_design_is_the_same(part: str, bounds: Bounds) -> None:
    result = explore(BoundSpec(design_named(design_of(part)), bounds))
    assert result.violation is None
    assert (result.states, result.transitions, result.depth) == COUNTS[bounds.name]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("pair", "of", "bounds"),
    [
        ("control+pools+turnover", "control", CONTROL_SOLO),
        ("control+pools+turnover", "pools", POOL_SIDECARS),
        ("copying+storing+control+resetting+detaching", "copying+storing", STORE_FORGETS),
        ("copying+pools+carrying", "copying", COPY_SOLO),
        ("copying+storing+pools+carrying+depositing", "copying+storing", STORE_FORGETS),
    ],
)
def test_where_one_of_a_pair_is_switched_off_the_other_is_the_same(pair: str, of: str, bounds: Bounds) -> None:
    result = explored(pair, bounds)
    assert result.violation is None
    assert (result.states, result.transitions, result.depth) == SIZES[of][bounds.name]


# ---- they can fail


@pytest.mark.heavy
@pytest.mark.parametrize("mutant", IN_PARTS, ids=lambda m: m.name)
def test_a_mutant_of_a_part_is_caught(mutant: SpecMutant) -> None:
    spec = faulty(mutant)
    # Some faults of groups take from an empty queue, which the plain engine refuses.
    violation = (compiled(spec, ARRAY) if mutant.design == "groups" else explore(spec)).violation
    assert violation is not None, "the mutant survived"
    assert (violation.property, len(violation.run)) == (mutant.caught_by, mutant.steps)
    assert len(tell(spec, violation.run)) == mutant.steps, "the counterexample is a run of the mutant"


@pytest.mark.heavy
@pytest.mark.parametrize("place", OTHERS, ids=lambda place: place[1])
def test_a_configuration_of_mutants_is_innocent(place: tuple[str, str]) -> None:
    mutant = OTHERS[place]
    spec = BoundSpec(design_named(mutant.design), mutant.bounds)
    result = compiled(spec, ARRAY)
    assert result.violation is None
    assert result.complete
    if isinstance(mutant, LivenessMutant):
        assert not [r.label for r in check_liveness(graph_by_kernels(spec)) if r.lasso is not None]


@pytest.mark.heavy
@pytest.mark.parametrize("mutant", STARVING_IN_PARTS, ids=lambda m: m.name)
def test_a_part_that_starves_somebody_is_caught_by_liveness_alone(mutant: LivenessMutant) -> None:
    spec = faulty(mutant)
    assert compiled(spec, ARRAY).violation is None
    lassos = [(r.name, r.lasso) for r in check_liveness(graph_by_kernels(spec)) if r.lasso is not None]
    shortest_stem = min((len(lasso.stem), len(lasso.loop)) for name, lasso in lassos if name == mutant.caught_by)
    assert shortest_stem == (mutant.stem, mutant.loop)
    # Who waits for ever in a grid keeps others waiting.
    assert mutant.design == "groups" or {name for name, _ in lassos} == {mutant.caught_by}


@pytest.mark.heavy
@pytest.mark.parametrize("design", list(PART_MUTANTS))
def test_every_property_of_a_part_catches_a_mutant(design: str) -> None:
    alone = CAUGHT_ALONE.get(design, {})
    caught = {m.caught_by for m in PART_MUTANTS[design]}
    assert own(design, "invariant", "step") - caught == alone.keys()
    assert design != "groups" or DEADLOCK in caught
    assert own(design, "live") <= {m.caught_by for m in STARVING_PARTS.get(design, ())}
    for name, fault in alone.items():
        assert shortest(fault, name)


def test_names_of_mutants_of_parts_are_unique_and_name_the_actor() -> None:
    others = [m.name for registry in (DESIGN_MUTANTS, STARVING_DESIGNS) for ms in registry.values() for m in ms]
    of_parts = [m.name for m in EVERY]
    names = [*(m.name for m in (*SPEC_MUTANTS, *LIVENESS_MUTANTS)), *others, *of_parts]
    assert len(set(names)) == len(names)
    assert {name.split("_")[0] for name in of_parts} == ACTORS
