"""Dice, Tversky and focal Tversky against NumPy and segmentation-models-pytorch's; what Lovasz shares with them."""

import numpy as np
import pytest
import segmentation_models_pytorch as smp
import torch

from segmeter.losses.region import LovaszLoss, TverskyLoss
from tests.losses.cases import TASKS, make_case, run

BOTH = pytest.mark.parametrize("make", [TverskyLoss, LovaszLoss], ids=["tversky", "lovasz"])


@pytest.mark.parametrize("task", TASKS)
def test_dice_is_that_of_segmentation_models_pytorch_where_every_class_occurs(task):
    case = make_case(task, num_classes=3, ignored=task == "multiclass")
    theirs = smp.losses.DiceLoss(task, smooth=1.5, ignore_index=255 if task == "multiclass" else None)
    ours = TverskyLoss(task, smooth=1.5, ignore_index=255)
    target = case.target.long().unsqueeze(1) if task == "binary" else case.target.long()
    expected = run(lambda x: theirs(x, target), case.logits)
    torch.testing.assert_close(run(lambda x: ours(x, case.target), case.logits), expected)


@BOTH
def test_a_perfect_prediction_costs_nothing_and_has_a_finite_gradient(make):
    case = make_case("multiclass", ignored=False)
    logits = 50.0 * torch.nn.functional.one_hot(case.target.long(), 5).movedim(-1, 1)
    losses = [make("multiclass")] + ([TverskyLoss("multiclass", gamma=0.75)] if make is TverskyLoss else [])
    for loss in losses:
        value, gradient = run(lambda x, f=loss: f(x, case.target), logits)
        assert value.item() == pytest.approx(0, abs=1e-5)
        assert gradient.isfinite().all()


def brute_jaccard_extension(errors, hot):
    """The Lovasz extension as defined: sum of e_i times what pixel i adds to the Jaccard loss of those before it."""
    total, wrong = 0.0, np.zeros(len(hot), bool)

    def jaccard_loss(wrong):
        kept, extra = (hot & ~wrong).sum(), (~hot & wrong).sum()
        return 1 - kept / (hot.sum() + extra) if hot.sum() + extra else 0.0

    for i in np.argsort(-errors, kind="stable"):
        before = jaccard_loss(wrong)
        wrong[i] = True
        total += errors[i] * (jaccard_loss(wrong) - before)
    return total


@pytest.mark.parametrize("task", TASKS)
def test_lovasz_is_its_definition(task):
    """Errors are those of the probabilities for multiclass, and hinges otherwise."""
    case = make_case(task, num_classes=3, size=(4, 5))
    logits, target = case.logits.numpy(), case.target.numpy()
    if task == "multiclass":
        planes = [(target == k, target != 255) for k in range(3)]
        errors = [np.abs(hot - case.logits.softmax(1).numpy()[:, k]) for k, (hot, _) in enumerate(planes)]
    else:
        each = np.moveaxis(target.reshape(logits.shape), 1, 0)
        planes = [(plane == 1, plane != 255) for plane in each]
        errors = [np.maximum(1 - logits[:, k] * (2.0 * hot - 1), 0) for k, (hot, _) in enumerate(planes)]
    worked = [
        brute_jaccard_extension(error[valid], hot[valid]) for error, (hot, valid) in zip(errors, planes, strict=True)
    ]
    loss = LovaszLoss(task, ignore_index=255)(case.logits, case.target).item()
    assert loss == pytest.approx(np.mean(worked), rel=1e-12)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_lovasz_is_that_of_segmentation_models_pytorch(task):
    case = make_case(task, num_classes=3)
    theirs = smp.losses.LovaszLoss(task, ignore_index=255)
    ours = LovaszLoss(task, ignore_index=255)
    target = case.target.unsqueeze(1) if task == "binary" else case.target
    expected = run(lambda x: theirs(x, target), case.logits.float())
    torch.testing.assert_close(run(lambda x: ours(x, case.target), case.logits.float()), expected)


def test_tversky_by_hand_leaves_absent_classes_out_of_the_mean():
    # Probabilities 1/3, 4 pixels, 1 of class 1, 3 of class 0, none of class 2. Class 0: TP 1, FP 1/3, FN 2; class 1:
    # TP 1/3, FP 1, FN 2/3; smooth 1.
    target = torch.tensor([[[1, 0], [0, 0]]], dtype=torch.uint8)
    value = TverskyLoss("multiclass", alpha=0.3, beta=0.7, gamma=0.75)(torch.zeros(1, 3, 2, 2), target)
    zero, one = 1 - 2 / (1 + 0.3 / 3 + 0.7 * 2 + 1), 1 - (1 / 3 + 1) / (1 / 3 + 0.3 + 0.7 * 2 / 3 + 1)
    assert value.item() == pytest.approx((zero**0.75 + one**0.75) / 2)
