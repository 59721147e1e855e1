"""The configuration of losses: ranges, what the classes refuse, and what holds for every registered loss."""

import pytest
import torch

from segmeter.errors import ConfigError
from segmeter.losses.additive import divide
from segmeter.losses.build import build_loss
from segmeter.losses.config import (
    LOSSES,
    CrossEntropyConfig,
    DiceConfig,
    FocalConfig,
    FocalTverskyConfig,
    SumConfig,
    TverskyConfig,
    build_loss,
    class_weights,
)
from tests.losses.cases import TASKS, make_case, make_spec


@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        (FocalConfig, {"gamma": -1.0}, r"loss: expected `gamma` to be a number >= 0, got -1.0"),
        (FocalConfig, {"alpha": 1.5}, r"`alpha` to be a number >= 0 and <= 1 or null, got 1.5"),
        (FocalConfig, {"class_weights": (1.0, -1.0)}, r"`class_weights` to be .* or a list, each a number >= 0"),
        (FocalConfig, {"class_weights": (0.0, 0.0)}, r"`class_weights` to have one that is > 0"),
        (FocalConfig, {"class_weights": "medain"}, r"Did you mean 'median'"),
        (FocalConfig, {"normalizer": "valdi"}, r"Did you mean 'valid'"),
        (FocalConfig, {"normalizer": -3.0}, r"`normalizer` to be .* or a number > 0"),
        (CrossEntropyConfig, {"label_smoothing": 2.0}, r"`label_smoothing`"),
        (DiceConfig, {"smooth": 0.0}, r"`smooth` to be a number > 0"),
        (DiceConfig, {"over": "bath"}, r"Did you mean 'batch'"),
        (TverskyConfig, {"alpha": -0.1}, r"`alpha` to be a number >= 0"),
        (FocalTverskyConfig, {"gamma": 0.0}, r"`gamma` to be a number > 0"),
        (SumConfig, {"weights": {"focal": -1.0}}, r"loss: expected `weights.focal` to be a number >= 0"),
        (SumConfig, {"weights": {"focal": 0.0, "dice": 0.0}}, r"`weights` to have one that is > 0"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_values_out_of_range_are_refused(schema, options, words):
    with pytest.raises(ConfigError, match=words):
        schema(**options)


@pytest.mark.parametrize(
    ("task", "options", "words"),
    [
        ("multiclass", {"class_weights": (1.0, 2.0)}, r"loss: expected `class_weights` to have 3 values, one for each"),
        ("multiclass", {"alpha": 0.25}, r"focal_loss: expected `alpha` to be None for multiclass, got 0.25. Use"),
        (
            "multiclass",
            {"class_weights": "auto"},
            r"the pixels per class of the training set are not known, got 'auto'",
        ),
        ("multiclass", {"normalizer": "positives"}, r"focal_loss: expected `normalizer`"),
        ("binary", {"class_weights": (1.0, 2.0)}, r"`class_weights` to be null for binary.*`loss.alpha`"),
        ("multilabel", {"class_weights": "log"}, r"`class_weights` to be null for multilabel"),
    ],
)
def test_options_that_do_not_fit_the_classes_are_refused(task, options, words):
    with pytest.raises(ConfigError, match=words):
        build_loss(FocalConfig(**options), make_spec(task))


@pytest.mark.parametrize("name", LOSSES.names())
@pytest.mark.parametrize("task", TASKS)
def test_every_registered_loss_trains_under_bfloat16(name, task):
    case = make_case(task, num_classes=3)
    loss = build_loss(LOSSES.schema(name)(), make_spec(task))
    leaf = case.logits.bfloat16().requires_grad_()
    value = loss(leaf, case.target)
    value.backward()
    assert value.dtype == torch.float32
    assert value.ndim == 0
    assert leaf.grad.isfinite().all()
    assert leaf.grad.any()


@pytest.mark.parametrize("name", LOSSES.names())
@pytest.mark.parametrize("task", TASKS)
def test_the_value_is_the_sums_over_the_denominators_and_nothing_is_read_on_the_way(name, task):
    """A tensor of the device "meta" has a shape and no values: reading one, as a GPU would have to, raises."""
    case = make_case(task, num_classes=3)
    loss = build_loss(LOSSES.schema(name)(), make_spec(task))
    sums, denominators = loss.sums(case.logits, case.target), loss.denominators(case.target)
    assert sums.shape == denominators.shape == (2 if name == "sum" else 1,)
    assert denominators.dtype == torch.float64
    torch.testing.assert_close((sums / denominators).sum(), loss(case.logits, case.target), rtol=1e-12, atol=0)
    leaf = case.logits.to("meta").requires_grad_()
    target = case.target.to("meta")
    divide(loss.to("meta").sums(leaf, target), loss.denominators(target)).backward()
    assert leaf.grad.shape == leaf.shape


def test_cross_entropy_is_torchs():
    case, weights = make_case("multiclass", num_classes=3), (1.0, 2.0, 3.0)
    loss = build_loss(CrossEntropyConfig(class_weights=weights, label_smoothing=0.1), make_spec("multiclass"))
    options = {"weight": torch.tensor(weights).double(), "label_smoothing": 0.1, "ignore_index": 255}
    expected = torch.nn.functional.cross_entropy(case.logits, case.target.long(), **options)
    torch.testing.assert_close(loss(case.logits, case.target), expected)
