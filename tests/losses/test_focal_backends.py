"""Which backend is chosen; derivatives, digits and graphs; and the numba kernels: memory, threads, polynomials."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from numba import njit

from segmeter.errors import InputError
from segmeter.losses import focal_kernels, focal_numba
from segmeter.losses.config import FocalConfig, FocalTverskyConfig, LovaszConfig, SumConfig, build_loss
from segmeter.losses.focal import FocalLoss, choose_backend, focal_loss
from segmeter.losses.focal_torch import FocalOptions
from tests.losses.cases import TASKS, make_case, run
from tests.losses.extreme import GAMMAS, extreme
from tests.models.parts import make_spec


def test_soft_targets_mix_the_losses_of_both_labels():
    rng = np.random.default_rng(0)
    logits, target = rng.normal(0, 2, (2, 3, 4, 5)), rng.uniform(0, 1, (2, 3, 4, 5))
    p = 1 / (1 + np.exp(-logits))
    up, down = -0.25 * (1 - p) ** 1.5 * np.log(p), -0.75 * p**1.5 * np.log(1 - p)
    options = {"task": "multilabel", "gamma": 1.5, "alpha": 0.25, "reduction": "sum"}
    found = focal_loss(torch.from_numpy(logits), torch.from_numpy(target), **options)
    assert found.item() == pytest.approx((target * up + (1 - target) * down).sum(), rel=1e-12)


def test_smoothing_spreads_its_share_over_all_classes():
    logits = np.array([2.0, 0.0, -1.0])
    p = np.exp(logits) / np.exp(logits).sum()
    share, options = np.array([0.9 + 0.1 / 3, 0.1 / 3, 0.1 / 3]), {"task": "multiclass", "label_smoothing": 0.1}
    found = focal_loss(torch.from_numpy(logits).view(1, 3, 1), torch.tensor([[0]]), **options)
    assert found.item() == pytest.approx(-(share * (1 - p) ** 2 * np.log(p)).sum(), rel=1e-12)


@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_a_second_backward_gives_the_same_gradient(backend):
    case = make_case("multiclass")
    leaf = case.logits.float().requires_grad_()
    loss = focal_loss(leaf, case.target, task="multiclass", ignore_index=255, backend=backend)
    (first,) = torch.autograd.grad(loss * 3, leaf, retain_graph=True)
    (second,) = torch.autograd.grad(loss, leaf)
    torch.testing.assert_close(first, second * 3)


def test_torch_has_a_second_derivative_and_numba_refuses_one():
    case = make_case("multiclass", num_classes=3, size=(2, 4))
    loss = partial(focal_loss, target=case.target, task="multiclass", ignore_index=255, backend="torch")
    assert torch.autograd.gradgradcheck(loss, (case.logits.clone().requires_grad_(),))
    leaf = case.logits.float().requires_grad_()
    loss = focal_loss(leaf, case.target, task="multiclass", ignore_index=255, backend="numba")
    (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True)
    penalty = loss + gradient.square().sum()
    with pytest.raises(InputError, match=r"no second derivative. Pass backend=.torch"):
        penalty.backward()


def test_choosing_without_a_gpu():
    target, options = torch.zeros(1, 256, 256, dtype=torch.uint8), FocalOptions("multiclass")
    large = torch.zeros(1, 2, 256, 256)
    assert choose_backend(large, target, options) == "numba"
    assert choose_backend(large.half(), target, options) == "numba"
    assert choose_backend(large.double(), target, options) == "torch"
    assert choose_backend(large, large.softmax(1), options) == "torch"
    for alone in ({"label_smoothing": 0.1}, {"reduction": "none"}):  # the kernels only sum, over hard labels
        assert choose_backend(large, target, options._replace(**alone)) == "torch"
        with pytest.raises(InputError, match=r"only to sum, got 'numba'"):
            choose_backend(large, target, options._replace(**alone, backend="numba"))
    assert choose_backend(large[:, :, :8], target[:, :8], options) == "torch"  # too little to load kernels for
    assert choose_backend(large, target, options._replace(backend="reference")) == "reference"


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("task", ["multiclass", "binary"])
@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_float32_is_exact_at_extreme_logits(backend: str, task: str, gamma: float) -> None:
    case = extreme(task, gamma)
    leaf = case.logits.clone().requires_grad_()
    loss = partial(focal_loss, task=task, gamma=gamma, backend=backend, reduction="sum")
    places = range(leaf.shape[-1])
    each = torch.stack([loss(leaf[..., [place]], case.target[..., [place]]) for place in places])
    each.sum().backward()
    if backend == "torch" and task == "multiclass":  # p is rounded, so digits are lost where it is near 1
        torch.testing.assert_close(each.detach().double(), case.loss, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(leaf.grad.double(), case.gradient, rtol=1e-4, atol=1e-6)
    else:
        case.check(each, leaf.grad)


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()


SMOOTHED = {"label_smoothing": 0.1, "ignore_index": 255}


@pytest.mark.parametrize(
    ("config", "task"),
    [
        *((FocalConfig(), task) for task in TASKS),
        (FocalTverskyConfig(), "binary"),
        (LovaszConfig(), "multiclass"),
        (SumConfig(), "multilabel"),
        (partial(focal_loss, task="multiclass", **{"class_weights": [1.0, 2.0, 3.0], **SMOOTHED}), "multiclass"),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "name", "the function"),
)
def test_every_kind_of_loss_is_one_graph(config, task):
    """The others differ from these in their options only."""
    case, loss = (
        make_case(task, num_classes=3),
        config if callable(config) else build_loss(config, make_spec(task=task)),
    )
    graph = torch.compile(loss, fullgraph=True, backend="aot_eager")
    eager = run(lambda x: loss(x, case.target), case.logits.float())
    torch.testing.assert_close(run(lambda x: graph(x, case.target), case.logits.float()), eager)


def test_bad_labels_make_a_compiled_loss_nan_and_are_named_when_asked():
    case = make_case("multiclass")
    loss = FocalLoss("multiclass", ignore_index=255)
    graph = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert graph(case.logits.float(), case.target).isfinite()
    loss.check_labels()
    bad = case.target.clone()
    bad[1, 1, 2:4] = 7
    assert graph(case.logits.float(), bad).isnan()
    with pytest.raises(InputError, match="got 2 other labels"):
        loss.check_labels()
    loss.check_labels()


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
