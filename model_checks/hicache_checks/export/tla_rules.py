"""Functions and actions with effect, as TLA+: a function takes a state and returns the state that follows.

A statement becomes a definition of the next state (`s1`, `s2`, ...) or of the next value of a local name; assignments
that do not read each other share one EXCEPT. A function that also returns a value returns a record of both.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from hicache_checks.export.actions import Action, effect_part, guard_part
from hicache_checks.export.functions import Function, assigned, guard_of, is_queue_call, is_require
from hicache_checks.export.kinds import Kind
from hicache_checks.export.terms import has_return, static_range, unrolled
from hicache_checks.export.tla_formulas import COMPARISON, Formulas, Scene, splits_a_step
from hicache_checks.export.tla_layout import WIDTH, Block, Definitions, If, Leaf, Let, defined, leaf, lines_of
from hicache_checks.export.tla_updates import Updates

Finish = Callable[[Scene], Block]


class Rules:
    """Writes functions as operators."""

    def __init__(self, formulas: Formulas) -> None:
        self.formulas = formulas
        self.updates = Updates(formulas)

    def operator(self, function: Function) -> list[str]:
        """A function of the specification as an operator."""
        scene = self.formulas.scene(function)
        arguments = [a.arg for a in function.tree.args.args]
        names = [scene.states.get(a) or scene.locals[a] for a in arguments]
        head = f"{self.formulas.names.name(function.name)}({', '.join(names)})"
        return defined(head, self._block(function.tree.body, scene, _state))

    def can(self, action: Action) -> str:
        """The name of an action's guards."""
        return self.formulas.names.name(f"can_{action.function.name}")

    def action(self, action: Action) -> list[str]:
        """An action: its guards, each with its reason, as an operator; and the step that they allow."""
        function = action.function
        scene = self.formulas.scene(function)
        names = [scene.locals[p] for p in function.parameters]
        state = scene.states[function.states[0]]
        arguments = f"({', '.join(names)})" if names else ""
        guard = f"{self.can(action)}({', '.join([state, *names])})"
        guards = guard_part(function)
        if any(splits_a_step(g, function) for g in guards):
            guard = f"Is({guard})"
        rest = effect_part(function)
        block = self._block(rest, scene, _state) if rest else leaf(state)
        steps = Let([(state, leaf("state"))], Leaf([f"/\\ {guard}", *defined_as("/\\ state' =", block)]))
        return [
            *self._guards_of(action, guards),
            *defined(f"{self.formulas.names.name(function.name)}{arguments}", steps),
        ]

    # -- guards

    def _guards_of(self, action: Action, guards: Sequence[ast.stmt]) -> list[str]:
        function = action.function
        scene = self.formulas.scene(function)
        state = scene.states[function.states[0]]
        head = f"{self.can(action)}({', '.join([state, *(scene.locals[p] for p in function.parameters)])})"
        definitions = Definitions()
        bullets = list(self._guards(guards, scene, definitions))
        if not bullets:
            return [f"{head} == TRUE"]
        width = max((len(text) for text, _ in bullets if len(text) <= 70), default=0)
        lines = [f"/\\ {text.ljust(width)}   \\* {reason}" for text, reason in bullets]
        return defined(head, definitions.around(Leaf(lines)) if definitions.made else Leaf(lines))

    def _guards(self, body: Sequence[ast.stmt], scene: Scene, definitions: Definitions) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for statement in body:
            guard = guard_of(statement)
            if guard is not None:
                found.append((self.formulas.condition(guard[0], scene).text, guard[1]))
            elif isinstance(statement, ast.If) and _guards_only(statement):
                test = self.formulas.condition(statement.test, scene).at(COMPARISON)
                for part, holds in ((statement.body, test), (statement.orelse, f"~({test})")):
                    inner = self._guards(part, scene.branch(), definitions)
                    found += [(f"({holds} => ({text}))", reason) for text, reason in inner]
            elif isinstance(statement, ast.For) and _guards_only(statement):
                values = static_range(statement.iter, scene.function)
                if values is None:
                    raise scene.function.error(statement, "a guard in a loop whose length depends on the state")
                found += self._guards(unrolled(statement, values), scene, definitions)
            elif any(is_require(n) for n in ast.walk(statement) if isinstance(n, ast.stmt)):
                raise scene.function.error(statement, "a guard among other statements of a block")
            else:
                self._statement(statement, (), scene, definitions)
        return found

    # -- statements

    def _block(self, body: Sequence[ast.stmt], scene: Scene, finish: Finish) -> Block:
        """What the statements come to; `finish` says what their result is, where no `return` does."""
        definitions = Definitions()
        for i, statement in enumerate(body):
            rest = body[i + 1 :]
            if isinstance(statement, ast.Return):
                return definitions.around(self._returned(statement, scene, finish, definitions))
            if isinstance(statement, ast.If) and (has_return(statement) or not rest):
                test = self._value(statement.test, scene, definitions)
                ways = [
                    self._block([*part, *rest], scene.branch(), finish) for part in (statement.body, statement.orelse)
                ]
                return definitions.around(If(test, ways[0], ways[1]))
            if isinstance(statement, ast.For) and has_return(statement):
                values = static_range(statement.iter, scene.function)
                if values is None:
                    raise scene.function.error(statement, "a return from a loop whose length depends on the state")
                return definitions.around(self._block([*unrolled(statement, values), *rest], scene, finish))
            group = self.updates.group(body[i:], scene)
            if group:
                block = self.updates.written(body[i : i + group], scene)
                left = body[i + group :]
                if not left and finish is _state:
                    return definitions.around(block)
                self._next_state(block, scene, definitions)
                return definitions.around(self._block(left, scene, finish))
            self._statement(statement, rest, scene, definitions)
            if not rest and finish is _state and definitions.made[-1][0] == scene.states[scene.function.states[0]]:
                name, last = definitions.made.pop()
                scene.names.release(name)
                return definitions.around(last)
        return definitions.around(finish(scene))

    def _returned(self, statement: ast.Return, scene: Scene, finish: Finish, definitions: Definitions) -> Block:
        if finish is not _state:
            raise scene.function.error(statement, "a return from the middle of a block that goes on")
        function = scene.function
        if statement.value is None:
            return _state(scene)
        kind = self.formulas.kinds.result(function)
        if function.changes(statement.value):
            value = self._value(statement.value, scene, definitions)
        else:
            value = self.formulas.of_kind(kind, statement.value, scene).text
        if not function.writes:
            return leaf(value)
        return leaf(f"[s |-> {scene.states[function.states[0]]}, value |-> {value}]")

    def _statement(self, statement: ast.stmt, rest: Sequence[ast.stmt], scene: Scene, definitions: Definitions) -> None:
        """A statement in the middle: definitions, and what they mean from here on."""
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if scene.function.changes(statement.value):
                named = self._named(statement.value, scene, definitions, name)
                scene.locals[name] = self.formulas.term(named, scene).text
                return
            text = self._value(statement.value, scene, definitions, self.formulas.kinds.name(scene.function, name))
            self._next_value(name, leaf(text), scene, definitions)
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            old = ast.copy_location(ast.Name(statement.target.id, ast.Load()), statement)
            total = ast.copy_location(ast.BinOp(old, statement.op, statement.value), statement)
            text = self._value(total, scene, definitions)
            self._next_value(statement.target.id, leaf(text), scene, definitions)
        elif isinstance(statement, (ast.Assign, ast.AugAssign)):
            self._assign_changed(statement, scene, definitions)
        elif isinstance(statement, ast.If):
            self._joined(statement, rest, scene, definitions)
        elif isinstance(statement, ast.For):
            self._loop(statement, rest, scene, definitions)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            if scene.function.changes(statement.value):
                self._next_state(leaf(self._changed_by(statement.value, scene, definitions)), scene, definitions)
        else:
            raise scene.function.error(statement, "a statement that is not exported")

    def _changed_by(self, node: ast.expr, scene: Scene, definitions: Definitions) -> str:
        """The state after a call that changes it."""
        assert isinstance(node, ast.Call)
        callee = scene.function.callee(node)
        if callee is None:
            # append, pop, insert, discard with an argument that changes the state itself
            replaced = self._without_changes(node, scene, definitions)
            return "".join(self.updates.written([ast.copy_location(ast.Expr(replaced), node)], scene).lines)
        replaced = self._without_changes(node, scene, definitions)
        text = self.formulas.call(callee, replaced, scene)
        return f"{text}.s" if callee.returns else text

    def _assign_changed(self, statement: ast.Assign | ast.AugAssign, scene: Scene, definitions: Definitions) -> None:
        """`s.variable[...] = ` something that changes the state."""
        value = self._named(statement.value, scene, definitions)
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        plain: ast.stmt = ast.copy_location(ast.Assign([target], value), statement)
        if isinstance(statement, ast.AugAssign):
            plain = ast.copy_location(ast.AugAssign(target, statement.op, value), statement)  # type: ignore[arg-type]
        self._next_state(self.updates.written([plain], scene), scene, definitions)

    def _joined(self, statement: ast.If, rest: Sequence[ast.stmt], scene: Scene, definitions: Definitions) -> None:
        """A choice after which both ways go on together."""
        test = self._value(statement.test, scene, definitions)
        ways = (statement.body, statement.orelse)
        needed = _names_in(rest)
        known = [n for n in assigned([statement]) if n in scene.locals or all(n in assigned(w) for w in ways)]
        values = [
            (name, If(test, *[self._block(w, scene.branch(), _local(name)) for w in ways]))
            for name in known
            if name in needed
        ]
        changes = any(scene.function.changes(s) for w in ways for s in w) or self._assigns_state([statement], scene)
        after = If(test, *[self._block(w, scene.branch(), _state) for w in ways]) if changes else None
        for name, block in values:
            self._next_value(name, block, scene, definitions)
        if after is not None:
            self._next_state(after, scene, definitions)

    def _loop(self, statement: ast.For, rest: Sequence[ast.stmt], scene: Scene, definitions: Definitions) -> None:
        """A loop: a step that is taken for each value, on the state or on a record of the state and local names."""
        assert isinstance(statement.target, ast.Name)
        changes = self._assigns_state([statement], scene) or scene.function.changes(statement)
        carried = [n for n in assigned(statement.body) if n in scene.locals]
        needed = [n for n in carried if n in _names_in(rest)]
        state = scene.function.states[0]
        inner = scene.branch()
        variable = inner.locals[statement.target.id] = scene.names.name(statement.target.id)
        domain = self.formulas.domain(statement.iter, scene).text
        before = scene.states[state]
        step = scene.names.fresh("Step")
        if not carried:
            own = inner.states[state] = scene.names.fresh("s")
            definitions.add(f"{step}({own}, {variable})", self._block(statement.body, inner, _state))
            self._next_state(leaf(f"ForEach({domain}, {before}, {step})"), scene, definitions)
            return
        record = scene.names.fresh("acc")
        fields = ([("s", before)] if changes else []) + [(n, scene.locals[n]) for n in carried]
        if changes:
            inner.states[state] = f"{record}.s"
        inner.locals.update({n: f"{record}.{n}" for n in carried})

        def finish(end: Scene) -> Block:
            ends = ([("s", end.states[state])] if changes else []) + [(n, end.locals[n]) for n in carried]
            same = all(text == f"{record}.{name}" for name, text in ends)
            return leaf(record) if same else leaf(_record(ends))

        definitions.add(f"{step}({record}, {variable})", self._block(statement.body, inner, finish))
        result = f"ForEach({domain}, {_record(fields)}, {step})"
        if changes and not needed:
            self._next_state(leaf(f"{result}.s"), scene, definitions)
            return
        after = scene.names.fresh("after")
        definitions.add(after, leaf(result))
        if changes:
            scene.states[state] = f"{after}.s"
        scene.locals.update({n: f"{after}.{n}" for n in carried})

    # -- values and states along the way

    def _next_state(self, block: Block, scene: Scene, definitions: Definitions) -> None:
        state = scene.function.states[0]
        name = scene.names.fresh("s")
        definitions.add(name, block)
        scene.states[state] = name

    def _next_value(self, name: str, block: Block, scene: Scene, definitions: Definitions) -> None:
        text = scene.names.fresh(name)
        definitions.add(text, block)
        scene.locals[name] = text

    def _value(self, node: ast.expr, scene: Scene, definitions: Definitions, kind: object = None) -> str:
        """The text of an expression; one that changes the state is evaluated first."""
        if scene.function.changes(node):
            node = self._named(node, scene, definitions)
        if kind is not None:
            return self.formulas.of_kind(kind, node, scene).text  # type: ignore[arg-type]
        return self.formulas.term(node, scene).text

    def _named(self, node: ast.expr, scene: Scene, definitions: Definitions, wanted: str = "first") -> ast.expr:
        """A name for the value of an expression that changes the state; the state afterwards becomes the current."""
        if not scene.function.changes(node):
            return node
        state = scene.function.states[0]
        callee = scene.function.callee(node)
        if callee is not None and callee.writes:
            assert isinstance(node, ast.Call)
            taken = scene.names.fresh("taken")
            definitions.add(
                taken, leaf(self.formulas.call(callee, self._without_changes(node, scene, definitions), scene))
            )
            scene.states[state] = f"{taken}.s"
            text = f"{taken}.value"
            scene.named[text] = self.formulas.kinds.result(callee)
        elif is_queue_call(node):
            assert isinstance(node, ast.Call)
            assert isinstance(node.func, ast.Attribute)
            text = scene.names.fresh(wanted)
            definitions.add(text, leaf(f"Head({self.formulas.place(node.func.value, scene)})"))
            pop = ast.copy_location(ast.Expr(node), node)
            self._next_state(self.updates.written([pop], scene), scene, definitions)
        else:
            raise scene.function.error(node, "an expression that changes the state in its middle; name its value first")
        scene.named.setdefault(text, Kind.NUMBER)
        scene.locals[text] = text
        return ast.copy_location(ast.Name(text, ast.Load()), node)

    def _without_changes(self, node: ast.Call, scene: Scene, definitions: Definitions) -> ast.Call:
        if not any(scene.function.changes(a) for a in node.args):
            return node
        arguments = [self._named(a, scene, definitions) for a in node.args]
        return ast.copy_location(ast.Call(node.func, arguments, []), node)

    def _assigns_state(self, body: Sequence[ast.stmt], scene: Scene) -> bool:
        nodes = [n for s in body for n in ast.walk(s) if isinstance(n, (ast.Assign, ast.AugAssign))]
        targets = [n.targets[0] if isinstance(n, ast.Assign) else n.target for n in nodes]
        return any(scene.function.path(t) is not None for t in targets)


def defined_as(head: str, block: Block) -> list[str]:
    """`head` and what it is, on one line if it fits."""
    lines = lines_of(block)
    if len(lines) == 1 and len(head) + len(lines[0]) < WIDTH:
        return [f"{head} {lines[0]}"]
    return [head, *(f"       {line}" for line in lines)]


def _state(scene: Scene) -> Block:
    return leaf(scene.states[scene.function.states[0]])


def _local(name: str) -> Finish:
    return lambda scene: leaf(scene.locals[name])


def _record(fields: Sequence[tuple[str, str]]) -> str:
    return f"[{', '.join(f'{name} |-> {text}' for name, text in fields)}]"


def _names_in(body: Sequence[ast.stmt]) -> set[str]:
    return {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name)}


def _guards_only(statement: ast.If | ast.For) -> bool:
    inside = [*statement.body, *statement.orelse]
    return bool(inside) and all(is_require(s) or (isinstance(s, (ast.If, ast.For)) and _guards_only(s)) for s in inside)
