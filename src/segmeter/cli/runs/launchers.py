"""Runs the jobs of a sweep by the launcher that was chosen, and gives the outcome of each."""

import itertools
import math
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from importlib import import_module
from typing import Any

from segmeter.checks import expected
from segmeter.cli.runs.job import Job
from segmeter.cli.runs.shipped import Outcome, Shipped, attempt, joint, ship
from segmeter.errors import EXIT_FAULT, ConfigError
from segmeter.threads import count_cores

Jobs = Sequence[tuple[Any, Job]]

_LOST = "its process ended without a result, as it does when it is killed or memory runs out."
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
_SHARED = (  # options of submitit that every executor takes
    *("timeout_min", "cpus_per_task", "gpus_per_node", "tasks_per_node", "mem_gb", "nodes", "name"),
    "stderr_to_stdout",
)


def launch(jobs: Jobs, name: str, options: Mapping[str, Any]) -> Iterator[Outcome]:
    """Run jobs as a launcher does; a job that fails is an outcome like any other.

    Parameters
    ----------
    jobs
        Checked configurations, and how each was asked for.
    name
        One of `hydra_rules.LAUNCHERS`.
    options
        Its values.

    Yields
    ------
    One outcome per job, in the order in which they end.

    Raises
    ------
    ConfigError
        The launcher's package is not installed.
    """
    if name == "basic":
        yield from (attempt(config, job) for config, job in jobs)
        return
    shipped = [ship(config, job) for config, job in jobs]
    if name == "joblib":
        yield from _by_joblib(_spread(shipped), options)
    else:
        yield from by_submitit(shipped, options, cluster=name.removeprefix("submitit_"))


def _spread(jobs: Sequence[Shipped]) -> list[Shipped]:
    """Give the jobs that run on any GPU one each in turn; a worker process that keeps another one open does no harm."""
    anywhere = [job.values.get("device") in ("auto", "cuda") for job in jobs]
    count = import_module("segmeter.inference.device").count_gpus() if any(anywhere) else 0
    if count < 2:
        return list(jobs)
    turns = itertools.cycle(range(count))
    return [
        replace(job, values={**job.values, "device": f"cuda:{next(turns)}"}) if free else job
        for job, free in zip(jobs, anywhere, strict=True)
    ]


def _by_joblib(jobs: Sequence[Shipped], options: Mapping[str, Any]) -> Iterator[Outcome]:
    """Run jobs in worker processes of joblib, each a pool of its own: one that is killed loses its own job alone."""
    joblib = needed("joblib", extra="joblib")
    loky = joblib.externals.loky
    count = min(joblib.effective_n_jobs(options.get("n_jobs") or 1), len(jobs))
    threads = str(max(1, count_cores() // count))
    environment = {name: os.environ.get(name, threads) for name in _THREADS}
    workers = dict[int, Any]()  # by the thread that waits for it

    def run(job: Shipped) -> Outcome:
        number = threading.get_ident()
        if number not in workers:
            workers[number] = loky.ProcessPoolExecutor(max_workers=1, env=environment)
        try:
            outcome: Outcome = workers[number].submit(job).result(options.get("timeout") or None)
        except loky.BrokenProcessPool:
            workers.pop(number).shutdown()
            return lost(job.job)
        except TimeoutError:
            workers.pop(number).shutdown(kill_workers=True)
            return lost(job.job, f" It was ended after {options['timeout']} seconds (hydra.launcher.timeout).")
        return outcome

    with ThreadPoolExecutor(count, thread_name_prefix="joblib") as pool:
        waiting = [pool.submit(run, job) for job in jobs]
        try:
            yield from (each.result() for each in as_completed(waiting))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in list(workers.values()):
                worker.shutdown(kill_workers=True)


def by_submitit(jobs: Sequence[Shipped], options: Mapping[str, Any], *, cluster: str) -> Iterator[Outcome]:
    """Submit jobs to SLURM, or to its stand-ins `local` and `debug`, and wait for each.

    A job that SLURM ends early (SIGUSR1 ahead of the limit) saves itself, is queued again, and goes on in its folder.

    Raises
    ------
    ConfigError
        submitit is not installed, or there is no SLURM here, or SLURM refuses the job; or several tasks are asked for
        where they would not share the work.
    """
    _check_tasks(jobs, options, cluster)
    if cluster == "slurm" and shutil.which("srun") is None:
        remedy = "Start it on a machine of the cluster; launch.cluster=local needs no SLURM."
        raise ConfigError(expected("config", "launch", "to have SLURM's srun and sbatch on the PATH", "none", remedy))
    os.environ["SUBMITIT_PREEMPT_SIGNAL"] = "USR1"  # what a training saves itself at; read when submitit is imported
    submitit = needed("submitit", extra="slurm")
    options = {key: value for key, value in options.items() if value is not None}
    folder = str(options.pop("submitit_folder"))
    first = {"slurm_max_num_timeout": options.pop("max_num_timeout")} if "max_num_timeout" in options else {}
    executor = submitit.AutoExecutor(folder=folder, cluster=cluster, **(first if cluster == "slurm" else {}))
    executor.update_parameters(
        **{key if key in _SHARED else f"slurm_{key}": value for key, value in options.items()
           if key in _SHARED or cluster == "slurm"}
    )  # fmt: skip
    try:
        with executor.batch():
            handles = [executor.submit(job) for job in jobs]
    except (submitit.core.utils.FailedJobError, FileNotFoundError) as error:
        answer = " ".join(str(error).split())
        raise ConfigError(expected("config", "launch", "to be a job that SLURM takes", answer)) from error
    for handle, job in zip(handles, jobs, strict=True):
        yield joint([_collect(handle.task(number), job.job) for number in range(handle.num_tasks)])


def _check_tasks(jobs: Sequence[Shipped], options: Mapping[str, Any], cluster: str) -> None:
    """Refuse several tasks that would each do the whole job, in one folder."""
    asked = {key: int(options.get(key) or 1) for key in ("nodes", "tasks_per_node")}
    alone = [each.job.command for each in jobs if each.job.command != "train"]
    if math.prod(asked.values()) > 1 and (alone or cluster == "debug"):
        rule = f"to be 1 for {alone[0] if alone else 'the cluster debug'}: only a training shares its work over tasks"
        given = ", ".join(f"{key}={value}" for key, value in asked.items())
        raise ConfigError(
            expected("config", "nodes, tasks_per_node", rule, given, "Use launch=processes or shard=1/2.")
        )


def _collect(task: Any, job: Job) -> Outcome:
    """Wait for one task of a job that submitit runs."""
    from submitit.core.utils import FailedJobError, UncompletedJobError

    try:
        outcome: Outcome = task.result()
    except (UncompletedJobError, FailedJobError):
        return lost(job, f" Its log is {task.paths.stderr}.")
    return outcome


def lost(job: Job, more: str = "") -> Outcome:
    """The outcome of a job that left none."""
    return Outcome(job=job, problems=(_LOST + more,), exit_code=EXIT_FAULT)


def needed(package: str, *, extra: str) -> Any:
    """Import a package of an extra.

    Raises
    ------
    ConfigError
        It is not installed.
    """
    try:
        return import_module(package)
    except ImportError as error:
        remedy = f"pip install 'segmeter[{extra}]'"
        line = expected("config", package, "to be installed", f"{error}", remedy)
        raise ConfigError(line) from error
