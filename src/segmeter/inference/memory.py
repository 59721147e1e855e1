"""One forward pass, measured -> how many images or tiles may be run at once, before any work begins."""

import logging
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from segmeter.errors import RunError
from segmeter.inference.oom_fallback import advice
from segmeter.parallel import free_bytes

_LOG = logging.getLogger(__name__)
_SHARE = 0.8  # of the memory that is free: the rest is for arrays on the host and for what else grows
_GROWTH = 1.2  # for what libraries take beside the tensors, such as weights and images in another layout
_WARM, _MEASURED = 64, 256  # edges of the images that are run: one to load libraries, one to measure


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """What a pass needs and what there is; recorded, so that a resumed run takes the same batches.

    Parameters
    ----------
    bytes_per_pixel
        Peak memory of a forward pass, per pixel of its batch.
    budget
        Bytes that passes may take.
    """

    bytes_per_pixel: float
    budget: int

    def most(self, height: int, width: int, *, tile: int | None) -> int:
        """How many images or tiles of this size may be run at once, >= 1.

        Raises
        ------
        RunError
            Not even one fits; the message says what to set.
        """
        need = self.bytes_per_pixel * height * width
        if need > self.budget:
            figures = f"It needs about {need / 1e9:.1f} GB of the {self.budget / 1e9:.1f} GB that passes may take."
            raise RunError(f"{advice(height, width, tile=tile)} {figures}")
        return int(self.budget // need) if need else 1

    def to_dict(self) -> dict[str, Any]:
        """For run.json."""
        return {"bytes_per_pixel": self.bytes_per_pixel, "budget": self.budget}


def plan_memory(forward: Callable[[Tensor], Tensor], *, channels: int, device: torch.device) -> MemoryPlan | None:
    """Run two small images, measure the peak of the second, and see how much memory is free; None where that is hidden.

    Parameters
    ----------
    forward
        From (1, C, h, w) uint8 on the device to logits.
    channels
        C.
    device
        Where it runs: the allocator's own figures on CUDA, else the tensors that are alive at a time.
    """
    images = [torch.zeros((1, channels, edge, edge), dtype=torch.uint8, device=device) for edge in (_WARM, _MEASURED)]
    forward(images[0])
    free = free_memory(device)
    used = _used_cuda(forward, images[1], device) if device.type == "cuda" else _used_host(forward, images[1])
    per_pixel = used / _MEASURED**2 * _GROWTH
    plan = MemoryPlan(bytes_per_pixel=per_pixel, budget=int(free * _SHARE))
    _LOG.info("memory: %.0f bytes per pixel of a pass, %.1f GB for passes", per_pixel, plan.budget / 1e9)
    return plan


def free_memory(device: torch.device) -> int:
    """Bytes that are free on a device; on a CPU what the machine and the process's group may still take."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free) + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free_bytes()


def _used_cuda(forward: Callable[[Tensor], Tensor], image: Tensor, device: torch.device) -> int:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    forward(image)
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_allocated(device) - before)


class _LiveTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all tensors that are made and not yet dropped while it is on, and their peak."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._add(tensor.untyped_storage())
        return made

    def _add(self, storage: torch.UntypedStorage) -> None:
        name, size = storage._cdata, storage.nbytes()
        if name in self._known:
            return
        self._known.add(name)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._drop, name, size)

    def _drop(self, name: int, size: int) -> None:
        self._known.discard(name)
        self.live -= size


def _used_host(forward: Callable[[Tensor], Tensor], image: Tensor) -> int:
    """Peak of the tensors of one pass; the process's own peak hides what memory it uses again."""
    with _LiveTensors() as tensors:
        forward(image)
    return int(tensors.peak)
