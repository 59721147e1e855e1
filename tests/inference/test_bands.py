import numpy as np
import pytest
import torch
from torch.nn import functional

from segmeter.data.files.array import ArrayRows
from segmeter.errors import DataError
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.inference.results import BandLoss, sums_by_bands
from segmeter.losses.additive import loss_terms
from segmeter.losses.focal import FocalLoss
from tests.models.parts import make_pointwise

CPU = torch.device("cpu")
HEIGHTS, WIDTH = (3, 4, 1), 6


def logits_of(seed=0):
    return torch.randn(3, sum(HEIGHTS), WIDTH, generator=torch.Generator().manual_seed(seed))


def target_of(seed=0):
    return np.random.default_rng(seed).choice([0, 1, 2, 255], (sum(HEIGHTS), WIDTH)).astype(np.uint8)


def stream(**given):
    image = np.random.default_rng(0).integers(0, 256, (90, WIDTH, 3)).astype(np.uint8)
    predictor = Predictor(make_pointwise(), InferenceConfig(precision="float32", tile=32), CPU)
    return predictor.stream(ArrayRows(image), case_id="case1", **given)


def test_without_probabilities_or_a_target_there_are_none():
    (first, *_) = stream()
    assert first.probs is None
    assert first.target is None


def test_the_loss_of_all_bands_is_that_of_the_whole():
    logits, target = logits_of(), target_of()
    loss = FocalLoss(task="multiclass", gamma=0.0, ignore_index=255)
    total = BandLoss(loss, CPU)
    assert total.terms() is None
    for band, lines in zip(logits.split(HEIGHTS, 1), np.split(target, np.cumsum(HEIGHTS)[:-1]), strict=True):
        total.add(band[None], lines)
    whole = loss_terms(loss, logits[None], torch.from_numpy(target[None]))
    np.testing.assert_allclose(total.terms(), whole.numpy(), rtol=1e-5)
    ((sums, count),) = total.terms()
    expected = functional.cross_entropy(logits[None], torch.from_numpy(target[None]).long(), ignore_index=255)
    assert sums / count == pytest.approx(expected.item(), rel=1e-5)


def test_a_target_that_the_loss_refuses_names_the_case():
    target = np.full((90, WIDTH), 9, np.uint8)
    loss = BandLoss(FocalLoss(task="multiclass", ignore_index=255), CPU)
    with pytest.raises(DataError, match="case1"):
        list(stream(target=ArrayRows(target), loss=loss))


def test_only_sums_over_pixels_are_taken_by_bands():
    assert sums_by_bands(FocalLoss(task="multiclass", ignore_index=255))
    assert not sums_by_bands(torch.nn.CrossEntropyLoss())
    assert not sums_by_bands(None)
