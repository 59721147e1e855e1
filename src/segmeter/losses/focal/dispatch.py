"""Which backend computes a call, and the one autograd function that the closed forms share."""

from typing import Any

import torch

from segmeter.checks import expected
from segmeter.errors import InputError
from segmeter.losses.focal.custom_ops import traced_gradient, traced_sums
from segmeter.losses.focal.numba_backend import numba_gradient, numba_sums, numba_takes
from segmeter.losses.focal.params import FocalParams, LossSums
from segmeter.losses.focal.torch_closed_form import torch_gradient, torch_sums
from segmeter.losses.focal.torch_reference import reference_sums
from segmeter.losses.focal.triton_backend import triton_gradient, triton_sums, triton_takes

SUMS = {"torch": torch_sums, "numba": numba_sums, "triton": triton_sums}
GRADIENTS = {"torch": torch_gradient, "numba": numba_gradient, "triton": triton_gradient}
# Fewer logits than this take under a millisecond anyway, and loading the kernels takes longer.
WORTH_LOADING = 1 << 16


def compute_sums(
    logits: torch.Tensor, target: torch.Tensor, weights: torch.Tensor | None, *, terms: FocalParams, backend: str
) -> LossSums:
    """Compute the sums with the named backend ("auto" chooses), differentiable by the logits."""
    chosen = choose_backend(logits, target, backend)
    if chosen == "reference":
        return reference_sums(logits, target, weights, terms)
    return LossSums(*FocalFunction.apply(logits, target, weights, terms, chosen))


def choose_backend(logits: torch.Tensor, target: torch.Tensor, backend: str) -> str:
    """Give the backend's name; InputError where a forced one does not take such tensors."""
    if backend == "auto":
        if triton_takes(logits, target):
            return "triton"
        large = logits.numel() >= WORTH_LOADING
        return "numba" if large and numba_takes(logits, target) else "torch"
    given = f"{logits.dtype} logits and {target.dtype} target on {logits.device}"
    if backend == "numba" and not numba_takes(logits, target):
        rule = "'numba' with float32 or bfloat16 logits and an integer target on the CPU"
        raise InputError(expected("focal_loss", "backend", rule, given, 'Use backend="auto".'))
    if backend == "triton" and not triton_takes(logits, target):
        rule = "'triton' with floating logits of at most 1024 channels and an integer target on CUDA"
        raise InputError(expected("focal_loss", "backend", rule, given, 'Use backend="auto".'))
    return backend


class FocalFunction(torch.autograd.Function):
    """The sums with the closed-form gradient; of the logits it saves nothing but themselves."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        target: torch.Tensor,
        weights: torch.Tensor | None,
        terms: FocalParams,
        backend: str,
    ) -> tuple[torch.Tensor, ...]:
        ctx.save_for_backward(logits, target, weights)
        ctx.terms, ctx.backend = terms, backend
        if backend != "torch" and torch.compiler.is_compiling():
            sums = traced_sums(logits, target, weights, terms=terms, backend=backend)
        else:
            sums = SUMS[backend](logits, target, weights, terms)
        ctx.mark_non_differentiable(sums.weight, sums.bad)
        return tuple(sums)

    @staticmethod
    def backward(ctx: Any, scale: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        logits, target, weights = ctx.saved_tensors
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            with torch.no_grad():
                gradient = GRADIENTS[ctx.backend](logits, target, weights, terms=ctx.terms, scale=scale)
            return NoSecondDerivative.apply(gradient, logits, scale), None, None, None, None
        options = {"terms": ctx.terms, "scale": scale}
        if ctx.backend != "torch" and torch.compiler.is_compiling():
            gradient = traced_gradient(logits, target, weights, **options, backend=ctx.backend)
        else:
            gradient = GRADIENTS[ctx.backend](logits, target, weights, **options)
        return gradient, None, None, None, None


class NoSecondDerivative(torch.autograd.Function):
    """A gradient that refuses to be differentiated: without it, a gradient penalty would silently weigh nothing."""

    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, logits: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> tuple[None, ...]:
        raise InputError('focal_loss: the closed form has no second derivative. Pass backend="reference", which has.')
