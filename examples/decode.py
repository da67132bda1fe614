"""A small language model that generates through the cache, and is held to itself without a cache, bit for bit.

    python examples/decode.py [--tree TREE]... [--store STORE]... [--ranks N]...

For each tree, store and number of ranks: conversations with shared prefixes, on pools that are too small for them, some
aborted while their pages are fetched; and where the store is durable, once more in a new process, which must find
everything in the store. If not told otherwise, two ranks run on one store only. A store is one of the names below, or
whatever `open_storage` takes. The logits of the last position of each prompt and of each generated token must be equal
to the reference's, and every page on the device, on the host and in the store must hold the reference's bytes. Nothing
is exact that never hit: tokens must come from the device (L1), from the host (L2) and from the store (L3).

Exit code 0: exact. 1: not exact, and what is wrong. 2: bad usage.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from decoding.model import SHAPES, Shard
from decoding.processes import Processes, work
from decoding.report import last_line, table, wrong
from decoding.session import Place, Row, Session, run
from decoding.stores import DEFAULT, NAMES, Missing, is_durable, name_of, spec_of

PROGRAM = Path(__file__).resolve()
RANKS = (1, 2)


def main(arguments: Sequence[str], place: Place | None = None) -> int:
    """The example, on a command line without the program's name. Returns the exit code.

    `place`: where the rank runs that is alone; the others are processes.
    """
    options = _parser().parse_args(arguments)
    if options.process is not None:
        work(Path(options.process[0]), int(options.process[1]))
    trees = tuple(options.tree or SHAPES)
    with tempfile.TemporaryDirectory(prefix="decode-") as folder, ExitStack() as servers:
        example = Example(Path(folder), place or Place(Shard()))
        try:
            stores = example.stores(options.store, servers)
        except Missing as error:
            print(f"decode: {error}", file=sys.stderr)
            return 2
        rows = example.rows(_sessions(trees, stores, options.ranks))
    print(table(rows))
    for line in wrong(rows):
        print(line)
    print(last_line(rows))
    return 1 if any(row.wrong for row in rows) else 0


class Example:
    """All sessions. Files are put into `folder`; `place` is where the rank runs that is alone."""

    def __init__(self, folder: Path, place: Place) -> None:
        self._folder, self._place = folder, place

    def stores(self, asked: Sequence[str] | None, servers: ExitStack) -> tuple[tuple[str, str], ...]:
        """Names and specs of those that are asked for (Missing), or of all that can be had."""
        found: list[tuple[str, str]] = []
        for store in asked or NAMES:
            try:
                found.append((name_of(store), spec_of(store, self._folder, servers, self._place.open_store)))
            except Missing as error:
                if asked:
                    raise
                print(f"skipped {error}")
        return tuple(found)

    def rows(self, sessions: Sequence[Session]) -> list[Row]:
        """The processes of several ranks run beside this one, where the rank that is alone runs; and then what comes
        after a restart."""
        rows: list[Row] = []
        with ExitStack() as ends:
            begun = [self._begin(ends, session) for session in sessions if session.ranks > 1]
            for session in sessions:
                rows += run(session, self._place) if session.ranks == 1 else []
            for processes in begun:
                rows += processes.rows()
            for processes in [self._begin(ends, again) for session in sessions for again in _after_a_restart(session)]:
                rows += processes.rows()
        return rows

    def _begin(self, ends: ExitStack, session: Session) -> Processes:
        name = f"ranks-{session.ranks}{'-again' if session.again else ''}"
        processes = Processes(PROGRAM, session, self._folder / name)
        ends.callback(processes.kill)
        return processes


def _sessions(trees: tuple[str, ...], stores: Sequence[tuple[str, str]], ranks: Sequence[int] | None) -> list[Session]:
    """All stores with each number of ranks that is asked for; if none is, two ranks have one store."""
    one = [pair for pair in stores if pair[0] == DEFAULT] or stores[-1:]
    of_ranks = {n: stores if ranks or n == 1 else one for n in ranks or RANKS}
    return [Session(trees=trees, stores=tuple(of_one), ranks=n) for n, of_one in of_ranks.items()]


def _after_a_restart(session: Session) -> list[Session]:
    """The same with the stores that have kept what was in them; none, if there are none."""
    durable = tuple(pair for pair in session.stores if is_durable(pair[0]))
    return [msgspec.structs.replace(session, stores=durable, again=True)] if durable else []


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="decode", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tree", action="append", choices=list(SHAPES), help="one of the trees; all, if not given")
    parser.add_argument("--store", action="append", help=f"a store; {', '.join(NAMES)}, if not given")
    parser.add_argument("--ranks", action="append", type=int, choices=RANKS, help="1 or 2; both, if not given")
    parser.add_argument("--process", nargs=2, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
