"""Finds out which process of how many this is, from the variables of torchrun, srun or submitit."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from segmeter.checks import expected
from segmeter.errors import ConfigError


@dataclass(frozen=True)
class Place:
    """A process's number among all, from 0, and its number on its machine."""

    rank: int
    size: int
    local: int


def find_place(environment: Mapping[str, str] = os.environ) -> Place | None:
    """Read the variables of torchrun, of a step of srun, or of submitit's stand-in for it; None without any.

    Raises
    ------
    ConfigError
        They contradict each other or are not numbers.

    Examples
    --------
    >>> find_place({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"})
    Place(rank=1, size=4, local=1)
    >>> find_place({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}) is None  # the batch script itself, outside srun
    True
    """
    torchrun, srun = ("RANK", "WORLD_SIZE", "LOCAL_RANK"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")
    local_tasks = ("SUBMITIT_LOCAL_GLOBALID", "SUBMITIT_LOCAL_NTASKS", "SUBMITIT_LOCAL_LOCALID")
    kinds = (torchrun, local_tasks, srun)  # a stand-in may run in a step of srun
    names = next((names for names in kinds if all(name in environment for name in names)), None)
    if names is None:
        return None
    try:
        rank, size, local = (int(environment[name]) for name in names)
    except ValueError:
        rank, size, local = -1, 0, 0
    if not 0 <= rank < size or local < 0:
        given = ", ".join(f"{name}={environment[name]}" for name in names)
        raise ConfigError(
            expected("launch", "variables", "to be the rank, the number of processes and the local rank", given)
        )
    return Place(rank, size, local) if size > 1 else None


def check_alone(shard: str | None, environment: Mapping[str, str] = os.environ) -> None:
    """Refuse to do a whole job in each of several processes.

    Raises
    ------
    ConfigError
        torchrun or srun started several processes, and this one has no shard.
    """
    place = find_place(environment) if shard is None else None
    if place is not None:
        rule = "to be set where torchrun or srun starts several processes, as each would do the whole job"
        number = f"{place.rank + 1}/{place.size}"
        remedy = f"Set shard={number} in this one and so on, then merge; or start one, with launch=processes."
        raise ConfigError(expected("config", "shard", rule, f"null in process {number}", remedy))
