"""Wheels of a few small files, as tests want them: whole ones, and damaged ones."""

from __future__ import annotations

import hashlib
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path

FILES = {"tiny/__init__.py": "ONE = 1\n", "tiny/inner/part.py": "TWO = 2\n"}
Content = Mapping[str, str]


def wheel(
    directory: Path,
    name: str = "tiny",
    version: str = "1.0",
    files: Content = FILES,
    tag: str = "py3-none-any",
    algorithm: str = "sha256",
    recorded: Content | None = None,
    edited: Callable[[str], str] = str,
) -> Path:
    """A wheel in this directory, not compressed.

    `recorded`: what its record says that the files are, if they are something else. `edited`: what becomes of that.
    """
    info = f"{name}-{version}.dist-info"
    about = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    directory.mkdir(parents=True, exist_ok=True)
    place = directory / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(place, "w") as archive:
        for file, content in {**files, **about}.items():
            archive.writestr(file, content)
        rows = [_row(file, content, algorithm) for file, content in {**(recorded or files), **about}.items()]
        archive.writestr(f"{info}/RECORD", edited("".join(rows) + f"{info}/RECORD,,\n"))
    return place


def _row(file: str, content: str, algorithm: str) -> str:
    digest = urlsafe_b64encode(hashlib.new(algorithm, content.encode()).digest()).rstrip(b"=").decode()
    return f"{file},{algorithm}={digest},{len(content)}\n"
