"""Which backend computes a call, and the one autograd function that they share."""

from typing import Any

import torch

from segmeter.losses.backends.closed import closed_gradient, closed_sums
from segmeter.losses.backends.reference import reference_sums
from segmeter.losses.backends.terms import Sums, Terms


def compute_sums(
    logits: torch.Tensor, target: torch.Tensor, weights: torch.Tensor | None, *, terms: Terms, backend: str
) -> Sums:
    """Compute the sums with the named backend ("auto" chooses), differentiable by the logits."""
    if backend == "reference":
        return reference_sums(logits, target, weights, terms)
    return Sums(*ClosedForm.apply(logits, target, weights, terms))


class ClosedForm(torch.autograd.Function):
    """The sums with the closed-form gradient; of the logits it saves nothing but themselves."""

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, target: torch.Tensor, weights: torch.Tensor | None, terms: Terms
    ) -> tuple[torch.Tensor, ...]:
        ctx.save_for_backward(logits, target, weights)
        ctx.terms = terms
        sums = closed_sums(logits, target, weights, terms)
        ctx.mark_non_differentiable(sums.weight, sums.bad)
        return tuple(sums)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, scale: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        logits, target, weights = ctx.saved_tensors
        return closed_gradient(logits, target, weights, terms=ctx.terms, scale=scale), None, None, None
