"""The numba kernels: their memory, threads and layouts, and their polynomials against NumPy in float64."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from numba import njit

from segmeter.losses import focal_kernels, focal_numba
from segmeter.losses.focal import FocalLoss, focal_loss
from tests.losses.cases import TASKS, make_case, run


@pytest.mark.parametrize("task", TASKS)
def test_the_gradient_in_bfloat16_is_the_float32_one_rounded_once(task):
    case = make_case(task, size=(19, 37))
    loss = partial(focal_loss, target=case.target, task=task, ignore_index=255, backend="numba")
    halves = case.logits.bfloat16()
    for logits in (halves, halves.contiguous(memory_format=torch.channels_last), halves[..., ::2]):
        value, gradient = run(partial(loss, target=case.target[..., : logits.shape[-1]]), logits)
        exact = run(partial(loss, target=case.target[..., : logits.shape[-1]]), logits.float())
        assert torch.equal(value, exact[0])
        assert torch.equal(gradient, exact[1].bfloat16())


def test_no_gradient_that_is_not_a_number_becomes_one_in_bfloat16():
    """Rounded as a number, a NaN of ones alone would be 0."""
    logits = torch.zeros(1, 3, 4, 4, dtype=torch.bfloat16, requires_grad=True)
    loss = focal_loss(logits, torch.zeros(1, 4, 4, dtype=torch.uint8), task="multiclass", backend="numba")
    loss.backward(torch.tensor(-1, dtype=torch.int32).view(torch.float32))
    assert logits.grad.isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("task", TASKS)
def test_the_peak_of_the_kernels_is_the_gradient_alone(task, dtype):
    case = make_case(task, size=(192, 192))
    leaf = case.logits.to(dtype).requires_grad_()
    loss = FocalLoss(task, ignore_index=255, backend="numba")
    loss(leaf, case.target)  # loads the kernels
    options = {"profile_memory": True, "acc_events": True}  # without the second torch 2.11 warns
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options) as profiler:
        loss(leaf, case.target).backward()
    events = profiler.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    alive = list(itertools.accumulate(nbytes for _, nbytes in changes))
    sums = 24 * case.target.numel() / 1024  # bytes: three float64 of each block of 1024 labels
    assert leaf.nbytes <= max(alive) <= 1.005 * leaf.nbytes + sums


def test_the_bits_do_not_depend_on_the_number_of_threads(monkeypatch):
    case = make_case("multiclass", size=(128, 128))
    loss = FocalLoss("multiclass", ignore_index=255, backend="numba")
    assert case.logits.numel() >= focal_numba.SMALL_JOB
    results = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        results.append(run(lambda x: loss(x, case.target), case.logits.float()))
    for again in results[1:]:
        assert all(map(torch.equal, again, results[0]))


def apply(function, values):
    """Call the compiled scalar function on each value, as the kernels do."""

    @njit
    def loop(values, out):
        for i in range(len(values)):
            out[i] = function(values[i])

    out = np.empty_like(values)
    loop(values, out)
    return out


@pytest.mark.parametrize(
    ("name", "draw", "least", "ulp"),
    [
        ("exp", lambda rng: (-rng.uniform(0, 87.3, 20000), -(10 ** rng.uniform(-30, 1.9, 20000))), 0, 2),
        ("log", lambda rng: (10 ** rng.uniform(-37, 38, 20000), rng.uniform(0.5, 2, 20000), [1.0]), 2**-23, 2),
        ("log1p", lambda rng: (10 ** rng.uniform(-37, 4, 40000), [0.0]), 1e-38, 3),
        ("log1p_unit", lambda rng: (10 ** rng.uniform(-37, 0, 40000), rng.uniform(0, 1, 20000), [0, 1]), 1e-38, 2),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_polynomials_are_within_a_few_ulp(name, draw, least, ulp):
    """Of the exact value, or where that is nearly 0 of `least`."""
    values = np.concatenate(draw(np.random.default_rng(0))).astype(np.float32)
    exact = getattr(np, name.removesuffix("_unit"))(values.astype(np.float64))
    error = np.abs(apply(getattr(focal_kernels, name), values) - exact)
    assert np.max(error / np.maximum(np.abs(exact), least)) < ulp * 2**-23


def test_a_label_is_a_class_or_ignored_or_bad():
    for label, ignored, found in ((0, 255, 0), (2, 255, 2), (3, 255, -2), (-1, 255, -2), (255, 255, -1), (1, 1, -1)):
        assert focal_kernels.class_of(np.int32(label), np.int32(ignored), np.int32(3)) == found
