"""The kernels of the focal loss: random layouts, types and options against the formula in float64, and extreme logits.

Triton's run in a process of their own, as it reads TRITON_INTERPRET when it is imported.
"""

import itertools
import json
import sys
from importlib import import_module
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
import torch
from torch.nn import functional

from segmeter.errors import InputError
from segmeter.losses import focal
from segmeter.losses.focal import focal_loss
from segmeter.losses.focal_torch import FocalOptions
from tests.losses.extreme import extreme
from tests.views import GuardZones, laid_out

CHANNELS = (1, 2, 3, 5, 11, 19, 33, 64, 150, 257, 300)
SPACES = ((), (1,), (5,), (97,), (1, 1), (3, 7), (13, 37), (40, 24), (17, 1), (2, 3, 5))
LABELS = (torch.uint8, torch.int16, torch.int32, torch.int64)
# Triton's interpreter cuts bfloat16 and float16 off where the hardware rounds
DIGITS = {torch.float32: 1e-5, torch.bfloat16: 2**-7, torch.float16: 2**-9}


class Case(NamedTuple):
    """Arguments of `focal_loss`, the gradient that arrives, and how many labels are bad."""

    logits: torch.Tensor
    target: torch.Tensor
    options: dict[str, Any]
    arriving: torch.Tensor
    bad: int


def draw(rng, device):
    """A case. Around its views lie NaN, and the largest label."""
    task = str(rng.choice(["binary", "multiclass", "multilabel"]))
    channels = 1 if task == "binary" else int(rng.choice(CHANNELS[task == "multiclass" :]))
    spaces = [space for space in SPACES if channels * np.prod(space) <= 20_000]
    shape = (int(rng.integers(1, 4)), channels, *spaces[rng.integers(len(spaces))])
    elements = shape if task == "multilabel" else (shape[0], *shape[2:])
    dtype, spread = list(DIGITS)[rng.integers(3)], float(rng.choice([1.0, 4.0, 30.0]))
    options = {
        "task": task,
        "gamma": float(rng.choice([0.0, 0.5, 1.0, 2.0, 3.0, 3.7])),
        "ignore_index": [None, 255, 0, -1][rng.integers(4)],
        "reduction": str(rng.choice(["mean", "sum"])),
    }
    if rng.random() < 0.5 and task == "multiclass":
        options["class_weights"] = laid_out((channels,), rng, np.nan, lambda n: draw_weights(rng, n), device)
    elif rng.random() < 0.5 and task != "multiclass":
        options["alpha"] = 0.25
    target, bad = draw_target(rng, elements, channels if task == "multiclass" else 2, options["ignore_index"], device)
    return Case(
        laid_out(shape, rng, np.nan, lambda n: (floats(rng, n) * spread).to(dtype), device),
        target,
        options,
        laid_out((), rng, np.nan, lambda n: floats(rng, n), device),
        bad,
    )


def floats(rng, count):
    return torch.from_numpy(rng.standard_normal(count).astype(np.float32))


def draw_weights(rng, count):
    """Some weights are 0, the first one is not."""
    return floats(rng, count).abs().round() + (torch.arange(count) == 0)


def draw_target(rng, shape, classes, ignore, device):
    """Labels, and how many of them are bad: in one case of seven some are."""
    dtype = LABELS[rng.integers(4)]
    largest = torch.iinfo(dtype).max
    marks = [*range(min(classes, largest + 1)), *([ignore] if ignore is not None else [])]
    marks += [2**32 + 1 if dtype == torch.int64 else largest] if rng.random() < 0.15 else []
    values = torch.tensor([mark for mark in marks if 0 <= mark <= largest or dtype != torch.uint8]).to(dtype)
    target = laid_out(shape, rng, largest, lambda n: values[torch.from_numpy(rng.integers(0, len(values), n))], device)
    bad = ~((target >= 0) & (target.long() < classes))  # as torch takes 300 for 44 beside a uint8
    return target, int((bad if ignore is None else bad & (target.long() != ignore)).sum())


def reference(x, case):
    """Losses and weights of each element, as the docstring of `focal_loss` defines them."""
    options, softmax = case.options, case.options["task"] == "multiclass"
    ignore, gamma = options["ignore_index"], options["gamma"]
    target = case.target.long().view(x[:, 0].shape if softmax else x.shape)
    valid = torch.ones_like(target, dtype=torch.bool) if ignore is None else target != ignore
    classes = torch.where(valid, target, 0)
    if not softmax:
        hot, alpha = classes == 1, options.get("alpha")
        z = torch.where(hot, x, -x)
        losses = torch.sigmoid(-z) ** gamma * functional.softplus(-z)
        weighted = losses if alpha is None else losses * torch.where(hot, alpha, 1 - alpha)
        return torch.where(valid, weighted, 0), valid.double()
    logs = x.log_softmax(1).gather(1, classes.unsqueeze(1)).squeeze(1)
    weights = options.get("class_weights", torch.ones(x.shape[1], device=x.device)).double()[classes]
    losses = weights * torch.expm1(logs).neg().clamp(min=1e-200) ** gamma * -logs
    return torch.where(valid, losses, 0), torch.where(valid, weights, 0)


