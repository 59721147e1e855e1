"""Which backend is chosen, and what holds for each: layouts, derivatives, digits, what is saved, and one graph."""

from functools import partial

import numpy as np
import pytest
import torch

from segmeter.errors import InputError
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
