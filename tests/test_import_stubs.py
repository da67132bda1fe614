"""What stands for a package that is not installed: usable where a module is loaded, and of no use afterwards."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from hicache_checks.targets.sglang.stubs import Base, Stub, StubModule


@pytest.fixture
def stub() -> Any:
    return StubModule("none_such").thing


def test_a_stub_is_a_decorator_with_and_without_arguments(stub: Any) -> None:
    def function() -> int:
        return 1

    assert stub(function) is function
    assert stub.jit(function) is function
    assert stub(level=1)(function) is function
    assert isinstance(stub(function, level=1), Stub)

    class Decorated:
        one = 1
        method = stub(staticmethod(function))

    assert stub(Decorated) is Decorated
    assert Decorated.method() == 1


def test_a_stub_can_be_a_base(stub: Any) -> None:
    class Alone(stub):
        def __init__(self) -> None:
            super().__init__("anything", goes=True)

    class Two(stub.A, stub.B, dict[str, int]):
        pass

    class Generic(stub.A[int], option=1):  # type: ignore[call-arg]
        pass

    assert isinstance(Alone(), Base)
    assert Two.__mro__[1:3] == (Base, dict)
    assert Generic.__mro__[1] is Base


def test_a_stub_answers_nothing(stub: Any) -> None:
    assert (bool(stub), len(stub), list(stub), int(stub), float(stub)) == (False, 0, [], 0, 0.0)
    assert [stub < 1, stub > 1, stub <= 1, stub >= 1, stub == 1, 1 in stub] == [False] * 6
    assert not isinstance(1, stub)
    assert not issubclass(int, stub)
    assert repr(stub(1, 2).value) == "<stub none_such.thing().value>"
    with stub.lock as entered:
        assert isinstance(entered, Stub)


def test_a_stub_is_itself_wherever_it_is_asked_for(stub: Any) -> None:
    assert stub.a is stub.a
    assert stub.a == StubModule("none_such").thing.a
    assert stub.a != stub.b
    assert {stub.a: 1}[StubModule("none_such").thing.a] == 1
    assert copy.deepcopy(stub) == stub


def test_a_stub_has_a_name_a_version_and_no_other_protocol(stub: Any) -> None:
    assert stub.__name__ == "thing"
    assert StubModule("none_such").__version__ == "99.0.0"
    assert not hasattr(stub, "__array__")
    assert not hasattr(StubModule("none_such"), "__all__")
    with pytest.raises(TypeError):
        stub + 1


def test_a_stub_may_be_part_of_a_type(stub: Any) -> None:
    assert (stub | None) is None
    assert (int | stub) is int
    assert stub[int, str] is stub
