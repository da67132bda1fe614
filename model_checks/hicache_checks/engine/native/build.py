"""Compiling the kernels of a specification with the system's C compiler, once for each text."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

FLAGS = ("-O1", "-march=native", "-std=gnu11", "-shared", "-fPIC", "-pthread")
KEPT_LIBRARIES = 400
EXPLORER = Path(__file__).with_name("explorer.c")


class NoCompiler(Exception):
    """There is no C compiler, or it cannot compile the kernels; says why in one line."""


def compiler() -> str | None:
    """The path of the C compiler: what `CC` names, else cc or gcc; None if there is none."""
    return next((found for c in (os.environ.get("CC"), "cc", "gcc") if c and (found := shutil.which(c))), None)


def cache_folder() -> Path:
    """Where compiled kernels are kept: the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hicheck"


def load(kernels: str) -> tuple[ctypes.CDLL, float]:
    """The library of these kernels, and the seconds that compiling it took (0.0 from the cache).

    Raises NoCompiler. Two processes may build the same library: each writes a file of its own and renames it.
    """
    cc = compiler()
    if cc is None:
        raise NoCompiler("no C compiler found (cc, gcc or $CC)")
    explorer = EXPLORER.read_text()
    key = hashlib.sha256("\0".join((kernels, explorer, cc, *FLAGS, _processor())).encode()).hexdigest()[:32]
    folder = cache_folder()
    library = folder / f"{key}.so"
    start = time.perf_counter()
    try:
        if not library.exists():
            folder.mkdir(parents=True, exist_ok=True)
            _forget_old(folder)
            with tempfile.TemporaryDirectory(dir=folder) as work:
                _compile(cc, kernels, Path(work)).replace(library)
            return ctypes.CDLL(str(library)), time.perf_counter() - start
        with contextlib.suppress(OSError):  # a cache that can only be read is a cache
            os.utime(library)
        return ctypes.CDLL(str(library)), 0.0
    except OSError:  # a cache that cannot be written, or holds something that cannot be loaded
        with contextlib.suppress(OSError):
            library.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as work:
            return ctypes.CDLL(str(_compile(cc, kernels, Path(work)))), time.perf_counter() - start


def _processor() -> str:
    """What kernels are compiled for: a cache may be shared by machines with different processors."""
    try:
        known = {line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("model", "flags"))}
    except OSError:
        known = set()
    return "\0".join((os.uname().machine, *sorted(known)))


def _compile(cc: str, kernels: str, work: Path) -> Path:
    (work / "kernels.h").write_text(kernels)
    built = work / "kernels.so"
    command = [cc, *FLAGS, "-I", str(work), "-o", str(built), str(EXPLORER)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        told = [line for line in done.stderr.splitlines() if line.strip()] or [f"it ended with {done.returncode}"]
        first = next((line for line in told if "error" in line), told[0])
        raise NoCompiler(f"{cc} cannot compile the kernels: {first.strip()}")
    return built


def _forget_old(folder: Path) -> None:
    def age(library: Path) -> float:
        try:
            return library.stat().st_mtime
        except OSError:
            return 0.0

    for library in sorted(folder.glob("*.so"), key=age)[:-KEPT_LIBRARIES]:
        library.unlink(missing_ok=True)
