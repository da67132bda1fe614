"""Answers of an adapter that are not what they must be: its own fault, never a finding."""

from __future__ import annotations

from typing import Any

import pytest

from hicache_checks.conformance.adapter_checks import CheckedAdapter
from hicache_checks.conformance.findings import HARNESS, Broken
from hicache_impl.adapter import Reference


@pytest.mark.parametrize(
    ("call", "answer", "says"),
    [
        ("abort", "yes", "the answer is 'yes', True or False is expected"),
        ("flush", None, "the answer is None, True or False is expected"),
        ("detach", 1, "the answer is 1, True or False is expected"),
        ("audit", "P4 a page is lost", "the answer is 'P4 a page is lost', a list of texts is expected"),
        ("threads_of", [None], "the answer is [None], a list of texts is expected"),
        ("prefill", (), "the answer () has no `wrong`, the pages with other bytes"),
        ("submit", {}, "the answer {} has no 'accepted'"),
        ("observe", [], "the answer is [], a mapping is expected"),
    ],
)
def test_what_is_wrong_is_said(call: str, answer: Any, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reference, call, lambda self, *args: answer)
    adapter = CheckedAdapter(Reference())
    with pytest.raises(Broken) as broken:
        getattr(adapter, call)(*{"submit": ("a", (1,)), "abort": ("a",)}.get(call, ()))
    finding = broken.value.finding
    assert (finding.property, finding.kind, finding.place, finding.message) == ("adapter", HARNESS, call, says)


def test_what_is_right_passes() -> None:
    adapter = CheckedAdapter(Reference({"host_pages": 6, "device_pages": 6}))
    assert adapter.flush() is True
    assert adapter.audit() == []
    assert adapter.threads_of(0)
    assert adapter.prefill((1, 2)).wrong == ()
    assert adapter.detach()
    assert adapter.attach()
    adapter.close()
