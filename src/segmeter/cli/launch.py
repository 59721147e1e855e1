"""Runs a job where its `launch` group says: here, in several processes, on a Dask cluster, or by SLURM.

A training uses all processes for one job. The other commands split their cases into shards, run each shard as a job of
its own, and merge the results. The jobs of a sweep use the same engines.
"""

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from segmeter.checks import expected
from segmeter.cli.commands import load_command
from segmeter.cli.config.groups import ROOTS, load_plugins
from segmeter.cli.engines import JobOutcome, by_dask, by_submitit, by_torchrun, in_processes, joint
from segmeter.cli.folders import NO_FOLDER, SAVED_STEPS, Job, find_resumed, usual_folder
from segmeter.cli.messages import shown_warnings
from segmeter.cli.run_folder import mask, open_run
from segmeter.distributed.config import DaskConfig, JoblibConfig, LocalConfig, SlurmConfig
from segmeter.distributed.shards import check_alone
from segmeter.errors import EXIT_FAULT, ConfigError, Interrupted, StopSignals, SweepError
from segmeter.files import remove
from segmeter.records import CONFIG, MANIFEST, RUN, flatten, read_yaml
from segmeter.schema import Config, as_plain
from segmeter.threads import count_cores

Jobs = Sequence[tuple[Any, Job]]
_SHARDS = "shards"


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """A job as plain values, which any process can run without composing again or reading a command line.

    Parameters
    ----------
    job
        The job as it was requested.
    values
        The checked configuration. Its plugins are imported where the job runs.
    path
        The module search path.
    is_shard
        Whether it is a shard of launch=. Its folder is removed if a lost worker left no finished case in it.
    """

    job: Job
    values: Mapping[str, Any]
    path: tuple[str, ...]
    is_shard: bool = False

    def __call__(self) -> JobOutcome:
        """Run the job here. Errors are returned in the outcome."""
        sys.path.extend(part for part in self.path if part not in sys.path)
        with shown_warnings(), StopSignals(raises=True):
            try:
                folder = self.job.folder
                if self.is_shard and folder and folder.is_dir() and not (folder / MANIFEST).is_file():
                    remove(folder)  # it can't be resumed
                load_plugins(self.values.get("plugins", ()))
                return attempt(ROOTS[self.job.command](**self.values), self.job)
            except KeyboardInterrupt as error:
                code = getattr(error, "exit_code", EXIT_FAULT)
                return JobOutcome(job=self.job, problems=(f"{error}.",), exit_code=code, follows=2)
            except Interrupted as error:
                stopped = JobOutcome.of(self.job, error)
            except Exception as error:  # for example, a plugin or key is unknown in this process
                return JobOutcome.of(self.job, error)
        if "SUBMITIT_FOLDER" in os.environ and stopped.exit_code == EXIT_FAULT:
            signal.raise_signal(signal.SIGUSR1)  # the run is saved, so let submitit's own handler queue it again
        return stopped

    def checkpoint(self) -> Any:
        """Queue the same job again to continue in its folder. submitit calls this when the job is preempted."""
        from submitit.helpers import DelayedSubmission

        resumes = {"resume": "auto"} if "resume" in self.values else {}
        return DelayedSubmission(replace(self, values={**self.values, **resumes}))


def ship(config: Config, job: Job) -> Shipped:
    """Make a job ready to run elsewhere."""
    path = tuple(str(Path(part).absolute()) for part in sys.path)  # "" stands for the working directory
    return Shipped(job=job, values=as_plain(config), path=path)


def attempt(config: Any, job: Job) -> JobOutcome:
    """Run a job here and return how it ended. Only an interruption of the whole program is raised."""
    try:
        return JobOutcome(job=job, value=run_job(config, job))
    except Interrupted:
        raise
    except Exception as error:
        return JobOutcome.of(job, error)


def run_job(config: Any, job: Job) -> float | None:
    """Run one job, here or where its `launch` group says, and return the score that a sweep may optimise.

    Raises
    ------
    ConfigError
        The command can't be launched that way.
    SweepError
        The job failed elsewhere. The error has the job's own lines and exit code.
    """
    if hasattr(config, "shard"):
        check_alone(config.shard)
    launch = getattr(config, "launch", LocalConfig())
    has_folds = getattr(config, "folds", None) is not None  # each of their trainings is launched by itself
    if has_folds or isinstance(launch, LocalConfig | JoblibConfig):  # joblib only matters for the jobs of a sweep
        return load_command(job.command)(config, job)
    shipped_config, job = _to_ship(config, job)
    if isinstance(launch, SlurmConfig):
        if job.folder is None:  # fixed now, so that it continues there however often SLURM requeues it
            holds = SAVED_STEPS if job.command == "train" else MANIFEST
            folder = find_resumed(shipped_config, job, holds=holds) or usual_folder(shipped_config, job)
            job = replace(job, folder=folder.absolute())
        (outcome,) = _by_slurm([(shipped_config, job)], launch)
        return _value(outcome)
    if job.command != "train":
        return _share_out(config, shipped_config, job)
    if isinstance(launch, DaskConfig):
        raise ConfigError(expected("config", "launch", "to be local, processes or slurm for train", "dask"))
    return _value(by_torchrun(ship(shipped_config, job), launch.devices))


