import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch

from segmeter.bridge.decode import labels_to_numpy, probs_to_numpy
from segmeter.errors import InputError
from tests.bridge.tensors import DEVICES

SHAPES = {"multiclass": (2, 5, 6, 7), "binary": (2, 1, 6, 7), "multilabel": (2, 3, 6, 7)}
CLASSES = {"multiclass": 5, "binary": 2, "multilabel": 3}


def random_logits(task, seed=0, dtype=torch.float32):
    return (3 * torch.randn(SHAPES[task], generator=torch.Generator().manual_seed(seed))).to(dtype)


def reference(logits, task, threshold=0.5):
    """Labels by definition, in float64 NumPy."""
    wide = logits.double().numpy()
    if task == "multiclass":
        return wide.argmax(1)
    labels = 1 / (1 + np.exp(-wide)) > threshold
    return labels[:, 0] if task == "binary" else labels


def to_labels(logits, task, **more):
    return labels_to_numpy(logits, task=task, num_classes=CLASSES[task], **more)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("threshold", [0.5, 0.3, 0.9])
@pytest.mark.parametrize("task", SHAPES)
def test_labels_agree_with_the_definition(task, threshold, dtype):
    logits = random_logits(task, dtype=dtype)
    labels = to_labels(logits, task, threshold=threshold)
    assert (labels.dtype, labels.flags.c_contiguous, labels.flags.writeable) == (np.uint8, True, True)
    np.testing.assert_array_equal(labels, reference(logits, task, threshold))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_neighbours_of_every_thresholds_logit_are_decided_as_in_exact_arithmetic(dtype):
    """With t = 0.3 the nearest float32 lies above the logit, and counted as equal to it in float32."""
    rng = np.random.default_rng(0)
    for threshold in [0.3, 0.7, 0.5, 1e-9, 1 - 1e-9, 5e-324, 1 - 2**-53, *rng.random(200)]:
        with localcontext(prec=60):
            level = Decimal(threshold).ln() - (1 - Decimal(threshold)).ln()
        values = [dtype(float(level))]
        for _ in range(2):
            values = [np.nextafter(values[0], dtype(-np.inf)), *values, np.nextafter(values[-1], dtype(np.inf))]
        wanted = [int(Decimal(float(value)) > level) for value in values]
        logits = torch.from_numpy(np.array(values)).view(1, 1, 1, -1)
        assert to_labels(logits, "binary", threshold=threshold)[0, 0].tolist() == wanted, threshold
    tiny = torch.tensor([1e-9, 0.0, -1e-9]).view(1, 1, 1, 3)  # whose probability rounds to 0.5 in float32
    for threshold, wanted in ((0.0, [1, 1, 1]), (0.5, [1, 0, 0]), (1.0, [0, 0, 0])):
        assert to_labels(tiny, "binary", threshold=threshold).tolist() == [[wanted]]


@pytest.mark.parametrize(
    ("num_classes", "ignore_index", "expected"),
    [(2, None, np.uint8), (255, 255, np.uint8), (256, None, np.uint8), (256, 256, np.uint16), (257, None, np.uint16)],
)
def test_the_label_dtype_follows_classes_and_ignore_value(num_classes, ignore_index, expected):
    """255 and 256 on either side; the number of classes alone, nnU-Net's rule, is not enough."""
    last = num_classes - 1 if ignore_index is None else ignore_index
    labels = torch.tensor([[0, num_classes - 1, last]])
    array = labels_to_numpy(labels, task="multiclass", num_classes=num_classes, ignore_index=ignore_index)
    assert (array.dtype, array.tolist()) == (expected, labels.tolist())


CALLS = {"labels_to_numpy": to_labels, "probs_to_numpy": lambda logits, task: probs_to_numpy(logits, task=task)}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("task", SHAPES)
@pytest.mark.parametrize("call", CALLS)
def test_logits_that_are_not_finite_are_refused_with_their_position(call, task, bad):
    """The position is the pixel's, and names the channel where only one is read."""
    logits = random_logits(task)
    logits[1, -1, 4, 5] = bad
    kind = "1 NaN, 0 infinite" if math.isnan(bad) else "0 NaN, 1 infinite"
    position = r"\(1, 2, 4, 5\)" if task == "multilabel" and call != "probs_to_numpy" else r"\(1, 4, 5\)"
    message = rf"{call}: expected `logits` to be finite, .* 1 bad value\(s\) \({kind}\), the first at index {position}"
    with pytest.raises(InputError, match=message):
        CALLS[call](logits, task)


def test_finite_logits_of_any_size_pass():
    """A sum or difference of these overflows float32; that alone must not refuse them."""
    logits = torch.full((1, 3, 2, 2), -3e38)
    logits[:, 1] = 3e38
    assert (labels_to_numpy(logits, task="multiclass", num_classes=3) == 1).all()
    half = torch.full((1, 2, 1, 1), 65504.0, dtype=torch.float16)
    assert probs_to_numpy(half, task="multiclass").tolist() == [[[[0.5]], [[0.5]]]]


@pytest.mark.parametrize(
    ("labels", "ignored", "message"),
    [
        ([[0, 3], [5, 9]], None, r"0 to 4, got min 0 and max 9, 2 bad value\(s\), the first at index \(1, 0\)"),
        ([[-1, 0]], 255, r"0 to 4 or ignore_index 255, got min -1 and max 0"),
        ([[300, 0]], None, "max 300"),  # 44 as a uint8
        ([[256]], 255, "max 256"),
        (torch.tensor([0, 2**32 - 1], dtype=torch.uint32), None, "got min 0 and max 4294967295, 1 bad"),
    ],
)
def test_labels_that_are_no_class_are_refused(labels, ignored, message):
    with pytest.raises(InputError, match=message):
        labels_to_numpy(torch.as_tensor(labels), task="multiclass", num_classes=5, ignore_index=ignored)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64"])
