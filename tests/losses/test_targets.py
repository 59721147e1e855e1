"""Which targets and arguments the losses take (soft, bool, one channel), and that each refuses in its own name."""

from functools import partial

import numpy as np
import pytest
import torch

from segmeter.errors import ConfigError, InputError, SegmeterError
from segmeter.losses.additive import AdditiveLoss
from segmeter.losses.config import LOSSES, build_loss
from segmeter.losses.focal import FocalLoss, focal_loss
from segmeter.losses.region import LovaszLoss, TverskyLoss
from tests.losses.cases import TASKS, make_case, run
from tests.models.parts import make_spec

SOFT = ["focal", "cross_entropy"]  # losses of regions refuse


def build(name: str, task: str, ignore_index: int | None = None) -> AdditiveLoss:
    return build_loss(LOSSES.schema(name)(), make_spec(5, task).replace(ignore_index=ignore_index))


def as_soft(target: torch.Tensor, task: str) -> torch.Tensor:
    hot = torch.nn.functional.one_hot(target.long(), 5).movedim(-1, 1) if task == "multiclass" else target
    return hot.double()


@pytest.mark.parametrize("name", SOFT)
@pytest.mark.parametrize("task", TASKS)
def test_a_float_target_of_whole_numbers_is_the_integer_one(name, task):
    case, loss = make_case(task, ignored=False), build(name, task)
    hard = run(lambda x: loss(x, case.target), case.logits)
    soft = run(lambda x: loss(x, as_soft(case.target, task)), case.logits)
    torch.testing.assert_close(soft, hard, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("make", [TverskyLoss, LovaszLoss], ids=["tversky", "lovasz"])
@pytest.mark.parametrize("task", TASKS)
def test_over_samples_is_the_mean_over_the_images_that_count(make, task):
    case = make_case(task)
    target = case.target.clone()
    target[1] = 255
    alone = [make(task, ignore_index=255)(case.logits[i : i + 1], target[i : i + 1]) for i in (0, 2)]
    loss = make(task, ignore_index=255, over="sample")
    torch.testing.assert_close(loss(case.logits, target), sum(alone) / 2, rtol=1e-12, atol=0)
    torch.testing.assert_close(loss.sums(case.logits, target), sum(alone).view(1), rtol=1e-12, atol=0)
    assert loss.denominators(target).tolist() == [2.0]


@pytest.mark.parametrize("name", SOFT)
@pytest.mark.parametrize("bad", [1.5, -0.1, 255.0, float("nan")])
def test_soft_values_outside_0_to_1_are_refused_in_the_losss_own_name(name, bad):
    case = make_case("binary", ignored=False)
    target = case.target.double()
    target[1, 2, 3] = bad
    rule = rf"{name}_loss: .*`target` to hold 0 to 1, .* 1 other values, the first \[{bad}\] at \[\(1, 0, 2, 3\)\]"
    with pytest.raises(InputError, match=rule):
        build(name, "binary")(case.logits, target)


@pytest.mark.parametrize("name", [name for name in LOSSES.names() if name != "sum"])
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda x, y: (x, y[:, :5]), r"`target` of shape \(3, 7, 9\) on cpu .* on cpu\.\Z"),
        (lambda x, y: (x, y[:, None]), r"`target` of shape .* Squeeze its channel axis\.\Z"),
        (lambda x, y: (x.long(), y), r"`logits` to be floating"),
        (lambda x, y: (x[:, :1], y), r"`logits` to be floating .* with K >= 2 for multiclass"),
        (lambda x, y: (x, y.to(torch.int8)), r"`target` of dtype uint8, .* got torch.int8"),
        (lambda x, y: (x, y.bool()), r"`target` of dtype uint8, .* got torch.bool"),
        (lambda x, y: (x, y + 5), r"`target` to hold 0 to 4 and ignore_index=255, got"),
        (lambda x, y: (x.numpy(), y), r"`logits` to be a torch.Tensor, got ndarray"),
        (lambda x, y: (x, y.to("meta")), r"`target` of shape .* on cpu for .* on meta"),
    ],
    ids=["size", "axis", "integer", "one", "int8", "bool", "range", "array", "device"],
)
def test_every_loss_refuses_in_its_own_name(name, spoil, words):
    case = make_case("multiclass")
    with pytest.raises(InputError, match=rf"\A{name}_loss: expected .*{words}") as caught:
        build(name, "multiclass", 255)(*spoil(case.logits, case.target.clamp(max=254)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", LOSSES.names())
def test_binary_targets_may_have_the_channel_axis_of_the_logits_and_be_bool(name):
    case, loss = make_case("binary", ignored=False), build(name, "binary")
    expected = run(lambda x: loss(x, case.target), case.logits)
    for target in (case.target.unsqueeze(1), case.target.bool(), case.target.bool().unsqueeze(1)):
        assert all(map(torch.equal, run(lambda x, t=target: loss(x, t), case.logits), expected))
        torch.testing.assert_close(loss.denominators(target), loss.denominators(case.target), rtol=0, atol=0)


def test_multilabel_takes_bool_and_a_loss_per_element_has_the_targets_shape():
    logits, target = make_case("multilabel", ignored=False)
    bools = focal_loss(logits, target.bool(), task="multilabel")
    assert bools == focal_loss(logits, target, task="multilabel")
    logits, target = make_case("binary", ignored=False)
    for each in (target, target.unsqueeze(1)):
        assert focal_loss(logits, each, task="binary", reduction="none").shape == each.shape


def test_numbers_and_weights_of_numpy_are_taken():
    case, loss = make_case("multiclass"), partial(focal_loss, task="multiclass")
    weights = [1.0, 2.0, 3.0, 4.0, 5.0]
    plain = loss(*case, gamma=2, ignore_index=255, class_weights=weights)
    for each in (tuple(weights), np.array(weights), torch.tensor(weights)):
        assert plain == loss(*case, gamma=np.float32(2), ignore_index=np.int64(255), class_weights=each)


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (TverskyLoss, {"alpha": "a"}, "`alpha` to be a number, got 'a'"),
        (TverskyLoss, {"alpha": -1}, "`alpha` >= 0 and finite, got -1"),
        (TverskyLoss, {"gamma": 0}, "`gamma` > 0 and finite, got 0"),
        (LovaszLoss, {"ignore_index": "a"}, "`ignore_index` to be a whole number, got 'a'"),
        (LovaszLoss, {"over": "bath"}, "`over` to be one of batch, sample, got 'bath'"),
        (TverskyLoss, {"task": "multi"}, "`task` to be one of binary"),
    ],
)
def test_wrong_options_for_region_losses_are_refused(make, options, words):
    with pytest.raises(SegmeterError, match=f"^(tversky|lovasz)_loss: expected {words}"):
        make(**{"task": "binary", **options})


