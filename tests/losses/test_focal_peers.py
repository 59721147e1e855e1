"""The factors between our focal loss and other libraries', as docs/focal-loss.md gives them, checked live."""

import pytest
import torch
from segmentation_models_pytorch.losses import FocalLoss as SmpFocalLoss
from torch.nn.functional import one_hot
from torchvision.ops import sigmoid_focal_loss

from segmeter.losses.focal import focal_loss
from tests.losses.cases import make_case, run

NUM_CLASSES = 5


@pytest.mark.parametrize("alpha", [None, 0.25])
def test_torchvision_is_ours_in_value_and_gradient(alpha):
    case = make_case("binary", ignored=False)
    floats = case.target.unsqueeze(1).double()
    options = {"alpha": -1 if alpha is None else alpha, "gamma": 2.0, "reduction": "mean"}
    theirs = run(lambda x: sigmoid_focal_loss(x, floats, **options), case.logits)
    ours = run(lambda x: focal_loss(x, case.target, task="binary", alpha=alpha), case.logits)
    torch.testing.assert_close(ours, theirs)


def test_torchvisions_gradient_is_nan_where_ours_is_not():
    logits = torch.tensor([[[[40.0]]]])
    target = torch.ones(1, 1, 1, dtype=torch.uint8)
    _, theirs = run(lambda x: sigmoid_focal_loss(x, torch.ones_like(x), gamma=0.5, reduction="mean"), logits)
    _, ours = run(lambda x: focal_loss(x, target, task="binary", gamma=0.5), logits)
    assert theirs.isnan()
    assert ours.isfinite()


@pytest.mark.parametrize("alpha", [None, 0.25])
def test_smp_binary_is_ours(alpha):
    case = make_case("binary", ignored=False)
    floats = case.target.unsqueeze(1).double()
    theirs = SmpFocalLoss("binary", alpha=alpha, gamma=2.0)(case.logits, floats)
    torch.testing.assert_close(focal_loss(case.logits, case.target, task="binary", alpha=alpha), theirs)


def test_smp_multiclass_is_our_multilabel_of_the_one_hot_target():
    case = make_case("multiclass", num_classes=NUM_CLASSES, ignored=False)
    theirs = SmpFocalLoss("multiclass", gamma=2.0)(case.logits, case.target.long())
    hot = one_hot(case.target.long(), NUM_CLASSES).movedim(-1, 1)
    torch.testing.assert_close(focal_loss(case.logits, hot, task="multilabel"), theirs)
    softmax = focal_loss(case.logits, case.target, task="multiclass")
    assert abs(float(softmax / theirs) - 1) > 0.2


def test_smp_multiclass_moves_when_all_logits_do_and_ours_does_not():
    case = make_case("multiclass", ignored=False)
    theirs = SmpFocalLoss("multiclass", gamma=2.0)
    assert abs(theirs(case.logits + 5, case.target.long()) / theirs(case.logits, case.target.long()) - 1) > 0.5
    ours = focal_loss(case.logits, case.target, task="multiclass")
    torch.testing.assert_close(focal_loss(case.logits + 5, case.target, task="multiclass"), ours)


def test_monai_is_ours_by_the_number_of_classes():
    monai = pytest.importorskip("monai.losses", reason="MONAI is a peer for comparison, not a dependency")
    case = make_case("multiclass", num_classes=NUM_CLASSES, ignored=False)
    theirs = monai.FocalLoss(gamma=2.0, use_softmax=True, to_onehot_y=True)
    ours = run(lambda x: focal_loss(x, case.target, task="multiclass"), case.logits.float())
    value, gradient = run(lambda x: NUM_CLASSES * theirs(x, case.target.unsqueeze(1)), case.logits.float())
    torch.testing.assert_close((value, gradient), ours)
    case = make_case("multilabel", ignored=False)
    theirs = monai.FocalLoss(gamma=2.0)(case.logits, case.target.double()).double()  # computed in float32
    torch.testing.assert_close(theirs, focal_loss(*case, task="multilabel"), rtol=1e-5, atol=1e-6)


def test_kornia_is_a_mean_over_classes_too():
    kornia = pytest.importorskip("kornia.losses", reason="kornia is a peer for comparison, not a dependency")
    case = make_case("multiclass", num_classes=NUM_CLASSES, ignored=False)
    theirs = kornia.focal_loss(case.logits, case.target.long(), alpha=None, gamma=2.0, reduction="mean")
    ours = focal_loss(case.logits, case.target, task="multiclass")
    # Its one-hot target is 1e-6 off, which is why it never equals cross-entropy.
    torch.testing.assert_close(NUM_CLASSES * theirs, ours, rtol=1e-4, atol=1e-5)
