"""What a model does with the cache of one rank of a release: prompts as the release has them, what is matched, loaded
back, computed and inserted, and what the device forgets.
"""

from __future__ import annotations

import dataclasses
import time
from array import array
from typing import Any

import torch

from hicache_checks.targets.sglang import audit, building
from hicache_checks.targets.sglang.audit import Written
from hicache_checks.targets.sglang.device import COPIES
from hicache_checks.targets.sglang.rank_storage import RankStorage, Tokens
from hicache_checks.targets.sglang.surroundings import Settings
from hicache_checks.targets.sglang.tree import NodeSeen

CALLED_OFF = "called_off"
"""An audit that is made when it is asked for: whether a request whose load is called off has no slot for a state."""
TURNS_TO_REST = 60
TURN_S = 0.25


class EvictsTooLittle(Exception):
    """P9: the device is said to have pages that can go, and they do not go."""


@dataclasses.dataclass(frozen=True)
class Prefilled:
    """What became of a prompt that a model computed: `wrong` pages had other bytes when loaded, one line each,
    with the property first."""

    wrong: tuple[str, ...] = ()


class RankModel(RankStorage):
    """The part of a rank that is about a model. `extras`: the adapters and tenants that it computed for."""

    tree: Any
    extras: dict[str, None]
    audits: frozenset[str]
    _base: Any
    _key: Any
    _wants_arrays: bool
    _handle: Any
    _attempts: dict[str, int]

    # ---- tokens, keys and requests

    def tokens(self, tokens: Tokens) -> Any:
        """Token ids of the release for a harness prompt.

        Where keys are pairs of neighbours, every page begins with the same token, and so does what follows the last: so
        the pairs of a page are the same whatever comes after it.
        """
        ids = [token * self.page + place for token in tokens for place in range(self.page)]
        if self.has_pairs:
            ids = [0 if place % self.page == 0 else token for place, token in enumerate(ids)]
            ids.append(0)
        return array("q", ids) if self._wants_arrays else ids

    def key(self, ids: Any, extra: str | None = None) -> Any:
        """The radix key of token ids; `extra`: the adapter or tenant that they are computed for, none in the oldest. A
        tenant's is a salt, where the release tells the two apart."""
        if self._key is None:
            return ids
        if self.config.get("salted") and "cache_salt" in building.parameters_of(self._key):
            return self._key(ids, cache_salt=extra)
        return self._key(ids, extra)

    def handle(self, rid: str) -> Any:
        """What the release knows a request by."""
        return rid if self._handle is None else self._handle(rid, self._attempts.get(rid, 0))

    def match(self, ids: Any, extra: str | None = None) -> Any:
        """The release's own answer to what of a prompt is where."""
        params = getattr(self._base, "MatchPrefixParams", None)
        key = self.key(ids, extra)
        return self.cache.match_prefix(key) if params is None else self.cache.match_prefix(params(key=key))

    def request(self, rid: str, tokens: Tokens, extra: str | None = None) -> Settings:
        """A request as the scheduler has it; a request has one more token than the pages that are asked for."""
        ids = self.tokens(tokens)
        if extra is None:
            self.prompts[tuple(tokens)] = None
        else:
            self.extras[extra] = None
        request = Settings(
            rid=rid,
            cache_request_handle=self.handle(rid),
            full_untruncated_fill_ids=ids,
            fill_ids=ids,
            extra_key=extra,
            swa_host_hit_length=0,
            mamba_host_hit_length=0,
            kv=Settings(),
            _compute_max_prefix_len=lambda length: length,
        )
        request.init_next_round_input = lambda *_, **__: self._matched(request, ids)
        return request

    def _matched(self, request: Settings, ids: Any) -> None:
        found = self.match(ids, request.extra_key)
        on_device = found.device_prefix_len if hasattr(found, "device_prefix_len") else len(found.device_indices)
        request.prefix_len, request.prefix_indices = on_device, range(on_device)
        request.last_node, request.last_host_node = found.last_device_node, found.last_host_node
        request.best_match_node = getattr(found, "best_match_node", found.last_host_node)
        request.host_hit_length = found.host_hit_length
        request.matched_tokens = on_device + self.tree.host_tokens(found)
        request.mamba_host_hit_length = getattr(found, "mamba_host_hit_length", 0)

    # ---- the model's part

    def prefill(
        self, tokens: Tokens, extra: str | None = None, is_chunk: bool = False, loads: bool = True
    ) -> Prefilled:
        """The model's part: match, load back, compute the rest, insert it.

        `is_chunk`: the prompt goes on after it; `loads`: what is on the host only is loaded back.
        """
        ids = self.tokens(tokens)
        request = self.request("prefill", tokens, extra)
        self._matched(request, ids)
        wrong: tuple[str, ...] = ()
        if (request.host_hit_length or request.mamba_host_hit_length) and loads:
            is_loaded = self._load_back(request)
            if CALLED_OFF in self.audits and not is_loaded and request.mamba_pool_idx is not None:
                wrong = ("P6 a request has a slot for a state that is not loaded",)
            self._matched(request, ids)
        found = self._path(request)[: self._depth(request)]
        values = [slot for node in found for slot in node.device or ()]
        written = audit.written_as(tokens, extra)
        wrong += tuple(audit.wrong_device_pages(self, written, values))
        if found:
            wrong += tuple(self.states.wrong(found[-1], written(len(values) // self.page)))
        receipt = self.cache.inc_lock_ref(request.last_node)
        missing = len(tokens) * self.page - len(values)
        new = self._allocated(missing) if missing else torch.empty(0, dtype=torch.int64)
        if new is not None:
            self._compute(written, len(values) // self.page, new)
            self.states.write(written(len(tokens)), self.states.taken(request))
            slots = torch.cat([torch.tensor(values, dtype=torch.int64), new])
            self._insert(request, self.key(ids, extra), slots, len(values), is_chunk)
        self.states.give_back(request)
        self._unlock(request.last_node, receipt)
        return Prefilled(wrong)

    def compute(self, tokens: Tokens) -> Prefilled:
        """The same for a prompt that was matched before it came to the host: nothing is loaded back."""
        return self.prefill(tokens, loads=False)

    def evict_device(self, pages: int) -> int:
        """The device forgets pages. Raises EvictsTooLittle."""
        before = self.parts.allocator.available_size()
        possible = min(pages, self.tree.evictable_tokens() // self.page)
        self.evict(pages * self.page)
        done = int(self.parts.allocator.available_size() - before) // self.page
        if done < possible:
            raise EvictsTooLittle(f"P9 of {possible} device pages that can be evicted, {done} are")
        return done

    def evict_states(self, states: int) -> list[str]:
        """The device forgets states. What it forgets for good, though the host has room for it, one line each."""
        before = [node for node in self.tree.nodes() if node.device_states]
        has_room = self.states.has_room()
        self.evict(0, states)
        kept = {node.prefix for node in self.tree.nodes() if node.device_states or node.host_states}
        gone = [audit.pages_of(node.prefix, self.page) for node in before if node.prefix not in kept]
        return [f"P32 the state after {list(pages or ())} is gone, and the host has room" for pages in gone if has_room]

    def hold_copies(self) -> None:
        """Copies between the pools do not end."""
        COPIES.hold(self.number)

    def release_copies(self) -> None:
        """They do."""
        COPIES.go_on(self.number)

    # ---- one thing at a time

    def _load_back(self, request: Settings) -> bool:
        """What of the prompt is on the host only, becomes the device's, as far as there is room. Is anything loaded?"""
        params = getattr(self._base, "InitLoadBackParams", None)
        if params is not None:
            values = {"best_match_node": request.best_match_node, "last_host_node": request.last_host_node}
            values |= {"host_hit_length": request.host_hit_length, "req": request}
            self.cache.init_load_back(building.made(params, values))
        else:
            self.cache.init_load_back(request.last_host_node, request.host_hit_length)
        self.states.adopt(request)
        is_loaded = bool(self.cache.ongoing_load_back)
        self.cache.ready_to_load_host_cache()
        COPIES.go_on(self.number)
        for _ in range(TURNS_TO_REST):
            self.cache.loading_check()
            if not self.cache.ongoing_load_back:
                break
            time.sleep(TURN_S)
        return is_loaded

    def _path(self, request: Settings) -> list[NodeSeen]:
        """The nodes on a prompt, of those that are computed for the same adapter or tenant."""
        return [node for node in self.tree.path(request.fill_ids) if audit.extra_of(node) == request.extra_key]

    def _depth(self, request: Settings) -> int:
        """How many nodes from the root on are on the device as far as was matched."""
        depth, length = 0, 0
        for node in self._path(request):
            length += node.length
            if node.device is None or length > request.prefix_len:
                break
            depth += 1
        return depth

    def _allocated(self, tokens: int) -> torch.Tensor | None:
        slots: torch.Tensor | None = self.parts.allocator.alloc(tokens)
        if slots is None:
            self.evict(tokens)
            slots = self.parts.allocator.alloc(tokens)
        return None if slots is None else slots.to(torch.int64)

    def evict(self, tokens: int, states: int = 0) -> None:
        """The device forgets what so many tokens, and so many states, need."""
        params = getattr(self._base, "EvictParams", None)
        given = {"num_tokens": tokens, "mamba_num": states}
        self.cache.evict(tokens if params is None else building.made(params, given))

    def _compute(self, written: Written, known: int, slots: torch.Tensor) -> None:
        """The model writes the pages of a prompt that follow the first `known`."""
        for start in range(0, len(slots), self.page):
            place = known + start // self.page
            audit.write_device_page(self, written(place + 1), slots[start : start + self.page])

    def _insert(self, request: Settings, key: Any, values: torch.Tensor, known: int, is_chunk: bool) -> None:
        """What was computed becomes the tree's, and so does the state, unless the tree has one."""
        params = getattr(self._base, "InsertParams", None)
        if params is None:
            length = building.called(self.cache.insert, {"key": key, "value": values, "chunked": is_chunk})
        else:
            given = {"key": key, "value": values, "prev_prefix_len": known, "inserted_len": 0, "chunked": is_chunk}
            if request.mamba_pool_idx is not None:
                given["mamba_value"] = self.states.taken(request)
            done = self.cache.insert(building.made(params, given))
            length = done.prefix_len
            if request.mamba_pool_idx is not None and not done.mamba_exist:
                request.mamba_pool_idx = None
        if self.parts.kind == building.HIRADIX and length > known:
            # Pages that somebody else has put there: other trees give them back by themselves.
            self.parts.allocator.free(values[known:length])

    def _unlock(self, node: Any, receipt: Any) -> None:
        if hasattr(receipt, "to_dec_params"):
            self.cache.dec_lock_ref(node, receipt.to_dec_params())
        else:
            self.cache.dec_lock_ref(node)
