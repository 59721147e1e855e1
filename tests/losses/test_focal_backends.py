"""The backends agree with the log-space reference, save little, and give the same bits for any thread count."""

import itertools
import multiprocessing
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from segmeter.errors import InputError
from segmeter.losses.focal import numba_backend
from segmeter.losses.focal.dispatch import choose_backend
from segmeter.losses.focal.focal import FocalLoss, focal_loss
from tests.losses.cases import make_case, run

TASKS = ["binary", "multiclass", "multilabel"]
WEIGHTS = [0.5, 2.0, 0.1, 1.0, 3.0]


def option_grid(task: str) -> list[dict[str, Any]]:
    weighing = [{}, {"class_weights": WEIGHTS} if task == "multiclass" else {"alpha": 0.25}]
    grid = itertools.product([0.0, 0.5, 1.0, 2.0, 3.0, 3.7], weighing, [0.0, 0.1], ["mean", "none"])
    return [{"gamma": g, **w, "label_smoothing": s, "reduction": r, "ignore_index": 255} for g, w, s, r in grid]


@pytest.mark.parametrize("task", TASKS)
def test_the_closed_form_is_the_reference_over_the_option_grid(task):
    case = make_case(task)
    for options in option_grid(task):
        reference = run(
            lambda x, o=options: focal_loss(x, case.target, task=task, backend="reference", **o), case.logits
        )
        ours = run(lambda x, o=options: focal_loss(x, case.target, task=task, backend="torch", **o), case.logits)
        torch.testing.assert_close(ours, reference, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("task", TASKS)
def test_the_kernels_are_the_reference_over_the_option_grid(task, dtype, layout):
    case = make_case(task, size=(19, 37))  # not a multiple of any vector or block
    logits = case.logits.to(dtype).contiguous(memory_format=layout)
    # bfloat16 keeps 8 bits: its gradient is the float32 one, rounded once.
    rtol = 1e-5 if dtype == torch.float32 else 2**-8
    for options in option_grid(task):
        value, gradient = run(lambda x, o=options: focal_loss(x, case.target, task=task, backend="numba", **o), logits)
        reference = run(
            lambda x, o=options: focal_loss(x, case.target, task=task, backend="reference", **o), logits.double()
        )
        torch.testing.assert_close(value.double(), reference[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradient.double(), reference[1], rtol=rtol, atol=1e-6)
        assert gradient.dtype == dtype
        assert gradient.stride() == logits.stride()


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64], ids=str)
def test_every_label_dtype_means_the_same(backend, dtype):
    case = make_case("multiclass")
    options = {"task": "multiclass", "backend": backend, "ignore_index": 255}
    expected = run(lambda x: focal_loss(x, case.target, **options), case.logits.float())
    assert all(
        torch.equal(ours, theirs)
        for ours, theirs in zip(
            run(lambda x: focal_loss(x, case.target.to(dtype), **options), case.logits.float()), expected, strict=True
        )
    )


@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_layouts_no_stride_describes_are_taken_too(backend):
    case = make_case("multiclass", size=(8, 8))
    logits = case.logits.float().transpose(2, 3)  # pixels of a row are not adjacent, rows are
    target = case.target.transpose(1, 2)
    options = {"task": "multiclass", "backend": backend, "ignore_index": 255}
    ours = run(lambda x: focal_loss(x, target, **options), logits)
    plain = run(lambda x: focal_loss(x, target.contiguous(), **options), logits.contiguous())
    torch.testing.assert_close(ours, plain)
    cropped = case.logits.float()[:, :, 2:6, 1:5]
    torch.testing.assert_close(
        focal_loss(cropped, case.target[:, 2:6, 1:5], **options),
        focal_loss(cropped.contiguous(), case.target[:, 2:6, 1:5].contiguous(), **options),
    )


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize(
    "shape", [(0, 3, 4, 4), (2, 3, 1, 1), (2, 3), (2, 3, 5), (2, 3, 2, 3, 4), (1, 150, 5, 3)], ids=str
)
def test_any_number_of_axes_and_empty_batches(backend, shape):
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=rng)
    target = torch.randint(0, 3, (shape[0], *shape[2:]), generator=rng)
    options = {"task": "multiclass", "gamma": 1.5}
    ours = run(lambda x: focal_loss(x, target, backend=backend, **options), logits)
    torch.testing.assert_close(ours, run(lambda x: focal_loss(x, target, backend="reference", **options), logits))


