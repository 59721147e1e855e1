"""The kernels as operators that torch.compile takes as they are: no graph break, and nothing traced through."""

import torch

from segmeter.losses.focal.numba_backend import numba_gradient, numba_sums
from segmeter.losses.focal.params import FocalParams, LossSums
from segmeter.losses.focal.triton_backend import triton_gradient, triton_sums


def traced_sums(
    logits: torch.Tensor, target: torch.Tensor, weights: torch.Tensor | None, *, terms: FocalParams, backend: str
) -> LossSums:
    """Put the operator into the graph; arguments as in `reference_sums`."""
    return LossSums(*_sums(logits, target, weights, terms.numbers(), terms.flags(), backend))


def traced_gradient(
    logits: torch.Tensor,
    target: torch.Tensor,
    weights: torch.Tensor | None,
    *,
    terms: FocalParams,
    scale: torch.Tensor,
    backend: str,
) -> torch.Tensor:
    """Put the operator into the graph; arguments as in `torch_gradient`."""
    gradient: torch.Tensor = _gradient(logits, target, weights, scale, terms.numbers(), terms.flags(), backend)
    return gradient


@torch.library.custom_op("segmeter::focal_sums", mutates_args=())
def _sums(
    logits: torch.Tensor,
    target: torch.Tensor,
    weights: torch.Tensor | None,
    numbers: list[float],
    flags: list[int],
    backend: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    compute = numba_sums if backend == "numba" else triton_sums
    sums = compute(logits, target, weights, FocalParams.unpack(numbers, flags))
    return sums.total, sums.weight, sums.bad


@_sums.register_fake
def _(
    logits: torch.Tensor,
    target: torch.Tensor,
    weights: torch.Tensor | None,
    numbers: list[float],
    flags: list[int],
    backend: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    terms = FocalParams.unpack(numbers, flags)
    elements = logits[:, 0] if terms.softmax else logits
    total = logits.new_empty(elements.shape if terms.elementwise else (), dtype=torch.float32)
    return total, logits.new_empty((), dtype=torch.float32), logits.new_empty((), dtype=torch.int64)


@torch.library.custom_op("segmeter::focal_gradient", mutates_args=())
def _gradient(
    logits: torch.Tensor,
    target: torch.Tensor,
    weights: torch.Tensor | None,
    scale: torch.Tensor,
    numbers: list[float],
    flags: list[int],
    backend: str,
) -> torch.Tensor:
    compute = numba_gradient if backend == "numba" else triton_gradient
    return compute(logits, target, weights, terms=FocalParams.unpack(numbers, flags), scale=scale)


@_gradient.register_fake
def _(
    logits: torch.Tensor,
    target: torch.Tensor,
    weights: torch.Tensor | None,
    scale: torch.Tensor,
    numbers: list[float],
    flags: list[int],
    backend: str,
) -> torch.Tensor:
    return torch.empty_like(logits)
