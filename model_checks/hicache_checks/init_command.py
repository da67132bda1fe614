"""`hicheck init NAME`: a commented adapter to fill in, and a test that holds it to the specification."""

from __future__ import annotations

import keyword
from dataclasses import dataclass
from pathlib import Path

from hicache_checks.reporting import InputError, Outcome, Screen, Verdict

ADAPTER = '''\
"""{name} as a system under test of hicheck: fill in the calls, then try `hicheck smoke {module}:{adapter}`.

A prompt is a list of tokens; pages are cut from it by `page_size`, which is 1 in searches. Pages are counted as one
rank sees them; where ranks differ, that is a finding. A call that raises is a finding, too.
"""

from __future__ import annotations


class {adapter}:
    """`hicheck conform {module}:{adapter}`: all ranks of the system, behind one object."""

    # Whose threads, queues and clocks are simulated: every package of yours that the system consists of.
    packages = ("{module}",)

    # The design of the specification that it is held to, if not the canonical one; for that it needs "events".
    # profile = "revoke_queue_sampled"

    def capabilities(self):
        """What there is besides the required calls; `adapter.py` of hicheck says which calls each name stands for.

        Begin with none. The next one is "store": without it nothing can be fetched. With "settle" more can be judged
        of a system that works in its own calls, without threads; with "events" and "audit" more is seen. "stop",
        "faults", "files", "disk", "shared", "clears", "tiers", "tenants", "copies", "flush", "attach", "detached",
        "threads" and "deaths" add steps to the programs, "variants" more systems. "resets" is a "flush" of which the
        logs tell. "checked_bytes" says that bytes are right even if a store lies.
        """
        return ()

    def reset(self, config):
        """Start an empty system, whatever was before.

        config: ranks, policy (best_effort, wait_complete, timeout), page_size, host_pages, device_pages,
        threshold_pages, limit_pages, timeout_s_base, and more.
        """
        raise NotImplementedError("build your system here, for config['ranks'] ranks")

    def submit(self, rid, tokens):
        """Ask for the missing part of a prompt. `accepted`: there is an operation now that has to end."""
        raise NotImplementedError('return {{"accepted": True}} or {{"accepted": False}}')

    def poll(self, rids):
        """By request id, `ready`: it need not wait any longer. A request that waits for nothing is ready."""
        raise NotImplementedError('return {{rid: {{"ready": True}} for rid in rids}}')

    def abort(self, rid):
        """The request is gone. Whether there was something to abort."""
        raise NotImplementedError("return True or False")

    def tick(self):
        """One turn of every scheduler's loop: drain what the threads have handed over."""
        raise NotImplementedError("call your scheduler")

    def observe(self):
        """What can be seen at any time. Of what cannot be seen, say UNOBSERVED:

            from hicache_checks.conformance.observation import UNOBSERVED

        operations: (request id, attempt from 1 on) -> host pages granted, for each operation that has not ended.
        """
        raise NotImplementedError(
            'return {{"free_pages": ..., "resident_pages": ..., "occupied_pages": ..., "operations": {{}}}}'
        )

    # def store(self, tokens, namespace=None):
    #     """Storage holds the pages of this prompt. A namespace that is not config["namespace"] is somebody else's."""

    def close(self):
        """End all threads. It may be called twice."""
'''

TEST = '''\
"""{name} is held to hicheck's specification of the prefetch pipeline, policy by policy."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("policy", ["best_effort", "wait_complete", "timeout"])
def test_{name}_conforms(hicheck, policy):
    hicheck("{module}:{adapter}", policy=policy, schedules=200)
'''


@dataclass(frozen=True)
class InitOptions:
    """What the user asked for."""

    name: str
    directory: Path = Path()


def run(options: InitOptions, screen: Screen) -> Outcome:
    """Write both files, or neither. Raises InputError; nothing is overwritten."""
    name = options.name
    if not name.isidentifier() or keyword.iskeyword(name):
        raise InputError(f"{name!r} cannot be the name of a Python module")
    module = f"{name}_adapter"
    adapter = "".join(part.capitalize() for part in name.split("_")) + "Adapter"
    texts = {
        options.directory / f"{module}.py": ADAPTER.format(name=name, module=module, adapter=adapter),
        options.directory / f"test_{name}_conforms.py": TEST.format(name=name, module=module, adapter=adapter),
    }
    for path in texts:
        if path.exists():
            raise InputError(f"{path} exists already")
    try:
        options.directory.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise InputError(f"{options.directory}: {error.strerror}") from None
    for path in texts:
        screen.say(f"written  {path}")
    screen.say(f"next     hicheck smoke {module}:{adapter}")
    return Outcome(Verdict.PASS, {"files": [str(path) for path in texts], "target": f"{module}:{adapter}"})
