"""Schema of the group `launch`: where a command runs, without torch."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from segmeter.schema import Config, Registry, Unit

LAUNCHES = Registry("launch")


class LaunchConfig(Config, title="launch"):
    """Where one command runs."""

    name: str
    """The registered name of the launch."""


@LAUNCHES.register("local")
class LocalConfig(LaunchConfig, title="launch"):
    """One process, or those that torchrun or srun started."""

    name: str = "local"


@LAUNCHES.register("processes")
class ProcessesConfig(LaunchConfig, title="launch"):
    """Processes on this machine: a training averages its gradients over them, other commands divide their cases."""

    name: str = "processes"
    devices: Annotated[int, Unit("processes")] = Field(2, ge=1, le=1024)
    """Number of processes; on GPUs one for each."""


@LAUNCHES.register("joblib")
class JoblibConfig(LaunchConfig, title="launch"):
    """Processes on this machine for the jobs of a sweep, side by side; a single job runs as with local."""

    # the name of Hydra's launcher for it; the processes are started without joblib
    name: str = "joblib"
    n_jobs: Annotated[int | None, Unit("processes")] = Field(None, ge=1)
    """Jobs at a time; null takes one per core."""


@LAUNCHES.register("dask")
class DaskConfig(LaunchConfig, title="launch"):
    """A Dask cluster works on the shards of score, eval or predict; it repeats a shard whose worker is lost."""

    name: str = "dask"
    address: str | None = None
    """A scheduler, such as tcp://host:8786; its workers must see the same files. null starts workers here."""
    shards: Annotated[int, Unit("shards")] = Field(4, ge=1)
    """Parts of the cases; several per worker, so that a lost one costs little."""
    workers: Annotated[int, Unit("processes")] = Field(2, ge=1, le=256)
    """Workers to start if there is no address."""


@LAUNCHES.register("slurm")
class SlurmConfig(LaunchConfig, title="launch"):
    """A SLURM job, by submitit. SIGUSR1 saves it ahead of the time limit; it is queued again and continues."""

    name: str = "slurm"
    cluster: Literal["slurm", "local", "debug"] = "slurm"
    """Where submitit runs the job: "local" and "debug" stand in for SLURM on this machine."""
    folder: Path = Path("runs/slurm")
    """Folder of the jobs' scripts, logs and results, on a file system that the nodes share."""
    partition: str | None = None
    """Partition of the cluster; null takes its default."""
    timeout_min: Annotated[int, Unit("minutes")] = Field(60, ge=1)
    """Time limit of the job."""
    nodes: Annotated[int, Unit("nodes")] = Field(1, ge=1)
    """Machines; a training averages its gradients over all tasks."""
    tasks_per_node: Annotated[int, Unit("processes")] = Field(1, ge=1)
    """Processes on each machine, one per GPU."""
    gpus_per_node: Annotated[int | None, Unit("GPUs")] = Field(None, ge=0)
    """GPUs on each machine."""
    cpus_per_task: Annotated[int | None, Unit("cores")] = Field(None, ge=1)
    """Cores of each process."""
    mem_gb: Annotated[int | None, Unit("GB")] = Field(None, ge=1)
    """Memory on each machine."""
    signal_delay_s: Annotated[int, Unit("seconds")] = Field(120, ge=1)
    """How long before the time limit SIGUSR1 is sent; enough to write a checkpoint."""
    requeues: Annotated[int, Unit("times")] = Field(3, ge=0)
    """How often a job may reach its time limit and be queued again; preemption does not count."""
