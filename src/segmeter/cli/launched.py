"""launch=: one checked job -> the processes, Dask cluster or SLURM job that run it, and the folder that it leaves."""

import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from segmeter.checks import expected
from segmeter.cli.commands.merge import show_merged, take_pictures
from segmeter.cli.messages import describe
from segmeter.cli.runs.job import Job
from segmeter.cli.runs.launchers import by_submitit, lost, needed
from segmeter.cli.runs.objective import find_objective, results
from segmeter.cli.runs.resume import CHECKPOINTS, find_resumed
from segmeter.cli.runs.run_folder import note_done, open_run, run_name
from segmeter.cli.runs.shipped import Outcome, Shipped, joint, ship
from segmeter.distributed.config import DaskConfig, LocalConfig, SlurmConfig
from segmeter.errors import EXIT_FAULT, ConfigError, Interrupted, SweepError
from segmeter.evaluation.manifest import NAME
from segmeter.evaluation.merge import Merge, merge
from segmeter.evaluation.pieces import read_pieces
from segmeter.files import remove
from segmeter.inference.device import pick_device
from segmeter.parallel import end_with_parent, map_in_processes
from segmeter.report.html import write_report
from segmeter.schema import as_plain
from segmeter.threads import share_cores
from segmeter.training.run.signals import StopSignals

_SHARDS = "shards"
_RETRIES = 3  # of a shard whose Dask worker is lost
_PATIENCE = 20  # seconds in which processes leave by themselves once one has failed
_GRACE = 5  # the same once the first one is gone, and those before one that is told to end is killed
_ADDRESS = re.compile(r"\w+://\S+|[^\s:/]+:\d+")
_POLL = 0.2  # seconds after which a signal is passed on


def run_launched(config: Any, job: Job) -> float | None:
    """Run a job where ``config.launch`` says; returns its score.

    Raises
    ------
    ConfigError
        The command can't be run so.
    SweepError
        It failed there; its own lines, and its own exit code.
    """
    launch, alone = config.launch, config.replace(launch=LocalConfig())
    job = replace(job, launch=as_plain(launch))
    if isinstance(launch, SlurmConfig):
        return _value(_by_slurm(launch, alone, job))
    if job.command != "train":
        return _share_out(config, alone, job)
    if isinstance(launch, DaskConfig):
        raise ConfigError("config: expected `launch` to be local, processes or slurm for train, got dask.")
    return _value(_together(ship(alone, job), launch.devices))


def _value(outcome: Outcome) -> float | None:
    if outcome.exit_code:
        raise SweepError(outcome.problems, exit_code=outcome.exit_code)
    return outcome.value


def _by_slurm(launch: SlurmConfig, alone: Any, job: Job) -> Outcome:
    """Submit one job, whose folder is settled now, so that it goes on there however often it is queued again."""
    name = f"{datetime.now():%Y-%m-%d_%H%M%S}_{run_name(alone, job)}"
    holds = CHECKPOINTS if job.command == "train" else NAME
    resumed = find_resumed(alone, job, alone.resume, holds=holds) if getattr(alone, "resume", None) else None
    if resumed is not None:
        alone = alone.replace(resume=str(resumed.absolute()))
    job = replace(job, folder=(resumed or job.folder or alone.run.root / job.command / name).absolute())
    known = ("partition", "timeout_min", "nodes", "tasks_per_node", "gpus_per_node", "cpus_per_task", "mem_gb")
    options = {key: getattr(launch, key) for key in (*known, "signal_delay_s")}
    options |= {"submitit_folder": launch.folder, "max_num_timeout": launch.requeues, "name": f"segmeter-{job.command}"}
    (outcome,) = by_submitit([ship(alone, job)], options, cluster=launch.cluster)
    return outcome


