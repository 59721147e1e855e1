"""Divides a job: finds this process's rank, and the part of the sorted cases that `shard=2/7` takes.

A prediction is divided by whole batches.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from segmeter.checks import expected
from segmeter.errors import ConfigError, InputError

if TYPE_CHECKING:  # scoring files needs no data set
    from segmeter.data.dataset import Dataset

Item = TypeVar("Item")

_SHARD = re.compile(r"([1-9]\d{0,8})/([1-9]\d{0,8})")


@dataclass(frozen=True)
class Shard:
    """One of `count` parts, numbered from 1.

    Examples
    --------
    >>> Shard(2, 3).take("abcdefg")
    'be'
    """

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def take(self, items: Sequence[Item]) -> Sequence[Item]:
        """Take every `count`-th item from the `number`-th on. Nothing is padded, so sizes differ by one at most."""
        return items[self.number - 1 :: self.count]


def parse_shard(text: str) -> Shard:
    """Read "2/7": the second of seven.

    Raises
    ------
    InputError
        It has another form, or the number is above the count.
    """
    match = _SHARD.fullmatch(text)
    if match is None or int(match[1]) > int(match[2]):
        raise InputError(expected("config", "shard", "to be NUMBER/COUNT, such as 2/7", repr(text)))
    return Shard(int(match[1]), int(match[2]))


def describe_shard(shard: Shard, case_ids: Sequence[str]) -> dict[str, Any]:
    """Describe a shard: its number, the number of all cases of the whole run, and the hash of their names."""
    return {"shard": str(shard), "cases": len(case_ids), "sha256": hash_names(case_ids)}


def hash_names(case_ids: Sequence[str]) -> str:
    """Hash the sorted names of cases."""
    return hashlib.sha256("\n".join(sorted(case_ids)).encode("utf-8", "surrogateescape")).hexdigest()


def check_filled(shard: Shard, parts: int, what: str, remedy: str) -> None:
    """Refuse more shards than there are `parts`, as some would be empty and have no metrics.

    Raises
    ------
    ConfigError
        The message says how many shards are possible.
    """
    if shard.count > parts:
        rule = f"to be one of at most {parts} shards, as there are {parts} {what}"
        raise ConfigError(expected("config", "shard", rule, str(shard), remedy))


def part_warning(shard: Shard, cases: int, whole: int) -> str:
    """Write a line that says which part of the cases a job covers."""
    return f"shard {shard}: {cases} of {whole} cases; `segmeter merge` joins the shards."


def note_shard(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Mark the metrics of a shard, so that nobody takes them for the whole run's."""
    return {"shard": identity["shard"]["shard"]} if "shard" in identity else {}


@dataclass(frozen=True)
class Rank:
    """A process's number among all, from 0; the number of processes; and its number on its own machine."""

    rank: int
    size: int
    local: int


def find_rank(environment: Mapping[str, str] = os.environ) -> Rank | None:
    """Read the variables of torchrun, of a step of srun, or of submitit's stand-in for it; None without any.

    Examples
    --------
    >>> find_rank({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"})
    Rank(rank=1, size=4, local=1)
    >>> find_rank({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}) is None  # the batch script itself, outside srun
    True
    """
    torchrun = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    srun = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")
    local_tasks = ("SUBMITIT_LOCAL_GLOBALID", "SUBMITIT_LOCAL_NTASKS", "SUBMITIT_LOCAL_LOCALID")
    launchers = (torchrun, local_tasks, srun)  # a stand-in may run in a step of srun
    names = next((names for names in launchers if all(name in environment for name in names)), None)
    if names is None:
        return None
    rank, size, local = (int(environment[name]) for name in names)
    return Rank(rank, size, local) if size > 1 else None


def check_alone(shard: str | None, environment: Mapping[str, str] = os.environ) -> None:
    """Refuse to do a whole job in each of several processes.

    Raises
    ------
    ConfigError
        torchrun or srun started several processes, and this one has no shard.
    """
    process = find_rank(environment) if shard is None else None
    if process is not None:
        rule = "to be set where torchrun or srun starts several processes, as each would do the whole job"
        number = f"{process.rank + 1}/{process.size}"
        remedy = f"Set shard={number} in this one and so on, then merge; or start one, with launch=processes."
        raise ConfigError(expected("config", "shard", rule, f"null in process {number}", remedy))


def split_batches(kinds: Sequence[Any], size: int) -> Iterator[range]:
    """Divide images into batches of one kind each and at most `size` images.

    Examples
    --------
    >>> list(split_batches("aaab", 2))
    [range(0, 2), range(2, 3), range(3, 4)]
    """
    start = 0
    for index, kind in enumerate(kinds):
        if kind != kinds[start] or index - start == size:
            yield range(start, index)
            start = index
    if len(kinds):
        yield range(start, len(kinds))


def own_batches(kinds: Sequence[Any], shard: Shard, size: int) -> tuple[list[int], list[int]]:
    """Return the cases of every n-th batch, and for each case the number of its batch.

    Batches stay whole, as a network's outputs may differ in their last bits if an image is predicted among others.

    Examples
    --------
    >>> own_batches("aaab", Shard(1, 2), 2), own_batches("aaab", Shard(2, 2), 2)
    (([0, 1, 3], [0, 0, 2]), ([2], [1]))
    """
    batches = shard.take(list(enumerate(split_batches(kinds, size))))
    numbered = [(index, number) for number, batch in batches for index in batch]
    return [index for index, _ in numbered], [number for _, number in numbered]


def take_batches(dataset: "Dataset", shard: Shard, *, batch_size: int) -> tuple["Dataset", list[int]]:
    """Take every n-th batch of the cases; with ``batch_size=1`` that is every n-th case.

    Batches stay whole, so that the shards' results are those of the whole run, to the byte.

    Returns
    -------
    The cases of the shard, and for each case the number of its batch.

    Raises
    ------
    ConfigError
        There are more shards than batches.
    """
    kinds = dataset.kinds()
    what = "cases" if batch_size == 1 else f"batches of up to {batch_size} images of one size"
    count = sum(1 for _ in split_batches(kinds, batch_size))
    check_filled(shard, count, what, "Take fewer shards, or a smaller inference.batch_size.")
    indices, batches = own_batches(kinds, shard, batch_size)
    return dataset.subset(indices), batches
