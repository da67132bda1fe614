"""What a release finds around it on a machine without a GPU: its configuration, its ranks, its memory.

All of it is put into the release's own modules by the names under which they ask for it, and nothing else of them is
touched. What the pipeline does, the release's own code does.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import os
import types
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from hicache_checks.targets.sglang.device import DEVICE, TorchOf
from hicache_checks.targets.sglang.files import OS
from hicache_checks.targets.sglang.grid import Grid, Groups, rank
from hicache_checks.targets.sglang.strangers import placed

CONFIGURATION = (
    *("get_memory", "get_serving", "get_observability", "get_model", "get_server_args", "get_schedule", "get_exec"),
    "get_global_server_args",
)
ZERO, ONE = ("get_attention_dp_rank",), ("get_attention_dp_size",)
USES_CUDA = (".managers.cache_controller", ".mem_cache.hiradix_cache", ".mem_cache.l2_transfer")
"""Modules that ask torch for streams and events by themselves."""
PLENTY = 1 << 40
"""Bytes of host memory, for whoever asks how much is free."""

PSUTIL = types.SimpleNamespace(
    virtual_memory=lambda: types.SimpleNamespace(total=PLENTY, available=PLENTY, used=0, free=PLENTY)
)


class Settings(types.SimpleNamespace):
    """Server arguments; one that is not given is None."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class Surroundings:
    """What the modules of a release are given. `settings`, `grid`, and each rank's `groups` may change between two
    builds."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.grid = Grid()
        self.groups: dict[int, Groups] = {}
        self._answers: dict[str, Callable[..., Any]] = {
            **dict.fromkeys(CONFIGURATION, lambda *_, **__: self.settings),
            "get_tensor_model_parallel_rank": lambda *_, **__: rank() % (self.grid.cp * self.grid.tp),
            "get_tensor_model_parallel_world_size": lambda *_, **__: self.grid.cp * self.grid.tp,
            "get_attention_tp_rank": lambda *_, **__: self.grid.place(rank()).tp,
            "get_attention_tp_size": lambda *_, **__: self.grid.tp,
            "get_pipeline_model_parallel_rank": lambda *_, **__: self.grid.place(rank()).pp,
            "get_pipeline_model_parallel_world_size": lambda *_, **__: self.grid.pp,
            "get_pp_group": lambda *_, **__: self._stages(),
            **dict.fromkeys(ZERO, lambda *_, **__: 0),
            **dict.fromkeys(ONE, lambda *_, **__: 1),
            # Contexts come with it, in every release that has them.
            "is_dp_attention_enabled": lambda *_, **__: self.grid.cp > 1,
            "get_parallel": lambda *_, **__: self._parallel(),
            "mamba_cache_chunk_size": lambda *_, **__: self.settings.page_size,
            "get_native_hash": page_hashes,
            "get_device_module": lambda *_, **__: DEVICE,
            "available_host_memory_bytes": lambda *_, **__: PLENTY,
        }

    def put_into(self, module: types.ModuleType) -> None:
        """Replace what the module asks by; called once, when it has been loaded."""
        names = vars(module)
        for name in self._answers.keys() & names.keys():
            if callable(names[name]):
                names[name] = self._answers[name]
        if callable(make := names.get("create_custom_parallel_group")):
            names["create_custom_parallel_group"] = functools.partial(self._new_group, make)
        if module.__name__.endswith(".hicache_storage") and names.get("os") is os:
            names["os"] = OS
        if "psutil" in names:
            names["psutil"] = PSUTIL
        if "device_module" in names:
            names["device_module"] = DEVICE
        if module.__name__.endswith(USES_CUDA) and names.get("torch") is torch:
            names["torch"] = TorchOf(torch)
        if "pool_host" in module.__name__ or "memory_pool_host" in module.__name__:
            # Imported only where there is an accelerator.
            names.update({kernel.__name__: kernel for kernel in KERNELS})
        if isinstance(memory := names.get("ALLOC_MEMORY_FUNCS"), dict):
            memory["cpu"] = _zeros
        if "HICACHE_HOST_MEMORY_RESERVE_BYTES" in names:
            names["HICACHE_HOST_MEMORY_RESERVE_BYTES"] = 0
        controller = names.get("HiCacheController")
        if hasattr(controller, "_generate_storage_config") and controller.__module__ == module.__name__:
            self._place_stores_of(controller)
        for pool in (names.get("HostKVCache"), names.get("MambaPoolHost")):
            if isinstance(pool, type) and pool.__module__ == module.__name__:
                _never_pin(pool)

    def _place_stores_of(self, controller: Any) -> None:
        """What a store is told of its place is what the settings say, where they say anything."""
        configure = controller._generate_storage_config

        @functools.wraps(configure)
        def configured(*args: Any, **kwargs: Any) -> Any:
            return placed(configure(*args, **kwargs), self.settings.store_place)

        controller._generate_storage_config = configured

    def _parallel(self) -> Settings:
        """Where the calling rank stands, and among how many."""
        grid, me = self.grid, rank()
        place = grid.place(me)
        return Settings(
            tp_rank=me % (grid.cp * grid.tp),
            tp_size=grid.cp * grid.tp,
            attn_tp_rank=place.tp,
            attn_tp_size=grid.tp,
            attn_cp_rank=place.cp,
            attn_cp_size=grid.cp,
            pp_rank=place.pp,
            pp_size=grid.pp,
            pp_group=None if grid.is_plain else self._stages(),
            **dict.fromkeys(("attn_dcp_rank", "dp_rank", "attn_dp_rank"), 0),
            **dict.fromkeys(("attn_dcp_size", "attn_dp_size", "nnodes"), 1),
            launch_world_size=1,
        )

    def _stages(self) -> Settings:
        """The group of the stages of a model. AssertionError: as in a release, it was never made."""
        assert not self.grid.is_plain, "there is one stage"
        group = self.groups[rank()].stages
        place = self.grid.place(rank()).pp
        return Settings(world_size=self.grid.pp, rank_in_group=place, cpu_group=group, device_group=group)

    def _new_group(self, make: Callable[..., Any], group_ranks: Sequence[int], backend: str = "gloo", **_: Any) -> Any:
        """Where all ranks are in one group, all make it; else the release's own way, by which they agree on groups."""
        if not self.grid.is_plain:
            return make(group_ranks=group_ranks, backend=backend)
        return torch.distributed.new_group(list(group_ranks), backend=backend)


