"""A process that uses a store for another one: `python -P serve.py JOB`, JOB being a JSON object.

What cannot be trusted to end, or to keep away from memory that it was lent, runs here: killing this process ends it for
certain. Records lie in memory that both processes have mapped, `slots` pieces of `slot_bytes`; a slot belongs to a
channel, a socket on which requests come and answers go, one JSON array each, and has a thread of its own.

    ["exists", KEYS]            -> [is there, ...]
    ["get", KEYS, PLACES]       -> [bytes read, ...]     a place is an offset and a size in the mapped memory
    ["put", KEYS, PLACES]       -> [is stored, ...]
    ["clear"]                   -> []

For bytes read, -1 is a page that is not there, and -2 a read that failed and may still be alive: its place must not be
used again as long as this process lives.
An answer `{"error": TEXT}` says that the call raised. The first that is said, on the control socket, is `["ready"]`, or
`["unusable", TEXT]`, for what will never work, or `["failed", TEXT]`.
"""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import signal
import socket
import sys
import threading
from typing import Any

MESSAGE_BYTES_MAX = 1 << 18


class Unusable(Exception):
    """Trying again is of no use."""


def main() -> None:
    """Open the store, serve it, and end when whoever started this process has ended, or closes the control socket."""
    job: dict[str, Any] = json.loads(sys.argv[1])
    # Ctrl-C is for whoever started this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path += job["path"]
    sys.modules["serve"] = sys.modules["__main__"]
    memory = mmap.mmap(job["memory"], job["slots"] * job["slot_bytes"])
    control = socket.socket(fileno=job["control"])
    try:
        store = _backend(job["backend"])(memory, **job["options"])
    except Exception as error:
        how = "unusable" if isinstance(error, Unusable) else "failed"
        _say(control, [how, f"{error}" if how == "unusable" else f"{type(error).__name__}: {error}"])
        os._exit(1)
    _say(control, ["ready"])
    for channel in job["channels"]:
        threading.Thread(target=_serve, args=(store, socket.socket(fileno=channel)), daemon=True).start()
    control.recv(1)
    # Not by a normal end, which may hang in what is not trusted.
    os._exit(0)


def _backend(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("backend", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Backend


def _serve(store: Any, channel: socket.socket) -> None:
    while message := channel.recv(MESSAGE_BYTES_MAX):
        call, *arguments = json.loads(message)
        try:
            _say(channel, getattr(store, call)(*arguments))
        except Exception as error:
            _say(channel, {"error": f"{type(error).__name__}: {error}"})


def _say(channel: socket.socket, answer: Any) -> None:
    try:
        message = json.dumps(answer).encode()
    except (TypeError, ValueError) as error:
        message = json.dumps({"error": f"an answer that is none: {error}"}).encode()
    channel.send(message if len(message) <= MESSAGE_BYTES_MAX else b'{"error": "an answer that is too long"}')


if __name__ == "__main__":
    main()
