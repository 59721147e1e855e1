"""Images that are streamed, or that are put together from bands, say what images in memory say."""

import weakref

import numpy as np
import pytest
import torch

from segmeter.data.files.array import ArrayRows
from segmeter.data.sample import Sample
from segmeter.errors import DataError, RunError
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
from tests.inference.parts import labels_of, predictor, stub
from tests.inference.test_predictor import images


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
    """Mutation seen to fail: the target's lines taken from the top of the band each time."""
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
    given.clear()
    bands = list(made.stream(Windows(array), case_id="a"))
    assert 1 + len(bands) // 3 <= len(given) <= 1 + 600 // 100 < len(bands), "after every hundred lines of 40 pixels"
