"""`hicheck bench engine`: our engines and other model checkers on the same models, one after the other.

Every row is a process of its own, measured as a whole; compiling is apart. The models of the peers are exported from
the specification, so the numbers of distinct states are equal, and the command fails if they are not. A second table is
of a small protocol, for which there is a Promela model by hand as well.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace

from hicache_checks.explore_command import ExploreOptions, configurations_of
from hicache_checks.export import Promela, Tla
from hicache_checks.peers import PeerMissing, PeerResult, minicheck, ours, spin, tlc
from hicache_checks.peers.measure import PeerFailed
from hicache_checks.peers.ours import OursOptions
from hicache_checks.peers.small_protocol import PROMELA, SMALL_PROTOCOL, SmallBounds
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, print_rows
from hicache_spec import DESIGNS, Bounds, BoundSpec

DESIGN = "decide_at_drain"
MIB = 1024 * 1024
STATES_A_SECOND_PLAIN = 1_000
"""What checkers in plain Python do in any case: so many states are asked of them that they end in time."""


@dataclass(frozen=True)
class Configuration:
    """A configuration to measure on: its sizes as `hicheck explore` takes them, and its number of distinct states."""

    name: str
    sizes: ExploreOptions
    states: int

    @property
    def bounds(self) -> Bounds:
        """The bounds of these sizes."""
        (bounds,) = configurations_of(self.sizes)
        return replace(bounds, name=self.name)

    @property
    def words(self) -> tuple[str, ...]:
        """The sizes as words of the command line."""
        words: list[str] = []
        for field in fields(self.sizes):
            value = getattr(self.sizes, field.name)
            if value != field.default:
                words += [f"--{field.name.replace('_', '-')}", *([] if value is True else [str(value)])]
        return tuple(words)


CONFIGURATIONS = (
    Configuration("pair", ExploreOptions(requests=2), 55_167),
    Configuration("trio_of_one_rank", ExploreOptions(requests=3, ranks=1, stops=True), 943_227),
    Configuration("trio", ExploreOptions(requests=3), 4_511_703),
    Configuration("trio_timeout", ExploreOptions(requests=3, policy="timeout", threshold_pages=2), 11_496_209),
    Configuration("trio_best_effort", ExploreOptions(requests=3, policy="best_effort"), 12_246_281),
)
SMALL_SIZES = {960_736: SmallBounds(), 7_338_100: SmallBounds(pages=3, pool_pages=5)}


@dataclass(frozen=True)
class BenchOptions:
    """`states`: about so many distinct states; `configuration`: one by name instead.

    A tool that takes longer than `seconds_max` is stopped, and its row says how far it came. `tools`: only rows whose
    name holds one of these words.
    """

    states: int = 10_000_000
    configuration: str | None = None
    seconds_max: float = 120.0
    tools: tuple[str, ...] = ()
    small: bool = True


@dataclass(frozen=True)
class Row:
    """One measurement, or why there is none."""

    table: str
    name: str
    result: PeerResult | None
    missing: str = ""


@dataclass(frozen=True)
class Entry:
    """A row to be: its name and how it is measured."""

    name: str
    run: Callable[[], PeerResult]


def run(options: BenchOptions, screen: Screen) -> Outcome:
    """Measure and report. Raises InputError for an unknown configuration or if no row is left."""
    configuration = chosen(options)
    tables = {configuration.name: entries(configuration, options)}
    if options.small:
        tables[SMALL_PROTOCOL.name] = small_entries(options)
    rows = []
    for table, listed in tables.items():
        wanted = [e for e in listed if not options.tools or any(word in e.name for word in options.tools)]
        rows += [_measured(table, entry, screen) for entry in wanted]
    if not rows:
        raise InputError(f"no row is named {' or '.join(options.tools)}")
    screen.progress.clear()
    disagreements = [text for table in tables for text in disagreeing(rows, table)]
    for table in tables:
        _report(table, [r for r in rows if r.table == table], screen)
    ratios = {table: ratios_of([r.result for r in rows if r.table == table and r.result]) for table in tables}
    for table, found in ratios.items():
        for name, value in found.items():
            if value is not None:
                screen.say(f"{table}: {name.replace('_', ' ')}: {value:,.2f}")
    for text in disagreements:
        screen.say(text)
    verdict = Verdict.FAIL if disagreements else Verdict.PASS
    if not any(r.result and r.result.complete for r in rows):
        verdict = Verdict.UNKNOWN
    screen.say(f"verdict: {verdict.value}")
    return Outcome(
        verdict,
        {
            "configuration": {"name": configuration.name, "bounds": asdict(configuration.bounds)},
            "rows": [_as_json(r) for r in rows],
            "ratios": ratios,
            "disagreements": disagreements,
        },
    )


def chosen(options: BenchOptions) -> Configuration:
    """The configuration by name, or the one whose number of states is nearest. Raises InputError."""
    if options.configuration is None:
        return min(CONFIGURATIONS, key=lambda c: abs(math.log(c.states / options.states)))
    for configuration in CONFIGURATIONS:
        if configuration.name == options.configuration:
            return configuration
    names = ", ".join(c.name for c in CONFIGURATIONS)
    raise InputError(f"no configuration {options.configuration!r}; there are {names}")


# ---- the rows


def entries(configuration: Configuration, options: BenchOptions) -> list[Entry]:
    """What is measured on a configuration of the specification."""
    spec = BoundSpec(DESIGNS[DESIGN], configuration.bounds)
    limit = options.seconds_max
    part = int(min(configuration.states, STATES_A_SECOND_PLAIN * limit))
    search = spin.SpinOptions(table_bits=bits(configuration.states), seconds_max=limit)
    cores = os.cpu_count() or 1
    native = OursOptions("native", threads=cores, seconds_max=limit)
    mine = [replace(native, threads=n, checked=c) for c in (True, False) for n in dict.fromkeys((1, cores))]
    mine += [replace(native, symmetry=True), replace(native, engine="array")]
    mine += [OursOptions("object", max_states=part, seconds_max=limit)]

    def by_spin(**changes: bool) -> Callable[[], PeerResult]:
        return lambda: spin.run(Promela(spec, configuration.name), replace(search, **changes))  # type: ignore[arg-type]

    return [
        *(Entry(o.name, lambda o=o: ours.run_command(configuration.words, o)) for o in mine),  # type: ignore[misc]
        Entry("spin", by_spin(checked=False)),
        Entry("spin, with properties", by_spin(checked=True)),
        Entry("spin, standard flags", by_spin(checked=False, tuned=False)),
        Entry("tlc", lambda: tlc.run(Tla(spec, configuration.name), checked=False, java=tlc.LONG, seconds_max=limit)),
        Entry(
            "minicheck",
            lambda: minicheck.run(DESIGN, configuration.bounds, max_states=part, seconds_max=limit),
        ),
    ]


def small_entries(options: BenchOptions) -> list[Entry]:
    """What is measured on the small protocol: the larger of its two sizes for many states."""
    states = min(SMALL_SIZES, key=lambda n: abs(math.log(n / options.states)))
    bounds = SMALL_SIZES[states]
    cores = os.cpu_count() or 1
    search = spin.SpinOptions(checked=False, table_bits=bits(states), seconds_max=options.seconds_max)
    sizes = f"#define PAGES {bounds.pages}\n#define POOL_PAGES {bounds.pool_pages}\n"
    native = OursOptions("native", threads=cores, seconds_max=options.seconds_max)
    mine = [*(replace(native, threads=n) for n in dict.fromkeys((1, cores))), replace(native, engine="array")]
    return [
        *(Entry(o.name, lambda o=o: ours.run_small(bounds, o)) for o in mine),  # type: ignore[misc]
        Entry("spin", lambda: spin.run(Promela(BoundSpec(SMALL_PROTOCOL, bounds), bounds.name), search)),
        Entry("spin, by hand", lambda: spin.run_text(sizes + PROMELA.read_text(encoding="utf-8"), 0, search)),
    ]


def bits(states: int) -> int:
    """The size of Spin's hash table, as a power of two, that holds so many states."""
    return max(18, math.ceil(math.log2(states)))


