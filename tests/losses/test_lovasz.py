"""Lovasz against a brute force and segmentation-models-pytorch's."""

import numpy as np
import pytest
import segmentation_models_pytorch as smp
import torch

from segmeter.losses.region import LovaszLoss
from tests.losses.cases import TASKS, make_case, run


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
    case = make_case(task, num_classes=3, size=(4, 5))
    loss = LovaszLoss(task, ignore_index=255)(case.logits, case.target).item()
    target = case.target.numpy()
    if task == "multiclass":
        probs, valid = case.logits.softmax(1).numpy(), target != 255
        each = []
        for k in range(3):
            hot = (target == k)[valid]
            each.append(brute_jaccard_extension(np.abs(hot - probs[:, k][valid]), hot))
    else:
        target = target[:, None] if task == "binary" else target
        each = []
        for k in range(target.shape[1]):
            valid = target[:, k] != 255
            hot = (target[:, k] == 1)[valid]
            margins = 1 - case.logits[:, k].numpy()[valid] * (2.0 * hot - 1)
            each.append(brute_jaccard_extension(np.maximum(margins, 0), hot))
    assert loss == pytest.approx(np.mean(each), rel=1e-12)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_lovasz_is_that_of_segmentation_models_pytorch(task):
    case = make_case(task, num_classes=3)
    theirs = smp.losses.LovaszLoss(task, ignore_index=255)
    ours = LovaszLoss(task, ignore_index=255)
    target = case.target.unsqueeze(1) if task == "binary" else case.target
    expected = run(lambda x: theirs(x, target), case.logits.float())
    torch.testing.assert_close(run(lambda x: ours(x, case.target), case.logits.float()), expected)
