"""The numba kernels agree with the log-space reference, need no memory, and give the same bits for any thread count."""

import itertools
import multiprocessing
import os

import pytest
import torch

from segmeter.losses import focal_numba
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
        options = {"gamma": gamma, **weights, "ignore_index": 255}
        value, gradient = run(lambda x, o=options: focal_loss(x, case.target, task=task, backend="numba", **o), logits)
        reference = run(
            lambda x, o=options: focal_loss(x, case.target, task=task, backend="torch", **o), logits.double()
        )
        torch.testing.assert_close(value.double(), reference[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradient.double(), reference[1], rtol=rtol, atol=1e-6)
        assert gradient.dtype == dtype
        assert gradient.stride() == logits.stride()


@pytest.mark.parametrize("task", TASKS)
def test_the_peak_of_the_kernels_is_the_gradient_alone(task):
    case = make_case(task, size=(192, 192))
    leaf = case.logits.float().requires_grad_()
    loss = FocalLoss(task, ignore_index=255, backend="numba")
    loss(leaf, case.target)  # loads the kernels
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        loss(leaf, case.target).backward()
    events = profiler.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    alive = list(itertools.accumulate(nbytes for _, nbytes in changes))
    assert leaf.nbytes <= max(alive) <= 1.01 * leaf.nbytes


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
