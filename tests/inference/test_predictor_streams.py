"""Images that are streamed, or that are put together from bands, say what images in memory say."""

import weakref

import numpy as np
import pytest
import torch

from segmeter.data.files.array import ArrayRows
from segmeter.data.sample import Sample
from segmeter.errors import RunError
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
from tests.inference.parts import labels_of
from tests.inference.test_predictor import images, predictor, stub
from tests.models.parts import make_tiny


@pytest.fixture(scope="module")
def tiny():
    return make_tiny()


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
    bands = list(run.stream(source, case_id="a", target=ArrayRows(target), probs=True))
    assert np.array_equal(np.concatenate([band.labels for band in bands]), labels_of(run, whole)[0])
    assert np.array_equal(np.concatenate([band.target for band in bands]), target)
    assert [band.top for band in bands] == np.cumsum([0, *(len(band.labels) for band in bands[:-1])]).tolist()
    [known] = run.predict([Sample(case_id="a", image=array, target=target)], probs=True)
    assert np.array_equal(known.labels, labels_of(run, whole)[0])
    assert np.array_equal(known.probs, np.concatenate([band.probs for band in bands], 1))
    assert max(stop - start for start, stop in source.reads) <= 64
    assert sum(stop - start for start, stop in source.reads) <= shape[0] + 8, "rows are read once"


@pytest.mark.parametrize(
    "config",
    [
        FocalConfig(),
        FocalConfig(normalizer=7.0),
        DiceConfig(over="sample"),
        TverskyConfig(over="sample"),
        LovaszConfig(over="sample"),
        SumConfig(weights=PartWeights(focal=1.0, dice=0.5), dice=DiceConfig(over="sample")),
    ],
    ids=["focal", "focal by a number", "dice", "tversky", "lovasz", "sum"],
)
def test_a_loss_in_tiles_is_that_of_the_whole_image(config, tiny):
    loss = build_loss(config, spec=tiny.card.spec)
    run = predictor(tiny, tile=64)
    [array] = images(1, (150, 90, 3))
    target = np.random.default_rng(0).integers(0, 3, array.shape[:2]).astype(np.uint8)
    target[:70] = 255
    [found] = run.predict([Sample(case_id="a", image=array, target=target)], loss=loss)
    whole = loss(run.logits([array]), torch.from_numpy(target)[None])
    assert divide_terms(found.loss[None]) == pytest.approx(float(whole), rel=1e-5)


@pytest.mark.parametrize("at_once", [1, 5000])
def test_a_loss_is_the_same_whatever_number_of_rows_it_takes_at_a_time(monkeypatch, tiny, at_once):
    """Mutation seen to fail: the target's rows taken from the top of the band each time."""
    run, loss = predictor(tiny, tile=64), build_loss(FocalConfig(), spec=tiny.card.spec)
    [array] = images(1, (150, 90, 3))
    target = np.random.default_rng(0).integers(0, 3, array.shape[:2]).astype(np.uint8)
    target[:70] = 255
    monkeypatch.setattr("segmeter.inference.results._AT_ONCE", at_once)
    [found] = run.predict([Sample(case_id="a", image=array, target=target)], loss=loss)
    whole = loss(run.logits([array]), torch.from_numpy(target)[None])
    assert divide_terms(found.loss[None]) == pytest.approx(float(whole), rel=1e-5)


def test_a_streamed_image_without_finite_logits_is_named():
    [array] = images(1, (200, 40, 3))
    array = array.astype(np.float32)
    array[150] = np.nan
    bands = predictor(stub(lambda image: image), tile=64).stream(Windows(array), case_id="a")
    assert next(bands).top == 0
    with pytest.raises(RunError, match="the logits of case 'a' hold NaN or infinity"):
        list(bands)


def test_a_streamed_image_gives_freed_memory_back_now_and_then(monkeypatch):
    given = []
    monkeypatch.setattr("segmeter.inference.predictor._PIXELS", 100 * 40)
    monkeypatch.setattr("segmeter.inference.predictor.give_back_freed_memory", lambda: given.append(True))
    [array] = images(1, (300, 40, 3))
    bands = list(predictor(stub(lambda image: image), tile=64).stream(Windows(array), case_id="a"))
    assert 1 + len(bands) // 3 <= len(given) < len(bands)


def test_an_image_in_memory_is_put_together_without_keeping_its_bands(monkeypatch):
    """And its probabilities can't be changed, so that they are written without a copy."""
    given, alive, kept = [], [], []
    monkeypatch.setattr("segmeter.inference.predictor._PIXELS", 100 * 40)
    monkeypatch.setattr("segmeter.inference.predictor.give_back_freed_memory", lambda: given.append(True))
    made = predictor(stub(lambda image: image), tile=64)
    decoded = made._decoded

    def watched(*parts):
        for band in decoded(*parts):
            kept.append(weakref.ref(band))
            yield band
            del band
            alive.append(sum(each() is not None for each in kept))

    monkeypatch.setattr(made, "_decoded", watched)
    [array] = images(1, (600, 40, 3))
    [prediction] = made.predict([Sample(case_id="a", image=array, target=None)], probs=True)
    assert prediction.labels.shape == (600, 40)
    assert len(given) >= 2
    assert len(kept) > 4
    assert max(alive) <= 3
