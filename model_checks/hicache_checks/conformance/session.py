"""A program on a target: each step is a call, and after each call what was seen is judged."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

from hicache_checks.conformance.findings import HARNESS, Broken, Finding
from hicache_checks.conformance.observation import LogError, is_all_back
from hicache_checks.conformance.program import RIDS, TIMEOUT_S, Item, Setup, Step, Tokens, draw_step
from hicache_checks.simulation.choices import Chooser
from hicache_checks.simulation.world import NotSimulated, TaskStruck

T = TypeVar("T")
ROUNDS_TO_END = 6
NEIGHBOURS = ("pp_rank", "attn_cp_rank")
OTHER_LAYOUT = ("is_page_first_layout", True)
OF_BYTES = ("P6", "P30")
"""The properties that nobody keeps who believes a store that lies."""
SLIPS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError)
"""Errors that say nothing but that a program went on where it could not."""
PROPERTY = re.compile(r"(P\d+) (.*)", re.DOTALL)


class _Died(Exception):
    """A call said that something died: nothing more can be asked."""


class Place(Protocol):
    """Where the target runs: in a simulated world, or among real threads."""

    def now(self) -> float:
        """Seconds of the target's clock."""

    def wait(self, seconds: float) -> None:
        """Time passes."""

    def settle(self) -> None:
        """Return when no thread of the target has anything left to do."""

    def set_clock(self, seconds: float) -> None:
        """The wall clock, which people set, jumps; the others do not."""

    def slow(self, threads: Sequence[str], seconds: float) -> None:
        """Threads of the target do not run for a while."""

    def kill(self, threads: Sequence[str]) -> Sequence[str] | None:
        """Threads of the target die in their next steps: those of these that there are. None: here nobody can die."""

    def left(self) -> Sequence[str]:
        """Threads of the target that do not end by themselves."""

    def died(self) -> Finding | None:
        """The first thread of the target that died, and was not to, as far as that can be seen from here."""


class Judge(Protocol):
    """Who holds what is seen to the specification. Every method raises Broken."""

    def before(self, step: Step, now: float) -> None:
        """A call is about to be made."""

    def after(self, step: Step, answer: Any, now: float) -> None:
        """The call returned."""

    def at_rest(self, observed: Mapping[str, Any]) -> None:
        """Nothing moves, and this is what can be observed."""

    def explain_failure(self) -> None:
        """A call raised: perhaps what was seen before says why."""

    def begin_again(self, logs_go_on: bool = False) -> None:
        """The target was reset, and nothing of what was before is left. Its logs start anew, or go on."""

    def finish(self) -> None:
        """Everything must have ended by now."""


