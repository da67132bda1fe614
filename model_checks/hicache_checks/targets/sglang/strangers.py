"""Others who use the same store: the release's own backend once more, told that it is another model's or place's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch

PLACES = (
    *("model_name", "tp_rank", "tp_size", "pp_rank", "pp_size", "attn_cp_rank", "attn_cp_size"),
    "is_page_first_layout",
)
"""What a backend may be told of whose pages it keeps, by the names of the releases' own configuration."""


class Store(Protocol):
    """What of a release's backend is used."""

    def set(self, key: str, value: torch.Tensor) -> bool:
        """Keep a page."""

    def exists(self, key: str) -> bool:
        """Is there one?"""


@dataclasses.dataclass
class Stranger:
    """`name`: of who it is; `keys`: what he stored."""

    name: str
    store: Store
    keys: list[str]


class Strangers:
    """Those of one rank's store."""

    def __init__(self) -> None:
        self._all: list[Stranger] = []

    @property
    def names(self) -> Sequence[str]:
        """Of all of them."""
        return [stranger.name for stranger in self._all]

    def put(self, name: str, store: Store, pages: Mapping[str, torch.Tensor]) -> None:
        """A stranger stores pages, each under its hash. RuntimeError: his store does not take them."""
        if not all(store.set(key, page) for key, page in pages.items()):
            raise RuntimeError(f"the store of {name} does not take a page")
        self._all.append(Stranger(name, store, list(pages)))

    def forget(self) -> None:
        """As if nobody had been there."""
        self._all.clear()

    def problems(self) -> Iterator[str]:
        """Pages of theirs that are gone."""
        for stranger in self._all:
            gone = sum(not stranger.store.exists(key) for key in stranger.keys)
            if gone:
                yield f"P19 {gone} pages that '{stranger.name}' had stored are gone"


def known(changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same. ValueError: no backend is told such a thing."""
    unknown = [name for name in changes if name not in PLACES]
    if unknown:
        raise ValueError(f"a store is not told its {unknown[0]}")
    return changes


def name_of(changes: Mapping[str, Any]) -> str:
    """Who somebody is, by what he has otherwise."""
    return ", ".join(f"{name} {value}" for name, value in sorted(changes.items())) or "somebody alike"


def store_of(mine: Any, configuration: Any, changes: Mapping[str, Any]) -> Any:
    """A backend of the same class. What a release has no field for cannot be in its keys, and makes no difference."""
    if configuration is None:
        return type(mine)()
    return type(mine)(placed(configuration, changes))


def placed(configuration: Any, changes: Mapping[str, Any]) -> Any:
    """The release's configuration of a store, with other values where it has such fields."""
    fields = {field.name for field in dataclasses.fields(configuration)}
    return dataclasses.replace(configuration, **{name: value for name, value in changes.items() if name in fields})
