"""The factors between our focal loss and other libraries', as docs/focal-loss.md gives them, checked live."""

from functools import partial

import pytest
import torch
from segmentation_models_pytorch.losses import FocalLoss as SmpFocalLoss
from torch.nn.functional import one_hot
from torchvision.ops import sigmoid_focal_loss

from segmeter.losses.focal import focal_loss
from tests.losses.cases import make_case, run

NUM_CLASSES = 5


def torchvision(alpha):
    """It turns alpha off at -1."""
    return lambda x, y: sigmoid_focal_loss(x, y.unsqueeze(1).double(), alpha=alpha, gamma=2.0, reduction="mean")


def smp(alpha):
    return lambda x, y: SmpFocalLoss("binary", alpha=alpha, gamma=2.0)(x, y.unsqueeze(1).double())


def monai(x, y, **options):
    losses = pytest.importorskip("monai.losses", reason="MONAI is a peer for comparison, not a dependency")
    return losses.FocalLoss(gamma=2.0, **options)(x, y).double()  # computed in float32


def kornia(x, y):
    losses = pytest.importorskip("kornia.losses", reason="kornia is a peer for comparison, not a dependency")
    return losses.focal_loss(x, y.long(), alpha=None, gamma=2.0, reduction="mean")


SOFTMAX = {"use_softmax": True, "to_onehot_y": True}
FLOAT32 = {"rtol": 1e-5, "atol": 1e-6}
NEARLY = {"rtol": 1e-4, "atol": 1e-5}  # its one-hot target is 1e-6 off, which is why it never equals cross-entropy


@pytest.mark.parametrize(
    ("theirs", "task", "alpha", "factor", "digits"),
    [
        (torchvision(-1), "binary", None, 1, {}),
        (torchvision(0.25), "binary", 0.25, 1, {}),
        (smp(None), "binary", None, 1, {}),
        (smp(0.25), "binary", 0.25, 1, {}),
        (lambda x, y: monai(x, y.unsqueeze(1), **SOFTMAX), "multiclass", None, NUM_CLASSES, FLOAT32),
        (lambda x, y: monai(x, y.double()), "multilabel", None, 1, FLOAT32),
        (kornia, "multiclass", None, NUM_CLASSES, NEARLY),
    ],
    ids=["torchvision", "torchvision-alpha", "smp", "smp-alpha", "monai-softmax", "monai", "kornia"],
)
def test_ours_is_theirs_times_a_factor_in_value_and_gradient(theirs, task, alpha, factor, digits):
    logits, target = make_case(task, num_classes=NUM_CLASSES, ignored=False)
    expected = run(lambda x: factor * theirs(x, target), logits)
    torch.testing.assert_close(run(lambda x: focal_loss(x, target, task=task, alpha=alpha), logits), expected, **digits)


def test_smp_multiclass_is_our_multilabel_of_the_one_hot_target():
    logits, target = make_case("multiclass", num_classes=NUM_CLASSES, ignored=False)
    theirs = SmpFocalLoss("multiclass", gamma=2.0)(logits, target.long())
    hot = one_hot(target.long(), NUM_CLASSES).movedim(-1, 1)
    torch.testing.assert_close(focal_loss(logits, hot, task="multilabel"), theirs)
    softmax = partial(focal_loss, target=target, task="multiclass")
    assert abs(float(softmax(logits) / theirs) - 1) > 0.2
    torch.testing.assert_close(softmax(logits + 5), softmax(logits))