def _to_ship(config: Any, job: Job) -> tuple[Any, Job]:
    """Return the configuration to run elsewhere, and the job, which records how it was launched."""
    return config.replace(launch=LocalConfig()), replace(job, launch=as_plain(config.launch))


def run_jobs(jobs: Jobs) -> Iterator[JobOutcome]:
    """Run the jobs of a sweep, and yield their outcomes, failures included, in the order in which they finish.

    If `launch` is the same for all, joblib runs them side by side and SLURM all at once. Otherwise they run one after
    another, each as its own `launch` says.
    """
    launches = [getattr(config, "launch", None) for config, _ in jobs]
    launch = launches[0] if all(other == launches[0] for other in launches) else None
    if isinstance(launch, JoblibConfig):
        tasks = _spread([ship(config, job) for config, job in jobs])
        count = min(launch.n_jobs or count_cores(), len(tasks))
        yield from in_processes(tasks, count, threads=max(1, count_cores() // count))
    elif isinstance(launch, SlurmConfig):
        yield from _by_slurm([_to_ship(config, job) for config, job in jobs], launch)
    else:
        yield from (attempt(config, job) for config, job in jobs)


def _by_slurm(jobs: Jobs, launch: SlurmConfig) -> Iterator[JobOutcome]:
    tasks = [ship(config, job) for config, job in jobs]
    return by_submitit(tasks, launch, name=f"segmeter-{tasks[0].job.command}")


def _spread(jobs: Sequence[Shipped]) -> list[Shipped]:
    """Assign GPUs in turn to the jobs that may run on any."""
    takes_any_gpu = [job.values.get("device") in ("auto", "cuda") for job in jobs]
    n_gpus = 0
    if any(takes_any_gpu):  # scoring has no device, and may have no torch
        import torch

        n_gpus = torch.cuda.device_count()
    gpus = cycle(range(n_gpus))
    return [
        replace(job, values={**job.values, "device": f"cuda:{next(gpus)}"}) if n_gpus > 1 and takes_any else job
        for job, takes_any in zip(jobs, takes_any_gpu, strict=True)
    ]


def _share_out(config: Any, shipped_config: Any, job: Job) -> float | None:
    """Run score, eval or predict in shards, and merge these into the run's folder."""
    from segmeter.cli.commands.finished import merge_into, metrics_of, show_merged
    from segmeter.evaluation.merge import Merge
    from segmeter.evaluation.pieces import read_pieces

    if config.shard is not None:
        raise ConfigError(expected("config", "shard", "to be null where launch= divides the cases", "a shard"))
    resumed = find_resumed(config, job, holds=RUN)
    if resumed is not None and (resumed / MANIFEST).is_file():  # merged before
        return load_command(job.command)(shipped_config, job)
    on_dask = isinstance(config.launch, DaskConfig)
    count = config.launch.shards if on_dask else config.launch.devices
    facts = {"launch": as_plain(config.launch)}
    accept = partial(_check_settings, config, resumed or NO_FOLDER, count)
    with open_run(config, job, resumed=resumed, facts=facts, accept=accept) as folder:
        shard_config = shipped_config.replace(
            report=shipped_config.report.replace(html=False),
            run=shipped_config.run.replace(copy_to=None),
            resume="auto",
        )
        shards = []
        for number in range(1, count + 1):
            shard = f"{number}/{count}"
            shard_folder = (folder / _SHARDS / f"{number}of{count}").absolute()
            shard_job = Job(job.command, (*job.overrides, f"shard={shard}"), shard_folder, job.argv)
            shards.append(replace(ship(shard_config.replace(shard=shard), shard_job), is_shard=True))
        outcomes = by_dask(shards, config.launch) if on_dask else in_processes(_spread(shards), count)
        jobs = [shard.job for shard in shards]
        _value(joint(sorted(outcomes, key=lambda outcome: jobs.index(outcome.job))))
        pieces = read_pieces([shard.job.folder for shard in shards if shard.job.folder])
        merging = Merge(pieces=pieces, kind="shards", metrics=metrics_of(pieces[0]), folder=folder)
        summary, value = merge_into(merging, config.report, getattr(config, "objective", None))
        remove(folder / _SHARDS)
    show_merged(folder, summary)
    return value


def _check_settings(config: Any, resumed: Path, count: int) -> None:
    """Refuse a resume with other settings before the run's records change, or a shard begins that had not begun.

    Only settings are compared here. Each shard also compares its cases and files.
    """
    from segmeter.evaluation.manifest import check_same, read_run_manifest

    was, now = flatten(read_yaml(resumed / CONFIG)), flatten(mask(as_plain(config)))
    changed = {key: now.get(key) for key in {*was, *now} if was.get(key) != now.get(key)}
    for path in sorted((resumed / _SHARDS).glob(f"*of{count}/{MANIFEST}")):
        manifest = read_run_manifest(path.parent)
        identity = {key: changed.get(key, value) for key, value in manifest["identity"].items()}
        check_same(path.parent, identity, manifest["cases"])


def _value(outcome: JobOutcome) -> float | None:
    """Return the value of a job, or raise its failure."""
    if outcome.exit_code:
        raise SweepError(outcome.problems, exit_code=outcome.exit_code)
    return outcome.value
