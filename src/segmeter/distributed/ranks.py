"""The processes of one training -> one of them decides, and all of them take the same step.

Rank 0 runs the loop: it reads the clock and the signals, validates, writes. The others follow it: before each step it
tells them that there is one, so that no decision has to be made twice, and none can differ.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from segmeter.checks import expected
from segmeter.errors import ConfigError

_PATIENCE = timedelta(hours=24)  # what the others wait while rank 0 validates; a process that ends is noticed at once
_STOP, _STEP = 0.0, 1.0


@dataclass(frozen=True)
class Place:
    """Which process of how many this is, counted from 0; `local` on its machine."""

    rank: int
    size: int
    local: int


@dataclass(frozen=True)
class World:
    """The processes of one training; alone, where there is one.

    Parameters
    ----------
    rank, size
        Which process of how many this is.
    """

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process decides and writes."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Add up a tensor over all processes."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def share(self, content: Any) -> Any:
        """Give what rank 0 has to all; all call it."""
        if self.size == 1:
            return content
        box = [content]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.barrier()

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """Let rank 0 do the block before the others, so that they find what it left in caches and folders."""
        if not self.leads:
            self.wait()
        yield
        if self.leads:
            self.wait()

    def tell_step(self, step: int, progress: float, signal: int) -> int:
        """Begin a step of all processes; rank 0 calls it.

        Returns
        -------
        The highest number of a signal that any of them received, 0 where none did.
        """
        return signal if self.size == 1 else self._agree([_STEP, float(step), progress], signal)[1]

    def tell_end(self) -> None:
        """Let the others leave; rank 0 calls it however it ends, and one that is gone is no further fault."""
        if self.size > 1:
            with suppress(RuntimeError):
                self._agree([_STOP, 0.0, 0.0], 0)

    def next_step(self, signal: int) -> tuple[int, float] | None:
        """Wait for rank 0; the others call it.

        Returns
        -------
        Number of the step and progress of the run; None at the end.
        """
        (kind, step, progress), _ = self._agree([0.0, 0.0, 0.0], signal)
        return None if kind == _STOP else (int(step), progress)

    def _agree(self, order: list[float], signal: int) -> tuple[list[float], int]:
        """Take the order of rank 0, whose values are >= 0 where the others give 0, and the highest signal."""
        values = torch.tensor([*order, float(signal)], dtype=torch.float64, device=_device_of_messages())
        dist.all_reduce(values, op=dist.ReduceOp.MAX)
        *told, highest = values.tolist()
        return told, int(highest)


ALONE = World()


def _device_of_messages() -> torch.device:
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def find_place(environment: Mapping[str, str] = os.environ) -> Place | None:
    """Read the variables of torchrun, of a step of srun, or of submitit's stand-in for it; None where there are none.

    Raises
    ------
    ConfigError
        They contradict each other or are no numbers.

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


@contextmanager
def joined(place: Place | None, device: torch.device) -> Iterator[World]:
    """Join the other processes while the block runs: by nccl on GPUs, by gloo on the CPU.

    The address is that of the variables MASTER_ADDR and MASTER_PORT, which torchrun sets; a step of srun takes the node
    that the job was launched from, and a port of the job's number, as do tasks that submitit runs on this machine.
    """
    if place is None:
        yield ALONE
        return
    os.environ.update(RANK=str(place.rank), WORLD_SIZE=str(place.size), LOCAL_RANK=str(place.local))
    os.environ.setdefault("MASTER_ADDR", os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"))
    job = os.environ.get("SUBMITIT_LOCAL_JOB_ID") or os.environ.get("SLURM_JOB_ID", "9500")
    os.environ.setdefault("MASTER_PORT", str(20000 + int(job) % 20000))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_PATIENCE)
    try:
        yield World(place.rank, place.size)
    finally:
        dist.destroy_process_group()


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