def _together(job: Shipped, count: int) -> Outcome:
    """Train in spawned processes of this machine; the outcome is that of the first one, or of whichever failed."""
    from segmeter.distributed.faults import meeting
    from segmeter.distributed.watch import open_store

    context, store = get_context("spawn"), open_store()
    board = meeting(store, 0, range(0))
    ranks = dict[Connection, BaseProcess]()
    for rank in range(count):
        ours, theirs = context.Pipe(duplex=False)
        name, arguments = f"process {rank + 1} of {count}", (job, rank, count, store.port, theirs)
        process = context.Process(target=_one_rank, name=name, args=arguments, daemon=True)
        process.start()
        theirs.close()
        ranks[ours] = process
    try:
        with StopSignals() as stop:  # noted, as an exception could come while an outcome is being received
            outcome = joint(_gather(job.job, ranks, stop, board))
    finally:
        _end(list(ranks.values()))
    if stop and outcome.exit_code:  # with what it says of where it was saved
        raise Interrupted(outcome.problems, exit_code=outcome.exit_code)
    return outcome


def _gather(job: Job, ranks: Mapping[Connection, BaseProcess], stop: StopSignals, board: Any) -> list[Outcome]:
    """Wait for what becomes of each process, the first one first; once one has failed, the others have a short while.

    A signal is passed on: the first process saves, the others give up what they are at. That a process was killed is
    told to the others, who would know no more than that they lost it.
    """
    found, left, told, latest = dict[Connection, Outcome](), dict(ranks), False, time.monotonic()
    first = next(iter(ranks))
    while left:
        if stop and not told:
            told = True
            for process in ranks.values():
                if process.is_alive() and process.pid:
                    os.kill(process.pid, stop.number)
        ready = wait(list(left), timeout=_POLL)
        latest = time.monotonic() if ready else latest
        failed, patience = any(each.exit_code for each in found.values()), _GRACE if first in found else _PATIENCE
        if failed and time.monotonic() > latest + patience:
            break
        for pipe in ready:
            assert isinstance(pipe, Connection)
            process = left.pop(pipe)
            try:
                found[pipe] = pipe.recv()
            except (EOFError, ConnectionError):
                process.join(_GRACE)
                found[pipe] = _lost(job, process, board)
    return [found[pipe] for pipe in ranks if pipe in found]


def _lost(job: Job, process: BaseProcess, board: Any) -> Outcome:
    """The outcome of a process that left none: of the fault that ended the training, which may be just this."""
    from segmeter.distributed.faults import Fault, tell

    text = f"{process.name} was lost, {_ending(process)}, as when it is killed, or memory runs out. Remove the cause."
    fault = tell(board, Fault((text,)))
    return Outcome(job=job, problems=fault.lines, exit_code=fault.code)


def _ending(process: BaseProcess) -> str:
    """How a process ended, in words."""
    code = process.exitcode
    if code is None:
        return "which answered no more"
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


def _end(processes: Sequence[BaseProcess]) -> None:
    """End all processes; one that waits for another in a library hears SIGTERM only when that answers."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _GRACE
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


def _one_rank(job: Shipped, rank: int, count: int, port: int, pipe: Connection) -> None:
    """Be one process of a training; all but the first are silent."""
    end_with_parent()
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C comes once, from the parent: a second signal would end this process before it has saved
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True")
    if rank:
        sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    share_cores(count)
    pipe.send(job())


def _share_out(config: Any, alone: Any, job: Job) -> float | None:
    """Run the shards of score, eval or predict, and merge them into the run's folder."""
    if config.shard is not None:
        raise ConfigError("config: expected `shard` to be null where launch= shares out the cases, got a shard.")
    resumed = find_resumed(config, job, config.resume, holds="run.json") if config.resume else None
    if resumed is not None and (resumed / NAME).is_file():  # merged before
        value: float | None = import_module(f"segmeter.cli.commands.{job.command}").run(alone, job)
        return value
    placed = _placed(config, alone)
    with open_run(config, job, resumed=resumed, facts={"launch": as_plain(config.launch)}) as folder:
        shards = [_shard(each, job, folder, number, len(placed)) for number, each in enumerate(placed, start=1)]
        _raise_first(_by_dask(shards, config.launch) if isinstance(config.launch, DaskConfig) else _here(shards))
        pieces = read_pieces([shard.job.folder for shard in shards if shard.job.folder])
        metrics = getattr(config, "metrics", None)
        summary = merge(Merge(pieces=pieces, kind="shards", metrics=metrics, folder=folder))
        take_pictures(pieces, config.report, metrics, folder)
        found: dict[str, float | None] = {}
        if metrics is not None and pieces[0].spec is not None:
            found = results(summary, find_objective(config.objective, metrics, pieces[0].spec))
        note_done(folder, found)
        if config.report.html:
            write_report(folder, config.report)
        remove(folder / _SHARDS)
    show_merged(folder, summary, html=config.report.html)
    return next(iter(found.values()), None)


