"""Lesions: counts beside picai_eval's, Dice by region beside panoptica's, and what the package of BraTS 2026 does."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import ndimage

from segmeter.metrics.objects.scores import brats_lesions, match_instances, picai_lesions, regional_dice
from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.pixels.overlap import overlap_scores
from segmeter.metrics.surfaces import surface_metrics
from tests.differential.cases import assert_agree, blobs, near
from tests.differential.peers import load, quiet

EDGES = (1.0, 1.0, 1.0)  # mm, of the atlas


@pytest.mark.parametrize("seed", range(40))
def test_picai_eval_counts_the_same_lesions(seed):
    peer = load("picai_eval.eval", "picai_eval")
    rng = np.random.default_rng(seed)
    target, labels = np.zeros((2, 10, 14, 14), bool)
    for _ in range(rng.integers(0, 5)):
        corner = [rng.integers(0, side - 3) for side in target.shape]
        target[tuple(slice(c, c + rng.integers(2, 5)) for c in corner)] = True
    labels[...] = np.roll(target, rng.integers(-1, 2), 1) & (rng.random(target.shape) < 0.75)
    labels |= rng.random(target.shape) < 0.005
    with quiet():
        found, *_ = peer.evaluate_case(labels.astype(np.float32), target.astype(np.int32))
    lesions, hits = (sum(1 for is_lesion, sure, _ in found if is_lesion and sure >= least) for least in (0, 0.5))
    false = sum(1 for is_lesion, _, _ in found if not is_lesion)
    assert picai_lesions(target, labels) == (hits, false, lesions - hits)


@pytest.mark.parametrize("shape", [(40, 31), (9, 18, 16)], ids=["image", "volume"])
def test_dice_in_the_regions_of_panoptica(shape):
    """Its Voronoi regions of the parts; pixels as near to two of them are left out, as no rule says whose they are."""
    regions_of = load("panoptica._functionals", "panoptica")._get_voronoi_regions
    rng, compared = np.random.default_rng(9), 0
    for _ in range(30):
        target = blobs(rng, shape, 3)
        labels, target = near(rng, target, 3) == 1, target == 1
        parts, count = ndimage.label(target, np.ones((3,) * target.ndim))
        if count < 2:
            continue
        apart = np.stack([ndimage.distance_transform_edt(parts != number) for number in range(1, count + 1)])
        labels &= (apart == apart.min(axis=0)).sum(axis=0) == 1
        regions, number = regions_of(parts, count)
        assert number == count
        theirs = [
            2 * (one & target & labels).sum() / ((one & target).sum() + (one & labels).sum())
            for one in (regions == k for k in range(1, count + 1))
        ]
        np.testing.assert_allclose(regional_dice(target, labels), theirs, rtol=1e-12)
        compared += 1
    assert compared > 20


@pytest.fixture
def brats_2026(monkeypatch):
    """The package's own evaluation of gliomas: a function of two label maps. cc3d numbers parts as SciPy does."""
    load("ruamel.yaml", "ruamel.yaml")
    panoptica = load("panoptica")  # which the package imports
    package = load("brats_evaluation", "brats-evaluation")
    panoptica.disable_citation_reminder()
    parts = SimpleNamespace(connected_components=lambda mask, return_N: number(mask))
    monkeypatch.setitem(sys.modules, "cc3d", parts)
    with quiet():
        evaluator = panoptica.Panoptica_Evaluator.load_from_config(str(package.config_path("gli")))

    def evaluate(target, labels):
        with quiet():
            return package.evaluate_single_exam(labels, target, "case", evaluator)

    return evaluate


def number(mask):
    return ndimage.label(mask, np.ones((3, 3, 3)))


def test_regions_and_lesions_of_brats_evaluation(brats_2026):
    """Dice and HD95 of each region; and of lesions, each the only one that meets its prediction, all numbers."""
    rng, compared = np.random.default_rng(26), 0
    for _ in range(12):
        target = blobs(rng, (10, 16, 18), 4).astype(np.uint8)
        labels = near(rng, target, 4).astype(np.uint8)
        found = brats_2026(target, labels)
        for name, values in (("et", [3]), ("tc", [1, 3]), ("wt", [1, 2, 3])):
            truth, given, theirs = np.isin(target, values), np.isin(labels, values), found[name]
            counts = confusion_matrix(truth.astype(np.uint8), given.astype(np.uint8), num_classes=2)
            assert_agree(overlap_scores(counts).dice[1], theirs["global_bin_dsc"])
            assert_agree(surface_metrics(truth, given, spacing=EDGES).hd95_pooled, theirs["global_bin_hd95"])
            (lesions, _), (parts, _) = number(truth), number(given)
            pairs = np.unique(np.stack([lesions, parts])[:, truth & given], axis=1)
            if any(len(np.unique(side)) < pairs.shape[1] for side in pairs):
                continue
            ours, compared = match_instances(lesions, parts, threshold=0), compared + 1
            assert [ours.tp, ours.fp, ours.fn] == [theirs[key] for key in ("tp", "fp", "fn")]
            if ours.tp:
                assert_agree(ours.mean_dice, theirs["sq_dsc"])
    assert compared > 5


def test_brats_evaluation_joins_no_lesions_and_pairs_them_one_to_one(brats_2026):
    """The rules of 2023, which are ours, join parts that meet when dilated, and take all predictions of a lesion."""
    target, labels = np.zeros((2, 12, 20, 20), np.uint8)
    target[2:8, 2:8, 2:8] = target[2:8, 2:8, 9:15] = 3
    labels[2:8, 2:8, 2:5] = labels[2:8, 2:8, 6:8] = 3
    ours = brats_lesions(target == 3, labels == 3, spacing=EDGES)
    assert (ours.tp, ours.fp, ours.fn) == (1, 0, 0)
    theirs = brats_2026(target, labels)["et"]
    assert (theirs["tp"], theirs["fp"], theirs["fn"]) == (1, 1, 1)
