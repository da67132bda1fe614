"""The parts that are joined to the canonical design: pinned sizes, reached outcomes, mutants, liveness."""

from __future__ import annotations

import pytest

from engine_comparison import findings, without_sizes
from hicache_checks.engine.counterexample import tell
from hicache_checks.engine.engines import EngineOptions
from hicache_checks.engine.engines import explore as compiled
from hicache_checks.engine.explore import explore
from hicache_checks.engine.graph_by_kernels import graph_by_kernels
from hicache_checks.engine.liveness import check_liveness
from hicache_checks.engine.native.build import compiler
from hicache_checks.mutants.design_mutants import DESIGN_MUTANTS, STARVING_DESIGNS
from hicache_checks.mutants.faulty_liveness import LIVENESS_MUTANTS, LivenessMutant
from hicache_checks.mutants.part_mutants import PART_MUTANTS, STARVING_PARTS
from hicache_checks.mutants.spec_mutants import SPEC_MUTANTS, SpecMutant
from hicache_spec import BoundSpec, SpecError
from hicache_spec.parts import PART_BOUNDS, design_named, design_of, must_reach
from hicache_spec.parts.copying import COPY_SOLO
from hicache_spec.parts.resetting import RESET_SOLO
from hicache_spec.parts.storing import STORE_FORGETS, STORE_REPLICATED, STORE_SOLO
from joined_tables import beneath, own

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
    "copying+control+resetting": {
        "reset_solo": (835, 1_922, 19),
        "reset_ranks": (1_010, 3_915, 22),
        "reset_pages": (6_757, 23_661, 25),
    },
}
SMALLEST = {"copying": COPY_SOLO, "copying+storing": STORE_FORGETS, "copying+control+resetting": RESET_SOLO}
CAUGHT_ALONE: dict[str, dict[str, str]] = {
    "decide_at_drain+copying": {},
    "decide_at_drain+copying+storing": {},
    "decide_at_drain+copying+control+resetting": {"inv_pages_conserved": "sched_begins_again_without_the_host"},
}
"""Properties that are never the first to break, each with a mutant that it catches by itself."""
STATES_MAX = 300_000

CONFIGURATIONS = [
    pytest.param(design_of(name), b, SIZES[name].get(b.name), id=f"{name} {b.name}")
    for name in SIZES
    for b in PART_BOUNDS[name]
]
UNSAFE = [pytest.param(name, m, id=m.name) for name, mutants in PART_MUTANTS.items() for m in mutants]
STARVING = [pytest.param(name, m, id=m.name) for name, mutants in STARVING_PARTS.items() for m in mutants]
ENGINES = [
    pytest.param(EngineOptions(engine="array", stop=False), id="array"),
    pytest.param(
        EngineOptions(engine="native", stop=False),
        id="native",
        marks=pytest.mark.skipif(compiler() is None, reason="there is no C compiler"),
    ),
]


def variant_of(design: str, mutant: SpecMutant | LivenessMutant) -> BoundSpec:
    return BoundSpec(design_named(design).variant(mutant.name, "", mutant.replaces), mutant.bounds)


@pytest.mark.heavy
@pytest.mark.parametrize(("design", "bounds", "size"), CONFIGURATIONS)
def test_a_joined_design_holds_and_its_size_is_pinned(design: str, bounds: object, size: tuple[int, int, int]) -> None:
    result = compiled(BoundSpec(design_named(design), bounds), EngineOptions())
    assert result.violation is None
    assert result.complete
    assert (result.states, result.transitions, result.depth) == size
    assert result.states <= STATES_MAX


@pytest.mark.slow  # hicheck verify does it, too
@pytest.mark.heavy
@pytest.mark.parametrize("name", list(SIZES))
def test_a_set_of_configurations_reaches_every_outcome_of_its_part(name: str) -> None:
    design = design_named(design_of(name))
    specs = [BoundSpec(design, b) for b in PART_BOUNDS[name]]
    reached = {outcome for spec in specs for outcome in compiled(spec, EngineOptions(engine="array")).reached}
    assert reached == set(must_reach(design, name))


@pytest.mark.heavy
@pytest.mark.parametrize("options", ENGINES)
@pytest.mark.parametrize("name", list(SMALLEST))
def test_the_engines_agree_on_the_smallest_configuration(name: str, options: EngineOptions) -> None:
    spec = BoundSpec(design_named(design_of(name)), SMALLEST[name])
    assert findings(compiled(spec, options)) == findings(explore(spec, stop=False))


