"""A store from outside, `MODULE:CLASS`, whose failures are kept apart: it runs in a process of its own (see `apart`).

What raises, answers nonsense, hangs, crashes or writes to memory late costs a miss. What it holds in its own memory is
lost when its process has to be killed.
"""

from __future__ import annotations

from hicache_impl.storage.apart import ApartStore


class DynamicStorage(ApartStore):
    """`name()` of `module`, an object with the calls of `Storage`. Its pages are records: a header, and the payload.

    ValueError: it cannot be imported or made.
    """

    def __init__(self, module: str, name: str, checksums: bool = True) -> None:
        super().__init__("dynamic_backend.py", {"module": module, "name": name}, checksums=checksums)
