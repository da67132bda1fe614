"""The example that decodes through the cache: it is exact, it shows what it is exact about, and it can fail."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

import decode
import decode_faults
from decoding import report, stores
from decoding.engine import COMPUTED, L1, L2, L3
from decoding.model import PAGE_TOKENS, SHAPES, VOCABULARY, Model, Shard
from decoding.processes import Processes
from decoding.reference import chunks, conversations, generate
from decoding.session import Place, Row, Session
from decoding.stores import Missing
from hicache_impl import HiCache, mutants
from hicache_impl.storage.servers import Unavailable

PROGRAM = Path(decode.__file__)
LASTING = ("file", "lmdb")
AGAIN = ("", ", after a restart")
LAST_LINE = re.compile(
    r"decode: (\d+) trees? x (\d+) stores?, ([\d,]+) requests, ([\d,]+) tokens: "
    r"([\d,]+) L1, ([\d,]+) L2, ([\d,]+) L3, ([\d,]+) computed; (exact|not exact: [\d,]+ findings?)"
)


def decoded(capsys: pytest.CaptureFixture[str], *arguments: str, **place: Any) -> tuple[int, list[str]]:
    """The exit code, and the lines that were said, of one rank in this process."""
    code = decode.main(["--ranks", "1", *arguments], Place(Shard(), **place))
    return code, capsys.readouterr().out.splitlines()


def numbers(line: str) -> tuple[list[int], str]:
    """Trees, stores, requests, tokens and tokens by where they came from, of a last line, and its verdict."""
    match = LAST_LINE.fullmatch(line)
    assert match is not None, line
    *counts, verdict = match.groups()
    return [int(count.replace(",", "")) for count in counts], verdict


# --- the model -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", SHAPES)
def test_a_token_is_the_same_whether_it_was_said_or_read(tree: str) -> None:
    """What makes pages of generated tokens worth keeping: reading them gives the same bits as generating them did."""
    model = Model(tree, Shard())
    prompt = [at % VOCABULARY for at in range(3 * PAGE_TOKENS + 3)]
    said = generate([model], prompt, 2 * PAGE_TOKENS)
    read = generate([model], said.fed, 1)
    assert torch.equal(read.logits[0], said.logits[-1])
    assert said.memories[0].kept.keys() == read.memories[0].kept.keys()
    for pages, states in said.memories[0].kept.items():
        assert all(map(torch.equal, states, read.memories[0].kept[pages]))


@pytest.mark.parametrize("tree", SHAPES)
def test_an_answer_depends_on_the_first_token_and_on_the_last(tree: str) -> None:
    model = Model(tree, Shard())
    prompt = [at % VOCABULARY for at in range(5 * PAGE_TOKENS)]
    answer = generate([model], prompt, 1).logits
    for at in (0, len(prompt) - 1):
        other = [*prompt[:at], prompt[at] + 1, *prompt[at + 1 :]]
        assert not torch.equal(generate([model], other, 1).logits, answer)


@pytest.mark.parametrize("tree", SHAPES)
def test_two_shards_are_the_model(tree: str) -> None:
    prompt = [at % VOCABULARY for at in range(20)]
    whole = generate([Model(tree, Shard())], prompt, 1).logits
    halves = generate([Model(tree, Shard(rank, 2)) for rank in range(2)], prompt, 1).logits
    assert torch.allclose(halves, whole, atol=1e-4)


def test_chunks_end_where_pages_do() -> None:
    assert chunks(0, 20) == [range(8), range(8, 16), range(16, 20)]
    assert chunks(8, 16) == [range(8, 16)]
    assert chunks(19, 20) == [range(19, 20)]


def test_conversations_share_prefixes_and_go_on() -> None:
    requests = conversations([Model("hiradix", Shard())])
    by_turn = {(request.conversation, request.turn): request for request in requests}
    first, second, again = by_turn[0, 0], by_turn[2, 0], by_turn[0, 1]
    assert first.prompt[:32] == second.prompt[:32] != by_turn[1, 0].prompt[:32]
    sharing = by_turn[4, 0]
    assert first.prompt[:45] == sharing.prompt[:45] != second.prompt[:45]
    assert 45 % PAGE_TOKENS
    assert again.prompt[: len(first.prompt) + len(first.tokens)] == first.prompt + first.tokens
    assert {len(request.prompt) % PAGE_TOKENS for request in requests} >= {0, 1, 7}


# --- exact ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", SHAPES)
def test_one_rank_is_exact(tree: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = decoded(capsys, "--tree", tree, "--store", "memory")
    (trees, of_stores, requests, tokens, *by_tier), verdict = numbers(lines[-1])
    assert (code, verdict, trees, of_stores, requests) == (0, "exact", 1, 1, 30)
    assert tokens == sum(by_tier)
    assert min(by_tier) > 0
    (heading, row), cells = lines[:2], lines[1].split()
    assert heading.split()[:9] == ["tree", "store", "ranks", "requests", "tokens", L1, L2, L3, COMPUTED]
    assert cells[:2] == [tree, "memory"]
    assert [int(cell.replace(",", "")) for cell in cells[2:9]] == [1, requests, tokens, *by_tier]
    assert all(int(cell) > 0 for cell in cells[9:]), f"nothing was aborted or dropped: {row}"


@pytest.mark.heavy
@pytest.mark.parametrize(
    "config",
    [
        {"write_policy": "write_back"},
        {"write_policy": "write_through_selective"},
        {"write_policy": "write_back", "async_copies": False},
        {"load_back_pages_max": 6, "query_batch_pages": 2},
    ],
    ids=lambda config: "+".join(map(str, config.values())),
)
@pytest.mark.parametrize("tree", SHAPES)
def test_it_is_exact_however_pages_travel(
    tree: str, config: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = decoded(capsys, "--tree", tree, "--store", "memory", config=config)
    counts, verdict = numbers(lines[-1])
    assert (code, verdict) == (0, "exact"), lines
    assert min(counts) > 0


@pytest.mark.heavy
def test_all_of_it_is_exact() -> None:
    """As it is run by hand: all trees and stores, two ranks, and what comes after a restart."""
    rows = of_the_program()
    kinds = {(tree, "restart" in store, ranks) for tree, store, ranks, *_ in rows}
    assert kinds == {(tree, again, ranks) for tree in SHAPES for again in (False, True) for ranks in ("1", "2")}


@pytest.mark.slow
def test_two_ranks_are_exact_on_every_store() -> None:
    rows = of_the_program("--ranks", "2")
    assert {ranks for _, _, ranks, *_ in rows} == {"2"}
    assert {store for _, store, *_ in rows} >= {"memory", *(f"{one}{end}" for one in LASTING for end in AGAIN)}


def of_the_program(*arguments: str) -> list[list[str]]:
    """The cells of the rows that it prints, all of which must be exact, and none without hits."""
    command = [sys.executable, str(PROGRAM), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    lines = done.stdout.splitlines()
    (trees, count, _, _, *by_tier), verdict = numbers(lines[-1])
    assert (done.returncode, verdict) == (0, "exact"), done.stdout + done.stderr
    skipped = sum(line.startswith("skipped ") for line in lines)
    assert (trees, count) == (3, len(stores.NAMES) - skipped)
    assert count >= 4
    assert min(by_tier) > 0
    rows = [re.split(r"  +", line) for line in lines if line.startswith(tuple(SHAPES))]
    for _, store, _, _, _, l1, l2, l3, *_ in rows:
        assert int(l3.replace(",", "")) > 0
        assert ("restart" in store) == (l1 == l2 == "0")
    return rows


# --- not exact -----------------------------------------------------------------------------------------------------


def cache_of(faulty: type[HiCache]) -> dict[str, Any]:
    """A place with this cache."""
    return {"builds": {"cache_class": faulty}}


FAULTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "another_page": ("hiradix", {"open_store": lambda spec: decode_faults.ServesAnotherPage()}, "the logits of token"),
    "shifted": ("hiradix", cache_of(decode_faults.LoadsPagesShifted), "the logits of token"),
    "short_window": ("unified", cache_of(decode_faults.WindowIsOnePageShort), "the window has nothing at page"),
    "older_state": ("hi_mamba", cache_of(decode_faults.StateOfAShorterPrefix), "the logits of token"),
    "no_hit": ("hiradix", {"open_store": lambda spec: decode_faults.HasNothing()}, "no token came from L3"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_seen(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    tree, place, said = FAULTS[name]
    code, lines = decoded(capsys, "--tree", tree, "--store", "memory", **place)
    _, verdict = numbers(lines[-1])
    assert code == 1
    assert verdict.startswith("not exact: ")
    assert any(line.startswith(f"{tree}, memory, ranks 1: ") and said in line for line in lines), lines


MUTANTS = {
    "sched_loads_without_copying": "hiradix",
    "store_keeps_no_copy": "hiradix",
    "sched_loads_pages_alone": "unified",
    "sched_splits_the_state_upwards": "unified",
    "sched_matches_without_the_state": "hi_mamba",
    "io_reads_the_window_one_page_early": "unified",
}
"""Of the implementation, those that serve what is not there or another's, with plain calls; and where they show."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_faulty_variant_of_the_implementation_is_seen(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (mutant,) = (each for each in (*mutants.MUTANTS, *mutants.POOLS) if each.name == name)
    builds = {part: faulty for part, faulty in mutant.builds.items() if part != "settings"}
    code, lines = decoded(capsys, "--tree", MUTANTS[name], "--store", "memory", builds=builds)
    assert code == 1
    assert any("the logits of token" in line or "there is no state" in line or "nothing at" in line for line in lines)


