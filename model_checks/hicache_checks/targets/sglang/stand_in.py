"""A stand-in for a release's scheduler, on which the release's own functions run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from hicache_checks.targets.sglang.own_code import OwnCode
from hicache_checks.targets.sglang.surroundings import Settings

BATCH_STEPS = (
    *("prepare_mlp_sync_batch", "maybe_prepare_mlp_sync_batch", "maybe_prepare_mlp_sync_batch_and_log_stats"),
    "_maybe_prepare_ngram_embedding",
)
"""What a scheduler does with a batch between choosing and running it."""

TOLD = (
    *("grammar_manager", "dllm_staging_reqs", "maybe_handle_dp_balance_data", "log_prefill_stats_late"),
    *("send_to_tokenizer", "ipc_channels", "stream_output", "output_streamer", "beam_coordinator"),
    "send_abort_output",
)
"""Whom a scheduler tells something."""


class StandIn:
    """An object of a class of the release without the rest of it: what it is given, the class's own methods, and None
    for all else.
    """

    def __init__(self, code: OwnCode, name: str, given: Mapping[str, Any]) -> None:
        vars(self).update(given, _code=code, _class_name=name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        method = f"{self._class_name}.{name}"
        if not self._code.has(method):
            return None
        bound = partial(self._code.method(method), self)
        return bound() if self._code.is_property(method) else bound


class Batch(Settings):
    """The requests that run: so many that no other fits in, or none."""

    def __init__(self, is_full: bool) -> None:
        super().__init__(batch_is_full=is_full, reqs=[], is_prefill_only=True)
        self.is_empty = lambda: not is_full
        self.batch_size = lambda: int(is_full)
        self.filter_batch = lambda *_, **__: None


class Anybody:
    """Whoever is told what no cache hears of."""

    def __getattr__(self, name: str) -> Anybody:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> None:
        pass


def quiet_scheduler() -> dict[str, Any]:
    """What a scheduler has that has nothing to do but what its cache wants."""
    passes_on = Settings(
        **dict.fromkeys(
            ("maybe_prepare_mlp_sync_batch", "maybe_convert_decode_to_extend", "prepare_for_forward"), _same
        )
    )
    return {
        **dict.fromkeys(("dp_attn_adapter", "ngram_embedding_manager"), passes_on),
        **dict.fromkeys(BATCH_STEPS, _same),
        **dict.fromkeys(("prefill_decode_interval", "_prefill_decode_interval_remaining"), 0),
        **dict.fromkeys(TOLD, Anybody()),
        "grammar_queue": [],
        "ps": Settings(pp_size=1),
        "spec_algorithm": Settings(is_none=lambda: True),
        "update_running_batch": lambda _: Batch(is_full=False),
        "enable_hierarchical_cache": True,
        "enable_hicache_storage": True,
    }


def _same(batch: Any, *_: Any, **__: Any) -> Any:
    return batch