def _placed(config: Any, alone: Any) -> list[Any]:
    """The configuration of each shard; processes of this machine have a GPU each, as those of a training have."""
    if isinstance(config.launch, DaskConfig):
        return [alone] * config.launch.shards
    count, device = config.launch.devices, getattr(alone, "device", "cpu")
    if device not in ("auto", "cuda") or pick_device(device).type == "cpu":
        return [alone] * count
    return [alone.replace(device=str(pick_device(f"cuda:{number}"))) for number in range(count)]


def _shard(alone: Any, job: Job, folder: Path, number: int, count: int) -> Shipped:
    """One shard, which goes on where an earlier start of it, or a lost worker, left off."""
    quiet = {"report": alone.report.replace(html=False), "run": alone.run.replace(copy_to=None)}
    mine = alone.replace(shard=f"{number}/{count}", resume="auto", **quiet)
    place = (folder / _SHARDS / f"{number}of{count}").absolute()
    return ship(mine, Job(job.command, (*job.overrides, f"shard={number}/{count}"), place, job.argv))


def _here(shards: Sequence[Shipped]) -> Iterator[Outcome]:
    yield from map_in_processes(
        _call, shards, processes=len(shards), describe=lambda shard: f"shard {shard.values['shard']}"
    )


def _by_dask(shards: Sequence[Shipped], launch: DaskConfig) -> Iterator[Outcome]:
    distributed = needed("distributed", extra="dask")
    options = {"n_workers": launch.workers, "threads_per_worker": 1, "dashboard_address": None}
    cluster = distributed.LocalCluster(**options) if launch.address is None else None
    with _client(distributed, cluster or launch.address) as client:
        futures = client.map(_call, shards, retries=_RETRIES, pure=False)
        try:
            for future, shard in zip(futures, shards, strict=True):
                fault = future.exception()
                yield (
                    future.result() if fault is None else _faulty(shard.job, fault, distributed.scheduler.KilledWorker)
                )
        finally:
            client.cancel(futures)
            if cluster is not None:
                cluster.close()


def _client(distributed: Any, address: Any) -> Any:
    """Connect to a Dask scheduler.

    Raises
    ------
    ConfigError
        None answers at the address.
    """
    remedy = "Give that of a running scheduler, such as tcp://host:8786, or launch.address=null to start workers here."
    rule = "to be the address of a Dask scheduler that answers"
    if isinstance(address, str) and not _ADDRESS.fullmatch(address):  # Dask would look for a host of this name
        raise ConfigError(expected("config", "launch.address", rule, repr(address), remedy))
    try:
        return distributed.Client(address)
    except (OSError, ValueError) as error:
        given = f"{address!r} ({' '.join(str(error).split())})"
        raise ConfigError(expected("config", "launch.address", rule, given, remedy)) from error


def _faulty(job: Job, fault: BaseException, killed: type[Exception]) -> Outcome:
    """The outcome of a shard that Dask could not run, with what Dask says of it."""
    problems, code = describe(fault) if isinstance(fault, Exception) else ([repr(fault)], EXIT_FAULT)
    if isinstance(fault, killed):
        return lost(job, f" Dask says: {' '.join(str(fault).split())}")
    return Outcome(job=job, problems=tuple(problems), exit_code=code)


def _call(job: Shipped) -> Outcome:
    """Run a shard; what a lost worker left before its first case goes, else it would be taken for another run."""
    folder = job.job.folder
    if folder is not None and folder.is_dir() and not (folder / NAME).is_file():
        remove(folder)
    return job()


def _raise_first(outcomes: Iterator[Outcome]) -> None:
    """Wait for all shards; what the first failed one says is said of the run."""
    failed = [outcome for outcome in list(outcomes) if outcome.exit_code]
    if failed:
        raise SweepError(failed[0].problems, exit_code=failed[0].exit_code)