@pytest.mark.parametrize("name", ["cross_entropy", "dice", "lovasz", "sum"])
def test_bad_labels_of_any_loss_are_counted_until_they_are_asked_for(name, monkeypatch):
    """As on a GPU, where reading them at once would mean waiting."""
    for module in ("focal", "region"):
        monkeypatch.setattr(f"segmeter.losses.{module}.refuse_bad_labels", lambda *args, **options: None)
    case, loss = make_case("multiclass"), build(name, "multiclass", 255)
    target = case.target.clone()
    target[1, 2, 3:5] = 7
    assert loss(case.logits, target).isnan()
    with pytest.raises(SegmeterError, match=r"got 2 other labels\. `segmeter check` names the files"):
        loss.check_labels()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gamma": -1.0}, r"`gamma` >= 0 and finite, got -1.0"),
        ({"gamma": float("inf")}, r"`gamma` >= 0 and finite"),
        ({"alpha": 0.5}, r"`alpha` to be None for multiclass, got 0.5. Use class_weights"),
        ({"task": "binary", "alpha": 1.5}, r"`alpha` >= 0 and <= 1, got 1.5"),
        ({"task": "binary", "class_weights": [1.0]}, r"`class_weights` to be None for binary"),
        ({"label_smoothing": 1.1}, r"`label_smoothing` >= 0 and <= 1"),
        ({"reduction": "avg"}, r"`reduction` to be one of mean, sum, none"),
        ({"normalizer": "valdi"}, r"Did you mean 'valid'"),
        ({"normalizer": "positives"}, r"`normalizer` to be one of valid, elements, got 'positives'"),
        ({"normalizer": 0.0}, r"`normalizer` > 0"),
        ({"backend": "cuda"}, r"`backend` to be one of"),
        ({"backend": "compiled"}, r"got 'compiled'. It is called 'numba' now."),
        ({"backend": "closed"}, r"got 'closed'. It is called 'torch' now."),
        ({"gamma": "2"}, r"`gamma` to be a number, got '2'"),
        ({"ignore_index": 254.5}, r"`ignore_index` to be a whole number"),
        ({"normalizer": None}, r"`normalizer` to be a number"),
        ({"class_weights": [1.0, -2.0]}, r"`class_weights` to be \(K,\), finite and >= 0, one of them > 0"),
        ({"class_weights": "abc"}, r"`class_weights` to be a sequence of numbers, got 'abc'"),
        ({"class_weights": torch.ones(1, 5)}, r"`class_weights` to be \(K,\)"),
        ({"task": "multi"}, r"`task` to be one of binary, multiclass, multilabel"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_options_out_of_range_are_refused(options, words):
    case = make_case("multiclass", ignored=False)
    merged = {"task": "multiclass", **options}
    with pytest.raises(SegmeterError, match=words):
        focal_loss(case.logits, case.target, **merged)
    with pytest.raises(SegmeterError, match=words):
        FocalLoss(**merged)


def test_all_bad_options_are_named_at_once():
    with pytest.raises(ConfigError) as caught:
        FocalLoss("multiclass", gamma=-1, alpha=2.0, reduction="avg")
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_labels_out_of_range_are_refused_with_values_and_places(backend):
    case = make_case("multiclass")
    target = case.target.to(torch.int16)
    target[1, 2, 4], target[1, 3, 5] = 9, -1
    values = r"got 2 other labels, the first \[9, -1\] at \[\(1, 2, 4\), \(1, 3, 5\)\]"
    with pytest.raises(InputError, match=rf"0 to 4 and ignore_index=255, {values}"):
        focal_loss(case.logits.float(), target, task="multiclass", ignore_index=255, backend=backend)


@pytest.mark.parametrize(
    ("spoil", "options", "words"),
    [
        (lambda x, y: (x, x.softmax(1)), {}, r"`ignore_index` to be None with a soft target"),
        (lambda x, y: (x, y.float()), {}, r"got \(3, 7, 9\) on cpu. A floating target .* pass target.long\(\)"),
        (
            lambda x, y: (x, y),
            {"class_weights": [1.0, 2.0]},
            r"`class_weights` to be \(5,\) on cpu, .* got \(2,\) on cpu",
        ),
        (lambda x, y: (x, y), {"backend": "numba"}, r"logits up to 32 bits.* got 'numba' for torch.float64"),
        (lambda x, y: (x.float(), y), {"backend": "triton"}, r"got 'triton' for .* on cpu .* Use backend=.auto"),
        (lambda x, y: (x, y), {"ignore_index": None}, r"got \d+ other labels.*\[255, 255.*has to be divided by 255"),
    ],
    ids=["soft", "float", "weights", "float64", "triton", "0 and 255"],
)
def test_tensors_that_do_not_fit_the_options_are_refused_with_the_way_out(spoil, options, words):
    with pytest.raises(InputError, match=words):
        focal_loss(*spoil(*make_case("multiclass")), task="multiclass", **{"ignore_index": 255, **options})
    logits, target = make_case("multiclass")
    weighted = FocalLoss("multiclass", class_weights=[1.0] * 5, ignore_index=255)
    with pytest.raises(InputError, match=r"`class_weights` .* on meta, .* got \(5,\) on cpu. Move the loss there"):
        weighted(logits.to("meta"), target.to("meta"))


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize("classes", [256, 300])
def test_more_classes_than_a_uint8_counts_are_no_reason_to_refuse_its_labels(backend, classes):
    """torch takes 300 for 44 beside a uint8, so that every larger label would be bad."""
    logits = torch.randn(1, classes, 4, 5, generator=torch.Generator().manual_seed(0))
    target = torch.arange(236, 256, dtype=torch.uint8).view(1, 4, 5)
    loss = FocalLoss("multiclass", backend=backend, class_weights=torch.arange(1.0, classes + 1), ignore_index=255)
    assert loss(logits, target) == loss(logits, target.long())
    assert loss.denominators(target) == loss.denominators(target.long()) == sum(range(237, 256))