def _measured(table: str, entry: Entry, screen: Screen) -> Row:
    screen.progress.update(f"bench: {table}: {entry.name}")
    try:
        return Row(table, entry.name, replace(entry.run(), name=entry.name))
    except (PeerMissing, PeerFailed) as error:
        return Row(table, entry.name, None, " ".join(str(error).split()))


# ---- the report


def disagreeing(rows: Sequence[Row], table: str) -> list[str]:
    """Complete rows of a table that found another number of states than the first complete one; a violation found."""
    found = [r.result for r in rows if r.table == table and r.result and "symmetry" not in r.name]
    texts = [f"{table}: {r.name} reports that {r.violated} is violated" for r in found if r.violated]
    whole = [r for r in found if r.complete]
    texts += [
        f"{table}: {r.name} found {r.states:,} states, {whole[0].name} {whole[0].states:,}"
        for r in whole
        if r.states != whole[0].states
    ]
    return texts


def ratios_of(results: Sequence[PeerResult]) -> dict[str, float | None]:
    """Distinct states a second of one tool against another's; symmetry by how many fewer states.

    None if one of the two did not finish and was not at it for long either.
    """
    by = {(r.name, r.cores): r for r in results}
    fastest = max((r for r in results if r.name.startswith("spin") and r.complete), key=_speed, default=None)
    native = [r for r in results if r.name == "hicheck native"]
    many = max(native, key=lambda r: r.cores, default=None)
    bare = [r for r in results if r.name == "hicheck native, without properties"] or native
    one = next((r for r in bare if r.cores == 1), None)
    all_cores = max(bare, key=lambda r: r.cores, default=None)
    array = next((r for r in results if r.name == "hicheck array"), None)
    other = next((r for r in results if r.name == "tlc"), None)
    standard = by.get(("spin, standard flags", 1))
    pairs = {
        "native_on_one_core_to_fastest_spin": (one, fastest),
        "native_on_all_cores_to_fastest_spin": (all_cores, fastest),
        "native_on_all_cores_to_spin_with_standard_flags": (all_cores, standard),
        "native_with_all_properties_on_all_cores_to_spin_with_properties": (many, by.get(("spin, with properties", 1))),
        "array_to_fastest_spin": (array, fastest),
        "native_on_all_cores_to_tlc": (many, other),
    }
    ratios = {name: _ratio(a, b) for name, (a, b) in pairs.items() if a and b}
    reduced = next((r for r in results if "symmetry" in r.name and r.complete), None)
    if reduced is not None and many is not None and many.complete:
        ratios["states_without_symmetry_to_states_with"] = round(many.states / reduced.states, 3)
    return ratios


