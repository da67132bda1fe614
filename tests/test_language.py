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
    Part,
    Refused,
    SpecError,
    State,
    action,
    emit,
    field,
    insert,
    invariant,
    require,
    switch,
    upto,
)
from hicache_spec.subset import SubsetError, check_rule
from toy_spec import BUDGET, BUSY, RESTING, TICKETS, WORKERS, Toy, ToyBounds

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


class Tipped(Toy):
    tips = field(upto(BUDGET))


class Fined(Toy):
    fines = field(upto(BUDGET))


def pay_and_tip(s: State, amount: int) -> None:
    pay(s, amount)
    s.tips += 1


def pay_and_fine(s: State, amount: int) -> None:
    pay(s, amount)
    s.fines += s.tips


TIPS = Part("tips", "with tips", Tipped, (), {"pay": pay_and_tip})
FINES = Part("fines", "with fines", Fined, (), {"pay": pay_and_fine})


def test_parts_that_replace_the_same_helper_stand_on_each_other() -> None:
    joined = TOY.joined(TIPS, FINES)
    spec = BoundSpec(joined, ToyBounds())
    s = spec.initial()
    for label in ("worker_take(worker=0)", "worker_finish(worker=0)"):
        step(spec, s, label)
    assert (s.spent, s.tips, s.fines) == (1, 1, 1), "the last part is outermost: it fines what was tipped before"
    assert joined.name == "toy+tips+fines"
    assert set(joined.fields()) == {*TOY.fields(), "tips", "fines"}


def test_a_variant_of_joined_parts_means_the_original_by_its_own_name() -> None:
    spec = BoundSpec(TOY.joined(TIPS, FINES).variant("twice", "", {"pay": twice_the_price}), ToyBounds())
    s = spec.initial()
    for label in ("worker_take(worker=0)", "worker_finish(worker=0)"):
        step(spec, s, label)
    assert (s.spent, s.tips, s.fines) == (2, 0, 0)


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


def appends_to_a_set(s: State) -> None:
    s.done.append(0)


def inserts_into_a_queue(s: State) -> None:
    insert(s.waiting, 0)


def assigns_an_array(s: State) -> None:
    s.mode = BUSY


def assigns_an_element_of_a_queue(s: State) -> None:
    s.waiting[0] = 1


def assigns_an_undeclared_variable(s: State) -> None:
    s.speed = 1


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
    (appends_to_a_set, r"the method \.append\(\) of something that is not a queue"),
    (inserts_into_a_queue, r"insert\(\) into something that is not a set"),
    (assigns_an_array, "an assignment to a queue, a set, an array or an element of a queue"),
    (assigns_an_element_of_a_queue, "an assignment to a queue, a set, an array or an element of a queue"),
    (assigns_an_undeclared_variable, "the state variable 'speed', which is not declared,"),
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


# ---- truths and numbers


def counts_a_truth(s: State) -> None:
    s.spent = s.mode[0] == BUSY


def counts_into_a_flag(s: State) -> None:
    s.seen[0][0] = 1 - s.spent


def adds_to_a_flag(s: State) -> None:
    s.seen[0][0] += 1


def chooses_a_number_for_a_flag(s: State) -> None:
    s.seen[0][0] = True if s.spent > 0 else 0


def takes_one_of_two_for_a_flag(s: State) -> None:
    s.seen[0][0] = s.seen[0][1] or s.spent


def takes_the_least_truth_for_a_number(s: State) -> None:
    s.spent = min(s.seen[w][0] for w in WORKERS)


def numbers_a_switch(s: State) -> None:
    s.spent = ON


def flags_a_constant(s: State) -> None:
    s.seen[0][0] = BUDGET


def flags_a_parameter(s: State, worker: int) -> None:
    s.seen[worker][0] = worker


def queues_a_truth(s: State) -> None:
    s.waiting.append(s.spent == 0)


def inserts_a_truth(s: State) -> None:
    insert(s.done, 0 in s.done)


def flags_a_local_name(s: State) -> None:
    n = s.spent
    s.seen[0][0] = n


def flags_after_a_branch(s: State) -> None:
    n = s.seen[0][0]
    if s.spent > 0:
        n = s.spent
    s.seen[0][0] = n


