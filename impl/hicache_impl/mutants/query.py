"""Faults of the query thread and of the hash chain it asks with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hicache_impl.controller import Controller
from hicache_impl.keys import PrefixKey, namespace_hash
from hicache_impl.mutants.mutant import faulty_controller, faulty_operation
from hicache_impl.operation import Operation


class SkipsTheAgreement(Controller):
    """P7. Each rank goes by its own hit count."""

    def _agree_hit(self, hit: int) -> int:
        return hit


class AgreesOnTheHighest(Controller):
    """P12. The ranks agree on the longest hit, which some of them do not have."""

    def _agree_hit(self, hit: int) -> int:
        return self.group.all_max([hit])[0]


class DiesOfARaisingStore(Controller):
    """P31. `exists` is not guarded (sglang <= 0.5.21)."""

    def _ask_storage(self, hashes: Sequence[bytes]) -> int:
        return self.storage.exists(self._keys(hashes))


class RestartsTheChain(Operation):
    """P21. The first hash of the span is chained to the root and not to the anchor."""

    def __init__(self, rid: str, attempt: int, key: PrefixKey, **rest: Any) -> None:
        super().__init__(rid, attempt, key, **{**rest, "parent_hash": None})


class ForgetsTheNamespace(Operation):
    """P19. The chain of every namespace starts as that of the empty one (sglang <= 0.5.17)."""

    def __init__(self, rid: str, attempt: int, key: PrefixKey, **rest: Any) -> None:
        parent = rest["parent_hash"] if rest["base_pages"] else namespace_hash("")
        super().__init__(rid, attempt, key, **{**rest, "parent_hash": parent})


QUERY = (
    faulty_controller("query_skips_the_agreement", SkipsTheAgreement, ranks=2),
    faulty_controller("query_agrees_on_the_highest", AgreesOnTheHighest, ranks=2),
    faulty_controller("query_dies_of_a_raising_store", DiesOfARaisingStore),
    faulty_operation("query_restarts_the_chain_at_the_anchor", RestartsTheChain),
    faulty_operation("query_forgets_the_namespace", ForgetsTheNamespace),
)
