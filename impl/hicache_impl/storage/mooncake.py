"""Pages in Mooncake: in the memory of owner processes, which a master knows. See `apart` for how it is kept at bay.

A transfer of Mooncake's TCP engine outlives its time-out: a read that was given up, or answered with no, is written to
its destination all the same when the owner goes on. So its client has a process of its own.
"""

from __future__ import annotations

import importlib.util
import re

from hicache_impl.storage.apart import ApartStore

PREFIX = "hicheck"
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class MooncakeStorage(ApartStore):
    """A store on the master at `host`, `port`; `local` is the address that this machine has for owners.

    ValueError: a prefix that might be a part of another one, or the wheel is not installed. The master need not be
    reachable now.
    """

    def __init__(
        self, host: str, port: int, prefix: str = PREFIX, local: str = "127.0.0.1", checksums: bool = True
    ) -> None:
        if _PREFIX.fullmatch(prefix) is None:
            raise ValueError(f"a prefix has letters, digits and any of _ . -, not {prefix!r}")
        if importlib.util.find_spec("mooncake") is None:
            raise ValueError("the store mooncake needs mooncake-transfer-engine, which is not installed")
        options = {"host": host, "port": port, "prefix": prefix, "local": local}
        super().__init__("mooncake_backend.py", options, checksums=checksums)
