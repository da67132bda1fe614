"""The servers of a soak's store, and what befalls them while the ranks work: stopped, killed, and well again."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from hicache_impl.storage.servers import MooncakeServers, RedisServer, ServerProcess, Unavailable

SERVED = ("redis", "mooncake")
# How long all is well, how long a server is stopped, and how long a dead one is missing, in seconds.
WELL_S = (4.0, 10.0)
STOPPED_S = (0.5, 5.0)
MISSING_S = (0.0, 4.0)


class Afflicted:
    """Servers that a thread afflicts one after the other, until `end`. `befell` counts what befell them.

    `spec` is what `open_storage` takes. ValueError: there is no such server here.
    """

    def __init__(self, store: str, seed: int) -> None:
        self.befell: Counter[str] = Counter()
        try:
            self._servers: RedisServer | MooncakeServers = RedisServer() if store == "redis" else MooncakeServers()
        except Unavailable as error:
            raise ValueError(f"the store {store} cannot be had here: {error}") from None
        self.spec = self._servers.spec
        self._draw = random.Random(f"servers {seed}")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._afflict, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the thread and the servers."""
        self._over.set()
        self._thread.join()
        self._servers.close()

    def _afflict(self) -> None:
        while not self._over.wait(self._draw.uniform(*WELL_S)):
            name, server = self._draw.choice(self._parts())
            if self._draw.random() < 0.5:
                server.stop()
                self._over.wait(self._draw.uniform(*STOPPED_S))
                server.go_on()
                self.befell[f"{name} stopped"] += 1
            else:
                server.kill()
                self._over.wait(self._draw.uniform(*MISSING_S))
                self._restart(name, server)
                self.befell[f"{name} killed"] += 1

    def _parts(self) -> list[tuple[str, ServerProcess]]:
        if isinstance(self._servers, RedisServer):
            return [("redis", self._servers)]
        # The master does not forget while it is alone: its death is rarer.
        return [*[("owner", self._servers.owner)] * 4, ("master", self._servers.master)]

    def _restart(self, name: str, server: ServerProcess) -> None:
        """Until it is there: a port may be taken for a moment, and an owner needs its master."""
        while not self._over.is_set():
            with suppress(Unavailable):
                server.restart()
                return
            self.befell[f"{name} could not be started"] += 1
            time.sleep(1.0)


@contextmanager
def servers_of(store: str, seed: int) -> Iterator[tuple[str, Mapping[str, int]]]:
    """What `open_storage` takes for the servers of `store`, and what befell them; empty, where it has none."""
    if store not in SERVED:
        yield "", {}
        return
    afflicted = Afflicted(store, seed)
    try:
        yield afflicted.spec, afflicted.befell
    finally:
        afflicted.end()
