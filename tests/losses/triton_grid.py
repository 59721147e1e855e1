"""The Triton kernels against the definition in float64 over the option grid, on the device given.

It runs in a process of its own, as Triton reads TRITON_INTERPRET when it is imported.
"""

import itertools
import sys
from typing import NamedTuple

import torch

from segmeter.losses import focal_torch, focal_triton
from segmeter.losses.focal_torch import Terms
from tests.losses.cases import Case, make_case
from tests.losses.extreme import extreme
from tests.views import GuardZones

GAMMAS = (0.0, 0.5, 1.0, 2.0, 3.7)


class Kind(NamedTuple):
    task: str
    dtype: torch.dtype
    layout: torch.memory_format
    label_dtype: torch.dtype


def defined(logits, target, weights, terms, scale):
    """Sums and gradient of the definition, by autograd."""
    leaf = logits.detach().requires_grad_()
    total, weight, bad = focal_torch.compute(leaf, target, weights, terms)
    (gradient,) = torch.autograd.grad(total, leaf, scale.to(total.dtype))
    return total.detach(), weight, bad, gradient


def check(terms: Terms, kind: Kind, *, weighted: bool, device: str) -> None:
    """Compare value, weight, bad labels and gradient of one point of the grid."""
    case = Case(*(each[:2] for each in make_case(kind.task, size=(9, 37))))
    logits = case.logits.to(device, kind.dtype).contiguous(memory_format=kind.layout)
    target = (case.target.unsqueeze(1) if kind.task == "binary" else case.target).to(device, kind.label_dtype)
    target[1, ..., 2, 5] = 77  # a bad label
    weights = torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0], device=device) if weighted and terms.softmax else None
    total, weight, bad = focal_triton.compute(logits, target, weights, terms)
    scale = torch.rand(total.shape, generator=torch.Generator().manual_seed(1)).to(device)
    expected, divisor, wrong, reference = defined(logits.double(), target, weights, terms, scale)
    torch.testing.assert_close(total.double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(weight.double(), divisor, rtol=1e-5, atol=0)
    assert int(bad) == int(wrong) > 0
    (gradient,) = focal_triton.compute(logits, target, weights, terms, scale)
    # Triton's interpreter cuts bfloat16 off where the hardware rounds: 2^-7 instead of 2^-8.
    rtol = 1e-5 if kind.dtype == torch.float32 else 2**-7
    torch.testing.assert_close(gradient.double(), reference, rtol=rtol, atol=1e-6)
    assert gradient.dtype == kind.dtype
    assert gradient.stride() == logits.stride()


def check_digits(task: str, gamma: float, device: str) -> None:
    """Compare with 60 digits at extreme logits."""
    case = extreme(task, gamma)
    logits, target = case.logits.to(device), case.target.to(device)
    if task == "binary":
        target = target.unsqueeze(1)
    terms = Terms(softmax=task == "multiclass", gamma=gamma, elementwise=True)
    losses = focal_triton.compute(logits, target, None, terms)[0]
    (gradient,) = focal_triton.compute(logits, target, None, terms, torch.ones_like(losses))
    case.check(losses.cpu(), gradient.cpu())


def check_grid(task: str, device: str) -> int:
    """Go over all options; dtype, layout and labels take turns, as the interpreter is slow."""
    kinds = [
        Kind(task, torch.float32, torch.contiguous_format, torch.uint8),
        Kind(task, torch.bfloat16, torch.channels_last, torch.int64),
        Kind(task, torch.float32, torch.channels_last, torch.int16),
    ]
    grid = list(itertools.product(GAMMAS, [False, True], [0.0, 0.1], [False, True]))
    for number, (gamma, weighted, smoothing, elementwise) in enumerate(grid):
        alphas = {"negative": 0.75, "positive": 0.25} if weighted and task != "multiclass" else {}
        terms = Terms(
            softmax=task == "multiclass",
            gamma=gamma,
            smoothing=smoothing,
            ignore_index=255,
            elementwise=elementwise,
            **alphas,
        )
        check(terms, kinds[number % 3], weighted=weighted, device=device)
    return len(grid)


def check_extremes(device: str) -> int:
    """No NaN for finite logits."""
    values = torch.tensor([0.0, 1e-3, 17, 89, 104, 1e4, 3e38])
    values = torch.cat([values, -values])
    logits = torch.cartesian_prod(values, values).T.reshape(1, 2, -1, 1).contiguous().to(device)
    done = 0
    for softmax, gamma, smoothing in itertools.product([True, False], [0.0, 0.5, 2.0, 8.0], [0.0, 0.1]):
        shape = (1, *logits.shape[2:]) if softmax else logits.shape
        target = torch.ones(shape, dtype=torch.uint8, device=device)
        terms = Terms(softmax=softmax, gamma=gamma, smoothing=smoothing, elementwise=True)
        total = focal_triton.compute(logits, target, None, terms)[0]
        assert not total.isnan().any(), terms
        (gradient,) = focal_triton.compute(logits, target, None, terms, torch.ones_like(total))
        assert gradient.isfinite().all(), terms
        done += 1
    return done


def check_views(device: str) -> int:
    """The gradient of a view is dense; nothing is written beside it."""
    whole = torch.randn(3, 5, 12, 16, generator=torch.Generator().manual_seed(2)).to(device)
    views = (whole[:, 1:4], whole[..., :9, :], whole[::2, :, 1:10])
    for softmax, logits in itertools.product([True, False], views):
        target = torch.ones_like(logits[:, 0] if softmax else logits, dtype=torch.uint8)
        terms, scale = Terms(softmax=softmax, gamma=2.0), torch.ones((), device=device)
        with GuardZones() as zones:
            (gradient,) = focal_triton.compute(logits, target, None, terms, scale)
        reference = defined(logits.double(), target, None, terms, scale)[3]
        torch.testing.assert_close(gradient.double(), reference, rtol=1e-5, atol=1e-6)
        assert zones.check()
    return 2 * len(views)


def main(device: str) -> int:
    """Run everything; give the number of comparisons."""
    digits = list(itertools.product(("binary", "multiclass"), (0.0, 0.5, 2.0)))
    for task, gamma in digits:
        check_digits(task, gamma, device)
    grids = sum(check_grid(task, device) for task in ("binary", "multiclass", "multilabel"))
    return check_extremes(device) + check_views(device) + grids + len(digits)


if __name__ == "__main__":
    print(main(sys.argv[1]))
