"""What focal_loss refuses, and in which words."""

import pytest
import torch

from segmeter.errors import ConfigError, InputError
from segmeter.losses.focal import FocalLoss, focal_loss
from segmeter.losses.focal_torch import read_weights
from tests.losses.cases import make_case


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gamma": -1.0}, r"`gamma` >= 0 and finite, got -1.0"),
        ({"gamma": float("nan")}, r"`gamma` >= 0 and finite, got nan"),
        ({"gamma": float("inf")}, r"`gamma` >= 0 and finite"),
        ({"gamma": None}, r"`gamma` to be given, got None"),
        ({"alpha": 0.5}, r"`alpha` to be None for multiclass, got 0.5. Use class_weights"),
        ({"task": "binary", "alpha": 1.5}, r"`alpha` >= 0 and <= 1, got 1.5"),
        ({"task": "binary", "class_weights": [1.0]}, r"`class_weights` to be None for binary"),
        ({"label_smoothing": 1.1}, r"`label_smoothing` >= 0 and <= 1"),
        ({"reduction": "avg"}, r"`reduction` to be one of mean, sum, none"),
        ({"normalizer": "valdi"}, r"Did you mean 'valid'"),
        ({"normalizer": "positives"}, r"`normalizer` to be valid, elements or a number for multiclass"),
        ({"normalizer": 0.0}, r"`normalizer` > 0"),
        ({"backend": "cuda"}, r"`backend` to be one of"),
        ({"backend": "compiled"}, r"got 'compiled'. It is called 'numba' now."),
        ({"backend": "closed"}, r"got 'closed'. It is called 'torch' now."),
        ({"gamma": "2"}, r"`gamma` to be a number, got '2'"),
        ({"alpha": [0.2, 0.3, 0.5]}, r"`alpha` to be None for multiclass, got \(0.2, 0.3, 0.5\). Use class_weights"),
        ({"task": "binary", "alpha": [0.5]}, r"`alpha` to be one number, or for binary a pair"),
        ({"task": "binary", "alpha": [0.5, -1.0]}, r"`alpha` >= 0 and finite, got -1.0"),
        ({"task": "binary", "alpha": ["a", 1.0]}, r"`alpha` to be a number, got 'a'"),
        ({"task": "multilabel", "alpha": [0.5, 0.5]}, r"`alpha` to be one number"),
        ({"class_weights": "auto"}, r"`class_weights` to be one number per class, got 'auto'"),
        ({"class_weights": [1.0, -2.0]}, r"`class_weights` to be \(K,\), finite and >= 0, one of them > 0"),
        ({"class_weights": [[1.0] * 5]}, r"`class_weights` to be \(K,\)"),
        ({"ignore_index": "void"}, r"`ignore_index` to be a whole number or None, got 'void'"),
        ({"ignore_index": 254.5}, r"`ignore_index` to be a whole number"),
        ({"normalizer": None}, r"`normalizer` to be given"),
        ({"task": "multi"}, r"`task` to be one of binary, multiclass, multilabel"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_options_out_of_range_are_refused(options, words):
    case = make_case("multiclass", ignored=False)
    merged = {"task": "multiclass", **options}
    with pytest.raises(ConfigError, match=words):
        focal_loss(case.logits, case.target, **merged)
    with pytest.raises(ConfigError, match=words):
        FocalLoss(**merged)


def test_all_bad_options_are_named_at_once():
    with pytest.raises(ConfigError) as caught:
        FocalLoss("multiclass", gamma=-1, alpha=2.0, reduction="avg")
    assert len(caught.value.problems) == 4


def test_soft_targets_and_weights_that_do_not_fit_are_refused():
    case = make_case("multiclass", ignored=False)
    with pytest.raises(InputError, match=r"`ignore_index` to be None with a soft target"):
        focal_loss(case.logits, case.logits.softmax(1), task="multiclass", ignore_index=255)
    with pytest.raises(InputError, match=r"`class_weights` to have 5 values"):
        focal_loss(case.logits, case.target, task="multiclass", class_weights=[1.0, 2.0])
    with pytest.raises(InputError, match=r"got \(3, 7, 9\). A floating target .* pass target.long\(\)"):
        focal_loss(case.logits, case.target.float(), task="multiclass")


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64], ids=str)
def test_labels_out_of_range_are_refused_with_values_and_places(backend, dtype):
    case = make_case("multiclass")
    target = case.target.to(dtype)
    target[1, 2, 4] = 9
    if dtype != torch.uint8:
        target[1, 3, 5] = -1
    values = r"\[9\] at \[\(1, 2, 4\)\]" if dtype == torch.uint8 else r"\[9, -1\] at \[\(1, 2, 4\), \(1, 3, 5\)\]"
    with pytest.raises(InputError, match=rf"0 to 4 and ignore_index=255, got . other labels, the first {values}"):
        focal_loss(case.logits.float(), target, task="multiclass", ignore_index=255, backend=backend)


def test_tensors_that_do_not_fit_are_refused_with_the_way_out():
    logits, target = make_case("multiclass")
    weighted = FocalLoss("multiclass", class_weights=[1.0] * 5, ignore_index=255)
    with pytest.raises(InputError, match=r"`class_weights` on meta with the logits, got cpu. Move the loss there"):
        weighted(logits.to("meta"), target.to("meta"))
    with pytest.raises(InputError, match=r"'numba' with logits of at most 32 bits.*got torch.float64"):
        focal_loss(logits, target, task="multiclass", ignore_index=255, backend="numba")
    with pytest.raises(InputError, match=r"'triton' with floating logits.*on cpu. Use backend=.auto"):
        focal_loss(logits.float(), target, task="multiclass", ignore_index=255, backend="triton")
    with pytest.raises(InputError, match=r"got \d+ other labels.*\[255, 255.*has to be divided by 255"):
        focal_loss(*make_case("binary"), task="binary")  # a mask of 0 and 255


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize("classes", [256, 300])
def test_more_classes_than_a_uint8_counts_are_no_reason_to_refuse_its_labels(backend, classes):
    """torch takes 300 for 44 beside a uint8, so that every larger label would be bad."""
    logits = torch.randn(1, classes, 4, 5, generator=torch.Generator().manual_seed(0))
    target = torch.arange(236, 256, dtype=torch.uint8).view(1, 4, 5)
    loss = FocalLoss("multiclass", backend=backend, class_weights=torch.arange(1.0, classes + 1), ignore_index=255)
    assert loss(logits, target) == loss(logits, target.long())
    assert loss.denominators(target) == loss.denominators(target.long()) == sum(range(237, 256))


def test_class_weights_that_are_a_view_become_dense_as_the_kernels_read_them():
    weights = read_weights("f", torch.arange(6.0)[::2])
    assert weights.is_contiguous()
    assert weights.tolist() == [0, 2, 4]