@pytest.mark.heavy
def test_ranks_are_interchangeable_where_each_has_its_own_shard() -> None:
    symmetric = EngineOptions(engine="array", symmetry=True)
    design = design_named(design_of("copying+storing"))
    full, reduced = (compiled(BoundSpec(design, STORE_SOLO), o) for o in (EngineOptions(engine="array"), symmetric))
    assert without_sizes(reduced) == without_sizes(full)
    assert full.states / 2 < reduced.states < full.states
    with pytest.raises(SpecError, match="not enabled alike under the declared symmetry rank"):
        compiled(BoundSpec(design, STORE_REPLICATED), symmetric)


@pytest.mark.heavy
@pytest.mark.parametrize("name", list(SMALLEST))
def test_a_joined_design_is_live(name: str) -> None:
    results = list(check_liveness(graph_by_kernels(BoundSpec(design_named(design_of(name)), SMALLEST[name]))))
    assert {r.name for r in results} >= own(design_of(name), "live")
    assert not [r.label for r in results if r.lasso is not None]


# ---- mutants


@pytest.mark.heavy
@pytest.mark.parametrize(("design", "mutant"), UNSAFE)
def test_a_mutant_of_a_part_is_caught(design: str, mutant: SpecMutant) -> None:
    spec = variant_of(design, mutant)
    violation = explore(spec).violation
    assert violation is not None, "the mutant survived"
    assert (violation.property, len(violation.run)) == (mutant.caught_by, mutant.steps)
    assert len(tell(spec, violation.run)) == mutant.steps, "the counterexample is a run of the mutant"


@pytest.mark.heavy
@pytest.mark.parametrize(("design", "mutant"), UNSAFE)
def test_the_configuration_of_a_part_is_innocent(design: str, mutant: SpecMutant) -> None:
    needed = explore(variant_of(design, mutant)).states
    assert explore(BoundSpec(design_named(design), mutant.bounds), max_states=needed).violation is None


@pytest.mark.heavy
@pytest.mark.parametrize(("design", "mutant"), STARVING)
def test_a_part_that_starves_somebody_is_caught_by_liveness_alone(design: str, mutant: LivenessMutant) -> None:
    spec = variant_of(design, mutant)
    assert explore(spec).violation is None
    lassos = {r.name: r.lasso for r in check_liveness(graph_by_kernels(spec)) if r.lasso is not None}
    assert lassos.keys() == {mutant.caught_by}
    lasso = lassos[mutant.caught_by]
    assert (len(lasso.stem), len(lasso.loop)) == (mutant.stem, mutant.loop)


@pytest.mark.heavy
@pytest.mark.parametrize("design", list(PART_MUTANTS))
def test_every_property_of_a_part_catches_a_mutant(design: str) -> None:
    alone = CAUGHT_ALONE[design]
    assert own(design, "invariant", "step") - {m.caught_by for m in PART_MUTANTS[design]} == alone.keys()
    assert own(design, "live") == {m.caught_by for m in STARVING_PARTS[design]}
    for name, fault in alone.items():
        mutant = next(m for m in PART_MUTANTS[design] if m.name == fault)
        assert explore(variant_of(design, mutant), only={name}).violation is not None


def test_names_of_mutants_of_parts_are_unique_and_name_the_actor() -> None:
    registries = (DESIGN_MUTANTS, STARVING_DESIGNS, PART_MUTANTS, STARVING_PARTS)
    names = [m.name for m in (*SPEC_MUTANTS, *LIVENESS_MUTANTS)]
    names += [m.name for registry in registries for mutants in registry.values() for m in mutants]
    assert len(set(names)) == len(names)
    of_parts = [m.name for registry in (PART_MUTANTS, STARVING_PARTS) for ms in registry.values() for m in ms]
    assert {name.split("_")[0] for name in of_parts} <= {"sched", "query", "io", "backup", "copy"}


@pytest.mark.parametrize("name", list(SIZES))
def test_a_joined_design_looks_for_the_outcomes_of_its_last_part(name: str) -> None:
    design = design_named(design_of(name))
    assert design.name == design_of(name)
    assert sorted(must_reach(design, name)) == sorted(r.name for r in design.rules() if r.kind == "sometimes")
    assert not {r.name for r in design_named(beneath(design.name)).rules() if r.kind == "sometimes"} & set(
        must_reach(design, name)
    )
