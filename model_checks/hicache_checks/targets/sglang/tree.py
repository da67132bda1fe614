"""What a release's radix tree holds, in the harness's words: one class a family, chosen by what the cache has."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

STATES = "MAMBA"
"""What UnifiedRadixCache calls its component for states."""
UNDER_WAY = ("ongoing_prefetch", "ongoing_backup", "ongoing_write_through", "ongoing_load_back")
"""What a cache keeps of what is on its way."""


@dataclass(frozen=True)
class NodeSeen:
    """A node: `prefix`, the token ids from the root to its end; `length`, how many of them are its own; the slots of
    its device and host values, none where it has no such value; how many hold on to each. `raw`: the release's own;
    `index_bytes`: what of memory the tensor of its host slots keeps from being given back; `device_states`,
    `host_states`: the slots of the state after its end, and `state_refs`, how many hold on to them.
    """

    prefix: tuple[Any, ...]
    length: int
    device: tuple[int, ...] | None
    host: tuple[int, ...] | None
    device_refs: int
    host_refs: int
    hashes: tuple[str, ...] | None
    raw: Any
    index_bytes: int = 0
    device_states: tuple[int, ...] | None = None
    host_states: tuple[int, ...] | None = None
    state_refs: int = 0

    @property
    def start(self) -> int:
        """Where it begins in its prefix."""
        return len(self.prefix) - self.length


class TreeOf:
    """A tree whose nodes hold one value a tier: HiRadixCache."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache

    @property
    def root(self) -> Any:
        """The node that all others hang under."""
        return self.cache.root_node

    def nodes(self) -> Iterator[NodeSeen]:
        """All but the root, parents first."""
        waiting: list[tuple[Any, tuple[Any, ...]]] = [(self.root, ())]
        while waiting:
            node, prefix = waiting.pop()
            if node is not self.root:
                own = tuple(node.key.token_ids if hasattr(node.key, "token_ids") else node.key)[: len(node.key)]
                # In a key of pairs of neighbours, the first of each stands for it.
                prefix = (*prefix, *(unit[0] if isinstance(unit, tuple) else unit for unit in own))
                yield self._seen(node, prefix, len(own))
            # The releases' maps make a node of every key that is asked for: they are only looked through.
            waiting.extend((child, prefix) for child in reversed(list(node.children.values())))

    def path(self, tokens: Sequence[Any]) -> list[NodeSeen]:
        """The nodes that lie on this prompt, from the root on, each wholly."""
        asked = tuple(tokens)
        return [node for node in self.nodes() if asked[: len(node.prefix)] == node.prefix]

    def host_tokens(self, found: Any) -> int:
        """Of what a look-up found, how many tokens are on the host only."""
        return int(found.host_hit_length)

    def evictable_tokens(self) -> int:
        """Of how many tokens the device's slots are said to be free for the taking."""
        return int(self.cache.evictable_size())

    def evictable_host_leaves(self) -> Collection[Any] | None:
        """Nodes that the host can give up; None: the release keeps no such record."""
        kept: Collection[Any] | None = getattr(self.cache, "evictable_host_leaves", None)
        return kept

    def host_slots(self) -> Iterator[int]:
        """The host slots that nodes hold."""
        for node in self.nodes():
            yield from node.host or ()

    def evictable_host_tokens(self) -> int:
        """What could leave the host: whole ends of branches that are on the host only, and that nobody holds on to."""
        held: set[int] = set()
        tokens = 0
        for node in reversed(list(self.nodes())):
            is_held = node.host_refs or node.device_refs or node.device is not None or node.host is None
            if id(node.raw) in held or is_held:
                held.add(id(node.raw.parent))
            else:
                tokens += node.length
        return tokens

    def _seen(self, node: Any, prefix: tuple[Any, ...], length: int) -> NodeSeen:
        return NodeSeen(
            prefix,
            length,
            _slots(node.value),
            _slots(node.host_value),
            getattr(node, "lock_ref", 0),
            getattr(node, "host_ref_counter", 0),
            _hashes(node),
            node,
            _bytes_behind(node.host_value),
        )


