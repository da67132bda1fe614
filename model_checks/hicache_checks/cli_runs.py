"""The command line: long runs of an implementation, on ranks that are processes."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from hicache_checks.cli_frame import JsonOption, app, run_command
from hicache_checks.rank_layout import RankLayout
from hicache_checks.reporting import Outcome, Screen


class Policy(enum.StrEnum):
    """When a poll stops a prefetch that still runs."""

    BEST_EFFORT = "best_effort"
    WAIT_COMPLETE = "wait_complete"
    TIMEOUT = "timeout"


class Store(enum.StrEnum):
    """Where a soak backs its pages up."""

    LMDB = "lmdb"
    FILE = "file"
    MEMORY = "memory"
    REDIS = "redis"
    MOONCAKE = "mooncake"


class Fault(enum.StrEnum):
    """What happens to the storage in the middle of a workload."""

    DELETE = "delete"
    CORRUPT = "corrupt"
    RAISE = "raise"


class Device(enum.StrEnum):
    """Where the pages of the device tier are."""

    CPU = "cpu"
    CUDA = "cuda"


class Backend(enum.StrEnum):
    """By what ranks agree."""

    GLOO = "gloo"
    NCCL = "nccl"


TpOption = Annotated[int, typer.Option(min=1, max=16, help="Tensor-parallel ranks; each rank is a process.")]
CpOption = Annotated[int, typer.Option(min=1, max=16, help="Context-parallel ranks.")]
PpOption = Annotated[int, typer.Option(min=1, max=16, help="Pipeline stages; the first decides what a tick drains.")]
DpOption = Annotated[int, typer.Option(min=1, max=16, help="Replicas of all that, which share what is stored.")]
DeviceOption = Annotated[Device, typer.Option(help="Where the pages of the device tier are.")]
BackendOption = Annotated[Backend, typer.Option(help="By what ranks agree. nccl: on a CUDA device of each one's own.")]


@app.command()
def workload(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A request trace in Mooncake's JSONL format.")
    ] = None,
    synthetic: Annotated[bool, typer.Option("--synthetic", help="Make a trace instead of reading one.")] = False,
    requests: Annotated[int | None, typer.Option(min=1, help="Only the first N requests.")] = None,
    tp: TpOption = 1,
    cp: CpOption = 1,
    pp: PpOption = 1,
    dp: DpOption = 1,
    storage: Annotated[
        str,
        typer.Option(
            metavar="STORE", help="Where pages are backed up: lmdb or file, with or without :DIR, memory, or a URL."
        ),
    ] = "lmdb",
    policy: Annotated[Policy, typer.Option(help="When a poll stops a running prefetch.")] = Policy.WAIT_COMPLETE,
    abort_rate: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of requests that are aborted.")] = 0.05,
    stop_rate: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of prefetches that are stopped.")] = 0.05,
    page_bytes: Annotated[int, typer.Option(min=1, help="Bytes of a page, all layers.")] = 4096,
    host_pages: Annotated[int, typer.Option(min=1, help="Pages of the host pool.")] = 512,
    device_pages: Annotated[int, typer.Option(min=1, help="Pages of the device pool.")] = 512,
    tree: Annotated[
        str, typer.Option(metavar="hiradix|hi_mamba|unified", help="What may be kept beside pages.")
    ] = "hiradix",
    pool: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=KIND[,FIELD=VALUE]...", help="What is kept there; may be repeated."),
    ] = None,
    replicated: Annotated[
        bool, typer.Option("--replicated", help="Tensor-parallel ranks have the same pages; one stores them.")
    ] = False,
    speed: Annotated[
        float | None, typer.Option(min=0.0, help="Keep the trace's timestamps, X times as fast; else ignore them.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of aborts, stops and the synthetic trace.")] = 0,
    fault: Annotated[Fault | None, typer.Option(help="Break the storage in the middle of the run.")] = None,
    device: DeviceOption = Device.CPU,
    backend: BackendOption = Backend.GLOO,
    json: JsonOption = None,
) -> int:
    """Replay a request trace through the threaded implementation, with the monitor on."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import workload_command

        options = workload_command.WorkloadOptions(
            trace=file,
            synthetic=synthetic,
            requests=requests,
            layout=RankLayout(tp=tp, cp=cp, pp=pp, dp=dp),
            storage=storage,
            policy=policy.value,
            abort_rate=abort_rate,
            stop_rate=stop_rate,
            page_bytes=page_bytes,
            host_pages=host_pages,
            device_pages=device_pages,
            tree=tree,
            pools=tuple(map(workload_command.pool_fields, pool or ())),
            replicated=replicated,
            speed=speed,
            seed=seed,
            fault=None if fault is None else fault.value,
            device=device.value,
            backend=backend.value,
        )
        return workload_command.run(options, screen)

    return run_command("workload", json, body)


@app.command()
def soak(
    minutes: Annotated[float, typer.Option(min=0.01, help="How long.")] = 30.0,
    tp: TpOption = 2,
    cp: CpOption = 1,
    pp: PpOption = 1,
    dp: DpOption = 1,
    store: Annotated[
        Store, typer.Option(help="Where pages are backed up; servers are started, stopped and killed.")
    ] = Store.LMDB,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds, equal steps.")] = 0,
    target: Annotated[str, typer.Option(metavar="NAME", help="A registered runner, or module:function.")] = "reference",
    device: DeviceOption = Device.CPU,
    backend: BackendOption = Backend.GLOO,
    json: JsonOption = None,
) -> int:
    """Random work, aborts, faults, attach, detach and reset for a long time: nothing breaks, leaks, hangs or grows."""

    def body(screen: Screen) -> Outcome:
        from hicache_checks import soak_command

        options = soak_command.SoakOptions(
            minutes=minutes,
            layout=RankLayout(tp=tp, cp=cp, pp=pp, dp=dp),
            store=store.value,
            seed=seed,
            target=target,
            device=device.value,
            backend=backend.value,
        )
        return soak_command.run(options, screen)

    return run_command("soak", json, body)
