"""Intervals and tests equal SciPy's, given the same resamples; scikit-image's bands and skeletons give our scores."""

import numpy as np
import pytest

from segmeter.metrics.pixels.overlap import ClassTotals, aggregate, class_totals
from segmeter.metrics.shapes import boundary_iou, centreline_dice
from segmeter.metrics.statistics.bootstrap import bootstrap
from segmeter.metrics.statistics.columns import mean_columns, mean_of_columns
from segmeter.metrics.statistics.paired_tests import sign_flip, wilcoxon
from tests.differential.cases import BOTH_HOLD_ONE, IGNORED, MANY_CLASSES, SWEEP, assert_agree, sweep
from tests.differential.peers import load

RESAMPLES = 499


def samples():
    rng = np.random.default_rng(11)
    for _ in range(SWEEP):
        yield rng.beta(*rng.uniform(0.5, 6, 2), rng.integers(8, 60))


@pytest.mark.parametrize(("interval", "method"), [("bca", "BCa"), ("percentile", "percentile")])
def test_intervals_of_scipy_from_the_same_resamples(interval, method):
    """SciPy interpolates between two order statistics; our end is the outer one of the two."""
    stats = load("scipy.stats", "scipy")
    for values in samples():
        ours = bootstrap(mean_columns(values[:, None]), mean_of_columns, resamples=RESAMPLES, interval=interval)
        replicates = ours.replicates[:, 0]
        drawn = stats._resampling.BootstrapResult(None, replicates, None)
        ends = stats.bootstrap(
            (values,), np.mean, n_resamples=0, bootstrap_result=drawn, method=method, vectorized=True
        ).confidence_interval
        ranked = np.sort(replicates)
        slack = 1e-9
        after = ranked[min(np.searchsorted(ranked, ours.low[0], "right"), RESAMPLES - 1)]
        before = ranked[max(np.searchsorted(ranked, ours.high[0], "left") - 1, 0)]
        assert ours.low[0] - slack <= ends.low <= after + slack
        assert before - slack <= ends.high <= ours.high[0] + slack


def test_interval_of_the_dataset_score_of_scipy():
    """The mean IoU of summed counts is no mean of cases; SciPy resamples the cases' indices for it."""
    stats = load("scipy.stats", "scipy")
    rng = np.random.default_rng(12)
    counts = rng.integers(0, 60, (80, 5, 5)) + rng.integers(0, 800, (80, 5, 1)) * np.eye(5, dtype=np.int64)
    columns = class_totals(counts).columns()

    def score(sums):
        margins = ClassTotals.from_columns(sums)
        return aggregate("mean_iou", margins, task="multiclass", classes=range(5))[:, None]

    ours = bootstrap(columns, score, resamples=5000)
    theirs = stats.bootstrap(
        (np.arange(80),),
        lambda index, axis: score(columns[index].sum(axis=-2).reshape(-1, 20))[:, 0].reshape(index.shape[:-1]),
        n_resamples=5000,
        rng=np.random.default_rng(0),
        method="BCa",
    ).confidence_interval
    width = theirs.high - theirs.low
    assert abs(ours.low[0] - theirs.low) < 0.1 * width  # two sets of resamples: their ends differ by chance
    assert abs(ours.high[0] - theirs.high) < 0.1 * width


def paired():
    rng = np.random.default_rng(13)
    for _ in range(SWEEP):
        first = rng.random(rng.integers(6, 90)).round(rng.integers(2, 9))
        second = np.clip(first + rng.normal(0.02, 0.1, first.size), 0, 1).round(3)
        second[rng.random(first.size) < 0.1] = 0.5
        yield first, second


def test_wilcoxon_of_scipy():
    stats = load("scipy.stats", "scipy")
    for first, second in paired():
        moved = first[first != second], second[first != second]
        sizes = np.abs(moved[0] - moved[1])
        exact = sizes.size <= 50 and len(np.unique(sizes)) == sizes.size
        theirs = stats.wilcoxon(*moved, method="exact" if exact else "asymptotic", correction=False).pvalue
        found = wilcoxon(first, second)
        assert found.exact == exact
        assert_agree(found.p_value, theirs)


def test_sign_flips_of_scipys_permutation_test():
    stats = load("scipy.stats", "scipy")
    for first, second in paired():
        first, second = first[:8], second[:8]
        options = {"permutation_type": "samples", "n_resamples": np.inf}
        theirs = stats.permutation_test((first, second), lambda a, b, axis: np.mean(a - b, axis=axis), **options)
        found = sign_flip(first, second)
        assert found.exact
        assert_agree(found.p_value, theirs.pvalue)


def bands_of_scikit_image(mask, width):
    """The mask and not its erosion by a square, with background outside of the image."""
    morphology = load("skimage.morphology", "scikit-image")
    padded = np.pad(mask, width)
    eroded = morphology.erosion(padded, morphology.footprint_rectangle((2 * width + 1,) * 2))
    return mask & ~eroded[width:-width, width:-width]


@pytest.mark.slow
def test_boundary_iou_by_scikit_images_erosion():
    table = [case for case in (*BOTH_HOLD_ONE, MANY_CLASSES, IGNORED) if case.target.ndim == 2]
    for number, case in enumerate((*table, *sweep(num_classes=3, volumes=False, seed=5))):
        width = 1 + number % 4
        found = boundary_iou(case.target, case.labels, width=width, **case.counting)
        counted = case.target != case.ignore_index if case.ignore_index is not None else np.ones_like(case.target, bool)
        for k in range(case.num_classes):
            first, second = (bands_of_scikit_image(mask & counted, width) for mask in case.masks(k))
            either = np.count_nonzero(first | second)
            assert_agree(found.iou[k], np.count_nonzero(first & second) / either if either else np.nan, (case, k))


def test_centreline_dice_of_panoptica():
    """From scikit-image's skeletons, as ours is; masks whose skeleton vanishes are undefined for it."""
    cldice = load("panoptica.metrics.cldice")
    for case in (*BOTH_HOLD_ONE, *sweep(seed=6)):
        target, mask = case.masks()
        found = centreline_dice(target, mask)
        if found.inside_mask and found.inside_target:
            assert_agree(found.cldice, cldice._compute_centerline_dice_coefficient(target, mask), case)
