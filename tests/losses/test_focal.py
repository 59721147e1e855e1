"""The meaning of focal_loss: hand-worked values, torch's own losses at gamma 0, properties, edges."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn import functional

from segmeter.losses.focal import focal_loss
from tests.losses import focal_fuzz
from tests.losses.cases import TASKS, make_case, run

BACKENDS = ["torch", "numba"]


def options_of(backend: str, task: str, **options: Any) -> dict[str, Any]:
    if backend == "numba" and (options.get("label_smoothing") or options.get("reduction") == "none"):
        pytest.skip("the numba kernels only sum, without smoothing")
    return {"task": task, "backend": backend, "ignore_index": 255, **options}


def as_taken(backend: str, logits: torch.Tensor) -> torch.Tensor:
    """The numba kernels take float32; the others are held to float64."""
    return logits.float() if backend == "numba" else logits


def loss_at(p, gamma):
    """The loss of a pixel whose label has the probability p."""
    return (1 - p) ** gamma * -math.log(p)


@pytest.mark.parametrize("backend", BACKENDS)
def test_focal_loss_is_the_hand_worked_value(backend):
    """Probabilities 1/4 and 3/4; the target is class 1 in one pixel and class 0 in the other."""
    logits = torch.tensor([0.0, math.log(3)]).view(1, 2, 1, 1).expand(1, 2, 1, 2).contiguous()
    loss = partial(focal_loss, logits, torch.tensor([[[1, 0]]]), task="multiclass", gamma=2.0, backend=backend)
    assert loss().item() == pytest.approx((loss_at(0.75, 2) + loss_at(0.25, 2)) / 2, rel=1e-6)
    # The weight belongs to the target's class, and the mean divides by the weights' sum, 4.
    worked = (1 * loss_at(0.75, 2) + 3 * loss_at(0.25, 2)) / 4
    assert loss(class_weights=[3.0, 1.0]).item() == pytest.approx(worked, rel=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_binary_focal_loss_is_the_hand_worked_value(backend):
    logits, target = torch.full((1, 1, 1, 2), math.log(3)), torch.tensor([[[1, 0]]], dtype=torch.int16)  # p = 3/4
    loss = partial(focal_loss, logits, target, task="binary", gamma=3.0, backend=backend)
    hit, miss = loss_at(0.75, 3), loss_at(0.25, 3)
    assert loss(alpha=0.2).item() == pytest.approx((0.2 * hit + 0.8 * miss) / 2, rel=1e-6)
    if backend == "torch":  # numba takes no smoothing
        worked = (0.95 * hit + 0.05 * miss + 0.95 * miss + 0.05 * hit) / 2
        assert loss(label_smoothing=0.1).item() == pytest.approx(worked, rel=1e-6)


def torch_loss(x, target, task, *, reduction, label_smoothing, class_weights=None, alpha=None):
    if task == "multiclass":
        weight = None if class_weights is None else class_weights.to(x.dtype)
        options = {"ignore_index": 255, "label_smoothing": label_smoothing, "reduction": reduction, "weight": weight}
        return functional.cross_entropy(x, target.long(), **options)
    x, entropy = x.view(target.shape), functional.binary_cross_entropy_with_logits
    valid, hot = (target != 255).to(x.dtype), (target == 1).to(x.dtype) * (1 - label_smoothing) + label_smoothing / 2
    up, down = (entropy(x, torch.full_like(x, value), reduction="none") for value in (1, 0))
    negative, positive = (1, 1) if alpha is None else (1 - alpha, alpha)
    losses = valid * (hot * positive * up + (1 - hot) * negative * down)
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / valid.sum()}[reduction]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1], ids=["hard", "smoothed"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_gamma_0_is_cross_entropy_in_value_and_gradient(backend, reduction, task, smoothing, weighted):
    case = make_case(task)
    weights = {"class_weights": torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0])} if task == "multiclass" else {"alpha": 0.25}
    weighing = {"label_smoothing": smoothing, "reduction": reduction, **(weights if weighted else {})}
    options, logits = options_of(backend, task, gamma=0.0, **weighing), as_taken(backend, case.logits)
    ours = run(lambda x: focal_loss(x, case.target, **options), logits)
    torch.testing.assert_close(ours, run(lambda x: torch_loss(x, case.target, task, **weighing), logits))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_value_and_gradient_are_finite_for_finite_logits(backend, dtype):
    if (backend, dtype) != ("numba", torch.float64):
        focal_fuzz.check_finite("cpu", backend, dtype, smoothings=(0.0, 0.1) if backend == "torch" else (0.0,))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("task", TASKS)
def test_sum_is_mean_times_the_normaliser(backend, task):
    case = make_case(task)
    weights = {"class_weights": [0.5, 2.0, 0.1, 1.0, 3.0]} if task == "multiclass" else {}
    loss = options_of(backend, task, **weights)
    logits = as_taken(backend, case.logits)
    total = focal_loss(logits, case.target, reduction="sum", **loss)
    valid = case.target[case.target != 255]
    summed = torch.tensor(weights.get("class_weights", [1.0] * 5), dtype=torch.float64)[valid.long()].sum()
    normalisers = {"valid": float(summed), "elements": case.target.numel(), 12.5: 12.5}
    if task != "multiclass":
        normalisers["positives"] = int((valid == 1).sum())
    for normalizer, divisor in normalisers.items():
        mean = focal_loss(logits, case.target, normalizer=normalizer, **loss)
        torch.testing.assert_close(mean * divisor, total)
    if backend == "torch":
        each = focal_loss(logits, case.target, reduction="none", **loss)
        assert each.shape == case.target.shape
        torch.testing.assert_close(each.sum(), total)


def test_soft_targets_at_gamma_0_are_cross_entropy():
    case = make_case("multiclass", ignored=False)
    rng = torch.Generator().manual_seed(3)
    soft = torch.rand(case.logits.shape, generator=rng, dtype=torch.float64).softmax(1)
    weights = torch.tensor([0.5, 2.0, 0.1, 1.0, 3.0])
    options = {"task": "multiclass", "gamma": 0.0, "class_weights": weights, "label_smoothing": 0.2}
    ours = run(lambda x: focal_loss(x, soft, **options), case.logits)
    torchs = run(lambda x: functional.cross_entropy(x, soft, weight=weights.double(), label_smoothing=0.2), case.logits)
    torch.testing.assert_close(ours, torchs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_ignore_index_that_the_dtype_cannot_hold_ignores_nothing_and_nan_is_seen(backend):
    """256 would wrap round to class 0 in a uint8 comparison."""
    case, options = make_case("multiclass", ignored=False), {"task": "multiclass", "backend": backend}
    logits = case.logits.float()
    value = focal_loss(logits, case.target, ignore_index=256, **options)
    assert torch.equal(value, focal_loss(logits, case.target, **options))
    logits[1, 2, 3, 4] = torch.nan
    assert focal_loss(logits, case.target, **options).isnan()


def test_any_view_type_and_option_agrees_with_the_formula():
    assert focal_fuzz.main("cpu", 80, 2, BACKENDS)["compared"] == dict.fromkeys(BACKENDS, 80)
