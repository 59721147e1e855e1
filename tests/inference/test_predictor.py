"""Logits and labels of images, whole, in tiles, streamed and joined from bands; volumes; settings that are refused."""

import time
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch

from segmeter.bridge.decode import probs_to_numpy
from segmeter.data.files.array import ArrayRows
from segmeter.data.planes import VolumeSet
from segmeter.data.sample import Pair, Reading, Sample
from segmeter.errors import ConfigError, RunError
from segmeter.evaluation.predicted import predict_volume
from segmeter.inference.config import InferenceConfig
from segmeter.losses.config import DiceConfig, FocalConfig, LovaszConfig, SumConfig, TverskyConfig, build_loss
from segmeter.metrics.cases.run_columns import divide_terms
from segmeter.models.segmenter import Segmenter
from tests.inference.parts import labels_of, predictor, stub
from tests.models.parts import Stub, make_card, make_pointwise, make_spec


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


@pytest.mark.parametrize(("threshold", "label"), [(0.7, 1), (0.75, 0)])
def test_the_threshold_decides_binary_labels(threshold, label):
    segmenter = stub(lambda image: torch.full_like(image[:, :1], 1.0), "binary", 2)  # sigmoid(1) = 0.731
    [found] = predictor(segmenter, threshold=threshold).predict([Sample(case_id="a", image=images(1)[0], target=None)])
    assert found.labels.min() == found.labels.max() == label


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


class Windows:
    """An image that is read by rows alone; it notes which."""

    def __init__(self, array):
        self.array, self.reads = array, []
        self.shape, self.dtype = array.shape, array.dtype

    def read(self, start, stop):
        self.reads.append((start, stop))
        return self.array[start:stop]


@pytest.mark.parametrize(
    "values", [{}, {"flips": True, "rotations": True}, {"blend": "uniform", "overlap": 0.6}], ids=str
)
@pytest.mark.parametrize("shape", [(200, 90, 3), (131, 77, 3), (33, 200, 3), (65, 64, 3)], ids=str)
def test_a_streamed_image_says_what_the_image_in_memory_says_to_the_last_bit(tiny, shape, values):
    run = predictor(tiny, tile=64, tile_batch=3, **values)
    [array] = images(1, shape)
    whole = run.logits([array])
    target = np.random.default_rng(0).integers(0, 3, shape[:2]).astype(np.uint8)
    source = Windows(array)
    bands = list(run.stream(source, case_id="a", target=ArrayRows(target)))
    assert np.array_equal(np.concatenate([band.labels for band in bands]), labels_of(run, whole)[0])
    assert np.array_equal(np.concatenate([band.target for band in bands]), target)
    assert [band.top for band in bands] == np.cumsum([0, *(len(band.labels) for band in bands[:-1])]).tolist()
    [known] = run.predict([Sample(case_id="a", image=array, target=target)], probs=True)
    assert np.array_equal(known.labels, labels_of(run, whole)[0])
    np.testing.assert_allclose(known.probs, probs_to_numpy(whole, task="multiclass")[0], rtol=1e-5, atol=1e-6)
    assert max(stop - start for start, stop in source.reads) <= 64
    assert sum(stop - start for start, stop in source.reads) <= shape[0] + 8, "rows are read once"


CONFIGS = {
    "focal": FocalConfig(),
    "focal by a number": FocalConfig(normalizer=7.0),
    "dice": DiceConfig(over="sample"),
    "tversky": TverskyConfig(over="sample"),
    "lovasz": LovaszConfig(over="sample"),
    "sum": SumConfig(weights={"focal": 1.0, "dice": 0.5}, dice={"over": "sample"}),
}


@pytest.mark.parametrize(("name", "at_once"), [*((name, 1 << 22) for name in CONFIGS), ("focal", 1), ("focal", 5000)])
def test_a_loss_in_tiles_is_that_of_the_whole_image_whatever_number_of_lines_it_takes_at_a_time(
    monkeypatch, tiny, name, at_once
):
    loss, run = build_loss(CONFIGS[name], spec=tiny.card.spec), predictor(tiny, tile=64)
    [array] = images(1, (150, 90, 3))
    target = np.random.default_rng(0).integers(0, 3, array.shape[:2]).astype(np.uint8)
    target[:70] = 255
    monkeypatch.setattr("segmeter.inference.results._AT_ONCE", at_once)
    [found] = run.predict([Sample(case_id="a", image=array, target=target)], loss=loss)
    whole = loss(run.logits([array]), torch.from_numpy(target)[None])
    assert divide_terms(found.loss[None]) == pytest.approx(float(whole), rel=1e-5)


