"""Logits and labels of images, whole and in tiles, and the settings that are refused."""

import time

import numpy as np
import pytest
import torch

from segmeter.data.sample import Sample
from segmeter.errors import ConfigError, RunError
from segmeter.inference.config import InferenceConfig
from segmeter.losses.config import FocalConfig, build_loss
from tests.inference.parts import labels_of, predictor, stub
from tests.models.parts import make_pointwise, make_spec


def images(count, shape=(40, 50, 3), dtype=np.uint8, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, shape).astype(dtype) for _ in range(count)]


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.1)])
def test_logits_are_those_of_the_segmenter_in_float32(tiny, precision, tolerance):
    """bfloat16 has 8 bits of mantissa, here through 20 layers."""
    arrays = images(2)
    with torch.inference_mode():
        expected = tiny(torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2))
    found = predictor(tiny, precision=precision).logits(arrays)
    assert found.dtype == torch.float32
    assert (precision == "float32") or not torch.equal(found, expected)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "values", [{"blend": "gaussian"}, {"blend": "uniform", "overlap": 0.5}, {"flips": True}], ids=str
)
@pytest.mark.parametrize("shape", [(64, 64, 3), (90, 33, 3), (20, 101, 3), (32, 32, 3), (5, 7, 3)], ids=str)
@pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
def test_tiles_and_flips_of_a_pointwise_network_say_what_the_whole_image_says(task, shape, values):
    segmenter = make_pointwise(task, 2 if task == "binary" else 3)
    arrays = images(2, shape)
    whole = predictor(segmenter).logits(arrays)
    tiled = predictor(segmenter, tile=32, **values).logits(arrays)
    if task == "multiclass":
        whole, tiled = whole.log_softmax(1), tiled.log_softmax(1)
    torch.testing.assert_close(tiled, whole, rtol=1e-5, atol=1e-5)  # logits up to 12 through sums and logarithms
    assert np.array_equal(labels_of(predictor(segmenter), tiled), labels_of(predictor(segmenter), whole))


def test_tiles_of_a_real_network_agree_with_their_definition(tiny):
    """Two tiles side by side, uniform: where they meet, the mean of both. An image of one tile is run whole."""
    [array] = images(1, (32, 48, 3))
    assert torch.equal(predictor(tiny, tile=48).logits([array]), predictor(tiny).logits([array]))
    run = predictor(tiny)
    left, right = run.logits([array[:, :32]]), run.logits([array[:, 16:]])
    found = predictor(tiny, tile=32, overlap=0.5, blend="uniform").logits([array])
    torch.testing.assert_close(found[..., :16], left[..., :16], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[..., 16:32], (left[..., 16:] + right[..., :16]) / 2, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[..., 32:], right[..., 16:], rtol=1e-5, atol=1e-5)


def test_the_threshold_decides_binary_labels():
    segmenter = stub(lambda image: torch.full_like(image[:, :1], 1.0), "binary", 2)  # sigmoid(1) = 0.731
    arrays = images(1)
    assert labels_of(predictor(segmenter, threshold=0.7), predictor(segmenter).logits(arrays)).min() == 1
    assert labels_of(predictor(segmenter, threshold=0.75), predictor(segmenter).logits(arrays)).max() == 0


@pytest.mark.parametrize(
    ("tile", "overlap", "message"),
    [
        (36, 0.25, r"`inference.tile` to be a multiple of 8, the network's stride, got 36. Set inference.tile=40"),
        (40, 0.9, r"to be a multiple of 8, the network's stride, and >= 80, got 40. Set inference.tile=80"),
    ],
)
def test_a_tile_that_the_network_would_extend_is_refused(tiny, tile, overlap, message):
    with pytest.raises(ConfigError, match=message):
        predictor(tiny, tile=tile, overlap=overlap)


@pytest.mark.parametrize("where", ["an upload", "the loss"])
def test_18_memory_that_runs_out_beside_the_forward_pass_names_the_case(where, monkeypatch):
    def full(*given):
        raise torch.OutOfMemoryError("CUDA out of memory")

    run = predictor(make_pointwise(), batch_size=2)
    image = np.zeros((4, 4, 3), np.uint8)
    samples = [Sample(case_id=name, image=image, target=image[..., 0]) for name in ("a", "b", "c")]
    if where == "an upload":
        monkeypatch.setattr(run, "_uploader", full)
    loss = full if where == "the loss" else build_loss(FocalConfig(), spec=make_spec())
    message = r"^inference: case 'a', 2 at a time: out of memory\. Set inference.batch_size=1 and an inference.tile, or"
    with pytest.raises(RunError, match=message):
        list(run.predict(samples, loss=loss))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tile": 31}, "inference: expected `tile` to be an integer >= 32 or null"),
        ({"overlap": 0.95}, "`overlap` to be a number >= 0 and <= 0.9"),
        ({"overlap": -0.1}, "`overlap` to be a number >= 0"),
        ({"overlap": float("nan")}, "got nan"),
        ({"blend": "gausian"}, "Did you mean 'gaussian'"),
        ({"threshold": 1.5}, "`threshold` to be a number >= 0 and <= 1"),
        ({"batch_size": 0}, "`batch_size` to be an integer >= 1"),
    ],
    ids=str,
)
def test_a_bad_value_is_refused(values, message):
    with pytest.raises(ConfigError) as caught:
        InferenceConfig(**values)
    assert message in str(caught.value)


def test_samples_come_in_order_and_no_more_than_two_batches_are_read_ahead():
    asked = []

    class Samples(list):
        def __getitem__(self, index):
            asked.append(index)
            return super().__getitem__(index)

    cases = Samples(
        Sample(case_id=f"case{i}", image=image, target=None) for i, image in enumerate(images(20, (8, 8, 3)))
    )
    found = predictor(batch_size=2).predict(cases)
    assert next(found).sample.case_id == "case0"
    time.sleep(0.05)
    assert max(asked) <= 6  # the first batch, a sample that ends it, and four waiting at most
    assert [each.sample.case_id for each in found] == [f"case{i}" for i in range(1, 20)]
