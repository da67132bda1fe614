"""The Hypothesis state machine: what a caller can do, drawn at random, with the monitor watching.

A rule returns when every thread rests or is held at a gate, so nothing that is drawn depends on timing. After each
rule the logs are explained by the specification; at the end every operation must have ended, and pages, references,
counts and bytes are audited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from hicache_checks.conformance.adapter import TestableAdapter
from hicache_checks.conformance.findings import Broken
from hicache_checks.conformance.monitor import MonitorConfig
from hicache_checks.conformance.watch import Watch

RIDS = ("a", "b", "c")
# Prompts in pages of one token. They share prefixes, differ in the middle, one is longer than small pools, and some end
# in what is a prompt of its own, so that a hash chain that starts at the wrong place finds something.
PROMPTS: tuple[tuple[int, ...], ...] = (
    *((1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), (1, 2, 8), (1, 9, 3)),
    *((5,), (5, 6), (5, 6, 7), (1, 5), (1, 5, 6), (1, 2, 5, 6)),
)
GATES = ("query.take", "query.ask", "query.asked", "query.agreed", "io.take", "io.page", "io.copied", "io.release")
TIMEOUT_S = 1.0
ROUNDS_TO_END = 6

prompts = st.sampled_from(PROMPTS)
rids = st.sampled_from(RIDS)


class Conformance(RuleBasedStateMachine):
    """Subclass with `build`, `ranks` and `policy`; see `machine_for`. `seen` counts outcomes over all examples."""

    build: ClassVar[Callable[[], TestableAdapter]]
    ranks: ClassVar[int]
    policy: ClassVar[str]
    seen: ClassVar[Counter[str]]

    @initialize(
        host_pages=st.integers(2, 6),
        threshold_pages=st.sampled_from((1, 1, 2)),
        limit_pages=st.sampled_from((2, 4, 16)),
        stored=st.lists(prompts, min_size=1, max_size=4),
    )
    def start(self, host_pages: int, threshold_pages: int, limit_pages: int, stored: list[tuple[int, ...]]) -> None:
        self.target = type(self).build()
        self.target.reset(
            {
                "ranks": self.ranks,
                "policy": self.policy,
                "namespace": "mine",
                "page_size": 1,
                "page_bytes": 16,
                "host_pages": host_pages,
                "device_pages": 6,
                "threshold_pages": threshold_pages,
                "limit_pages": limit_pages,
                "timeout_s_base": TIMEOUT_S,
                "timeout_s_per_page": 0.0,
                "timeout_s_max": TIMEOUT_S,
            }
        )
        config = MonitorConfig(self.ranks, host_pages, threshold_pages, limit_pages, self.policy)
        self.watch = Watch(self.target, config, TIMEOUT_S)
        for prompt in stored:
            self.target.store(prompt)

    # ---- what a caller can do

    @rule(rid=rids, prompt=prompts)
    def submit(self, rid: str, prompt: tuple[int, ...]) -> None:
        self._call(lambda: self.target.submit(rid, prompt))

    @rule()
    def tick(self) -> None:
        self._call(self.target.tick)

    @rule(asked=st.lists(rids, min_size=1, unique=True))
    def poll(self, asked: list[str]) -> None:
        self._poll(asked)

    @rule()
    def turn(self) -> None:
        """One turn of a scheduler's loop: drain, then ask for everybody."""
        self._call(self.target.tick)
        self._poll(RIDS)

    @rule(rid=rids, prompt=prompts, stored=st.booleans())
    def fetch(self, rid: str, prompt: tuple[int, ...], stored: bool) -> None:
        """The common case: submit, wait, and go on with what was fetched."""
        if stored:
            self._call(lambda: self.target.store(prompt))
        self._call(lambda: self.target.submit(rid, prompt))
        self._call(self.target.tick)
        self._poll([rid])

    @rule(rid=rids, prompt=prompts, rank=st.integers(0, 3), how=st.sampled_from(("raise", "miss", "short", "lose")))
    def fetch_in_vain(self, rid: str, prompt: tuple[int, ...], rank: int, how: str) -> None:
        """Storage has the pages, but on one rank they, or the last of them, cannot be read."""
        if how == "lose":
            self._call(lambda: self.target.lose(rank % self.ranks, prompt))
        else:
            self._call(lambda: self.target.break_storage(rank % self.ranks, "get", how))
        self.fetch(rid, prompt, stored=True)
        self._call(self.target.heal_storage)

    @rule(
        rid=rids,
        prompt=prompts,
        gate=st.sampled_from(GATES),
        rank=st.integers(0, 3),
        how=st.sampled_from(("stop", "abort", "poll", "poll_late", "submit_again")),
    )
    def withdraw(self, rid: str, prompt: tuple[int, ...], gate: str, rank: int, how: str) -> None:
        """A request is withdrawn while a thread of one rank is in the middle of its operation."""
        self._call(lambda: self.target.store(prompt))
        self._call(lambda: self.target.hold(gate, rank % self.ranks))
        self._call(lambda: self.target.submit(rid, prompt))
        self._call(self.target.tick)
        if how == "stop":
            self._call(lambda: self.target.stop(rid))
        elif how in ("poll", "poll_late"):
            self.advance(2 * TIMEOUT_S if how == "poll_late" else 0.0)
            self._poll([rid])
        else:
            self._call(lambda: self.target.abort(rid))
        if how == "submit_again":
            self._call(lambda: self.target.submit(rid, prompt))
        self._call(self.target.release_all)

    @rule(rid=rids)
    def stop(self, rid: str) -> None:
        self._call(lambda: self.target.stop(rid))

    @rule(rid=rids)
    def abort(self, rid: str) -> None:
        self._call(lambda: self.target.abort(rid))

    @rule(rid=rids, prompt=prompts)
    def submit_again(self, rid: str, prompt: tuple[int, ...]) -> None:
        """A retracted request comes back under its id while the earlier attempt may still travel."""
        self._call(lambda: self.target.abort(rid))
        self._call(lambda: self.target.submit(rid, prompt))

    @rule(prompt=prompts)
    def prefill(self, prompt: tuple[int, ...]) -> None:
        """A request is computed: pages are written through to the host and backed up."""
        self._call(lambda: self._no_wrong_bytes(self.target.prefill(prompt)))

    @rule(prompt=prompts)
    def converse(self, prompt: tuple[int, ...]) -> None:
        """A conversation goes on: first all but the last page, then the whole prompt."""
        self._call(lambda: self._no_wrong_bytes(self.target.prefill(prompt[:-1])))
        self._call(lambda: self._no_wrong_bytes(self.target.prefill(prompt)))

    @rule(pages=st.integers(1, 4))
    def evict_device(self, pages: int) -> None:
        self._call(lambda: self.target.evict_device(pages))

    # ---- what the world does

    @rule(prompt=prompts)
    def store(self, prompt: tuple[int, ...]) -> None:
        """Another server stores pages."""
        self._call(lambda: self.target.store(prompt))

    @rule(prompt=prompts)
    def store_elsewhere(self, prompt: tuple[int, ...]) -> None:
        """Another model stores pages of the same tokens: they are never ours."""
        self._call(lambda: self.target.store(prompt, "theirs"))
        self._call(lambda: self.target.store(prompt, ""))

    @rule(
        rank=st.integers(0, 3),
        call=st.sampled_from(("exists", "get", "put")),
        how=st.sampled_from(("raise", "miss", "short")),
    )
    def break_storage(self, rank: int, call: str, how: str) -> None:
        self._call(lambda: self.target.break_storage(rank % self.ranks, call, how))

    @rule(rank=st.integers(0, 3), prompt=prompts)
    def lose(self, rank: int, prompt: tuple[int, ...]) -> None:
        """A page vanishes between the look-up and the read: what comes before it is still fetched."""
        self._call(lambda: self.target.lose(rank % self.ranks, prompt))

    @rule()
    def heal_storage(self) -> None:
        self._call(self.target.heal_storage)

    @rule(gate=st.sampled_from(GATES), rank=st.integers(0, 3))
    def stall(self, gate: str, rank: int) -> None:
        """A thread of one rank makes no progress from this point on."""
        self._call(lambda: self.target.hold(gate, rank % self.ranks))

    @rule()
    def go_on(self) -> None:
        self._call(self.target.release_all)

    @rule(seconds=st.sampled_from((0.4, 0.7, 1.5)))
    def advance(self, seconds: float) -> None:
        self.watch.seconds += seconds
        self._call(lambda: self.target.advance(seconds))

    # ---- watching

    def _poll(self, rids: Sequence[str]) -> None:
        """Whatever has to end by this poll, ends by it."""
        due = self.watch.monitor.due(rids)
        self._call(lambda: self.target.poll(rids))
        late = self.watch.monitor.still_pending(due)
        if late:
            raise Broken("P5 may_end (§3.8)", f"the poll did not end {late}")

    def _call(self, call: Callable[[], Any]) -> None:
        """Make a call, let the threads come to rest or to a gate, and explain what happened."""
        try:
            call()
            self.target.settle()
        except Broken:
            raise
        except Exception as error:
            self._explain_failure(error)
        try:
            self.watch.look()
        except Exception as error:
            self._explain_failure(error)
        self._check()

    def _explain_failure(self, error: Exception) -> None:
        """The call failed; if the events show why, that is the finding, else the failure is."""
        try:
            self.watch.look(compare=False)
        except Exception:
            raise Broken("raises", f"{type(error).__name__}: {error}") from error
        self._check(f" (then: {type(error).__name__}: {error})")
        raise Broken("raises", f"{type(error).__name__}: {error}") from error

    def _check(self, then: str = "") -> None:
        finding = self.watch.finding
        if finding is not None:
            recent = "\n".join(f"    {event}" for event in self.watch.recent)
            where = "" if finding.event is None else f" at {finding.event}"
            raise Broken(finding.property, f"{finding.message}{where}{then}\n  the last events:\n{recent}")

    def _no_wrong_bytes(self, prefilled: Any) -> None:
        if prefilled.wrong:
            raise Broken("P6", f"wrong bytes were loaded: {prefilled.wrong}")

    def teardown(self) -> None:
        """Let everything run out: every operation ends by itself, and nothing is left over."""
        if not hasattr(self, "target"):
            return
        try:
            if getattr(self, "watch", None) is not None and self.watch.finding is None:
                self._run_out()
        finally:
            self.seen.update(self.watch.outcomes)
            self._close()

    def _run_out(self) -> None:
        self._call(self.target.release_all)
        self._call(self.target.heal_storage)
        self.watch.seconds += 2 * TIMEOUT_S
        self._call(lambda: self.target.advance(2 * TIMEOUT_S))
        for _ in range(ROUNDS_TO_END):
            self._call(self.target.tick)
            self._poll(RIDS)
        for _ in range(ROUNDS_TO_END):
            self._call(self.target.tick)
        self.watch.monitor.finish()
        self._check()
        problems = [*self.target.audit(), *self.target.audit_stores()]
        if problems:
            raise Broken("at rest", "; ".join(problems))

    def _close(self) -> None:
        try:
            self.target.close()
        except Exception:
            # What broke was reported by the call that met it; here only the threads must end.
            return


def machine_for(build: Callable[[], TestableAdapter], ranks: int, policy: str) -> type[Conformance]:
    """The state machine for an adapter under a policy and a number of ranks."""
    name = f"Conformance_{policy}_{ranks}"
    return type(
        name, (Conformance,), {"build": staticmethod(build), "ranks": ranks, "policy": policy, "seen": Counter()}
    )
