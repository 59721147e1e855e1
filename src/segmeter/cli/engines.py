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
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from segmeter.checks import expected
from segmeter.cli.folders import Job
from segmeter.cli.messages import describe
from segmeter.distributed.config import DaskConfig, SlurmConfig
from segmeter.errors import EXIT_FAULT, SIGNAL_EXIT_CODES, ConfigError, Interrupted, PeerError, StopSignals
from segmeter.parallel import end_with_parent
from segmeter.threads import share_cores

START = "spawn"  # how multiprocessing starts the processes of a training
LEAVE_S = 60  # torchrun kills processes that have not exited this many seconds after a failure or signal
_RETRIES = 3  # Dask retries a job this many times when its worker is lost
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
_LOST = "its process ended without a result, as it does when it is killed or memory runs out."

Task = Any  # a picklable job: `task.job` is the request, and `task()` runs it and returns a `JobOutcome`


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
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
        Distance from the cause of a failure: 0 if the job itself failed, 1 if another process did not answer, 2 if the
        job was stopped.
    """

    job: Job
    value: float | None = None
    problems: tuple[str, ...] = ()
    exit_code: int = 0
    follows: int = field(default=0, compare=False)

    @classmethod
    def of(cls, job: Job, error: BaseException) -> "JobOutcome":
        """Return the outcome of a job that ended with an error."""
        problems, code = describe(error) if isinstance(error, Exception) else ([repr(error)], EXIT_FAULT)
        follows = 2 if isinstance(error, Interrupted) else int(isinstance(error, PeerError))
        return cls(job=job, problems=tuple(problems), exit_code=code, follows=follows)

    @classmethod
    def lost(cls, job: Job, details: str = "") -> "JobOutcome":
        """Return the outcome of a job whose process died without returning one."""
        return cls(job=job, problems=(_LOST + details,), exit_code=EXIT_FAULT)


def joint(outcomes: Sequence[JobOutcome]) -> JobOutcome:
    """Return the outcome of a job of several processes: the failure nearest to its cause, else the one with a value."""
    failed = sorted((outcome for outcome in outcomes if outcome.exit_code), key=lambda outcome: outcome.follows)
    valued = [outcome for outcome in outcomes if outcome.value is not None]
    return [*failed, *valued, *outcomes][0]


def in_processes(tasks: Sequence[Task], count: int, *, threads: int | None = None) -> Iterator[JobOutcome]:
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

    def run(task: Task) -> JobOutcome:
        number = threading.get_ident()
        if number not in workers:
            workers[number] = ProcessPoolExecutor(1, context, _begin, (threads,))
        try:
            outcome: JobOutcome = workers[number].submit(task).result()
        except BrokenProcessPool:
            workers.pop(number).shutdown()
            outcome = JobOutcome.lost(task.job)
        return outcome

    with ThreadPoolExecutor(min(count, len(tasks)), thread_name_prefix="jobs") as pool:
        futures = [pool.submit(run, task) for task in tasks]
        try:
            yield from (future.result() for future in as_completed(futures))
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


def by_torchrun(task: Task, count: int) -> JobOutcome:
    """Run one training in several processes of this machine with torchrun's launcher. If one fails, all exit.

    Raises
    ------
    Interrupted
        A signal arrived and was passed on. The line says where the training was saved.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    failure = None
    signal_number = 0
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
            signal_number = int(error.sigval)
        outcomes = [pickle.loads(path.read_bytes()) for path in sorted(Path(folder).iterdir())]
    outcome = joint(outcomes) if outcomes else JobOutcome.lost(task.job)
    if failure is not None and failure.exitcode < 0:
        process = f"process {failure.local_rank + 1} of {count}"
        signal_name = signal.Signals(-failure.exitcode).name
        text = (
            f"{process} was lost, ended by {signal_name}, as when it is killed, or memory runs out. Remove the cause."
        )
        outcome = JobOutcome(job=task.job, problems=(text,), exit_code=EXIT_FAULT)
    if signal_number and outcome.exit_code:
        code = outcome.exit_code if outcomes else SIGNAL_EXIT_CODES.get(signal_number, EXIT_FAULT)
        raise Interrupted(outcome.problems, exit_code=code)
    return outcome


def _one_rank(task: Task, count: int, folder: str) -> None:
    """Run one process of a training. All except the first are silent."""
    end_with_parent()
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # only torchrun forwards Ctrl-C: a second signal would kill this process before it has saved
    rank = os.environ["RANK"]
    if rank != "0":
        sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    share_cores(count)
    outcome = task()
    Path(folder, f"{int(rank):06}").write_bytes(pickle.dumps(outcome))
    if outcome.exit_code:
        sys.exit(outcome.exit_code)  # tells torchrun about the failure


