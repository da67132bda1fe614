"""One rank of a release: device pool, host pool, tree and controller, built from what the release has.

Signatures changed from release to release, so values are handed over by the name of the parameter; one that nobody
knows a value for is named.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import json
import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch

from hicache_checks.targets.sglang.events import EVENTS
from hicache_checks.targets.sglang.files import new_directory
from hicache_checks.targets.sglang.grid import Groups, Place, grid_of
from hicache_checks.targets.sglang.strangers import known
from hicache_checks.targets.sglang.surroundings import Settings

HIRADIX, UNIFIED, HIMAMBA = "hiradix", "unified", "himamba"
TREES = {
    HIRADIX: ("mem_cache.hiradix_cache", "HiRadixCache"),
    UNIFIED: ("mem_cache.unified_radix_cache", "UnifiedRadixCache"),
    HIMAMBA: ("mem_cache.hi_mamba_radix_cache", "HiMambaRadixCache"),
}
"""Kinds of trees: module and class."""
OURS, FILES = "memory", "file"
"""Kinds of stores: see `store`, and the release's own."""
DIRECTORY = "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"
RETRY_TURNS, RETRIES_MAX = 2, 4
"""Turns between two look-ups for a waiting request, where a release asks again, and how often it does."""
HALF_A_PAGE = 0.5
"""By so much a ratio is off, so that no rounding of it matters."""
HEADS, HEAD_DIM, LAYERS = 1, 8, 2
BYTES_PER_TOKEN = 2 * LAYERS * HEADS * HEAD_DIM * torch.float32.itemsize
"""Keys and values."""
STATE_LAYERS, CONV_SHAPE, TEMPORAL_SHAPE = 2, (3, 2), (1, 2, 2)
"""Layers that keep a state in place of keys and values, where a model has some; what a state consists of there."""
STATES_SPARE = 2
"""So many states more than pages: of a request that is computed, and of what is loaded back for it."""
SPARSE_POOLS = ("DSATokenToKVPool", "NSATokenToKVPool")
"""What releases call the pool of a model with sparse attention, the newest first."""
SPARSE_PAGE = 64
"""Tokens. They know no other page then."""
LATENT = {"kv_lora_rank": 6, "qk_rope_head_dim": 2, "kv_cache_dim": 8}
"""What a token has where keys and values are in one."""
SPARSE = {**LATENT, "index_head_dim": 128}
"""The same, and its index, in a model with sparse attention."""
NO_LIMIT = -1
REQUESTS = 4
"""So many requests a pool of requests has room for; one is computed at a time."""
STORE_MODULE, STORE_CLASS = "hicache_checks.targets.sglang.store", "PageStore"


class DoesNotFit(Exception):
    """The release is made otherwise than any release that this harness knows; the message says where."""


@functools.cache
def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """By name. Of functions and classes of a release, which stay."""
    return inspect.signature(function).parameters