def transfer_kv_direct(
    src_layers: Sequence[torch.Tensor],
    dst_layers: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    page_size: int,
) -> None:
    """The kernel that copies tokens between pools, layer by layer."""
    for source, destination in zip(src_layers, dst_layers, strict=True):
        destination[dst_indices] = source[src_indices]


def transfer_kv_all_layer_direct_lf_pf(
    src_ptrs: Sequence[torch.Tensor],
    dst_ptrs: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    page_size: int,
) -> None:
    """The kernel that copies tokens of all layers to pools that have the layers of a page next to each other. Sources:
    the layers of the first pool, then those of the next one.
    """
    layers = len(src_ptrs) // len(dst_ptrs)
    for place, source in enumerate(src_ptrs):
        destination = dst_ptrs[place // layers]
        destination[dst_indices // page_size, place % layers, dst_indices % page_size] = source[src_indices]


def transfer_kv_per_layer_direct_pf_lf(
    src_ptrs: Sequence[torch.Tensor],
    dst_ptrs: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    layer_id: int,
    page_size: int,
) -> None:
    """The kernel that copies tokens of one layer from such pools."""
    for source, destination in zip(src_ptrs, dst_ptrs, strict=True):
        destination[dst_indices] = source[src_indices // page_size, layer_id, src_indices % page_size]


KERNELS = (transfer_kv_direct, transfer_kv_all_layer_direct_lf_pf, transfer_kv_per_layer_direct_pf_lf)


def page_hashes(tokens: Any, prior: bytes | None, page_size: int | None = None) -> Any:
    """The hash chain that the release's native module computes: sha256 over the hash before and the page's tokens.

    Without a page size, one hash over all tokens. Where a key consists of pairs of neighbours, both of each count.
    """
    raw = tokens.raw_token_ids() if hasattr(tokens, "raw_token_ids") else getattr(tokens, "token_ids", tokens)
    words = _words(raw, len(tokens), bool(getattr(tokens, "is_bigram", False)))
    count = len(tokens)
    unit_bytes = len(words) // count if count else 0
    step = page_size or count
    sha256 = hashlib.sha256
    hashes = []
    for start in range(0, count, step):
        prior = sha256((prior or b"") + words[start * unit_bytes : (start + step) * unit_bytes]).digest()
        hashes.append(prior.hex())
    return hashes if page_size else hashes[0]


def _words(raw: Any, count: int, is_bigram: bool) -> bytes:
    """The first `count` units of a key, four bytes a token."""
    if isinstance(raw, array) and raw.typecode == "q" and not is_bigram:
        tokens = np.frombuffer(raw, np.int64, count)
        if count and not 0 <= int(tokens.min()) <= int(tokens.max()) < 1 << 32:
            raise OverflowError("a token has four bytes")
        return tokens.astype("<u4").tobytes()
    pairs = itertools.pairwise(raw) if is_bigram else raw
    units = [unit if isinstance(unit, tuple) else (unit,) for unit in itertools.islice(pairs, count)]
    return b"".join(int(token).to_bytes(4, "little") for unit in units for token in unit)


def _zeros(dims: Any, dtype: torch.dtype, device: Any = None, **_: Any) -> torch.Tensor:
    return torch.zeros(dims, dtype=dtype)


def _never_pin(pool: type) -> None:
    """Pinned memory needs a GPU."""
    init: Callable[..., None] = pool.__init__  # type: ignore[misc]
    signature = inspect.signature(init)

    @functools.wraps(init)
    def unpinned(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        if "pin_memory" in signature.parameters:
            bound.arguments["pin_memory"] = False
        init(*bound.args, **bound.kwargs)

    pool.__init__ = unpinned  # type: ignore[misc]