def test_blocks_of_rows_are_cut_without_a_seam(monkeypatch):
    case = make_case("multiclass")
    options = {"task": "multiclass", "backend": "torch", "ignore_index": 255}
    for reduction in ("mean", "none"):
        loss = FocalLoss(reduction=reduction, **options)
        whole = run(lambda x, f=loss: f(x, case.target), case.logits)
        with monkeypatch.context() as patch:
            patch.setattr("segmeter.losses.focal.torch_closed_form.BLOCK_ELEMENTS", 100)  # 2 rows of 5 x 9
            torch.testing.assert_close(run(lambda x, f=loss: f(x, case.target), case.logits), whole)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradcheck_of_the_closed_form(task, gamma, smoothing):
    case = make_case(task, num_classes=3, size=(2, 4))
    options = {"task": task, "gamma": gamma, "label_smoothing": smoothing, "ignore_index": 255, "backend": "torch"}
    leaf = case.logits.clone().requires_grad_()
    for reduction in ("mean", "none"):
        loss = FocalLoss(reduction=reduction, **options)
        assert torch.autograd.gradcheck(lambda x, f=loss: f(x, case.target), (leaf,))


@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_a_second_backward_gives_the_same_gradient(backend):
    case = make_case("multiclass")
    leaf = case.logits.float().requires_grad_()
    loss = focal_loss(leaf, case.target, task="multiclass", ignore_index=255, backend=backend)
    (first,) = torch.autograd.grad(loss * 3, leaf, retain_graph=True)
    (second,) = torch.autograd.grad(loss, leaf)
    torch.testing.assert_close(first, second * 3)


@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_a_second_derivative_is_refused(backend):
    case = make_case("multiclass")
    leaf = case.logits.float().requires_grad_()
    loss = focal_loss(leaf, case.target, task="multiclass", ignore_index=255, backend=backend)
    (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True)
    penalty = loss + gradient.square().sum()
    with pytest.raises(InputError, match=r"no second derivative. Pass backend=.reference"):
        penalty.backward()


def test_the_reference_has_a_second_derivative():
    case = make_case("multiclass", num_classes=3, size=(2, 4))
    loss = FocalLoss("multiclass", gamma=2.0, ignore_index=255, backend="reference")
    assert torch.autograd.gradgradcheck(lambda x: loss(x, case.target), (case.logits.clone().requires_grad_(),))


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize("task", TASKS)
def test_nothing_the_size_of_the_logits_is_saved_but_the_logits(backend, task):
    case = make_case(task, size=(32, 32))
    leaf = case.logits.float().requires_grad_()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        focal_loss(leaf, case.target, task=task, ignore_index=255, backend=backend)
    extra = [t for t in saved if t.data_ptr() not in (leaf.data_ptr(), case.target.data_ptr())]
    assert sum(t.numel() for t in extra) <= 8


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
    assert case.logits.numel() >= numba_backend.SMALL_JOB
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


def test_choosing_without_a_gpu():
    target = torch.zeros(1, 256, 256, dtype=torch.uint8)
    large = torch.zeros(1, 2, 256, 256)
    assert choose_backend(large, target, "auto") == "numba"
    assert choose_backend(large.double(), target, "auto") == "torch"
    assert choose_backend(large.half(), target, "auto") == "torch"
    assert choose_backend(large, large.softmax(1), "auto") == "torch"
    assert choose_backend(large[:, :, :8], target[:, :8], "auto") == "torch"  # too little to load kernels for
    assert choose_backend(large, target, "reference") == "reference"


def test_importing_the_loss_does_not_import_numba_or_triton():
    code = "import sys; import segmeter.losses.focal.focal; print([m for m in ('numba', 'triton') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("task", TASKS)
def test_no_value_is_read_on_the_way(task):
    # Tensors on the meta device have no values: anything that waited for one would raise.
    case = make_case(task)
    leaf = case.logits.to("meta").requires_grad_()
    loss = focal_loss(leaf, case.target.to("meta"), task=task, ignore_index=255, label_smoothing=0.1)
    loss.backward()
    assert leaf.grad.shape == leaf.shape
