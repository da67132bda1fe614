"""What a stranger does: install into a fresh environment, and look at a release from an empty directory."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from pathlib import Path

import pytest

from hicache_checks.targets.releases import CACHE_VARIABLE
from release_under_test import have

ROOT = Path(__file__).parents[1]
RELEASE = "sglang==0.5.18"
INSTALL_S_MAX = 900
CONFORM_S_MAX = 300


@pytest.mark.slow
@pytest.mark.timeout(INSTALL_S_MAX + CONFORM_S_MAX)
def test_install_and_conform(tmp_path: Path) -> None:
    have(RELEASE)
    venv.create(tmp_path / "fresh", with_pip=True)
    pip = [str(tmp_path / "fresh" / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), str(ROOT)], check=True, timeout=INSTALL_S_MAX)
    said = conformed(tmp_path, [str(tmp_path / "fresh" / "bin" / "hicheck")])
    assert said["target"] == RELEASE
    assert said["confirmed"] is not None


def conformed(tmp_path: Path, hicheck: list[str]) -> dict[str, object]:
    """The findings of the defaults, from an empty directory, which stays empty."""
    empty = tmp_path / "empty"
    empty.mkdir()
    ran = subprocess.run(
        [*hicheck, "conform", RELEASE, "--json", "-"],
        cwd=empty,
        env={**os.environ, CACHE_VARIABLE: str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=CONFORM_S_MAX,
    )
    assert ran.returncode == 1, ran.stderr
    assert list(empty.iterdir()) == []
    said: dict[str, object] = json.loads(ran.stdout)
    return said