def test_wrong_bytes_that_nobody_reads_are_seen(capsys: pytest.CaptureFixture[str]) -> None:
    """The store is held to the reference, too."""
    store = {"open_store": lambda spec: decode_faults.TakesWrongBytes()}
    code, lines = decoded(capsys, "--tree", "unified", "--store", "memory", **store)
    assert code == 1
    for kind in ("full", "window", "state"):
        assert any(re.search(rf"the store gives [1-9]\d* wrong pages of {kind}", line) for line in lines)
    assert not any("the logits of" in line for line in lines)


def test_a_process_that_dies_is_seen(tmp_path: Path) -> None:
    program = tmp_path / "dies.py"
    program.write_text("raise SystemExit('it dies')\n")
    session = Session(trees=("hiradix",), stores=(("memory", "memory"),), ranks=2)
    (row,) = Processes(program, session, tmp_path / "session").rows()
    assert row.wrong == ["rank 0 did not answer: it dies", "rank 1 did not answer: it dies"]


def test_ranks_that_differ_are_seen(tmp_path: Path) -> None:
    program = tmp_path / "differs.py"
    program.write_text(
        "import pathlib, sys\n"
        'row = \'[{"tree": "t", "store": "s", "ranks": 2, "again": false, "requests": %s}]\' % sys.argv[3]\n'
        "pathlib.Path(sys.argv[2], f'rank-{sys.argv[3]}.json').write_text(row)\n"
    )
    session = Session(trees=("t",), stores=(("s", "s"),), ranks=2)
    (row,) = Processes(program, session, tmp_path / "session").rows()
    assert row.wrong == ["the ranks differ in requests: [0, 1]"]


