"""A step over several batches is the step over one large batch: every loss, in float64."""

import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from segmeter.losses import config as losses
from segmeter.losses.additive import additive
from segmeter.losses.focal import FocalLoss
from segmeter.training.data.batches import Batch, RandomNumbers
from tests.models.parts import make_spec
from tests.training.tiny import PLAIN, stepper

CLASSES = 3
SPLITS = {"1+2+5": [1, 2, 5], "one image is ignored": [7, 1], "eight": [1] * 8}

SAMPLES = {"over": "sample"}
SUM = losses.SumConfig(
    weights={"focal": 0.5, "cross_entropy": 0.3, "dice": 2.0, "tversky": 0.7, "focal_tversky": 0.1, "lovasz": 0.25},
    focal={"normalizer": "elements"},
    **dict.fromkeys(("dice", "tversky", "focal_tversky", "lovasz"), SAMPLES),
)
CONFIGS = {
    "focal": losses.FocalConfig(),
    "focal smoothed": losses.FocalConfig(label_smoothing=0.1, gamma=0.5),
    "focal by a number": losses.FocalConfig(normalizer=37.0),
    "sum of all": SUM,
    "focal weighted smoothed": losses.FocalConfig(class_weights=(0.0, 3.0, 11.0), label_smoothing=0.2),
    "sum weighted": losses.SumConfig(focal={"class_weights": (0.2, 3.0, 11.0)}, dice=SAMPLES),
    "sum by positives": losses.SumConfig(focal={"normalizer": "positives", "alpha": 0.25}, dice=SAMPLES),
}
KINDS = [("multiclass", name) for name in CONFIGS if "positives" not in name]
KINDS += [(task, name) for task in ("binary", "multilabel") for name in CONFIGS if "weighted" not in name]


def images_and_targets(task):
    """Eight images that differ much in ignored pixels and classes; the last is ignored altogether."""
    rng = np.random.default_rng(4)
    image = torch.from_numpy(rng.normal(size=(8, 3, 6, 7)))
    shape = (8, CLASSES, 6, 7) if task == "multilabel" else (8, 6, 7)
    rare = rng.random(shape) < np.linspace(0.02, 0.6, 8).reshape(-1, *[1] * (len(shape) - 1))
    target = np.where(rare, rng.integers(1, CLASSES if task == "multiclass" else 2, shape), 0).astype(np.uint8)
    for index in range(7):
        target[index, ..., : index % 4, :] = 255
    target[2] = 0  # one without objects
    target[7] = 255
    return image, torch.from_numpy(target)


def step_over(loss, sizes, task, **options):
    """Loss, norm and gradient of one step over batches of these sizes."""
    torch.manual_seed(3)
    channels = 1 if task == "binary" else CLASSES
    model = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.Tanh(), nn.Conv2d(6, channels, 1)).double()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    image, target = options.pop("data", None) or images_and_targets(task)
    step = stepper(model, loss=loss, augment=options.pop("augment", None), config=PLAIN.replace(**options))
    batches = [
        Batch(
            image=x,
            target=t,
            indices=np.arange(len(x)),
            random_numbers=RandomNumbers(torch.zeros(len(x), 1), (0,) * len(x)),
        )
        for x, t in zip(image.split(sizes), target.split(sizes), strict=True)
    ]
    value, norm = step(batches)
    gradient = torch.cat([(old - new).flatten() for old, new in zip(before, model.parameters(), strict=True)])
    return value, norm, gradient.detach()


@pytest.mark.parametrize(("task", "name"), KINDS)
def test_accumulating_is_one_large_batch(task, name):
    loss = losses.build_loss(CONFIGS[name], make_spec(CLASSES, task))
    assert loss.is_additive
    value, norm, gradient = step_over(loss, [8], task)
    assert norm > 0
    for split, sizes in SPLITS.items():
        again = step_over(loss, sizes, task)
        torch.testing.assert_close(again[0], value, rtol=1e-10, atol=0, msg=split)
        torch.testing.assert_close(again[1], norm, rtol=1e-10, atol=0, msg=split)
        torch.testing.assert_close(again[2], gradient, rtol=1e-10, atol=1e-10 * float(norm), msg=split)


