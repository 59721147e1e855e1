"""The configuration of losses: ranges, what the classes refuse, sums and class weights."""

import numpy as np
import pytest
import torch

from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError, InputError
from segmeter.losses.additive import divide
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
from tests.losses.cases import make_case


def make_spec(task="multiclass", names=("sky", "road", "car")):
    return ClassSpec(task=task, names=names, colours=((0, 0, 0),) * len(names), ignore_index=255)


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
        (
            "multiclass",
            {"class_weights": (1.0, 2.0)},
            r"loss: expected `class_weights` to have 3 values, one for each of",
        ),
        ("multiclass", {"alpha": 0.25}, r"focal_loss: expected `alpha` to be None for multiclass, got 0.25. Use"),
        (
            "multiclass",
            {"class_weights": "auto"},
            r"to be numbers where the pixels per class of the training set are not known, got 'auto'",
        ),
        ("multiclass", {"normalizer": "positives"}, r"focal_loss: expected `normalizer`"),
        ("binary", {"class_weights": (1.0, 2.0)}, r"`class_weights` to be null for binary.*`loss.alpha`"),
        ("multilabel", {"class_weights": "log"}, r"`class_weights` to be null for multilabel"),
    ],
)
def test_options_that_do_not_fit_the_classes_are_refused(task, options, words):
    spec = make_spec(task, ("a", "b") if task == "binary" else ("sky", "road", "car"))
    with pytest.raises(ConfigError, match=words):
        build_loss(FocalConfig(**options), spec)


@pytest.mark.parametrize("name", LOSSES.names())
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_every_registered_loss_trains_under_bfloat16(name, task):
    case = make_case(task, num_classes=3)
    spec = make_spec(task, ("a", "b") if task == "binary" else ("sky", "road", "car"))
    loss = build_loss(LOSSES.schema(name)(), spec)
    leaf = case.logits.bfloat16().requires_grad_()
    value = loss(leaf, case.target)
    value.backward()
    assert value.dtype == torch.float32
    assert value.ndim == 0
    assert leaf.grad.isfinite().all()
    assert leaf.grad.any()


@pytest.mark.parametrize("name", LOSSES.names())
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_the_value_is_the_sums_over_the_denominators_and_nothing_is_read_on_the_way(name, task):
    """A tensor of the device "meta" has a shape and no values: reading one, as a GPU would have to, raises."""
    case = make_case(task, num_classes=3)
    spec = make_spec(task, ("a", "b") if task == "binary" else ("sky", "road", "car"))
    loss = build_loss(LOSSES.schema(name)(), spec)
    sums, denominators = loss.sums(case.logits, case.target), loss.denominators(case.target)
    assert sums.shape == denominators.shape == (2 if name == "sum" else 1,)
    assert denominators.dtype == torch.float64
    torch.testing.assert_close((sums / denominators).sum(), loss(case.logits, case.target), rtol=1e-12, atol=0)
    leaf = case.logits.to("meta").requires_grad_()
    target = case.target.to("meta")
    divide(loss.to("meta").sums(leaf, target), loss.denominators(target)).backward()
    assert leaf.grad.shape == leaf.shape


def test_class_weight_schemes_are_their_formulas():
    counts = np.array([70, 20, 10, 0])
    np.testing.assert_allclose(class_weights(counts), 1 / np.log(1.02 + np.array([0.7, 0.2, 0.1, 0.0])), rtol=1e-12)
    np.testing.assert_array_equal(class_weights(counts, "log"), class_weights(counts, "auto"))
    mild = class_weights(counts, "mild")
    np.testing.assert_allclose(mild, 1 / np.log(1.1 + np.array([0.7, 0.2, 0.1, 0.0])), rtol=1e-12)
    np.testing.assert_allclose(class_weights(counts, "median"), [0.2 / 0.7, 1.0, 2.0, 0.0], rtol=1e-12)
    inverse = class_weights(counts, "inverse")
    np.testing.assert_allclose((inverse * counts)[:3], [25, 25, 25], rtol=1e-12)  # 100 pixels over 4 classes
    assert inverse[3] == 0
    assert inverse.dtype == np.float64


@pytest.mark.parametrize(
    ("counts", "scheme", "words"),
    [
        ([1, -1], "log", r"`counts` to be >= 0"),
        ([0, 0], "log", r"one above 0, got \[0, 0\]"),
        ([0.5, 0.5], "log", r"`counts` to be integers"),
        ([[1, 2]], "log", r"got int64 \(1, 2\)"),
        ([1, 2], "medain", r"Did you mean 'median'"),
    ],
)
def test_counts_that_are_none_are_refused(counts, scheme, words):
    with pytest.raises(InputError, match=words):
        class_weights(np.array(counts), scheme)


def test_cross_entropy_is_torchs():
    case, spec = make_case("multiclass", num_classes=3), make_spec()
    loss = build_loss(CrossEntropyConfig(class_weights=(1.0, 2.0, 3.0), label_smoothing=0.1), spec)
    expected = torch.nn.functional.cross_entropy(
        case.logits,
        case.target.long(),
        weight=torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64),
        label_smoothing=0.1,
        ignore_index=255,
    )
    torch.testing.assert_close(loss(case.logits, case.target), expected)


def test_class_weights_from_counts_reach_the_loss():
    counts = np.array([900, 90, 10])
    loss = build_loss(FocalConfig(class_weights="median"), make_spec(), counts)
    # Shares 0.9, 0.09 and 0.01, the middle one 0.09.
    torch.testing.assert_close(loss.class_weights, torch.tensor([0.1, 1.0, 9.0]))