def called(function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Call it with those of the values that it has a parameter for. DoesNotFit: it needs another one."""
    known = parameters_of(function)
    lacking = [
        name
        for name, parameter in known.items()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and name not in values
    ]
    if lacking:
        raise DoesNotFit(f"{getattr(function, '__qualname__', function)} wants {', '.join(lacking)}")
    return function(**{name: value for name, value in values.items() if name in known})


def made(cls: type, values: Mapping[str, Any]) -> Any:
    """The same for a class."""
    if dataclasses.is_dataclass(cls):
        names = {field.name for field in dataclasses.fields(cls) if field.init}
        return cls(**{name: value for name, value in values.items() if name in names})
    known = parameters_of(cls)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return cls(**values)
    return called(cls, values)


def module(name: str) -> ModuleType | None:
    """A module of the release; None: it has none of this name."""
    try:
        return importlib.import_module(f"sglang.srt.{name}")
    except ModuleNotFoundError as error:
        if error.name and f"sglang.srt.{name}".startswith(error.name):
            return None
        raise


def needed(name: str) -> ModuleType:
    """A module of the release. DoesNotFit: it has none of this name."""
    found = module(name)
    if found is None:
        raise DoesNotFit(f"there is no sglang.srt.{name}")
    return found


def settings_for(config: Mapping[str, Any], kind: str) -> Settings:
    """Server arguments for what an adapter's `reset` is given, and a kind of tree; `write_policy`, `storage`, `place`
    and `store_pages_max` besides.
    """
    page = config["page_size"]
    grid = grid_of(config)
    extra = {
        "backend_name": "pages",
        "module_path": STORE_MODULE,
        "class_name": STORE_CLASS,
        "prefetch_threshold": config["threshold_pages"] * page,
        "prefetch_timeout_base": config["timeout_s_base"],
        "prefetch_timeout_per_ki_token": config["timeout_s_per_page"] * 1024 / page,
    }
    if any("prefix_keys" in audit for audit in config.get("audits", ())):
        extra["hicache_storage_pass_prefix_keys"] = True
    if capped := config.get("store_pages_max"):
        extra |= {"max_size": capped * page * BYTES_PER_TOKEN, "eviction_ratio": 1.0}
    device_pages = device_pages_of(config)
    host_pages = config["host_pages"] + (-HALF_A_PAGE if adds_a_page() else HALF_A_PAGE)
    stages = config.get("stage_layers", (LAYERS,))
    is_fixed = "stage_layers" in config
    return Settings(
        page_size=page,
        hicache_ratio=host_pages / device_pages,
        hicache_size=host_pages * page * BYTES_PER_TOKEN * max(stages) / LAYERS / 1e9 if is_fixed else 0,
        # Host pools of states know no other layout in the latest releases that have the tree.
        hicache_mem_layout="page_first_direct" if has_states(config, kind) else "layer_first",
        hicache_io_backend="direct",
        hicache_write_policy=config.get("write_policy", "write_through"),
        hicache_storage_backend=backend(config.get("storage", OURS)),
        hicache_storage_backend_extra_config=json.dumps(extra),
        hicache_storage_prefetch_policy=config["policy"],
        hicache_host_memory_mode="cache",
        hicache_storage_prefetch_retry_poll_interval=RETRY_TURNS,
        hicache_storage_prefetch_retry_max_attempts=RETRIES_MAX,
        disable_hicache_numa_detect=True,
        mamba_cache_chunk_size=page,
        mamba=Settings(mamba_max_states_per_path=NO_LIMIT),
        served_model_name=config["namespace"],
        radix_eviction_policy="lru",
        disaggregation_mode="null",
        pp_size=grid.pp,
        tp_size=grid.cp * grid.tp,
        nnodes=1,
        store_place=known(config.get("place", {})),
    )


def adds_a_page() -> bool:
    """Does a host pool round down to pages, and add one? Else it only rounds down."""
    pools = (module("mem_cache.pool_host.base"), module("mem_cache.memory_pool_host"))
    pool = next(vars(found)["HostKVCache"] for found in pools if found is not None and "HostKVCache" in vars(found))
    return "// self.page_size + 1" in _text_of(inspect.unwrap(pool.__init__))


@functools.cache
def _text_of(function: Callable[..., Any]) -> str:
    return inspect.getsource(function)


def has_tenants() -> bool:
    """Are pages kept apart by adapter or tenant?"""
    return hasattr(needed("mem_cache.radix_cache"), "RadixKey")


def backend(storage: str) -> str:
    """What the release calls a store: its own way to one of somebody else, or its files, in a new directory. The oldest
    have no such way, and get ours in place of their files.
    """
    if storage == FILES:
        os.environ[DIRECTORY] = new_directory()
    elif storage != OURS:
        raise ValueError(f"a store is {OURS} or {FILES}, not {storage!r}")
    if module("mem_cache.storage.backend_factory") is not None:
        return "file" if storage == FILES else "dynamic"
    files = needed("mem_cache.hicache_storage")
    theirs = vars(files).setdefault("_files_of_the_release", vars(files)["HiCacheFile"])
    ours = getattr(importlib.import_module(STORE_MODULE), STORE_CLASS)
    vars(files)["HiCacheFile"] = theirs if storage == FILES else ours
    return "file"


def device_pages_of(config: Mapping[str, Any]) -> int:
    """Releases insist on a host pool that is larger than the device's."""
    return max(1, min(int(config["device_pages"]), int(config["host_pages"]) - 1))


def design() -> str:
    """The design of the specification that the release follows, by what its controller has."""
    controller = needed("managers.cache_controller").HiCacheController
    if hasattr(controller, "prefetch_sync_thread_func"):
        has_attempts = hasattr(needed("mem_cache.base_prefix_cache"), "CacheRequestHandle")
        return "attempts" if has_attempts else "progress_ack"
    names = controller.prefetch_thread_func.__code__.co_names
    if "prefetch_revoke_queue" not in names:
        return "decide_at_drain"
    return "revoke_queue" if "prefetch_hit_queue" in names else "alloc_first"


def default_kind() -> str:
    """The tree that the release gives to a model with nothing but attention."""
    registry = module("mem_cache.registry")
    has_hiradix = module("mem_cache.hiradix_cache") is not None
    return HIRADIX if has_hiradix and (registry is None or "HiRadixCache" in _text_of(registry)) else UNIFIED


def can_attach(kind: str) -> bool:
    """Can a store be attached and detached while the release runs? Some have the call, and always refuse."""
    file, name = TREES[kind]
    attach = getattr(needed(file), name).__dict__.get("attach_storage_backend")
    return attach is not None and bool(attach.__code__.co_names)


def can_clear(kind: str) -> bool:
    """Can the user have the store cleared?"""
    file, name = TREES[kind]
    return hasattr(getattr(needed(file), name), "clear_storage_backend")


def has_states(config: Mapping[str, Any], kind: str) -> bool:
    """Does the model keep states in some of its layers? ValueError: the tree has no place for them."""
    if config.get("states") and kind == HIRADIX:
        raise ValueError("HiRadixCache has no states")
    return kind == HIMAMBA or bool(config.get("states"))


def layers_of(config: Mapping[str, Any], place: Place) -> int:
    """How many layers a stage has; `stage_layers`: of each, where they differ."""
    stages = config.get("stage_layers")
    return int(stages[place.pp]) if stages else LAYERS


@dataclasses.dataclass
class Parts:
    """What a rank is made of. `kind`: see TREES; `requests`: the pool of requests, where these have states."""

    kind: str
    cache: Any
    allocator: Any
    device: Any
    requests: Any = None


def build(config: Mapping[str, Any], settings: Settings, groups: Groups, place: Place, kind: str) -> Parts:
    """A rank, on the thread that is to be its scheduler. `place`: where it stands. DoesNotFit: the release cannot be
    built so."""
    page = config["page_size"]
    values = _sizes(device_pages_of(config) * page, page, layers_of(config, place))
    values["head_dim"] = config.get("head_dim", HEAD_DIM)
    requests = _requests(values) if has_states(config, kind) else None
    pool = _pool(config, values, requests)
    device = getattr(pool, "full_kv_pool", pool)
    allocator = called(needed("mem_cache.allocator").PagedTokenToKVPoolAllocator, {**values, "kvcache": pool})
    unified = module("mem_cache.unified_radix_cache")
    hiradix = module("mem_cache.hiradix_cache")
    given: dict[str, Any] = {
        "disable": False,
        "req_to_token_pool": requests,
        "token_to_kv_pool_allocator": allocator,
        "page_size": page,
        # Where ranks share a context, a release's scheduler hands over the tensor ranks of one.
        "tp_cache_group": groups.tensors if grid_of(config).cp > 1 else groups.stage,
        "attn_tp_cache_group": groups.tensors,
        "attn_cp_cache_group": groups.contexts,
        "pp_cache_group": groups.stages,
        "pp_rank": place.pp,
        "pp_size": settings.pp_size,
        "enable_metrics": False,
        "enable_mamba_extra_buffer": page > 1,
        "is_eagle": bool(config.get("pairs")),
        "enable_kv_cache_events": EVENTS in config.get("audits", ()),
        "model_name": settings.served_model_name,
        "storage_backend_extra_config": settings.hicache_storage_backend_extra_config,
        **{name: value for name, value in vars(settings).items() if name.startswith("hicache_")},
    }
    params = module("mem_cache.cache_init_params")
    if kind == UNIFIED:
        if unified is None or params is None:
            raise DoesNotFit("there is no unified radix cache")
        kinds = unified.ComponentType
        parts = (kinds.FULL,) if requests is None else (kinds.FULL, kinds.MAMBA)
        given.update(tree_components=parts, tree_core_backend="python")
        init = made(params.CacheInitParams, given)
        cache = unified.UnifiedRadixCache(init)
        cache.init_hicache(settings, init)
        return Parts(kind, cache, allocator, device, requests)
    if kind == HIMAMBA:
        tree = needed(TREES[kind][0]).HiMambaRadixCache
        return Parts(
            kind,
            tree(made(needed("mem_cache.cache_init_params").CacheInitParams, given), settings),
            allocator,
            device,
            requests,
        )
    if hiradix is None:
        raise DoesNotFit("there is no HiRadixCache")
    if params is None:
        return Parts(kind, called(hiradix.HiRadixCache, given), allocator, device)
    cache = hiradix.HiRadixCache(made(params.CacheInitParams, given), settings)
    return Parts(kind, cache, allocator, device)


def _sizes(size: int, page: int, layers: int) -> dict[str, Any]:
    """Of a pool of keys and values on the device, in tokens, and what else pools are told."""
    return {
        "size": size,
        "page_size": page,
        "dtype": torch.float32,
        "head_num": HEADS,
        "head_dim": HEAD_DIM,
        "layer_num": layers,
        "device": "cpu",
        "enable_memory_saver": False,
        "enable_alt_stream": False,
        "need_sort": False,
    }


def draft_pool(size: int, page: int) -> Any:
    """The device's keys and values of a draft model, of so many tokens, in one layer."""
    return called(_memory().MHATokenToKVPool, _sizes(size, page, 1))


def draft_host_pool(pool: Any, size: int, page: int) -> Any:
    """The host's, of so many tokens."""
    half = HALF_A_PAGE * page
    ratio = (size + (-half if adds_a_page() else half)) / pool.size
    given = {"device_pool": pool, "host_to_device_ratio": ratio, "host_size": 0, "page_size": page}
    return called(needed("mem_cache.memory_pool_host").MHATokenToKVPoolHost, {**given, "layout": "layer_first"})


def _pool(config: Mapping[str, Any], values: Mapping[str, Any], requests: Any) -> Any:
    """The device's keys and values. ValueError: the tree has no such pool."""
    if requests is not None:
        return _hybrid(values, requests, is_latent=bool(config.get("latent")))
    if not config.get("indices"):
        return called(_memory().MHATokenToKVPool, values)
    cls = next((vars(_memory())[name] for name in SPARSE_POOLS if name in vars(_memory())), None)
    if cls is None or values["page_size"] != SPARSE_PAGE:
        raise ValueError(f"this release has no indices, or not for pages of {values['page_size']} tokens")
    return called(cls, {**values, **SPARSE})


def _memory() -> ModuleType:
    return needed("mem_cache.memory_pool")


def _requests(values: Mapping[str, Any]) -> Any:
    """The pool of requests of a model some of whose layers keep states, and the pool of these states."""
    page = values["page_size"]
    shape = Settings(conv=[CONV_SHAPE], temporal=TEMPORAL_SHAPE)
    given = {
        **values,
        "size": REQUESTS,
        "max_context_len": page,
        "mamba_size": values["size"] // page + STATES_SPARE,
        "mamba_spec_state_size": REQUESTS,
        "mamba_layer_ids": list(range(LAYERS, LAYERS + STATE_LAYERS)),
        "cache_params": Settings(shape=shape, dtype=Settings(conv=torch.float32, temporal=torch.float32)),
        # Pages of more than one token are only for requests that keep a state at the end of a page besides.
        "enable_mamba_extra_buffer": page > 1,
    }
    return called(_memory().HybridReqToTokenPool, given)


def _hybrid(values: Mapping[str, Any], requests: Any, is_latent: bool) -> Any:
    """The keys and values of such a model's other layers. `is_latent`: in one, and the same on all tensor ranks."""
    layers = {"full_attention_layer_ids": list(range(LAYERS)), "enable_kvcache_transpose": False}
    if is_latent:
        layers |= {"use_mla": True, **LATENT}
    return called(_memory().HybridLinearKVPool, {**values, **layers, "mamba_pool": requests.mamba_pool})