def flags_what_a_later_round_gives(s: State) -> None:
    n = False
    m = False
    for t_ in TICKETS:
        s.seen[0][t_] = n
        n = m
        m = t_  # type: ignore[assignment]


def numbers_what_a_helper_gives(s: State) -> None:
    s.spent = is_busy(s, 0)


def is_busy(s: State, worker: int) -> bool:
    if s.spent == 0:
        return False
    return s.mode[worker] == BUSY


def gives_a_helper_a_truth(s: State) -> None:
    set_spent(s, s.mode[0] == BUSY)


def set_spent(s: State, n: int) -> None:
    s.spent = n


ON = switch(lambda b: True, "on")
MIXED: list[tuple[Callable[..., Any], int, str]] = [
    # the line of the function at which it is refused, and what is said
    (counts_a_truth, 1, "a truth goes to s.spent, which holds a number"),
    (counts_into_a_flag, 1, "a number goes to s.seen[0][0], which holds a truth"),
    (adds_to_a_flag, 1, "a number goes to s.seen[0][0], which holds a truth"),
    (chooses_a_number_for_a_flag, 1, "a number goes to s.seen[0][0], which holds a truth"),
    (takes_one_of_two_for_a_flag, 1, "a number goes to s.seen[0][0], which holds a truth"),
    (takes_the_least_truth_for_a_number, 1, "a truth goes to s.spent, which holds a number"),
    (numbers_a_switch, 1, "a truth goes to s.spent, which holds a number"),
    (flags_a_constant, 1, "a number goes to s.seen[0][0], which holds a truth"),
    (flags_a_parameter, 1, "a number goes to s.seen[worker][0], which holds a truth"),
    (queues_a_truth, 1, "a truth goes to s.waiting, which holds a number"),
    (inserts_a_truth, 1, "a truth goes to s.done, which holds a number"),
    (flags_a_local_name, 2, "a number goes to s.seen[0][0], which holds a truth"),
    (flags_after_a_branch, 4, "a number goes to s.seen[0][0], which holds a truth"),
    (flags_what_a_later_round_gives, 4, "a number goes to s.seen[0][t_], which holds a truth"),
    (numbers_what_a_helper_gives, 1, "a truth goes to s.spent, which holds a number"),
]


@pytest.mark.parametrize(("rule", "line", "why"), MIXED, ids=[f.__name__ for f, _, _ in MIXED])
def test_a_truth_is_no_number_and_a_number_no_truth(rule: Callable[..., Any], line: int, why: str) -> None:
    tagged = action(worker=WORKERS)(rule) if rule is flags_a_parameter else action()(rule)
    with pytest.raises(SubsetError) as refusal:
        check_rule(tagged.__rule__, TOY)  # type: ignore[attr-defined]
    where = f"test_language.py:{rule.__code__.co_firstlineno + line}: in {rule.__name__}, "
    assert str(refusal.value).endswith(f"{where}{why} (§A.2: a flag holds a truth, all else numbers)")


def test_in_a_helper_the_line_is_there_and_the_rule_is_named() -> None:
    line = set_spent.__code__.co_firstlineno + 1
    with pytest.raises(
        SubsetError, match=rf"test_language\.py:{line}: in gives_a_helper_a_truth, a truth goes to s.spent"
    ):
        check_rule(action()(gives_a_helper_a_truth).__rule__, TOY)  # type: ignore[attr-defined]


def keeps_them_apart(s: State, worker: int) -> None:
    n = s.spent
    s.seen[worker][0] = n > 0 and not s.seen[worker][0]
    n = n + (worker == 0) + sum(s.seen[worker][t_] for t_ in TICKETS)
    s.spent = abs(min(n, BUDGET))
    n = s.seen[worker][1] if ON else is_busy(s, worker)
    s.seen[worker][1] = n
    s.seen[s.seen[worker][0]][0] = any(s.waiting[t_] == 0 for t_ in range(len(s.waiting)))
    s.ticket[worker] = s.waiting.pop(0)
    m = s.spent
    if m > 1:
        m = s.seen[worker][0]
        return
    s.spent = m


def test_truths_may_be_counted_and_names_used_again() -> None:
    check_rule(action(worker=WORKERS)(keeps_them_apart).__rule__, TOY)  # type: ignore[attr-defined]


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
