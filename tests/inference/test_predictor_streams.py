"""Images that are streamed or put together from bands, and volumes from planes, say what images in memory say."""

import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch

from segmeter.bridge.decode import probs_to_numpy
from segmeter.data.files.array import ArrayRows
from segmeter.data.planes import VolumeSet
from segmeter.data.sample import Pair, Reading, Sample
from segmeter.errors import DataError, RunError
from segmeter.evaluation.predicted import predict_volume
from segmeter.inference.results import BandLoss, sums_by_bands
from segmeter.losses.config import (
    DiceConfig,
    FocalConfig,
    LovaszConfig,
    PartWeights,
    SumConfig,
    TverskyConfig,
    build_loss,
)
from segmeter.metrics.cases.typed import divide_terms
from segmeter.models.segmenter import Segmenter
from tests.inference.parts import labels_of, predictor, stub
from tests.inference.test_predictor import images
from tests.models.parts import Stub, make_card, make_spec


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
    "sum": SumConfig(weights=PartWeights(focal=1.0, dice=0.5), dice=DiceConfig(over="sample")),
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


def test_a_target_that_the_loss_refuses_names_the_case(tiny):
    [array] = images(1, (90, 64, 3))
    loss = BandLoss(build_loss(FocalConfig(), spec=tiny.card.spec), torch.device("cpu"))
    assert loss.terms() is None
    bands = predictor(tiny, tile=64).stream(ArrayRows(array), case_id="a")
    assert next(bands).target is None
    target = ArrayRows(np.full((90, 64), 9, np.uint8))
    with pytest.raises(DataError, match="case 'a'"):
        list(predictor(tiny, tile=64).stream(ArrayRows(array), case_id="a", target=target, loss=loss))


def test_only_sums_over_pixels_are_taken_by_bands(tiny):
    assert sums_by_bands(build_loss(FocalConfig(), spec=tiny.card.spec))
    assert not sums_by_bands(torch.nn.CrossEntropyLoss())
    assert not sums_by_bands(None)


def test_a_streamed_image_without_finite_logits_is_named():
    [array] = images(1, (200, 40, 3))
    array = array.astype(np.float32)
    array[150] = np.nan
    bands = predictor(stub(lambda image: image), tile=64).stream(Windows(array), case_id="a")
    assert next(bands).top == 0
    with pytest.raises(RunError, match="the logits of case 'a' hold NaN or infinity"):
        list(bands)


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