class UnifiedTreeOf(TreeOf):
    """UnifiedRadixCache: values by component; here, of the attention's keys and values."""

    @property
    def root(self) -> Any:
        """See TreeOf."""
        return getattr(self.cache, "tree_core", self.cache).root_node

    def evictable_host_leaves(self) -> Collection[Any] | None:
        """See TreeOf."""
        kept: Collection[Any] | None = getattr(
            getattr(self.cache, "tree_core", self.cache), "evictable_host_leaves", None
        )
        return kept

    def _seen(self, node: Any, prefix: tuple[Any, ...], length: int) -> NodeSeen:
        full = node.component_data[0]
        seen = NodeSeen(
            prefix,
            length,
            _slots(full.value),
            _slots(full.host_value),
            full.lock_ref,
            full.host_lock_ref,
            _hashes(node),
            node,
            _bytes_behind(full.host_value),
        )
        state = self._state(node)
        if state is None:
            return seen
        return replace(
            seen,
            device_states=_slots(state.value),
            host_states=_slots(state.host_value),
            state_refs=state.lock_ref + state.host_lock_ref,
        )

    def _state(self, node: Any) -> Any:
        """What a node has of the component for states, if there is one."""
        kind = next((kind for kind in self.cache.tree_components if kind.name == STATES), None)
        return None if kind is None else node.component_data[kind]


class HiMambaTreeOf(TreeOf):
    """HiMambaRadixCache: besides, a state after the end of some nodes. No prefix is found that ends at another one."""

    def host_tokens(self, found: Any) -> int:
        """See TreeOf. Up to 0.5.12 the release's own number counts a state as a token."""
        node, tokens = found.last_host_node, 0
        while node is not self.root and node.value is None:
            node, tokens = node.parent, tokens + len(node.host_value)
        return tokens

    def evictable_tokens(self) -> int:
        """See TreeOf."""
        return int(self.cache.full_evictable_size())

    def evictable_host_leaves(self) -> Collection[Any] | None:
        """See TreeOf."""
        leaves: Collection[Any] = self.cache.evictable_full_host_leaves
        return leaves

    def _seen(self, node: Any, prefix: tuple[Any, ...], length: int) -> NodeSeen:
        return replace(
            super()._seen(node, prefix, length),
            device_refs=node.full_lock_ref,
            device_states=_slots(node.mamba_value),
            host_states=_slots(node.mamba_host_value),
            state_refs=node.mamba_lock_ref + node.host_mamba_ref_counter,
        )


def tree_of(cache: Any) -> TreeOf:
    """The view that fits."""
    root = getattr(getattr(cache, "tree_core", cache), "root_node", None)
    if hasattr(root, "component_data"):
        return UnifiedTreeOf(cache)
    return HiMambaTreeOf(cache) if hasattr(root, "mamba_value") else TreeOf(cache)


def is_under_way(cache: Any) -> bool:
    """Is anything on its way? Records of what was loaded may stay; whether they should is not for this to say."""
    return any(len(vars(cache).get(name, ())) for name in UNDER_WAY)


def maps_of(cache: Any) -> Mapping[str, int]:
    """What a cache keeps of requests and of what is on its way, by name: how many entries."""
    kept = {n: v for n, v in vars(cache).items() if n in UNDER_WAY or n.startswith("prefetch_loaded_")}
    return {name: len(value) for name, value in kept.items() if hasattr(value, "__len__")}


def _slots(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    # A tensor makes a tensor of each of its elements when it is gone through.
    return tuple(map(int, value.tolist() if isinstance(value, torch.Tensor) else value))


def _bytes_behind(value: Any) -> int:
    return 0 if value is None else int(value.untyped_storage().nbytes())


def _hashes(node: Any) -> tuple[str, ...] | None:
    hashes = getattr(node, "hash_value", None)
    return None if hashes is None else tuple(hashes)
