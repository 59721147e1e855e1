"""The engines that run jobs elsewhere: processes of this machine, torchrun, a Dask cluster, SLURM.

An engine maps over tasks that any process can run and returns an outcome for each. It knows nothing about their work.
"""

import multiprocessing
import operator
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from segmeter.checks import expected
from segmeter.cli.folders import Job
from segmeter.cli.messages import describe
from segmeter.distributed.config import DaskConfig, SlurmConfig
from segmeter.errors import EXIT_CODES, EXIT_FAULT, ConfigError, Interrupted, PeerError, StopSignals
from segmeter.parallel import end_with_parent
from segmeter.threads import share_cores

START = "spawn"  # multiprocessing's method for the processes of a training
LEAVE_S = 60  # seconds that they have to exit after a failure or signal, before torchrun kills them
_RETRIES = 3  # of a job whose Dask worker is lost
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
_LOST = "its process ended without a result, as it does when it is killed or memory runs out."

Task = Any  # a picklable job: `task.job` is what was requested, and `task()` runs it and returns an `Outcome`


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of a job.

    Parameters
    ----------
    job
        The job as it was requested.
    value
        The score that a sweep may optimise, or None.
    problems
        One line per problem; empty on success.
    exit_code
        The exit code that the job would have had as a command of its own.
    follows
        Distance from the cause: 0 if it failed by itself, 1 if another process did not answer, 2 if it was stopped.
    """

    job: Job
    value: float | None = None
    problems: tuple[str, ...] = ()
    exit_code: int = 0
    follows: int = field(default=0, compare=False)

    @classmethod
    def of(cls, job: Job, error: BaseException) -> "Outcome":
        """Return the outcome of a job that ended with an error."""
        problems, code = describe(error) if isinstance(error, Exception) else ([repr(error)], EXIT_FAULT)
        follows = 2 if isinstance(error, Interrupted) else int(isinstance(error, PeerError))
        return cls(job=job, problems=tuple(problems), exit_code=code, follows=follows)

    @classmethod
    def lost(cls, job: Job, more: str = "") -> "Outcome":
        """Return the outcome of a job whose process died without returning one."""
        return cls(job=job, problems=(_LOST + more,), exit_code=EXIT_FAULT)


def joint(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of a job of several processes: the failure nearest to its cause, else the one with a value."""
    failed = sorted((each for each in outcomes if each.exit_code), key=lambda each: each.follows)
    valued = [each for each in outcomes if each.value is not None]
    return [*failed, *valued, *outcomes][0]


def in_processes(tasks: Sequence[Task], count: int, *, threads: int | None = None) -> Iterator[Outcome]:
    """Run tasks side by side and yield outcomes as they finish. A killed process loses only its own task.

    Parameters
    ----------
    count
        Number of processes.
    threads
        Threads per process, unless environment variables set them. None sets nothing.
    """
    context = multiprocessing.get_context("spawn")
    workers = dict[int, ProcessPoolExecutor]()  # keyed by the thread that waits for the process

    def run(task: Task) -> Outcome:
        number = threading.get_ident()
        if number not in workers:
            workers[number] = ProcessPoolExecutor(1, context, _begin, (threads,))
        try:
            outcome: Outcome = workers[number].submit(task).result()
        except BrokenProcessPool:
            workers.pop(number).shutdown()
            outcome = Outcome.lost(task.job)
        return outcome

    with ThreadPoolExecutor(min(count, len(tasks)), thread_name_prefix="jobs") as pool:
        waiting = [pool.submit(run, task) for task in tasks]
        try:
            yield from (each.result() for each in as_completed(waiting))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in list(workers.values()):
                for process in list((worker._processes or {}).values()):
                    process.terminate()
                worker.shutdown()


def _begin(threads: int | None) -> None:
    """Set up a process before it imports NumPy or torch."""
    end_with_parent()
    for name in _THREADS if threads else ():
        os.environ.setdefault(name, str(threads))