def test_clipping_sees_the_whole_gradient():
    loss = losses.build_loss(SUM, make_spec())
    one, many = (step_over(loss, sizes, "multiclass", clip_norm=1e-3) for sizes in ([8], [5, 3]))
    assert one[1] > 1e-3
    torch.testing.assert_close(many, one, rtol=1e-6, atol=1e-9)  # the optimizer clips in float32


@pytest.mark.parametrize(
    "loss", [FocalLoss("multiclass"), FocalLoss("multiclass", normalizer="elements")], ids=["focal", "elements"]
)
def test_soft_targets_accumulate_too(loss):
    image, _ = images_and_targets("multiclass")
    soft = torch.from_numpy(np.random.default_rng(1).dirichlet((0.3, 0.3, 0.3), (8, 6, 7))).movedim(-1, 1)
    one, many = (step_over(loss, sizes, "multiclass", data=(image, soft)) for sizes in ([8], [5, 3]))
    torch.testing.assert_close(many, one, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("config", [losses.DiceConfig(), losses.LovaszConfig()], ids=["dice", "lovasz"])
def test_a_loss_over_the_batch_is_the_mean_over_the_batches_that_have_pixels(config):
    loss = losses.build_loss(config, make_spec())
    assert not loss.is_additive
    image, target = images_and_targets("multiclass")
    parts = [
        step_over(loss, [len(x)], "multiclass", data=(x, t))
        for x, t in ((image[:4], target[:4]), (image[4:7], target[4:7]))
    ]
    value, _, gradient = step_over(loss, [4, 3, 1], "multiclass")
    torch.testing.assert_close(value, (parts[0][0] + parts[1][0]) / 2, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, (parts[0][2] + parts[1][2]) / 2, rtol=1e-12, atol=1e-15)


def test_a_step_in_which_everything_is_ignored_changes_nothing():
    image, target = images_and_targets("multiclass")
    data = (image, torch.full_like(target, 255))
    for sizes in ([8], [4, 4]):
        value, norm, gradient = step_over(losses.build_loss(SUM, make_spec()), sizes, "multiclass", data=data)
        assert (float(value), float(norm)) == (0.0, 0.0)
        assert not gradient.any()


def test_the_denominators_are_those_of_the_augmented_targets():
    def hide_half(image, target, draws):
        """Ignore the left half of every other image, as turning an image does with its corners."""
        target = target.clone()
        target[image[:, 0, 0, 0] > 0, :, :3] = 255
        return image, target

    loss = losses.build_loss(losses.FocalConfig(class_weights=(0.2, 3.0, 11.0)), make_spec())
    one, many = (step_over(loss, sizes, "multiclass", augment=hide_half) for sizes in ([8], [3, 5]))
    torch.testing.assert_close(many, one, rtol=1e-10, atol=1e-13)


def test_augmented_images_do_not_stay_in_memory():
    alive, most = [], []

    def spy(image, target, draws):
        image = image.clone()
        alive.append(weakref.ref(image))
        most.append(sum(each() is not None for each in alive))
        return image, target

    loss = losses.build_loss(losses.FocalConfig(), make_spec())
    step_over(loss, [1] * 8, "multiclass", augment=spy)
    assert len(most) == 16  # each batch twice: for its denominators, and for its gradient
    assert max(most) <= 2


def test_a_plain_module_is_taken_for_a_mean_over_the_pixels_that_are_not_ignored():
    class Plain(nn.Module):
        def forward(self, logits, target):
            return functional.cross_entropy(logits, target.long(), ignore_index=255)

    image, target = images_and_targets("multiclass")
    data, loss = (image[:7], target[:7]), additive(Plain(), make_spec())
    one, many = (step_over(loss, sizes, "multiclass", data=data) for sizes in ([7], [2, 5]))
    torch.testing.assert_close(many, one, rtol=1e-10, atol=1e-13)
    assert additive(loss, make_spec()) is loss
