"""The configuration of losses: ranges, what the classes refuse, builders, and class weights as numbers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from segmeter.errors import ConfigError, InputError
from segmeter.losses import config as losses
from segmeter.losses.additive import divide
from tests.losses.cases import TASKS, make_case, run
from tests.models.parts import make_spec

SPEC = make_spec()


@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        (losses.FocalConfig, {"gamma": -1.0}, r"loss: expected `gamma` to be a number >= 0, got -1.0"),
        (losses.FocalConfig, {"alpha": 1.5}, r"`alpha` to be a number >= 0 and <= 1 or null, got 1.5"),
        (losses.FocalConfig, {"class_weights": (1.0, -1.0)}, r"`class_weights` to be .* or a list, each a number >= 0"),
        (losses.FocalConfig, {"class_weights": "medain"}, r"Did you mean 'median'"),
        (losses.FocalConfig, {"normalizer": -3.0}, r"`normalizer` to be .* or a number > 0"),
        (losses.DiceConfig, {"smooth": 0.0}, r"`smooth` to be a number > 0"),
        (losses.SumConfig, {"weights": {"focal": 0.0, "dice": 0.0}}, r"`weights` to have one that is > 0"),
        (losses.SumConfig, {"weights": {"focal": -1.0}}, r"loss: expected `weights.focal` to be a number >= 0"),
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
        ("multiclass", {"class_weights": "auto"}, r"pixels per class of the training set are not known, got 'auto'"),
        ("binary", {"class_weights": (1.0, 2.0)}, r"`class_weights` to be null for binary.*`loss.alpha`"),
        ("multilabel", {"class_weights": "log"}, r"`class_weights` to be null for multilabel"),
    ],
)
def test_options_that_do_not_fit_the_classes_are_refused(task, options, words):
    with pytest.raises(ConfigError, match=words):
        losses.build_loss(losses.FocalConfig(**options), make_spec(task=task))


@pytest.mark.parametrize("name", losses.LOSSES.names())
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_logits_are_computed_in_float32_and_the_gradient_rounded_once(name, task, dtype):
    case = make_case(task, num_classes=3)
    loss, logits = losses.build_loss(losses.LOSSES.schema(name)(), make_spec(task=task)), case.logits.to(dtype)
    with torch.autocast("cpu", dtype=dtype):
        value, gradient = run(lambda x: loss(x, case.target), logits)
    exact = run(lambda x: loss(x, case.target), logits.double())
    assert (value.dtype, value.ndim, gradient.dtype) == (torch.float32, 0, dtype)
    torch.testing.assert_close(value.double(), exact[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient.double(), exact[1], rtol=torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize("name", losses.LOSSES.names())
@pytest.mark.parametrize("task", TASKS)
def test_the_value_is_the_sums_over_the_denominators_and_nothing_is_read_on_the_way(name, task):
    """A tensor of the device "meta" has a shape and no values: reading one, as a GPU would have to, raises."""
    case = make_case(task, num_classes=3)
    loss = losses.build_loss(losses.LOSSES.schema(name)(), make_spec(task=task))
    sums, denominators = loss.sums(case.logits, case.target), loss.denominators(case.target)
    assert sums.shape == denominators.shape == (2 if name == "sum" else 1,)
    assert denominators.dtype == torch.float64
    torch.testing.assert_close((sums / denominators).sum(), loss(case.logits, case.target), rtol=1e-12, atol=0)
    leaf = case.logits.to("meta").requires_grad_()
    target = case.target.to("meta")
    divide(loss.to("meta").sums(leaf, target), loss.denominators(target)).backward()
    assert leaf.grad.shape == leaf.shape


IGNORING = {
    **{name: losses.LOSSES.schema(name)() for name in losses.LOSSES.names()},
    "numba": losses.FocalConfig(backend="numba"),
    "smoothed": losses.FocalConfig(label_smoothing=0.1),
    "elements": losses.FocalConfig(normalizer="elements"),
}


@pytest.mark.parametrize("name", IGNORING)
@pytest.mark.parametrize("task", TASKS)
def test_ignored_pixels_are_excluded_even_where_logits_are_nan_and_nothing_else_gives_0(name, task):
    case, loss = make_case(task, num_classes=3), losses.build_loss(IGNORING[name], make_spec(task=task))
    logits = case.logits.float() if name == "numba" else case.logits
    hidden = case.target == 255 if task == "multilabel" else (case.target == 255).unsqueeze(1)
    value, gradient = run(lambda x: loss(x, case.target), logits)
    again = run(lambda x: loss(x, case.target), torch.where(hidden, torch.nan, logits))
    torch.testing.assert_close(again, (value, gradient), rtol=0, atol=0)
    assert not gradient[hidden.expand_as(gradient)].any()
    for target in (torch.full_like(case.target, 255), case.target[:0]):
        value, gradient = run(lambda x, y=target: loss(x, y), logits[: len(target)])
        assert value == 0
        assert not gradient.any()


def test_cross_entropy_is_torchs():
    case, weights = make_case("multiclass", num_classes=3), (1.0, 2.0, 3.0)
    loss = losses.build_loss(losses.CrossEntropyConfig(class_weights=weights, label_smoothing=0.1), SPEC)
    options = {"weight": torch.tensor(weights).double(), "label_smoothing": 0.1, "ignore_index": 255}
    expected = torch.nn.functional.cross_entropy(case.logits, case.target.long(), **options)
    torch.testing.assert_close(loss(case.logits, case.target), expected)


def test_a_builder_that_gives_no_module_is_refused(monkeypatch):
    monkeypatch.setattr(losses.LOSSES, "build", lambda config, **_: 0.5)
    with pytest.raises(ConfigError, match=r"loss: expected the builder of 'mine' to give a torch module, got .*float"):
        losses.build_loss(SimpleNamespace(name="mine"), SPEC)


def test_schemes_become_numbers_in_a_loss_and_in_the_parts_of_a_sum():
    counts = np.array([900, 90, 10])
    loss = losses.build_loss(losses.FocalConfig(class_weights="median"), SPEC, counts)
    assert loss.class_weights.tolist() == pytest.approx([0.1, 1.0, 9.0])  # shares 0.9, 0.09 and 0.01
    assert losses.fix_weights(losses.DiceConfig(over="sample"), SPEC, None) == losses.DiceConfig(over="sample")
    given = losses.SumConfig(focal={"class_weights": "inverse"}, cross_entropy={"class_weights": (1, 2, 3)})
    found = losses.fix_weights(given, SPEC, counts)
    assert found.focal.class_weights == pytest.approx((1000 / 2700, 1000 / 270, 1000 / 30))
    assert found.replace(focal=given.focal) == given
    message = r"expected `class_weights` to be numbers where the pixels per class of the training set are not known"
    with pytest.raises(ConfigError, match=message):
        losses.fix_weights(given, SPEC, None)


def test_class_weight_schemes_are_their_formulas():
    counts, share = np.array([70, 20, 10, 0]), np.array([0.7, 0.2, 0.1, 0.0])
    wanted = {
        "log": 1 / np.log(1.02 + share),
        "mild": 1 / np.log(1.1 + share),
        "median": [0.2 / 0.7, 1.0, 2.0, 0.0],
        "inverse": [25 / 70, 25 / 20, 25 / 10, 0.0],  # 100 pixels over 4 classes
    }
    for scheme, weights in wanted.items():
        found = losses.class_weights(counts, scheme)
        np.testing.assert_allclose(found, weights, rtol=1e-12)
        assert found.dtype == np.float64
    for auto in (losses.class_weights(counts), losses.class_weights(counts, "auto")):
        np.testing.assert_array_equal(auto, losses.class_weights(counts, "log"))


@pytest.mark.parametrize(
    ("counts", "scheme", "words"),
    [
        ([1, -1], "log", r"`counts` to be .*>= 0"),
        ([0, 0], "log", r"not all 0, got \[0, 0\]"),
        ([[1, 2]], "log", r"`counts` to be \(K,\)"),
        ([1, 2], "medain", r"Did you mean 'median'"),
    ],
)
def test_counts_that_are_none_are_refused(counts, scheme, words):
    with pytest.raises(InputError, match=words):
        losses.class_weights(np.array(counts), scheme)