def by_torchrun(task: Task, count: int) -> Outcome:
    """Run one training in several processes of this machine with torchrun's launcher. If one fails, all exit.

    Raises
    ------
    Interrupted
        A signal arrived and was passed on. The line says where the training was saved.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    failure, signalled = None, 0
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(LEAVE_S))
    elastic = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=count, run_id=str(os.getpid()), max_restarts=0, start_method=START,
        rdzv_backend="c10d", rdzv_endpoint="localhost:0", signals_to_handle="SIGTERM,SIGINT,SIGHUP,SIGUSR1",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, StopSignals():  # torchrun leaves its own handlers behind
        try:
            elastic_launch(elastic, _one_rank)(task, count, folder)
        except ChildFailedError as error:
            failure = error.get_first_failure()[1]
        except SignalException as error:
            signalled = int(error.sigval)
        found = [pickle.loads(path.read_bytes()) for path in sorted(Path(folder).iterdir())]
    outcome = joint(found) if found else Outcome.lost(task.job)
    if failure is not None and failure.exitcode < 0:
        name, ended = f"process {failure.local_rank + 1} of {count}", signal.Signals(-failure.exitcode).name
        text = f"{name} was lost, ended by {ended}, as when it is killed, or memory runs out. Remove the cause."
        outcome = Outcome(job=task.job, problems=(text,), exit_code=EXIT_FAULT)
    if signalled and outcome.exit_code:
        code = outcome.exit_code if found else EXIT_CODES.get(signalled, EXIT_FAULT)
        raise Interrupted(outcome.problems, exit_code=code)
    return outcome


def _one_rank(task: Task, count: int, folder: str) -> None:
    """Run one process of a training. All except the first are silent."""
    end_with_parent()
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # torchrun alone forwards Ctrl-C: a second signal would kill this process before it has saved
    rank = os.environ["RANK"]
    if rank != "0":
        sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    share_cores(count)
    outcome = task()
    part = Path(folder, f"{int(rank):06}")
    part.write_bytes(pickle.dumps(outcome))
    if outcome.exit_code:
        sys.exit(outcome.exit_code)  # tells torchrun about the failure


def by_dask(tasks: Sequence[Task], launch: DaskConfig) -> Iterator[Outcome]:
    """Run tasks on a Dask cluster, and yield outcomes in their order. A task whose worker is lost is retried.

    Raises
    ------
    ConfigError
        `distributed` is not installed, or no scheduler answers at the address.
    """
    distributed = needed("distributed", extra="dask")
    options = {"n_workers": launch.workers, "threads_per_worker": 1, "dashboard_address": None}
    cluster = distributed.LocalCluster(**options) if launch.address is None else None
    remedy = "Give that of a running scheduler, such as tcp://host:8786, or launch.address=null to start workers here."
    try:
        connected = distributed.Client(cluster or launch.address)
    except (OSError, ValueError) as error:
        rule, given = "to be the address of a Dask scheduler that answers", " ".join(str(error).split())
        raise ConfigError(
            expected("config", "launch.address", rule, f"{launch.address!r} ({given})", remedy)
        ) from error
    with connected as client:
        futures = client.map(operator.call, tasks, retries=_RETRIES, pure=False)
        try:
            for future, task in zip(futures, tasks, strict=True):
                fault = future.exception()
                if isinstance(fault, distributed.scheduler.KilledWorker):
                    yield Outcome.lost(task.job, f" Dask says: {' '.join(str(fault).split())}")
                else:
                    yield future.result() if fault is None else Outcome.of(task.job, fault)
        finally:
            client.cancel(futures)
            if cluster is not None:
                cluster.close()


def by_submitit(tasks: Sequence[Task], launch: SlurmConfig, *, name: str) -> Iterator[Outcome]:
    """Submit tasks to SLURM, or to submitit's stand-ins `local` and `debug`, and wait for each in turn.

    SLURM sends SIGUSR1 ahead of the time limit. The job then saves its state, is requeued, and continues in its folder.

    Raises
    ------
    ConfigError
        submitit is not installed, there is no SLURM here, SLURM rejects the job, or several processes are requested
        for a job that can't share its work.
    """
    alone = [each.job.command for each in tasks if each.job.command != "train"]
    if launch.nodes * launch.tasks_per_node > 1 and (alone or launch.cluster == "debug"):
        rule = f"to be 1 for {alone[0] if alone else 'the cluster debug'}: only a training shares its work over tasks"
        given = f"nodes={launch.nodes}, tasks_per_node={launch.tasks_per_node}"
        remedy = "Use launch=processes or shard=1/2."
        raise ConfigError(expected("config", "nodes, tasks_per_node", rule, given, remedy))
    if launch.cluster == "slurm" and shutil.which("srun") is None:
        remedy = "Start it on a machine of the cluster; launch.cluster=local needs no SLURM."
        raise ConfigError(expected("config", "launch", "to have SLURM's srun and sbatch on the PATH", "none", remedy))
    os.environ["SUBMITIT_PREEMPT_SIGNAL"] = "USR1"  # what a training saves itself at; read when submitit is imported
    submitit = needed("submitit", extra="slurm")
    faults = submitit.core.utils
    shared = ("timeout_min", "nodes", "tasks_per_node", "gpus_per_node", "cpus_per_task", "mem_gb")
    options = {key: getattr(launch, key) for key in shared} | {"name": name}
    first = {}
    if launch.cluster == "slurm":
        first = {"slurm_max_num_timeout": launch.requeues}
        options |= {"slurm_partition": launch.partition, "slurm_signal_delay_s": launch.signal_delay_s}
    executor = submitit.AutoExecutor(folder=str(launch.folder), cluster=launch.cluster, **first)
    executor.update_parameters(**{key: value for key, value in options.items() if value is not None})
    try:
        with executor.batch():
            handles = [executor.submit(task) for task in tasks]
    except (faults.FailedJobError, FileNotFoundError) as error:
        answer = " ".join(str(error).split())
        raise ConfigError(expected("config", "launch", "to be a job that SLURM takes", answer)) from error

    for handle, task in zip(handles, tasks, strict=True):
        outcomes = list[Outcome]()
        for part in map(handle.task, range(handle.num_tasks)):
            try:
                outcomes.append(part.result())
            except (faults.UncompletedJobError, faults.FailedJobError):
                outcomes.append(Outcome.lost(task.job, f" Its log is {part.paths.stderr}."))
        yield joint(outcomes)


def needed(package: str, *, extra: str) -> Any:
    """Import a package that an extra installs.

    Raises
    ------
    ConfigError
        The package is missing.
    """
    try:
        return import_module(package)
    except ImportError as error:
        remedy = f"pip install 'segmeter[{extra}]'"
        raise ConfigError(expected("config", package, "to be installed", f"{error}", remedy)) from error
