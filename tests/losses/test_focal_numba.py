"""The numba kernels against the log-space reference, and their polynomials against NumPy in float64."""

import itertools
import multiprocessing
import os
from functools import partial

import numpy as np
import pytest
import torch
from numba import njit

from segmeter.losses import focal_kernels, focal_numba
from segmeter.losses.focal import FocalLoss, focal_loss
from tests.losses.cases import TASKS, make_case, run


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("task", TASKS)
def test_the_kernels_are_the_reference_over_the_option_grid(task, dtype, layout):
    case = make_case(task, size=(19, 37))  # not a multiple of any vector or block
    logits = case.logits.to(dtype).contiguous(memory_format=layout)
    # bfloat16 keeps 8 bits: its gradient is the float32 one, rounded once.
    rtol = 1e-5 if dtype == torch.float32 else 2**-8
    weighing = {"class_weights": [0.5, 2.0, 0.1, 1.0, 3.0]} if task == "multiclass" else {"alpha": 0.25}
    for gamma, weights in itertools.product([0.0, 0.5, 1.0, 2.0, 3.0, 3.7], [{}, weighing]):
        loss = partial(focal_loss, target=case.target, task=task, gamma=gamma, ignore_index=255, **weights)
        value, gradient = run(partial(loss, backend="numba"), logits)
        reference = run(partial(loss, backend="torch"), logits.double())
        torch.testing.assert_close(value.double(), reference[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradient.double(), reference[1], rtol=rtol, atol=1e-6)
        assert gradient.dtype == dtype
        assert gradient.stride() == logits.stride()


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


def test_the_bits_do_not_depend_on_the_number_of_threads():
    case = make_case("multiclass", size=(128, 128))
    loss = FocalLoss("multiclass", ignore_index=255, backend="numba")
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(run(lambda x: loss(x, case.target), case.logits.float()))
    finally:
        torch.set_num_threads(before)
    assert case.logits.numel() >= focal_numba.SMALL_JOB
    for value, gradient in results[1:]:
        assert torch.equal(value, results[0][0])
        assert torch.equal(gradient, results[0][1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_computes_the_loss_too():
    case = make_case("multiclass", size=(128, 128))
    logits, (parent, child) = case.logits.float(), multiprocessing.Pipe()

    def send_loss() -> None:
        loss = focal_loss(logits, case.target, task="multiclass", ignore_index=255, backend="numba")
        child.send(float(loss))

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        send_loss()  # starts the pool in this process
        expected = parent.recv()
        process = multiprocessing.get_context("fork").Process(target=send_loss)
        process.start()
        answered = parent.poll(30)
        process.terminate()
        process.join()
        assert answered, "the child hangs"
        assert parent.recv() == expected
    finally:
        torch.set_num_threads(before)


def test_channels_that_lie_between_pixels_get_a_gradient():
    """A dense copy of such a view has no even distance between its pixels."""
    logits = torch.randn(60, generator=torch.Generator().manual_seed(0)).as_strided((1, 2, 4, 5), (0, 3, 10, 2))
    target = torch.ones(1, 4, 5, dtype=torch.uint8)
    gradient, reference = (
        torch.autograd.grad(focal_loss(leaf, target, task="multiclass", backend=backend), leaf)[0]
        for leaf, backend in ((logits.requires_grad_(), "numba"), (logits.double(), "torch"))
    )
    torch.testing.assert_close(gradient.double(), reference, rtol=1e-5, atol=1e-6)


def apply(function, values):
    """Call the compiled scalar function on each value, as the kernels do."""

    @njit
    def loop(values, out):
        for i in range(len(values)):
            out[i] = function(values[i])

    out = np.empty_like(values)
    loop(values, out)
    return out


@pytest.fixture(scope="module")
def rng():
    return np.random.default_rng(0)


def test_exp_is_within_2_ulp_and_0_below_the_normal_range(rng):
    x = np.concatenate([-rng.uniform(0, 87.3, 20000), -(10 ** rng.uniform(-30, 1.9, 20000)), [0.0]]).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    assert np.max(np.abs(apply(focal_kernels.exp, x) - exact) / exact) < 2 * 2**-23
    assert apply(focal_kernels.exp, np.float32([0.0]))[0] == 1
    assert not apply(focal_kernels.exp, np.float32([-88, -1e4, -3e38, -np.inf])).any()
    assert np.isnan(apply(focal_kernels.exp, np.float32([np.nan])))


def test_log_is_within_2_ulp(rng):
    x = np.concatenate([10 ** rng.uniform(-37, 38, 20000), rng.uniform(0.5, 2, 20000), [1.0]]).astype(np.float32)
    exact = np.log(x.astype(np.float64))
    error = np.abs(apply(focal_kernels.log, x) - exact)
    assert np.max(error / np.maximum(np.abs(exact), 2**-23)) < 2 * 2**-23


def test_log1p_keeps_small_arguments(rng):
    x = np.concatenate([10 ** rng.uniform(-37, 4, 40000), [0.0]]).astype(np.float32)
    exact = np.log1p(x.astype(np.float64))
    error = np.abs(apply(focal_kernels.log1p, x) - exact)
    assert np.max(error / np.maximum(exact, 1e-38)) < 3 * 2**-23
    assert apply(focal_kernels.log1p, np.float32([0.0]))[0] == 0


def test_log1p_unit_is_within_2_ulp(rng):
    x = np.concatenate([10 ** rng.uniform(-37, 0, 40000), rng.uniform(0, 1, 20000), [0.0, 1.0]]).astype(np.float32)
    exact = np.log1p(x.astype(np.float64))
    error = np.abs(apply(focal_kernels.log1p_unit, x) - exact)
    assert np.max(error / np.maximum(exact, 1e-38)) < 2 * 2**-23
    assert apply(focal_kernels.log1p_unit, np.float32([0.0]))[0] == 0


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0, 2.0, 3.0, 4.5])
def test_power_is_numpys_with_0_to_the_0_being_1(rng, gamma):
    base = np.concatenate([rng.uniform(0, 1, 1000), [0.0, 1.0]]).astype(np.float32)
    out = np.empty_like(base)
    focal_kernels.power(base, np.float32(gamma), base.size, out)
    exact = base.astype(np.float64) ** float(np.float32(gamma))
    np.testing.assert_allclose(out, exact, rtol=5e-6, atol=1e-37)


def test_a_label_is_a_class_or_ignored_or_bad():
    given = [(0, 0), (2, 2), (3, -2), (-1, -2), (255, -1)]
    assert [focal_kernels.class_of(np.int32(label), np.int32(255), np.int32(3)) for label, _ in given] == [
        found for _, found in given
    ]
    assert focal_kernels.class_of(np.int32(1), np.int32(1), np.int32(3)) == -1  # a class can be the ignored label
