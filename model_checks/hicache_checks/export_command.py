"""`hicheck export`: a design within bounds as TLA+ or Promela."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hicache_checks.explore_command import ExploreOptions, configurations_of
from hicache_checks.export import ExportError, Promela, Tla
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict
from hicache_spec import BOUNDS, Bounds, BoundSpec, SpecError
from hicache_spec.parts import OWN_DESIGNS, design_named
from hicache_spec.parts.grid import Grid

HOW_TO_RUN = {
    "tla": "java -cp tla2tools.jar tlc2.TLC -deadlock -config {stem}.cfg {stem}.tla",
    "promela": "spin -a -o2 {stem}.pml && cc -O3 -DSAFETY -DNOREDUCE -DNOCOMP -o pan pan.c && ./pan -m100000",
}


@dataclass(frozen=True)
class ExportOptions:
    """What to export, in which languages (exactly one), and where to. `configuration` picks one of the bounds' own."""

    languages: tuple[str, ...]
    what: ExploreOptions = field(default_factory=ExploreOptions)
    configuration: str | None = None
    output: str | None = None


@dataclass(frozen=True)
class Model:
    """The texts of one configuration: file names and what they hold. The first is the model itself."""

    configuration: str
    files: dict[str, str]


def run(options: ExportOptions, screen: Screen) -> Outcome:
    """Write the models, or print the only one. Raises InputError for what cannot be exported or written."""
    if len(options.languages) != 1:
        raise InputError("give --tla or --promela, one of them")
    (language,) = options.languages
    try:
        design_named(options.what.design)
    except SpecError as refusal:
        raise InputError(str(refusal)) from None
    configurations = chosen(options)
    if options.output is None and len(configurations) > 1:
        names = ", ".join(b.name for b in configurations)
        raise InputError(f"several configurations: name a directory with -o, or one of {names} with --configuration")
    stem = _stem_of(options, language, len(configurations))
    models = [model_of(language, options.what.design, bounds, stem) for bounds in configurations]
    written = _write(models, options.output, language, screen)
    keys = {
        "language": language,
        "design": options.what.design,
        "models": [
            {"configuration": m.configuration, "files": paths, **({} if options.output else {"texts": m.files})}
            for m, paths in zip(models, written, strict=True)
        ],
    }
    return Outcome(Verdict.PASS, keys)


def chosen(options: ExportOptions) -> tuple[Any, ...]:
    """The configurations to export. Raises InputError for a name that is not one of them."""
    if options.configuration is None:
        return configurations_of(options.what)
    every = [options.what.design] if options.what.design in OWN_DESIGNS else list(BOUNDS)
    sets = [options.what.bounds] if options.what.bounds else every
    known = {b.name: b for name in sets for b in configurations_of(_with_bounds(options.what, name))}
    if options.configuration not in known:
        raise InputError(f"no configuration {options.configuration!r}; there are {', '.join(known)}")
    return (known[options.configuration],)


def model_of(language: str, design: str, bounds: Bounds | Grid, stem: str = "") -> Model:
    """One configuration in one language. Raises InputError for a specification that cannot be written in it."""
    try:
        spec = BoundSpec(design_named(design), bounds)
        if language == "promela":
            return Model(bounds.name, {f"{stem or f'{design}_{bounds.name}'}.pml": Promela(spec, bounds.name).text()})
        module = Tla(spec, bounds.name, stem)
        return Model(bounds.name, {f"{module.module}.tla": module.text(), f"{module.module}.cfg": module.cfg()})
    except (ExportError, SpecError) as error:
        raise InputError(str(error)) from None


def _with_bounds(options: ExploreOptions, name: str) -> ExploreOptions:
    return replace(options, bounds=name)


def _stem_of(options: ExportOptions, language: str, count: int) -> str:
    """The name of the file without its ending, if the user gives one."""
    if options.output is None or _is_directory(options.output):
        return ""
    path = Path(options.output)
    if count > 1:
        raise InputError(f"-o {options.output}: several configurations need a directory")
    if not path.absolute().parent.is_dir():
        raise InputError(f"-o {options.output}: no such directory: {path.parent}")
    if language == "tla" and not re.fullmatch(r"[A-Za-z]\w*\.tla", path.name):
        raise InputError(f"-o {options.output}: a TLA+ module is named like its file: letters, digits, _, then .tla")
    return path.stem


def _is_directory(output: str) -> bool:
    return output.endswith("/") or Path(output).is_dir()


def _write(models: Sequence[Model], output: str | None, language: str, screen: Screen) -> list[list[str]]:
    if output is None:
        for text in models[0].files.values():
            screen.progress.clear()
            screen.console.file.write(text + "\n")
        return [[]]
    is_directory = _is_directory(output)
    folder = Path(output) if is_directory else Path(output).parent
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for model in models:
            paths = []
            for i, (name, text) in enumerate(model.files.items()):
                path = folder / name if is_directory or i > 0 else Path(output)
                path.write_text(text, encoding="utf-8")
                paths.append(str(path))
            written.append(paths)
            screen.say(f"{model.configuration}: {', '.join(paths)}")
    except OSError as error:
        raise InputError(f"-o {output}: {error.strerror}") from error
    stem = Path(next(iter(models[0].files))).stem if is_directory else Path(output).stem
    screen.say(f"to run it: {HOW_TO_RUN[language].format(stem=stem)}")
    return written
