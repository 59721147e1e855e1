import numpy as np
import pytest
import torch
from torch.nn import functional

from segmeter.data.files.array import ArrayRows
from segmeter.errors import DataError, OverflowedError
from segmeter.inference.results import BandLoss, Outbox, sums_by_bands
from segmeter.losses.additive import loss_terms
from segmeter.losses.focal import FocalLoss
from tests.models.parts import make_card, make_spec

CPU = torch.device("cpu")
HEIGHTS, WIDTH = (3, 4, 1), 6


def logits_of(seed=0):
    return torch.randn(3, sum(HEIGHTS), WIDTH, generator=torch.Generator().manual_seed(seed))


def target_of(seed=0):
    return np.random.default_rng(seed).choice([0, 1, 2, 255], (sum(HEIGHTS), WIDTH)).astype(np.uint8)


def outbox(*, probs=False):
    return Outbox(CPU, make_card(make_spec(3)), threshold=0.5, probs="float32" if probs else None)


def decoded(logits, *, probs=False, target=None, loss=None):
    rows = None if target is None else ArrayRows(target)
    bands = iter(logits.split(HEIGHTS, 1))
    yield from outbox(probs=probs).decode(bands, case_id="case1", target=rows, loss=loss)


def test_bands_hold_the_labels_and_probabilities_of_the_whole():
    logits, target = logits_of(), target_of()
    bands = list(decoded(logits, probs=True, target=target))
    assert [band.top for band in bands] == [0, 3, 7]
    np.testing.assert_array_equal(np.concatenate([band.labels for band in bands]), logits.argmax(0).numpy())
    np.testing.assert_allclose(np.concatenate([band.probs for band in bands], 1), logits.softmax(0).numpy(), atol=1e-6)
    np.testing.assert_array_equal(np.concatenate([band.target for band in bands]), target)


def test_without_probabilities_or_a_target_there_are_none():
    (first, *_) = decoded(logits_of())
    assert first.probs is None
    assert first.target is None


def test_the_loss_of_all_bands_is_that_of_the_whole():
    logits, target = logits_of(), target_of()
    loss = FocalLoss(task="multiclass", gamma=0.0, ignore_index=255)
    total = BandLoss(loss, CPU)
    assert total.terms() is None
    list(decoded(logits, target=target, loss=total))
    whole = loss_terms(loss, logits[None], torch.from_numpy(target[None]))
    np.testing.assert_allclose(total.terms(), whole.numpy(), rtol=1e-5)
    ((sums, count),) = total.terms()
    expected = functional.cross_entropy(logits[None], torch.from_numpy(target[None]).long(), ignore_index=255)
    assert sums / count == pytest.approx(expected.item(), rel=1e-5)


def test_logits_that_are_not_finite_fail_after_the_bands_before():
    logits = logits_of()
    logits[:, 4] = float("nan")
    bands = decoded(logits)
    assert next(bands).top == 0
    with pytest.raises(OverflowedError, match="case1"):
        next(bands)


def test_a_target_that_the_loss_refuses_names_the_case():
    target = target_of()
    target[0, 0] = 9
    loss = BandLoss(FocalLoss(task="multiclass", ignore_index=255), CPU)
    with pytest.raises(DataError, match="case1"):
        list(decoded(logits_of(), target=target, loss=loss))


def test_only_sums_over_pixels_are_taken_by_bands():
    assert sums_by_bands(FocalLoss(task="multiclass", ignore_index=255))
    assert not sums_by_bands(torch.nn.CrossEntropyLoss())
    assert not sums_by_bands(None)