def by_dask(tasks: Sequence[Task], launch: DaskConfig) -> Iterator[JobOutcome]:
    """Run tasks on a Dask cluster, and yield their outcomes in order. A task whose worker is lost is retried.

    Raises
    ------
    ConfigError
        `distributed` is not installed, or no scheduler answers at the address.
    """
    distributed = needed("distributed", extra="dask")
    remedy = "Give that of a running scheduler, such as tcp://host:8786, or launch.address=null to start workers here."
    with ExitStack() as stack:
        address = launch.address
        if address is None:
            options = {"n_workers": launch.workers, "threads_per_worker": 1, "dashboard_address": None}
            address = stack.enter_context(distributed.LocalCluster(**options))
        try:
            client = stack.enter_context(distributed.Client(address))
        except (OSError, ValueError) as error:
            rule = "to be the address of a Dask scheduler that answers"
            given = f"{launch.address!r} ({' '.join(str(error).split())})"
            raise ConfigError(expected("config", "launch.address", rule, given, remedy)) from error
        futures = client.map(operator.call, tasks, retries=_RETRIES, pure=False)
        try:
            for future, task in zip(futures, tasks, strict=True):
                fault = future.exception()
                if isinstance(fault, distributed.scheduler.KilledWorker):
                    yield JobOutcome.lost(task.job, f" Dask says: {' '.join(str(fault).split())}")
                else:
                    yield future.result() if fault is None else JobOutcome.of(task.job, fault)
        finally:
            client.cancel(futures)


def by_submitit(tasks: Sequence[Task], launch: SlurmConfig, *, name: str) -> Iterator[JobOutcome]:
    """Submit tasks to SLURM, or to submitit's stand-ins `local` and `debug`, and wait for each in turn.

    SLURM sends SIGUSR1 before the time limit. The job then saves its state, is requeued, and continues in its folder.

    Raises
    ------
    ConfigError
        submitit is not installed, there is no SLURM here, SLURM rejects the job, or several processes are requested
        for a job that can't share its work.
    """
    unshared = [task.job.command for task in tasks if task.job.command != "train"]
    if launch.nodes * launch.tasks_per_node > 1 and (unshared or launch.cluster == "debug"):
        one_task = unshared[0] if unshared else "the cluster debug"
        rule = f"to be 1 for {one_task}: only a training shares its work over tasks"
        given = f"nodes={launch.nodes}, tasks_per_node={launch.tasks_per_node}"
        remedy = "Use launch=processes or shard=1/2."
        raise ConfigError(expected("config", "nodes, tasks_per_node", rule, given, remedy))
    if launch.cluster == "slurm" and shutil.which("srun") is None:
        remedy = "Start it on a machine of the cluster; launch.cluster=local needs no SLURM."
        raise ConfigError(expected("config", "launch", "to have SLURM's srun and sbatch on the PATH", "none", remedy))
    os.environ["SUBMITIT_PREEMPT_SIGNAL"] = "USR1"  # on it a training saves itself; submitit reads it when imported
    submitit = needed("submitit", extra="slurm")
    faults = submitit.core.utils
    same_names = ("timeout_min", "nodes", "tasks_per_node", "gpus_per_node", "cpus_per_task", "mem_gb")
    parameters = {key: getattr(launch, key) for key in same_names} | {"name": name}
    requeues = {}
    if launch.cluster == "slurm":
        requeues = {"slurm_max_num_timeout": launch.requeues}
        parameters |= {"slurm_partition": launch.partition, "slurm_signal_delay_s": launch.signal_delay_s}
    executor = submitit.AutoExecutor(folder=str(launch.folder), cluster=launch.cluster, **requeues)
    executor.update_parameters(**{key: value for key, value in parameters.items() if value is not None})
    try:
        with executor.batch():
            handles = [executor.submit(task) for task in tasks]
    except (faults.FailedJobError, FileNotFoundError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(expected("config", "launch", "to be a job that SLURM takes", reason)) from error

    for handle, task in zip(handles, tasks, strict=True):
        outcomes = list[JobOutcome]()
        for process in map(handle.task, range(handle.num_tasks)):
            try:
                outcomes.append(process.result())
            except (faults.UncompletedJobError, faults.FailedJobError):
                outcomes.append(JobOutcome.lost(task.job, f" Its log is {process.paths.stderr}."))
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