def test_findings_are_told_with_where_they_were() -> None:
    row = Row(tree="unified", store="file", ranks=2, again=True, wrong=[f"fault {n}" for n in range(8)])
    lines = report.wrong([row])
    assert lines[0] == "unified, file, after a restart, ranks 2: fault 0"
    assert lines[-1] == "unified, file, after a restart, ranks 2: and 2 more"
    assert report.last_line([row]).endswith("; not exact: 8 findings")


def test_a_store_that_cannot_be_had_is_skipped_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable() -> stores.Server:
        raise Unavailable("there is no program")

    for name in ("redis", "mooncake"):
        monkeypatch.setitem(stores.SERVERS, name, unavailable)
    example = decode.Example(tmp_path, Place(Shard()))
    with ExitStack() as servers:
        found = dict(example.stores(None, servers))
        with pytest.raises(Missing, match="redis: there is no program"):
            example.stores(["redis"], servers)
    folders = {name: f"{name}:{tmp_path / name}" for name in ("file", "lmdb")}
    assert found == {"memory": "memory", **folders, "dynamic": "dynamic:decoding.own_store:OwnStore"}
    said = capsys.readouterr().out.splitlines()
    assert said == ["skipped redis: there is no program", "skipped mooncake: there is no program"]


def test_a_store_that_is_asked_for_and_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert decode.main(["--store", "no_such_store"]) == 2
    assert "no_such_store" in capsys.readouterr().err
