"""The owner of a Mooncake segment: `python -P mooncake_owner.py MASTER BYTES FILE`; FILE is made when it is ready."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from mooncake.store import MooncakeDistributedStore

_OWN_BYTES = 16 << 20

if __name__ == "__main__":
    master, size_bytes, ready = sys.argv[1:]
    store = MooncakeDistributedStore()
    if code := store.setup("127.0.0.1", "P2PHANDSHAKE", int(size_bytes), _OWN_BYTES, "tcp", "", master):
        sys.exit(f"the master at {master} does not take a segment: {code}")
    Path(ready).touch()
    threading.Event().wait()
