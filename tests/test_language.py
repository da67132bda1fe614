"""The specification language: types, guards, binding, variants, and the subset of Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import toy_spec
from hicache_checks.engine.explore import explore
from hicache_spec.binding import BoundSpec
from hicache_spec.language import (
    Design,
    Refused,
    SpecError,
    State,
    action,
    emit,
    field,
    insert,
    invariant,
    require,
    upto,
)
from hicache_spec.subset import SubsetError, check_rule
from toy_spec import BUSY, RESTING, TICKETS, Toy, ToyBounds

TOY = Design("toy", "a toy", Toy, (toy_spec,), {})


def bound(**changes: int) -> BoundSpec:
    return BoundSpec(TOY, ToyBounds(**changes))  # type: ignore[arg-type]


def step(spec: BoundSpec, s: State, label: str) -> None:
    next(x for x in spec.steps if x.label == label).run(s)


def test_the_bounds_give_the_sizes() -> None:
    spec = bound()
    assert [v.sizes for v in spec.variables] == [(), (2,), (2,), (), (2, 2), ()]
    assert [x.label for x in spec.steps] == [
        *("worker_take(worker=0)", "worker_take(worker=1)", "worker_finish(worker=0)", "worker_finish(worker=1)"),
        *("env_reopen(ticket=0)", "env_reopen(ticket=1)"),
    ]
    assert spec.steps[0].rule.actor == "worker"
    assert spec.steps[0].rule.section == "2.1"
    assert spec.steps[0].rule.title == "A resting worker takes the next ticket."


def test_a_step_changes_what_it_says() -> None:
    spec = bound()
    before, after = spec.initial(), spec.initial()
    step(spec, after, "worker_take(worker=1)")
    assert spec.difference(before, after) == [
        "waiting: [0, 1] -> [1]",
        "mode[1]: resting -> busy",
        "ticket[1]: none -> 0",
        "seen[1][0]: no -> yes",
    ]
    assert after.events == [("taken", 1, 0)]


def test_equal_states_have_equal_keys_whatever_led_there() -> None:
    spec = bound()
    one, two = spec.initial(), spec.initial()
    for label in ("worker_take(worker=0)", "worker_finish(worker=0)", "env_reopen(ticket=0)"):
        step(spec, one, label)
    step(spec, two, "worker_take(worker=0)")
    two.ticket[0], two.mode[0] = -1, RESTING
    two.waiting.append(0)
    assert spec.encode(one) == spec.encode(two)
    assert spec.encode(spec.decode(spec.encode(one))) == spec.encode(one)


def test_a_set_is_kept_in_order() -> None:
    spec = bound()
    s = spec.initial()
    insert(s.done, 1)
    insert(s.done, 0)
    insert(s.done, 1)
    assert s.done == [0, 1]


def toy_by_hand(tickets: int, workers: int) -> tuple[int, int]:
    """States and transitions of the toy, written down a second time without the language."""
    start: Any = (tuple(range(tickets)), (None,) * workers, frozenset(), frozenset())
    seen, waiting, transitions = {start}, [start], 0
    while waiting:
        queue, hands, done, watched = waiting.pop()
        following = []
        for w in range(workers):
            left, right = hands[:w], hands[w + 1 :]
            if hands[w] is None and queue:
                following.append((queue[1:], (*left, queue[0], *right), done, watched | {(w, queue[0])}))
            elif hands[w] is not None:
                following.append((queue, (*left, None, *right), done | {hands[w]}, watched))
        following += [((*queue, ticket), hands, done - {ticket}, watched) for ticket in done]
        transitions += len(following)
        waiting += [s for s in dict.fromkeys(following) if s not in seen]
        seen |= set(following)
    return len(seen), transitions


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_exploration_of_the_toy(workers: int) -> None:
    result = explore(bound(workers=workers))
    assert (result.states, result.transitions) == toy_by_hand(2, workers)
    assert result.complete


def test_exploration_reaches_what_the_toy_declares() -> None:
    result = explore(bound())
    assert result.violation is None
    assert result.reached == {"sometimes_second_worker_takes_first_ticket"}


def test_a_refused_action_leaves_every_state_untouched_and_gives_its_reason() -> None:
    spec = bound()
    seen, waiting, reasons = set(), [spec.encode(spec.initial())], set()
    while waiting:
        key = waiting.pop()
        for x in spec.steps:
            s = spec.decode(key)
            try:
                x.run(s)
            except Refused as refusal:
                reasons.add(str(refusal))
                assert spec.encode(s) == key
                assert s.events == []
                continue
            if spec.encode(s) not in seen:
                seen.add(spec.encode(s))
                waiting.append(spec.encode(s))
    assert reasons == {"the worker rests", "a ticket waits", "the worker is busy", "the ticket is done"}


def test_values_outside_their_type_are_found() -> None:
    spec = bound()
    s = spec.initial()
    assert spec.out_of_bounds(s) is None
    s.spent = 4
    assert spec.out_of_bounds(s) == "spent = 4"
    s = spec.initial()
    s.seen[1][0] = 1
    assert spec.out_of_bounds(s) == "seen[1][0] = 1"
    s = spec.initial()
    s.waiting = [0, 1, 0]
    assert spec.out_of_bounds(s) == "waiting = [0, 1, 0]"
    s = spec.initial()
    s.done = [1, 0]
    assert spec.out_of_bounds(s) == "done = [1, 0]"
    s = spec.initial()
    s.mode[0] = 2
    assert spec.out_of_bounds(s) == "mode[0] = 2"
    s = spec.initial()
    s.ticket[0] = -2
    assert spec.out_of_bounds(s) == "ticket[0] = -2"


# ---- variants


def free_of_charge(s: State, amount: int) -> None:
    s.spent += 0


def twice_the_price(s: State, amount: int) -> None:
    pay(s, amount)
    pay(s, amount)


pay = toy_spec.pay


def test_a_variant_replaces_a_helper_by_name() -> None:
    result = explore(BoundSpec(TOY.variant("free", "", {"pay": free_of_charge}), ToyBounds()))
    assert result.violation is not None
    assert result.violation.property == "inv_paid_for_what_is_done"
    assert len(result.violation.run) == 2
    assert explore(bound()).violation is None, "the original is untouched"


def test_within_a_replacement_the_name_means_the_original() -> None:
    spec = BoundSpec(TOY.variant("twice", "", {"pay": twice_the_price}), ToyBounds())
    s = spec.initial()
    for label in ("worker_take(worker=0)", "worker_finish(worker=0)"):
        step(spec, s, label)
    assert s.spent == 2


def test_a_variant_of_nothing_is_refused() -> None:
    with pytest.raises(SpecError, match="the design toy has no rule or helper named 'paye'"):
        TOY.variant("x", "", {"paye": free_of_charge})


# ---- what breaks a model


def never_finish(s: State, worker: int) -> None:
    require(s.mode[worker] == BUSY and s.spent > 100, "never")
    s.mode[worker] = RESTING


def overspend(s: State, amount: int) -> None:
    s.spent += 100


def test_a_state_without_a_way_on_is_a_deadlock_unless_quiescent() -> None:
    result = explore(BoundSpec(TOY.variant("stuck", "", {"worker_finish": never_finish}), ToyBounds()))
    assert result.violation is not None
    assert result.violation.property == "deadlock"
    assert len(result.violation.run) == 2


def test_a_value_out_of_bounds_is_a_violation() -> None:
    result = explore(BoundSpec(TOY.variant("spender", "", {"pay": overspend}), ToyBounds()))
    assert result.violation is not None
    assert result.violation.property == "state_in_bounds"
    assert result.violation.detail == "spent = 100"


def test_a_budget_that_runs_out_is_said() -> None:
    result = explore(bound(), max_states=10)
    assert not result.complete
    assert result.states == 10


# ---- the subset of Python


def uses_while(s: State) -> None:
    while s.spent > 0:
        s.spent -= 1


def uses_division(s: State) -> None:
    s.spent = s.spent // 2


def uses_a_slice(s: State) -> None:
    s.waiting = s.waiting[1:]


def uses_a_list(s: State) -> None:
    s.waiting = [0]


def uses_a_lambda(s: State) -> None:
    s.spent = (lambda: 1)()


def uses_try(s: State) -> None:
    try:
        s.spent = 0
    finally:
        s.spent = 1


def uses_print(s: State) -> None:
    print(1)  # noqa: T201


def uses_an_attribute(s: State) -> None:
    s.spent = toy_spec.BUSY


def uses_a_text(s: State) -> None:
    s.spent = "much"


def pops_the_back(s: State) -> None:
    s.waiting.pop()


def sorts_a_queue(s: State) -> None:
    s.waiting.sort()


def requires_without_reason(s: State) -> None:
    require(s.spent == 0)  # type: ignore[call-arg]


def requires_after_a_write(s: State) -> None:
    s.spent = 1
    require(s.spent == 0, "too late")


def requires_after_a_hidden_write(s: State) -> None:
    pay(s, 1)
    require(s.spent == 0, "too late")


def guard_in_a_helper(s: State) -> None:
    helper_with_guard(s)


def helper_with_guard(s: State) -> None:
    require(s.spent == 0, "hidden")


def writes_a_global(s: State) -> None:
    global pay
    pay = free_of_charge


def has_a_default(s: State, n: int = 3) -> None:
    s.spent = n


def uses_a_comprehension(s: State) -> None:
    s.spent = sum([t_ for t_ in TICKETS])  # noqa: C416


def loops_over_a_queue(s: State) -> None:
    for x in s.waiting:
        s.spent += x


def emits_a_keyword(s: State) -> None:
    emit(s, toy_spec.ON_TAKEN, worker=1)  # type: ignore[call-arg]


def names_a_queue(s: State) -> None:
    q = s.waiting
    q.pop(0)


def passes_an_array(s: State) -> None:
    pay(s, s.seen[0])


def uses_an_undeclared_variable(s: State) -> None:
    s.spent = s.speed


def take_and_tell(s: State) -> bool:
    s.waiting.pop(0)
    return True


def requires_after_a_write_in_a_condition(s: State) -> None:
    if take_and_tell(s):
        require(s.spent == 0, "too late")


def requires_what_writes(s: State) -> None:
    require(take_and_tell(s), "too late")


def requires_again_in_a_loop(s: State) -> None:
    for t_ in TICKETS:
        require(s.spent < t_ + 5, "too late in the second round")
        s.spent += 1


REJECTED: list[tuple[Callable[..., Any], str]] = [
    (uses_while, "'while'"),
    (uses_division, "'floordiv'"),
    (uses_a_slice, "a slice"),
    (uses_a_list, "'list'"),
    (uses_a_lambda, "a call of a computed function"),
    (uses_try, "'try'"),
    (uses_print, r"a call of print\(\)"),
    (uses_an_attribute, r"the attribute \.BUSY"),
    (uses_a_text, "the constant 'much'"),
    (pops_the_back, r"a pop\(\) from anywhere but the front"),
    (sorts_a_queue, r"the method \.sort\(\)"),
    (requires_without_reason, "a 'require' without a reason"),
    (requires_after_a_write, "a 'require' after a write at .*guards first"),
    (requires_after_a_hidden_write, "a 'require' after a write at .*guards first"),
    (guard_in_a_helper, "'require' in a helper function"),
    (writes_a_global, "'global'"),
    (has_a_default, "a parameter list other than plain names"),
    (uses_a_comprehension, "'listcomp'"),
    (loops_over_a_queue, r"a loop over something that is not an index set or range\(\)"),
    (emits_a_keyword, "a keyword argument"),
    (names_a_queue, "a second name for a queue, a set or an array"),
    (passes_an_array, "a second name for a queue, a set or an array"),
    (uses_an_undeclared_variable, "the state variable 'speed', which is not declared,"),
    (requires_what_writes, "a 'require' after a write at .*guards first"),
    (requires_again_in_a_loop, "a 'require' after a write at .*guards first"),
    (requires_after_a_write_in_a_condition, "a 'require' after a write at .*guards first"),
]


@pytest.mark.parametrize(("rule", "construct"), REJECTED, ids=[f.__name__ for f, _ in REJECTED])
def test_the_rest_of_python_is_rejected_by_file_line_and_construct(rule: Callable[..., Any], construct: str) -> None:
    tagged = action()(rule)
    with pytest.raises(SubsetError, match=rf"test_language\.py:\d+: {construct}"):
        check_rule(tagged.__rule__, TOY)  # type: ignore[attr-defined]


def test_the_line_is_the_line_of_the_construct() -> None:
    tagged = action()(requires_after_a_write)
    line = requires_after_a_write.__code__.co_firstlineno + 2
    with pytest.raises(SubsetError, match=rf"test_language\.py:{line}: "):
        check_rule(tagged.__rule__, TOY)  # type: ignore[attr-defined]


def inv_that_writes(s: State) -> bool:
    """§9 A property that changes what it judges."""
    s.spent = 0
    return True


def test_a_property_that_writes_is_rejected() -> None:
    with pytest.raises(SubsetError, match="a property writes the state"):
        check_rule(invariant(inv_that_writes).__rule__, TOY)  # type: ignore[attr-defined]


def test_a_closure_is_rejected() -> None:
    amount = 3

    def closes_over(s: State) -> None:
        s.spent = amount

    with pytest.raises(SubsetError, match="a closure"):
        check_rule(action()(closes_over).__rule__, TOY)  # type: ignore[attr-defined]


def test_a_field_needs_no_index() -> None:
    assert field(upto(3)).dims == ()
