"""Lets the processes of a training take the same steps, and averages their gradients.

Rank 0 runs the loop: it reads the clock and the signals, and writes. It announces each step and each validation to the
others, so that no decision is made twice, and none can differ.

Orders and shared objects go by gloo from CPU to CPU, so that nothing waits for a GPU. Tensors on GPUs go by nccl.
"""

import io
import logging
import os
import re
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from types import TracebackType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from segmeter.distributed.shards import Rank
from segmeter.errors import Interrupted, PeerError

_LOG = logging.getLogger(__name__)
_FOR_EVER = timedelta(days=365)
# Keys of the store: rank 0 has read the data; rank 0 has written all results; a process failed
_FIRST, _LAST, _FAILED = "first", "last", "failed"
_PEER_ERRORS = re.compile("gloo|nccl|TCPStore|connection|timed out|timeout", re.IGNORECASE)
_NO_ANSWER = "another process ended, or did not answer for as long as training.stall_minutes says"
_trainings = count()  # numbers a sweep's trainings, which share torchrun's store
_STOP, _STEP, _VALIDATE = 0.0, 1.0, 2.0


class Order(NamedTuple):
    """Rank 0's order to all processes: to take the step of this number, or to validate before it."""

    step: int
    progress: float
    validates: bool


@dataclass(frozen=True)
class World:
    """The processes of one training, or a single one.

    Parameters
    ----------
    rank, size
        This process's number, from 0, and the number of processes.
    store
        torch's store, which all processes reach.
    """

    rank: int = 0
    size: int = 1
    store: Any = None

    @property
    def leads(self) -> bool:
        """Whether this process decides and writes."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Add up a tensor over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def broadcast(self, content: Any) -> Any:
        """Give rank 0's content to all processes, with its GPU tensors on the CPU; all call it."""
        if self.size == 1:
            return content
        buffer = io.BytesIO()
        if self.leads:
            torch.save(content, buffer)
        box: list[Any] = [buffer.getvalue()]
        dist.broadcast_object_list(box, src=0)
        if self.leads:
            return content
        # The bytes come from this training's own first process, so any object is safe. Files never load like this.
        return torch.load(io.BytesIO(box[0]), map_location="cpu", weights_only=False)

    def gather(self, content: Any) -> list[Any]:
        """Return the content of each process, by rank, in rank 0, and an empty list in the others; all call it."""
        if self.size == 1:
            return [content]
        contents = [None] * self.size if self.leads else None
        dist.gather_object(None if self.leads else content, contents, dst=0)
        return [] if contents is None else [content, *contents[1:]]

    def copy_first(self, tensors: Iterable[Tensor]) -> None:
        """Copy rank 0's tensors into the tensors of all others; all call it."""
        for tensor in tensors if self.size > 1 else ():
            sent = tensor.contiguous()
            dist.broadcast(sent, src=0)
            if sent is not tensor:
                tensor.copy_(sent)

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """Run the block in rank 0 first, so that the others find its caches and folders."""
        if not self.leads:
            self.store.wait([_FIRST], _FOR_EVER)  # reading a large data set may take longer than any other wait
        yield
        if self.leads and self.size > 1:
            self.store.set(_FIRST, "")

    def tell(self, order: Order, signal: int) -> int:
        """Begin a step or a validation of all processes; rank 0 calls it.

        Returns
        -------
        The highest signal number that any process received; 0 without a signal.
        """
        kind = _VALIDATE if order.validates else _STEP
        return signal if self.size == 1 else self._agree([kind, float(order.step), order.progress], signal)[1]

    def end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Let the others leave, unless an error ended this process. Every process calls it, however it ends."""
        if self.leads and self.size > 1 and (error is None or isinstance(error, Interrupted)):
            with suppress(RuntimeError):  # the steps are done, so a process may be gone
                self._agree([_STOP, 0.0, 0.0], 0)

    def leave(self, patience: timedelta) -> None:
        """Wait until every process is at its end, as a launcher would wait forever for a process that hangs there.

        Rank 0 says when it has written all results, and waits for the others' answers: the store may end with rank 0.

        Raises
        ------
        PeerError
            A process did not come to its end in time, or failed.
        """
        answers = [f"{_LAST}/{rank}" for rank in range(1, self.size)]
        if self.leads:
            self.store.set(_LAST, "")
        deadline = time.monotonic() + patience.total_seconds()
        while not self.store.check(answers if self.leads else [_LAST]):  # not store.wait: no signal would end it
            if self.store.check([_FAILED]):
                raise PeerError("training: another process failed after its last step; its own message says why.")
            if time.monotonic() > deadline:
                raise PeerError(f"training: {_NO_ANSWER} (it hangs after its last step).")
            time.sleep(0.05)
        if not self.leads:
            self.store.set(answers[self.rank - 1], "")

    def next_order(self, signal: int) -> Order | None:
        """Wait for rank 0's next order; None at the end. The other processes call it."""
        (kind, step, progress), _ = self._agree([0.0, 0.0, 0.0], signal)
        return None if kind == _STOP else Order(int(step), progress, validates=kind == _VALIDATE)

    def _agree(self, order: list[float], signal: int) -> tuple[list[float], int]:
        """Share rank 0's order and the highest signal. An order's values are >= 0, and the others contribute 0."""
        values = torch.tensor([*order, float(signal)], dtype=torch.float64)
        dist.all_reduce(values, op=dist.ReduceOp.MAX)
        *shared_order, highest = values.tolist()
        return shared_order, int(highest)


