"""The numba backend, for the CPU: torch's memory -> the kernels, in torch's number of threads.

The kernels run without the GIL in a small pool of Python threads rather than in numba's own: numba's pools either
forbid calls from two threads at once or kill a process that forks after them, as data loaders do. numba is imported on
the first call.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib import import_module
from itertools import pairwise
from typing import Any

import torch

from segmeter.losses.focal.params import FocalParams, LossSums
from segmeter.losses.strides import pixel_stride, with_pixel_stride
from segmeter.losses.targets import LABEL_DTYPES
from segmeter.parallel import in_forked_child
from segmeter.threads import count_cores

DTYPES = (torch.float32, torch.bfloat16)
BLOCK_FLOATS = 6144  # a block's rows take 24 KiB, so that they stay in a first-level cache of 32 KiB
MOST_PIXELS = 1024
# Pieces per thread. torch's own threads spin for milliseconds after its last operation; a thread of ours that has to
# share a core with one takes fewer pieces, instead of keeping everybody waiting.
PIECES = 8
SMALL_JOB = 1 << 16  # below so many logits a second thread costs more than it saves
NEVER = -(1 << 40)  # stands for no ignore_index; no label of 32 bits equals it, and no sensible one of 64


def numba_takes(logits: torch.Tensor, target: torch.Tensor) -> bool:
    """Say whether the kernels take these: float32 or bfloat16 on the CPU, hard labels."""
    return logits.device.type == "cpu" and logits.dtype in DTYPES and target.dtype in LABEL_DTYPES


def numba_sums(
    logits: torch.Tensor, target: torch.Tensor, weights: torch.Tensor | None, terms: FocalParams
) -> LossSums:
    """Sum the losses; arguments as in `reference_sums`."""
    call = _Call(logits, target, weights, terms)
    parts = torch.zeros(call.blocks, 3, dtype=torch.float64)
    whole = torch.zeros(3, dtype=torch.float64)
    elements = logits[:, 0] if terms.softmax else logits
    losses = torch.empty(elements.shape if terms.elementwise else (), dtype=torch.float32)
    call.run("sums", losses=losses, sums=parts)
    _jobs().fold(parts.data_ptr(), call.blocks, whole.data_ptr())
    return LossSums(losses if terms.elementwise else whole[0].float(), whole[1].float(), whole[2].long())


def numba_gradient(
    logits: torch.Tensor, target: torch.Tensor, weights: torch.Tensor | None, *, terms: FocalParams, scale: torch.Tensor
) -> torch.Tensor:
    """Gradient of the total, as `torch_gradient` gives it."""
    call = _Call(logits, target, weights, terms)
    result = torch.empty_like(logits)
    gradient, _ = with_pixel_stride(result)
    arriving = scale.float().contiguous()
    call.run("gradient", losses=arriving, sums=arriving, gradient=gradient)
    return result if gradient is result else result.copy_(gradient)


class _Call:
    """One call's tensors, kept alive while the kernels use their addresses, and how it is cut into blocks."""

    def __init__(
        self, logits: torch.Tensor, target: torch.Tensor, weights: torch.Tensor | None, terms: FocalParams
    ) -> None:
        self.terms = terms
        self.logits = with_pixel_stride(logits)[0]
        self.target = target.contiguous()
        labels = logits.shape[1] if terms.softmax else 2
        self.weights = torch.ones(labels) if weights is None else weights.to(torch.float32).contiguous()
        channels = logits.shape[1]
        self.pixels = logits[0, 0].numel() if logits.shape[0] else 0
        self.block = max(16, min(MOST_PIXELS, BLOCK_FLOATS // channels // 16 * 16))
        self.blocks = logits.shape[0] * -(-self.pixels // self.block)

    def run(self, name: str, *, losses: torch.Tensor, sums: torch.Tensor, gradient: torch.Tensor | None = None) -> None:
        """Run the kernel, "sums" or "gradient", over all blocks."""
        jobs, kernel = _jobs(), _kernel("softmax" if self.terms.softmax else "sigmoid", name)
        values = _values(jobs, self.logits)
        channels = self.logits.shape[1]
        per_channel = 0 if self.terms.softmax else self.pixels
        per_image = self.pixels if self.terms.softmax else channels * self.pixels
        target = jobs.Target(self.target.data_ptr(), self.target.element_size(), per_image, per_channel)
        ignore = self.terms.ignore_index
        job = jobs.Job(
            channels=channels,
            labels=channels if self.terms.softmax else 2,
            ignore=NEVER if ignore is None else ignore,
            pixels=self.pixels,
            block=self.block,
            first=0,
            last=self.blocks,
            weights=self.weights.data_ptr(),
            losses=losses.data_ptr(),
            elementwise=int(self.terms.elementwise),
            sums=sums.data_ptr(),
        )
        options = jobs.options_of(self.terms)
        rest = () if gradient is None else (_values(jobs, gradient),)
        few = self.logits.numel() < SMALL_JOB
        threads = 1 if few or not self.blocks else min(torch.get_num_threads(), self.blocks)
        pieces = 1 if threads == 1 else min(self.blocks, threads * PIECES)
        edges = [self.blocks * i // pieces for i in range(pieces + 1)]
        parts = [job._replace(first=first, last=last) for first, last in pairwise(edges)]
        _share([partial(kernel, values, target, part, options, *rest) for part in parts], threads)


def _values(jobs: Any, tensor: torch.Tensor) -> Any:
    pixel = pixel_stride(tensor)
    return jobs.Values(
        tensor.data_ptr(), int(tensor.dtype == torch.bfloat16), tensor.stride(0), tensor.stride(1), pixel
    )


@cache
def _jobs() -> Any:
    return import_module("segmeter.losses.focal.numba_blocks")


@cache
def _kernel(kind: str, name: str) -> Any:
    return getattr(import_module(f"segmeter.losses.focal.numba_{kind}"), f"{kind}_{name}")


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=count_cores(), thread_name_prefix="segmeter-loss")


def _share(tasks: list[Callable[[], None]], threads: int) -> None:
    """Run the tasks here and in the pool, each thread taking the next one; wait for those that were started."""
    waiting = iter(tasks)

    def work() -> None:
        for task in waiting:
            task()

    helpers = [_pool().submit(work) for _ in range(threads - 1)]
    work()
    for helper in helpers:
        if not helper.cancel():
            helper.result()


# A fork copies the pool but none of its threads: the child would wait for them forever.
in_forked_child(_pool.cache_clear)
