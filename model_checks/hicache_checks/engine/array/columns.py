"""The words that generated kernels use, for NumPy arrays and for torch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

NUMPY = "numpy"


class NumpyColumns:
    """Columns are NumPy arrays."""

    i1, i2, i4, i8, truth = np.dtype("i1"), np.dtype("i2"), np.dtype("i4"), np.dtype("i8"), np.dtype("?")

    def names(self) -> dict[str, Any]:
        """What generated text may call."""
        return {
            **{t: getattr(self, t) for t in ("i1", "i2", "i4", "i8")},
            "cast": self.cast,
            "pick": self.pick,
            "least": np.minimum,
            "most": np.maximum,
            "take": lambda table, index: table[index],
            "shifted": self.shifted,
        }

    @staticmethod
    def cast(x: Any, t: Any) -> Any:
        """x in another type, without a copy where the bits are the same."""
        if x.dtype == np.bool_ and t.itemsize == 1:
            return x.view(t)
        return x.astype(t)

    @staticmethod
    def pick(condition: Any, a: Any, b: Any, t: Any) -> Any:
        """a where the condition holds, else b. Arithmetic that wraps around: np.where takes ten times as long."""
        chosen = NumpyColumns.cast(condition, t)
        if isinstance(a, int) and isinstance(b, int):
            return chosen * np.array(a - b).astype(t) + t.type(b)
        return (a - b) * chosen + b

    @staticmethod
    def shifted(x: Any, distance: Any, t: Any) -> Any:
        """x << distance."""
        return np.left_shift(t.type(x) if isinstance(x, int) else x, distance)

    @staticmethod
    def column(values: Any, t: str) -> Any:
        """A column from a list or a NumPy array."""
        return np.asarray(values, NumpyColumns.__dict__[t])

    @staticmethod
    def empty(length: int, t: str) -> Any:
        """A column without values; its memory is taken as it is filled."""
        return np.empty(length, NumpyColumns.__dict__[t])

    @staticmethod
    def full(length: int, value: int, t: str) -> Any:
        """A column of one value."""
        return np.full(length, value, NumpyColumns.__dict__[t])

    where_true = staticmethod(np.flatnonzero)
    join = staticmethod(np.concatenate)

    @staticmethod
    def count_up(start: int, length: int, t: str) -> Any:
        """start, start + 1, ..."""
        return np.arange(start, start + length, dtype=NumpyColumns.__dict__[t])

    @staticmethod
    def to_numpy(column: Any) -> Any:
        """The column as a NumPy array."""
        return column

    @staticmethod
    def narrow(column: Any) -> Any:
        """The column in 32 bits."""
        return column.astype(np.int32)

    @staticmethod
    def index(column: Any) -> Any:
        """The column as something to index with."""
        return column


class TorchColumns:
    """Columns are torch tensors on one device."""

    def __init__(self, device: str) -> None:
        """Raises ValueError if torch does not have the device."""
        import torch

        self.torch, self.device = torch, device
        try:
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"torch has no device {device!r} here: {str(error).splitlines()[0]}") from None
        self.i1, self.i2, self.i4, self.i8 = torch.int8, torch.int16, torch.int32, torch.int64
        self.truth = torch.bool

    def names(self) -> dict[str, Any]:
        """What generated text may call."""
        return {
            **{t: getattr(self, t) for t in ("i1", "i2", "i4", "i8")},
            "cast": lambda x, t: x.to(t),
            "pick": self.pick,
            "least": lambda a, b: self._bounded(a, b, "max"),
            "most": lambda a, b: self._bounded(a, b, "min"),
            "take": lambda table, index: table[index.long()],
            "shifted": self.shifted,
        }

    def _bounded(self, a: Any, b: Any, side: str) -> Any:
        if isinstance(a, int):
            a, b = b, a
        if isinstance(b, int):
            return self.torch.clamp(a, max=b) if side == "max" else self.torch.clamp(a, min=b)
        return self.torch.minimum(a, b) if side == "max" else self.torch.maximum(a, b)

    def pick(self, condition: Any, a: Any, b: Any, t: Any) -> Any:
        """a where the condition holds, else b."""
        return self.torch.where(condition, a, b).to(t)

    def shifted(self, x: Any, distance: Any, t: Any) -> Any:
        """x << distance."""
        x = self.torch.tensor(x, dtype=t, device=self.device) if isinstance(x, int) else x
        return self.torch.bitwise_left_shift(x, distance)

    def column(self, values: Any, t: str) -> Any:
        """A column from a list or a NumPy array."""
        return self.torch.as_tensor(np.asarray(values), dtype=getattr(self, t), device=self.device)

    def empty(self, length: int, t: str) -> Any:
        """A column without values."""
        return self.torch.empty(length, dtype=getattr(self, t), device=self.device)

    def full(self, length: int, value: int, t: str) -> Any:
        """A column of one value."""
        return self.torch.full((length,), value, dtype=getattr(self, t), device=self.device)

    @staticmethod
    def where_true(mask: Any) -> Any:
        """The rows where a mask holds."""
        return mask.nonzero().view(-1)

    def join(self, columns: Any) -> Any:
        """One column after the other."""
        return self.torch.cat(list(columns))

    def count_up(self, start: int, length: int, t: str) -> Any:
        """start, start + 1, ..."""
        return self.torch.arange(start, start + length, dtype=getattr(self, t), device=self.device)

    @staticmethod
    def to_numpy(column: Any) -> Any:
        """The column as a NumPy array."""
        return column.cpu().numpy()

    @staticmethod
    def narrow(column: Any) -> Any:
        """The column in 32 bits."""
        return column.int()

    @staticmethod
    def index(column: Any) -> Any:
        """The column as something to index with."""
        return column.long()


def columns_for(device: str) -> NumpyColumns | TorchColumns:
    """The columns of a device: `numpy`, or what torch calls a device. Raises ValueError."""
    return NumpyColumns() if device == NUMPY else TorchColumns(device)