class Session:
    """One target from reset to close. `done` holds the steps in order; `can`, what the target is capable of.

    `is_struck`: a thread was killed, so from then on nothing is judged but that calls come to an end.
    """

    def __init__(self, target: Any, setup: Setup, judge: Judge, place: Place, capabilities: Sequence[str]) -> None:
        self.done: list[Step] = []
        self.is_struck = False
        self._is_over = False
        self._bytes_count = True
        self._target = target
        self._setup = setup
        self._judge = judge
        self._place = place
        self.can = frozenset(capabilities)

    def run(self, choices: Chooser, menu: Sequence[Item], steps_max: int) -> None:
        """Draw steps and do them, then let everything run out. Raises Broken."""
        for _ in range(steps_max):
            step = draw_step(choices, menu, self._setup.ranks)
            if step is None:
                break
            self.do(step)
        self.run_out()

    def do(self, step: Step) -> None:
        """One step of a program; none, when nothing more can be asked."""
        if not self._is_over:
            self.done.append(step)
            self._until_it_dies(lambda: getattr(self, f"_do_{step.kind}", self._do_call)(step))

    def run_out(self) -> None:
        """Every operation ends by itself, and nothing is left over."""
        if not self._is_over:
            self._until_it_dies(self._run_out)

    def close(self) -> None:
        """The end of the target. Raises Broken; not for any error, when one of its threads was killed."""
        try:
            asked(self._target.close, "close")
        except (Broken, TaskStruck) as error:
            if not self.is_struck or isinstance(error.__cause__, SLIPS):
                raise
        if self.is_struck and (left := self._place.left()):
            raise Broken("P22", f"these threads do not end: {', '.join(left)}", place="close")

    def _until_it_dies(self, do: Callable[[], None]) -> None:
        try:
            do()
        except _Died:
            self._is_over = True

    def _run_out(self) -> None:
        if "faults" in self.can:
            self._do_call(Step("heal_storage"))
        self._place.wait(2 * TIMEOUT_S)
        before: Mapping[str, Any] = {}
        for _ in range(ROUNDS_TO_END):
            self._do_turn(Step("turn"))
            self._settle()
            seen = self._look_at_rest()
            if seen == before and is_all_back(seen, self._setup.host_pages):
                break
            before = seen
        if self.is_struck:
            return
        self._judge.finish()
        if "audit" in self.can:
            self._refuse([*self._call(Step("audit")), *self._call(Step("audit_stores"))], "rest")

    def _refuse(self, problems: Sequence[str], place: str) -> None:
        """The first of these lines is a finding, unless it is about bytes, and these do not count."""
        for problem in problems:
            property_, message = _named(str(problem), "audit")
            if self._bytes_count or property_ not in OF_BYTES:
                raise Broken(property_, message, place=place)

    # ---- kinds of steps

    def _do_call(self, step: Step) -> None:
        self._call(step)

    def _do_turn(self, step: Step) -> None:
        """One turn of a scheduler's loop: drain, then ask for everybody."""
        self._call(Step("tick"))
        self._call(Step("poll", (RIDS,)))

    def _do_fetch(self, step: Step) -> None:
        """The common case: some requests come, and everybody has the time that he needs."""
        for rid, prompt in zip(RIDS, step.args, strict=False):
            self._call(Step("submit", (rid, prompt)))
        for _ in range(2):
            self._do_settle(Step("settle"))
            self._do_turn(Step("turn"))

    def _do_vanish(self, step: Step) -> None:
        """A page vanishes on one rank between the look-up and the read, and everything is as it was before."""
        rank, prompt = step.args
        self._fill(prompt)
        self._call(Step("lose", (rank, prompt)))
        self._do_fetch(Step("fetch", (prompt,)))
        self._call(Step("heal_storage"))

    def _do_fetch_in_vain(self, step: Step) -> None:
        """A store fails in a call while pages are fetched, and works again when they are asked for once more."""
        rank, call, how, prompt = step.args
        self._fill(prompt)
        self._call(Step("break_storage", (rank, call, how)))
        self._do_fetch(Step("fetch", (prompt,)))
        self._call(Step("heal_storage"))
        self._do_fetch(Step("fetch", (prompt,)))

    def _do_leave(self, step: Step) -> None:
        """A request is gone while its pages are on their way."""
        rid, prompt = step.args
        self._fill(prompt)
        self._call(Step("submit", (rid, prompt)))
        self._do_settle(Step("settle"))
        self._call(Step("tick"))
        self._call(Step("abort", (rid,)))

    def _do_submit_again(self, step: Step) -> None:
        """A retracted request comes back under its id while the earlier attempt may still travel."""
        self._call(Step("abort", step.args[:1]))
        self._call(Step("submit", step.args))

    def _do_wait(self, step: Step) -> None:
        self._place.wait(step.args[0])

    def _do_settle(self, step: Step) -> None:
        self._settle()
        self._look_at_rest()

    def _do_lie(self, step: Step) -> None:
        """The store says what is not so, until it is healed: nobody promises to notice who does not check bytes."""
        rank, how = step.args
        self._bytes_count = self._bytes_count and "checked_bytes" in self.can
        self._call(Step("break_storage", (rank, "get", how)))

    def _do_squeeze(self, step: Step) -> None:
        """Host pages are taken by what was computed: some can be evicted, others cannot while a store has not taken
        them. Then somebody asks for some."""
        rank, old, computed, asked = step.args
        self._fill(asked)
        self._do_prefill(Step("prefill", (old,)))
        self._do_settle(Step("settle"))
        self._call(Step("tick"))
        self._call(Step("evict_device", (len(old),)))
        if "faults" in self.can:
            self._call(Step("break_storage", (rank, "put", "stall")))
        self._do_prefill(Step("prefill", (computed,)))
        self._do_fetch(Step("fetch", (asked,)))
        if "faults" in self.can:
            self._call(Step("heal_storage"))

    def _do_overlap(self, step: Step) -> None:
        """Two prompts are computed, one after the other, before the first is copied to the host (§10.2, §10.3)."""
        first, second = step.args
        self._call(Step("hold_copies"))
        self._do_prefill(Step("prefill", (first,)))
        self._do_prefill(Step("prefill", (second,)))
        self._call(Step("release_copies"))
        self._call(Step("tick"))

    def _do_prefill_for(self, step: Step) -> None:
        """A model computes a prompt for an adapter or a tenant; then the same prompt is asked for without."""
        self._do_prefill(Step("prefill", step.args))
        self._do_settle(Step("settle"))
        self._call(Step("tick"))
        self._do_fetch(Step("fetch", step.args[:1]))

    def _do_compute_detached(self, step: Step) -> None:
        """A prompt is computed while no store is attached (§13.2), another one after that: it is stored (§11.2)."""
        first, second = step.args
        if self._call(Step("detach")):
            self._do_prefill(Step("prefill", (first,)))
            self._call(Step("tick"))
            if self._call(Step("attach")):
                self._do_prefill(Step("prefill", (second,)))

    def _do_cut(self, step: Step) -> None:
        """A page in storage is cut off; then it is asked for."""
        rank, prompt = step.args
        self._fill(prompt)
        self._call(Step("damage", (rank, prompt)))
        self._do_fetch(Step("fetch", (prompt,)))

    def _do_share_store(self, step: Step) -> None:
        """Somebody whose pages are kept in the same store, and are none of ours, stores his; then it is asked for."""
        (prompt,) = step.args
        self._call(Step("store_by", (self._neighbour(), prompt)))
        self._do_fetch(Step("fetch", (prompt,)))

    def _neighbour(self) -> tuple[tuple[str, Any], ...]:
        """What differs of whoever is next to us: another stage or context rank, where there are any."""
        place = dict(dict(self._setup.more).get("place", ()))
        differs = next((name for name in NEIGHBOURS if name in place), None)
        return (OTHER_LAYOUT,) if differs is None else ((differs, place[differs] + 1),)

    def _do_fill_disk(self, step: Step) -> None:
        """A disk has no room in the middle of a page, while a computed prompt goes to storage (§11.3); then it has."""
        rank, prompt = step.args
        self._call(Step("break_storage", (rank, "put", "short")))
        self._do_prefill(Step("prefill", (prompt,)))
        self._do_settle(Step("settle"))
        self._call(Step("tick"))
        self._settle()
        self._call(Step("heal_storage"))

    def _do_set_clock(self, step: Step) -> None:
        self._judged(step, lambda: self._place.set_clock(*step.args))

    def _do_slow_rank(self, step: Step) -> None:
        rank, seconds = step.args
        self._judged(step, lambda: self._place.slow(self._threads_of(rank), seconds))

    def _do_hold(self, step: Step) -> None:
        """Those of a rank's threads whose names hold a word do not run for a while."""
        rank, word, seconds = step.args
        threads = [name for name in self._threads_of(rank) if word in name]
        self._judged(step, lambda: self._place.slow(threads, seconds))

    def _do_kill_thread(self, step: Step) -> None:
        rank, number = step.args
        threads = self._threads_of(rank)
        self._kill(step, [threads[number % len(threads)]] if threads else [])

    def _do_kill_rank(self, step: Step) -> None:
        self._kill(step, self._threads_of(*step.args))

    def _kill(self, step: Step, threads: Sequence[str]) -> None:
        self.is_struck = bool(self._judged(step, lambda: self._place.kill(threads))) or self.is_struck

    def _threads_of(self, rank: int) -> Sequence[str]:
        threads: Sequence[str] = self._attempt(Step("threads_of", (rank,)))
        return threads

    def _do_store_elsewhere(self, step: Step) -> None:
        """Another model stores pages of the same tokens: they are never ours."""
        for namespace in ("theirs", ""):
            self._call(Step("store", (*step.args, namespace)))

    def _do_converse(self, step: Step) -> None:
        """A conversation goes on: first all but the last page, then the whole prompt."""
        (prompt,) = step.args
        self._do_prefill(Step("prefill", (prompt[:-1],)))
        self._do_prefill(Step("prefill", (prompt,)))

    def _do_flush(self, step: Step) -> None:
        """The whole system as it was at the start, whatever is on its way. §13.2 says how, §13.6 that it ends."""
        is_told = "resets" in self.can
        call = Step("begin_again") if is_told else step
        self._guarded(lambda: self._judge.before(call, self._place.now()))
        rested = self._attempt(call)
        if self.is_struck:
            return
        self._refuse_the_dead()
        if not rested:
            self._guarded(self._judge.explain_failure)
            raise Broken("P15 reset", "it does not come to rest", place="flush")
        self._bytes_count = True
        self._guarded(lambda: self._judge.begin_again(is_told))
        self._look_at_rest()

    def _do_reattach(self, step: Step) -> None:
        """The store is detached, whatever is on its way, and attached again. §13.2 says how, §13.6 that it ends."""
        if not (self._call(Step("detach")) and self._call(Step("attach"))) and not self.is_struck:
            raise Broken("P15 detach", "it does not come to rest, or cannot start again", place="reattach")

    def _do_prefill(self, step: Step) -> None:
        answer = self._call(step)
        if answer.wrong and self._bytes_count and not self.is_struck:
            is_theirs = all("P19" in line for line in answer.wrong)
            raise Broken("P19" if is_theirs else "P6", f"wrong bytes were loaded: {answer.wrong}", place="prefill")

    # ---- calls

    def _call(self, step: Step) -> Any:
        return self._judged(step, lambda: self._attempt(step))

    def _judged(self, step: Step, do: Callable[[], Any]) -> Any:
        self._guarded(lambda: self._judge.before(step, self._place.now()))
        answer = do()
        self._refuse_the_dead()
        if not self.is_struck:
            self._guarded(lambda: self._judge.after(step, answer, self._place.now()))
        return answer

    def _refuse_the_dead(self) -> None:
        """Without logs a judge sees only what follows from a death."""
        if "events" not in self.can and (died := self._place.died()) is not None:
            raise Broken(died.property, died.message, place=died.place)

    def _look_at_rest(self) -> Mapping[str, Any]:
        observed: Mapping[str, Any] = self._call(Step("observe"))
        if not self.is_struck:
            self._judge.at_rest(observed)
        return observed

    def _fill(self, prompt: Tokens) -> None:
        """Storage holds the prompt, where it can be filled."""
        if "store" in self.can:
            self._call(Step("store", (prompt,)))

    def _settle(self) -> None:
        self._tried(Step("settle"), self._place.settle)

    def _attempt(self, step: Step) -> Any:
        return self._tried(step, lambda: getattr(self._target, step.kind)(*step.args))

    def _tried(self, step: Step, do: Callable[[], T]) -> T:
        try:
            return do()
        except Broken:
            raise
        except TaskStruck as struck:
            raise _Died from struck
        except Exception as error:
            if self.is_struck and not isinstance(error, (NotSimulated, *SLIPS)):
                raise _Died from error
            self._explain(step, error)

    def _guarded(self, judge: Callable[[], None]) -> None:
        try:
            judge()
        except LogError as error:
            raise Broken("adapter", str(error), HARNESS) from error

    def _explain(self, step: Step, error: Exception) -> NoReturn:
        """What was seen may say why; else the exception is the finding."""
        if isinstance(error, NotSimulated):
            raise Broken("stand-in", str(error), HARNESS, step.kind) from error
        if not self.is_struck:
            self._guarded(self._judge.explain_failure)
        property_, rest = _named(first_line(error), "raises")
        place = getattr(error, "place", step.kind)
        raise Broken(property_, f"{type(error).__name__}: {rest}", place=place) from error


def asked(call: Callable[[], T], place: str) -> T:
    """What a call of the target answers. Raises Broken for what the target raises."""
    try:
        return call()
    except (Broken, NotSimulated):
        raise
    except Exception as error:
        raise Broken("raises", f"{type(error).__name__}: {first_line(error)}", place=place) from error


def first_line(error: BaseException) -> str:
    """What an error says, if it is text."""
    return str(error).partition("\n")[0].encode(errors="replace").decode()


def _named(text: str, otherwise: str) -> tuple[str, str]:
    """The property that a line of the target names, first or after who says it, and the rest."""
    for said in (text, text.partition(": ")[2]):
        if named := PROPERTY.fullmatch(said):
            return named[1], named[2]
    return otherwise, text