def test_labels_of_any_integer_dtype_pass_as_a_copy(dtype):
    given = torch.tensor([[0, 1], [1, 0]]).to(getattr(torch, dtype))
    for ignored, wanted in ((60000, np.uint16), (255, np.uint8)):
        array = labels_to_numpy(given, task="multiclass", num_classes=2, ignore_index=ignored)
        assert (array.dtype, array.tolist()) == (wanted, [[0, 1], [1, 0]])
        array[...] = 1
        assert given.tolist() == [[0, 1], [1, 0]]


def test_ignored_pixels_pass_in_multilabel_labels():
    given = torch.tensor([[[[0, 1, 255]], [[1, 255, 0]]]])
    assert labels_to_numpy(given, task="multilabel", num_classes=2, ignore_index=255).tolist() == given.tolist()


@pytest.mark.parametrize(
    ("shape", "more", "message"),
    [
        ((1, 4, 2, 2), {}, r"logits \(B, 5, H, W\) for multiclass with 5 classes, got shape \(1, 4, 2, 2\)"),
        ((1, 2, 2, 2), {"task": "binary", "num_classes": 2}, r"logits \(B, 1, H, W\) for binary"),
        ((1, 1, 2, 2), {"task": "binary", "num_classes": 1}, "`num_classes` to be 2 for binary"),
        ((5,), {}, "logits"),
        ((1, 5, 2, 2), {"task": "multi"}, "`task` to be one of binary, multiclass, multilabel, got 'multi'"),
        ((1, 5, 2, 2), {"ignore_index": -100}, "`ignore_index` >= 0 and <= 65535, as labels are unsigned .* got -100"),
        ((1, 5, 2, 2), {"ignore_index": 4}, "`ignore_index` to be no class, >= 5, got 4. Predicted pixels"),
        ((1, 5, 2, 2), {"task": "multilabel", "ignore_index": 1}, "`ignore_index` to be no class, >= 2, got 1"),
        ((1, 5, 2, 2), {"ignore_index": 65536}, "16 bits at most, got 65536"),
        ((1, 1, 2, 2), {"task": "binary", "num_classes": 2, "threshold": 1.5}, "`threshold` >= 0 and <= 1, got 1.5"),
    ],
)
def test_labels_to_numpy_refuses_what_does_not_fit(shape, more, message):
    with pytest.raises(InputError, match=message):
        labels_to_numpy(torch.zeros(shape), **{"task": "multiclass", "num_classes": 5, **more})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("task", SHAPES)
@pytest.mark.parametrize("device", DEVICES)
def test_probs_are_those_of_float64_as_float32(device, task, dtype):
    logits = random_logits(task, dtype=dtype)
    wide = logits.double().numpy()
    if task == "multiclass":
        powers = np.exp(wide - wide.max(1, keepdims=True))
        expected = powers / powers.sum(1, keepdims=True)
    else:
        expected = 1 / (1 + np.exp(-wide))
    probs = probs_to_numpy(logits.to(device, memory_format=torch.channels_last), task=task)
    assert (probs.dtype, probs.flags.c_contiguous, probs.flags.writeable) == (np.float32, True, True)
    np.testing.assert_allclose(probs, expected, rtol=1e-5, atol=1e-6)


def test_quantised_probs_are_rounded_half_to_even_and_saturate():
    """0.5 * 255 = 127.5 goes to 128, not 127."""
    probs = probs_to_numpy(torch.tensor([0.0, 100.0, -100.0]).view(1, 1, 1, 3), task="binary", dtype="uint8")
    assert probs.tolist() == [[[[128, 255, 0]]]]


@pytest.mark.parametrize(("dtype", "scale", "error"), [("uint8", 255, 0.5 / 255 + 1e-7), ("float16", 1, 2.0**-12)])
def test_narrow_probs_err_by_half_a_step_at_most(dtype, scale, error):
    logits = random_logits("multilabel", seed=3)
    exact = probs_to_numpy(logits, task="multilabel").astype(np.float64)
    narrow = probs_to_numpy(logits, task="multilabel", dtype=dtype)
    assert narrow.dtype == np.dtype(dtype)
    assert np.abs(narrow.astype(np.float64) / scale - exact).max() <= error


@pytest.mark.parametrize(
    ("logits", "more", "message"),
    [
        (torch.zeros(1, 2, 2, 2), {"dtype": "bfloat16"}, "`dtype` to be one of float32, float16, uint8"),
        (torch.zeros(1, 2, 2, 2).long(), {}, r"to be floating \(B, K, H, W\) for multiclass, got torch.int64"),
        (torch.zeros(1, 0, 2, 2), {}, "floating"),
        (torch.zeros(1, 2, 2, 2), {"task": "binary"}, r"\(B, 1, H, W\) for binary"),
    ],
)
def test_probs_to_numpy_refuses_what_does_not_fit(logits, more, message):
    with pytest.raises(InputError, match=message):
        probs_to_numpy(logits, **{"task": "multiclass", **more})


@pytest.mark.parametrize("task", SHAPES)
def test_empty_batches_stay_empty(task):
    shape = (0, *SHAPES[task][1:])
    labels = to_labels(torch.zeros(shape), task)
    assert labels.shape == ((0, 3, 6, 7) if task == "multilabel" else (0, 6, 7))
    assert probs_to_numpy(torch.zeros(shape), task=task).shape == shape