def _speed(result: PeerResult) -> float:
    return result.states_per_second or 0.0


def _ratio(a: PeerResult, b: PeerResult) -> float | None:
    return round(_speed(a) / _speed(b), 3) if a.is_comparable and b.is_comparable else None


def _report(table: str, rows: Sequence[Row], screen: Screen) -> None:
    headers = ("tool", "cores", "distinct states", "seconds", "states/s", "compile s", "MiB", "bytes/state", "note")
    cells = [_cells(r) for r in rows]
    print_rows(screen.console, headers, cells, right=frozenset(range(1, 8)), title=table)
    screen.say("")


def _cells(row: Row) -> tuple[str, ...]:
    r = row.result
    if r is None:
        return (row.name, "", "", "", "", "", "", "", row.missing)
    note = r.note if r.complete else f"not finished after {r.stopped_after or r.seconds:.0f} s; {r.note}"
    return (
        f"{row.name} {r.version}".rstrip(),
        str(r.cores),
        f"{r.states:,}",
        f"{r.seconds:.1f}",
        "" if r.states_per_second is None else f"{r.states_per_second:,.0f}",
        f"{r.compile_seconds:.1f}",
        f"{r.peak_bytes / MIB:,.0f}",
        "" if r.bytes_per_state is None else f"{r.bytes_per_state:.0f}",
        note,
    )


def _as_json(row: Row) -> dict[str, object]:
    keys: dict[str, object] = {"table": row.table, "name": row.name, "missing": row.missing or None}
    if row.result is not None:
        r = row.result
        keys |= asdict(r) | {
            "bytes_per_state": _rounded(r.bytes_per_state),
            "states_per_second": _rounded(r.states_per_second),
        }
    return keys


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 1)
