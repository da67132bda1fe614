"""Trees with states, as the harness sees them, and the kernels that copy to pools of their layout."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hicache_checks.targets.sglang.surroundings import (  # noqa: E402
    transfer_kv_all_layer_direct_lf_pf,
    transfer_kv_per_layer_direct_pf_lf,
)
from hicache_checks.targets.sglang.tree import HiMambaTreeOf, tree_of  # noqa: E402

LAYERS, PAGES, PAGE = 2, 3, 2


def node(parent: Any, key: list[int], device: list[int] | None, host: list[int] | None, **more: Any) -> SimpleNamespace:
    made = SimpleNamespace(
        parent=parent,
        key=key,
        children={},
        value=None if device is None else torch.tensor(device),
        host_value=None if host is None else torch.tensor(host),
        **{"mamba_value": None, "mamba_host_value": None, "full_lock_ref": 0, "mamba_lock_ref": 0, **more},
        host_ref_counter=0,
        host_mamba_ref_counter=0,
        hash_value=None,
    )
    if parent is not None:
        parent.children[key[0]] = made
    return made


def a_cache() -> tuple[SimpleNamespace, SimpleNamespace, SimpleNamespace]:
    """A tree, its node on the device, whose state is on the host, and one below that is on the host only."""
    root = node(None, [], [], None)
    upper = node(root, [1, 2], [4, 5], [6, 7], mamba_host_value=torch.tensor([8]), full_lock_ref=2, mamba_lock_ref=1)
    lower = node(upper, [3], None, [9])
    cache = SimpleNamespace(root_node=root, full_evictable_size=lambda: 2, evictable_full_host_leaves={id(lower)})
    return cache, upper, lower


def test_states_are_seen_besides_the_slots_of_tokens() -> None:
    cache, _, lower = a_cache()
    tree = tree_of(cache)
    assert isinstance(tree, HiMambaTreeOf)
    above, below = tree.nodes()
    assert (above.device, above.host, above.device_states, above.host_states) == ((4, 5), (6, 7), None, (8,))
    assert (above.device_refs, above.state_refs) == (2, 1)
    assert (below.prefix, below.device, below.host, below.host_states) == ((1, 2, 3), None, (9,), None)
    assert (tree.evictable_tokens(), tree.evictable_host_leaves()) == (2, {id(lower)})


def test_a_state_on_the_host_is_no_token() -> None:
    cache, upper, lower = a_cache()
    tree = tree_of(cache)
    assert tree.host_tokens(SimpleNamespace(last_host_node=upper, host_hit_length=1)) == 0
    assert tree.host_tokens(SimpleNamespace(last_host_node=lower, host_hit_length=1)) == 1
    assert tree.host_tokens(SimpleNamespace(last_host_node=cache.root_node, host_hit_length=0)) == 0


def test_pages_come_back_from_a_pool_with_their_layers_next_to_each_other() -> None:
    device = [torch.arange(8.0) + 10 * place for place in range(2 * LAYERS)]
    host = [torch.zeros(PAGES, LAYERS, PAGE) for _ in range(2)]
    there, here = torch.tensor([6, 7, 0, 1]), torch.tensor([4, 5, 2, 3])
    transfer_kv_all_layer_direct_lf_pf(device, host, there, here, PAGE)
    assert host[0].tolist() == [[[0, 0], [0, 0]], [[0, 1], [10, 11]], [[6, 7], [16, 17]]]
    assert host[1].tolist() == [[[0, 0], [0, 0]], [[20, 21], [30, 31]], [[26, 27], [36, 37]]]
    back = [torch.zeros(8) for _ in range(2)]
    transfer_kv_per_layer_direct_pf_lf(host, back, here, there, 1, PAGE)
    assert [values[there].tolist() for values in back] == [[16, 17, 10, 11], [36, 37, 30, 31]]
