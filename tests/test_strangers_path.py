"""What a stranger does: install into a fresh environment, and look at a release from an empty directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

from hicache_checks.targets.releases import CACHE_VARIABLE, cache_directory
from release_under_test import have

ROOT = Path(__file__).parents[1]
RELEASE = "sglang==0.5.18"
INSTALL_S_MAX = 900
CONFORM_S_MAX = 300


@pytest.mark.slow
@pytest.mark.timeout(INSTALL_S_MAX + CONFORM_S_MAX)
def test_install_and_conform(tmp_path: Path) -> None:
    """With everything that hicheck depends on, and a release that is fetched anew."""
    have(RELEASE)
    python = fresh(tmp_path)
    subprocess.run(
        [python, *["-m", "pip", "install", "--quiet", "-c"], str(ROOT / "constraints.txt"), str(ROOT)],
        check=True,
        timeout=INSTALL_S_MAX,
    )
    said = conformed(python, tmp_path, tmp_path / "cache")
    assert said["target"] == RELEASE
    assert {finding["kind"] for finding in said["findings"]} == {"protocol"}
    assert any(finding["confirmed"] for finding in said["findings"])


@pytest.mark.heavy
@pytest.mark.timeout(CONFORM_S_MAX)
def test_what_is_installed_is_all_that_it_needs(tmp_path: Path) -> None:
    """The same, but what hicheck depends on is taken from here, and the search is short."""
    have(RELEASE)
    python = fresh(tmp_path)
    (site,) = (tmp_path / "fresh").glob("lib/python*/site-packages")
    wheels = tmp_path / "wheels"
    build = [sys.executable, *["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"], str(wheels), str(ROOT)]
    subprocess.run(build, check=True)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([python, *["-m", "pip", "install", "--quiet", "--no-deps"], str(wheel)], check=True)
    (site / "here.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    said = conformed(python, tmp_path, cache_directory(), "--schedules", "60", "--no-confirm")
    assert said["schedules"] == 60
    place = subprocess.run(
        [python, "-c", "import hicache_checks; print(hicache_checks.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    ).stdout
    assert Path(place.strip()).is_relative_to(site)


def fresh(tmp_path: Path) -> str:
    """The interpreter of a new environment."""
    venv.create(tmp_path / "fresh", with_pip=True)
    return str(tmp_path / "fresh" / "bin" / "python")


def conformed(python: str, tmp_path: Path, cache: Path, *options: str) -> dict[str, Any]:
    """The findings, from an empty directory, which stays empty."""
    empty = tmp_path / "empty"
    empty.mkdir()
    ran = subprocess.run(
        [str(Path(python).parent / "hicheck"), "conform", RELEASE, "--json", "-", *options],
        cwd=empty,
        env={**os.environ, CACHE_VARIABLE: str(cache)},
        capture_output=True,
        text=True,
        timeout=CONFORM_S_MAX,
    )
    assert ran.returncode == 1, ran.stderr
    assert list(empty.iterdir()) == []
    said: dict[str, Any] = json.loads(ran.stdout)
    return said