def check(case, backend):
    """Compare value and gradient, and find the memory around all outputs untouched; give their number."""
    leaf = case.logits.detach().requires_grad_()
    zones = GuardZones()
    if case.bad:
        with zones, pytest.raises(InputError, match=f"got {case.bad} other labels"):
            focal_loss(leaf, case.target, **case.options, backend=backend)
        return zones.check()
    with zones:
        found = focal_loss(leaf, case.target, **case.options, backend=backend)
        (gradient,) = torch.autograd.grad(found, leaf, case.arriving)
    wide = case.logits.double().requires_grad_()
    losses, weights = reference(wide, case)
    reduction, divisor = case.options["reduction"], weights.sum()
    expected = losses.sum()
    if reduction == "mean" and divisor > 0:
        expected = expected / divisor
    (slope,) = torch.autograd.grad(expected, wide, case.arriving.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
    rtol = DIGITS[leaf.dtype]
    # Where equal terms cancel, their rounding stays: 1e-7 of what arrives. Below `tiny` there are few digits.
    share = float(case.arriving.abs().max()) / (float(divisor) if reduction == "mean" and divisor > 0 else 1)
    atol = 1e-6 * float(slope.abs().max()) + 1e-7 * share + rtol * torch.finfo(leaf.dtype).tiny
    torch.testing.assert_close(gradient.double(), slope, rtol=rtol, atol=atol)
    return zones.check()


def check_digits(device, kernels):
    """Triton's kernels have the loss and the gradient of 60 digits at extreme logits."""
    for task, gamma in itertools.product(("binary", "multiclass"), (0.0, 0.5, 2.0)):
        case, options = extreme(task, gamma), FocalOptions(task, gamma)
        logits, target = case.logits.to(device), case.target.to(device)
        target = target.unsqueeze(1) if task == "binary" else target
        places = range(0, logits.shape[-1], 9)  # one at a time, which takes long under the interpreter
        losses = [kernels.forward_sums(logits[..., [p]], target[..., [p]], options)[0] for p in places]
        gradient = kernels.gradient(logits, target, options, torch.ones((), device=device))
        case._replace(loss=case.loss[::9]).check(torch.stack(losses).cpu(), gradient.cpu())


def check_finite(device, backend, dtype=torch.float32, smoothings=(0.0,)):
    """There is no NaN for finite logits, whose difference may be infinite."""
    values = torch.tensor([0.0, 1e-30, 1e-3, 1, 15, 17, 80, 89, 104, 1e3, 1e4, 3e38], dtype=torch.float64)
    values = values.clamp(max=torch.finfo(dtype).max)
    values = torch.cat([values, -values]).to(device, dtype)
    logits = torch.cartesian_prod(values, values).T.reshape(1, 2, -1, 1).contiguous()
    rows = itertools.product(("multiclass", "binary"), (0, 1), (0.0, 0.5, 2.0, 8.0), smoothings)
    for task, label, gamma, smoothing in rows:
        leaf = (logits if task == "multiclass" else logits[:, :1]).clone().requires_grad_()
        target = torch.full((1, *logits.shape[2:]), label, dtype=torch.uint8, device=device)
        options = {"task": task, "gamma": gamma, "label_smoothing": smoothing, "reduction": "sum"}
        total = focal_loss(leaf, target, **options, backend=backend)
        total.backward()
        assert not total.isnan(), options
        assert leaf.grad.isfinite().all(), options


def main(device, rounds, seed, backends=("triton", "numba", "torch")):
    if "triton" in backends:
        check_digits(device, import_module("segmeter.losses.focal_triton"))
    done, guarded = dict.fromkeys(backends, 0), 0
    with mock.patch.object(focal, "choose_backend", lambda logits, target, options: options.backend):
        if "triton" in backends:
            check_finite(device, "triton")
        for number in range(rounds):
            case = draw(np.random.default_rng([seed, number]), device)
            for backend in done:
                if backend == "numba" and device != "cpu":
                    continue
                try:
                    guarded += check(case, backend)
                except (AssertionError, pytest.fail.Exception) as error:
                    views = [(each.dtype, each.shape, each.stride()) for each in (case.logits, case.target)]
                    raise AssertionError(f"case {number}, {backend}, {views}, {case.options}: {error}") from error
                done[backend] += 1
    return {"seed": seed, "compared": done, "guarded": guarded}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