def test_freed_memory_is_given_back_now_and_then_and_an_image_is_put_together_without_keeping_its_bands(monkeypatch):
    given, alive, kept = [], [], []
    monkeypatch.setattr("segmeter.inference.predictor._PIXELS", 100 * 40)
    monkeypatch.setattr("segmeter.inference.predictor.give_back_freed_memory", lambda: given.append(True))
    made = predictor(stub(lambda image: image), tile=64)
    stream = made.stream

    def watched(*parts, **options):
        for band in stream(*parts, **options):
            kept.append(weakref.ref(band))
            yield band
            del band
            alive.append(sum(each() is not None for each in kept))

    monkeypatch.setattr(made, "stream", watched)
    [array] = images(1, (600, 40, 3))
    [prediction] = made.predict([Sample(case_id="a", image=array, target=None)], probs=True)
    assert prediction.labels.shape == (600, 40)
    assert len(given) >= 2
    assert len(kept) > 4
    assert max(alive) <= 3
    given.clear()
    bands = list(stream(Windows(array), case_id="a"))
    assert 1 + len(bands) // 3 <= len(given) <= 1 + 600 // 100 < len(bands), "after every hundred lines of 40 pixels"


SHAPE = (4, 6, 5)


def volume_of(folder, spec, planes):
    voxels = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    masks = spec.num_classes if spec.is_multilabel else 1
    files = {"image.npy": voxels} | {f"mask{k}.npy": (voxels > k).astype(np.uint8) for k in range(masks)}
    for name, pixels in files.items():
        np.save(folder / name, pixels)
    pair = Pair(case_id="a", paths=tuple(str(folder / name) for name in files))
    data = VolumeSet(reading=Reading(spec=spec), in_channels=1, split="all", pairs=(pair,), planes=planes)
    return data.open_volume(0), voxels


def predictor_of(spec):
    """Channel k of the logits is k x the image, or image - k for multilabel."""

    def logits(image):
        return torch.cat([image - k if spec.is_multilabel else image * k for k in range(spec.num_classes)], 1)

    card = replace(make_card(spec, in_channels=1), mean=(0.0,), std=(1.0,))
    return predictor(Segmenter(Stub(logits), card), batch_size=3)


@pytest.mark.parametrize("planes", ["k", "j", "i"])
@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_each_voxel_has_the_label_of_its_plane(task, planes, tmp_path):
    spec = make_spec(2, task)
    volume, voxels = volume_of(tmp_path, spec, planes)
    found = predict_volume(predictor_of(spec), volume, probs=True)
    wanted = np.stack([voxels > 0, voxels > 1]) if task == "multilabel" else voxels > 0
    np.testing.assert_array_equal(found.labels, wanted)
    assert found.labels.dtype == np.uint8
    assert found.probs.shape == (2, *SHAPE)
    np.testing.assert_allclose(found.probs[-1], 1 / (1 + np.exp(-(voxels - (task == "multilabel")))), rtol=1e-5)
    np.testing.assert_array_equal(found.sample.target, wanted)
    assert (found.sample.case_id, found.sample.plane_axis) == ("a", "kji".index(planes))


def test_terms_of_the_loss_are_added_over_the_planes(tmp_path):
    spec = make_spec(2, "multiclass")
    volume, voxels = volume_of(tmp_path, spec, "j")

    def loss(logits, target):
        return torch.stack([logits[:, 1].double().sum(), target.double().sum()])[None]

    found = predict_volume(predictor_of(spec), volume, loss=loss)
    np.testing.assert_allclose(found.loss, [[voxels.sum(dtype=float), (voxels > 0).sum()]], rtol=1e-5)
    assert found.probs is None