ALONE = World()


class ParallelModel:
    """Runs a model in `DistributedDataParallel`; a single process runs the model itself.

    The wrapper averages the gradients of the parameters that learn when it is made, so it is made again when that set
    changes, as when an encoder thaws. It waits for a gradient of each parameter unless it is told that some get none,
    like the last layers of some encoders. Each process keeps its own running statistics, and rank 0's are saved.
    Synchronised batch norm computes them over all processes.

    Parameters
    ----------
    model
        The same in all processes; rank 0's weights win.
    world
        The processes.
    """

    def __init__(self, model: nn.Module, world: World) -> None:
        self.model = model
        self.world = world
        self._wrapped: DistributedDataParallel | None = None
        self._learning: tuple[bool, ...] = ()

    def __call__(self, image: Tensor) -> Tensor:
        logits: Tensor = self.model(image) if self.world.size == 1 else self._parallel(image)(image)
        return logits

    @contextmanager
    def gathering(self, image: Tensor, *, last: bool) -> Iterator[None]:
        """Average only in the last backward pass of a step; until then gradients add up here. `image` is a batch."""
        if last or self.world.size == 1:
            yield
        else:
            with self._parallel(image).no_sync():
                yield

    def _parallel(self, image: Tensor) -> DistributedDataParallel:
        learning = tuple(parameter.requires_grad for parameter in self.model.parameters())
        if self._wrapped is None or learning != self._learning:
            self._wrapped = None  # remove its hooks before there are new ones
            unused = find_unused(self.model, image[:1])
            if unused:
                _LOG.info("training: %d parameters get no gradient, such as %s.", len(unused), unused[0])
            with warnings.catch_warnings():  # torch 2.11 has no other name for the option
                warnings.filterwarnings("ignore", message=".*broadcast_buffers", category=FutureWarning)
                self._wrapped = DistributedDataParallel(
                    self.model, broadcast_buffers=False, find_unused_parameters=bool(unused)
                )
            self._learning = learning
        return self._wrapped


def find_unused(model: nn.Module, image: Tensor) -> list[str]:
    """Name the learning parameters that the output for `image` doesn't depend on. The model stays as it is.

    Parameters
    ----------
    image
        (1, C, H, W) in the model's dtype, on its device.
    """
    learning = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    modes = {module: module.training for module in model.modules()}
    try:  # evaluation mode changes no running statistics and draws nothing; compiling it would take long
        with torch.autocast(image.device.type, enabled=False), torch.compiler.set_stance("force_eager"):
            output = model.eval()(image)
        gradients = torch.autograd.grad(output.sum(), list(learning.values()), allow_unused=True)
    finally:
        for module, mode in modes.items():
            module.training = mode
    return [name for name, gradient in zip(learning, gradients, strict=True) if gradient is None]


@contextmanager
def joined(process: Rank | None, device: torch.device, limit_s: float | None) -> Iterator[World]:
    """Join the other processes while the block runs: by gloo, and on GPUs by nccl too.

    Parameters
    ----------
    limit_s
        Seconds that a process waits for the others before it fails; None waits forever.

    Raises
    ------
    PeerError
        Another process ended, or did not answer in time.
    """
    if process is None:
        yield ALONE
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    # torchrun sets the address and port at which the processes find each other. A step of srun, or submitit's tasks on
    # this machine, take the node that launched the job, and a port that follows from the job's number.
    os.environ.update(RANK=str(process.rank), WORLD_SIZE=str(process.size), LOCAL_RANK=str(process.local))
    os.environ.setdefault("MASTER_ADDR", os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"))
    job = os.environ.get("SUBMITIT_LOCAL_JOB_ID") or os.environ.get("SLURM_JOB_ID", "9500")
    os.environ.setdefault("MASTER_PORT", str(20000 + int(job) % 20000))
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    patience = _FOR_EVER if limit_s is None else timedelta(seconds=limit_s)
    prefix = f"segmeter/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_trainings)}"
    try:
        shared_store, _, _ = next(dist.rendezvous("env://", timeout=patience))  # type: ignore[attr-defined]
        store = dist.PrefixStore(prefix, shared_store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=process.rank, world_size=process.size, timeout=patience)
        world = World(process.rank, process.size, store)
        try:
            yield world
        except Interrupted:  # rank 0 has saved, and the others end well
            world.leave(patience)
            raise
        except Exception:
            with suppress(RuntimeError):  # the store may be gone with rank 0
                store.set(_FAILED, "")  # so that nobody waits for this process to end
            raise
        world.leave(patience)
    except RuntimeError as error:
        if isinstance(error, PeerError) or not _PEER_ERRORS.search(str(error)):
            raise
        reason = str(error).splitlines()[0]
        raise PeerError(f"training: {_NO_ANSWER} ({reason}).") from error
    dist.destroy_process_group()  # not after a fault, when it would wait for the others
