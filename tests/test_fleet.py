"""Several machines, one search: what one finds, the next one tries first. Hypothesis does it, by a database in Redis.

The test that each machine runs is the one in `docs/conformance.md`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

fakeredis = pytest.importorskip("fakeredis", reason="needs fakeredis, a Redis in Python")

ROOT = Path(__file__).parent.parent

SHORT = """
from toy_adapter import ToyAdapter

class Short(ToyAdapter):
    packages = ("short", "toy_adapter", "toy_fork")

    def observe(self):
        seen = super().observe()
        return {**seen, "free_pages": max(0, seen["free_pages"] - 1)}
"""


@pytest.fixture
def redis_port() -> Iterator[int]:
    server = fakeredis.TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def text_of_the_page() -> str:
    """The test that the page gives, for another target."""
    page = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```python\n(# test_fleet\.py\n.*?)```", page, re.DOTALL)
    assert text.count("my_fork_adapter:MyForkAdapter") == 1
    return str(text.replace("my_fork_adapter:MyForkAdapter", "short:Short"))


def run_machine(directory: Path, text: str, port: int) -> str:
    """What a machine of the fleet says."""
    (directory / "test_fleet.py").write_text(text)
    (directory / "short.py").write_text(SHORT)
    (directory / "pytest.ini").write_text(f"[pytest]\npythonpath = . {ROOT / 'tests'}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_fleet.py", "-k", "wait_complete"]
    environment = {**os.environ, "FLEET_REDIS": f"redis://127.0.0.1:{port}"}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False).stdout


@pytest.mark.heavy
def test_what_one_machine_finds_the_next_one_tries_first(tmp_path: Path, redis_port: int) -> None:
    first, second, apart = (tmp_path / name for name in ("first", "second", "apart"))
    for directory in (first, second, apart):
        directory.mkdir()
    text = text_of_the_page()
    assert "P4 inv_pages_conserved" in run_machine(first, text, redis_port)
    # It generates nothing of its own, so what it finds was found before.
    only_known = text.replace("import HealthCheck", "import HealthCheck, Phase").replace(
        "database=DATABASE", "database=DATABASE, phases=[Phase.reuse]"
    )
    assert "P4 inv_pages_conserved" in run_machine(second, only_known, redis_port)
    assert "1 skipped" in run_machine(apart, only_known.replace('FLEET_REDIS"]', 'FLEET_REDIS"] + "/1"'), redis_port)
