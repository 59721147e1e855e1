"""Where other tools are wrong, crash, or disagree: what they do, pinned so that a repair is noticed, and what we do.

A test here that fails names the release; where the tool now does as we do, move its case to the comparisons.
"""

import math

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.metrics.objects.scores import match_instances
from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.pixels.overlap import overlap_scores
from segmeter.metrics.summary.conventions import score_maps_under
from segmeter.metrics.surfaces import surface_metrics
from tests.differential.cases import BOTH_HOLD_ONE, EMPTY, ONE, boxes
from tests.differential.peers import installed, load, quiet
from tests.metrics.build import maps_of

SPEC = ClassSpec(task="multiclass", names=("rest", "one"), colours=((0, 0, 0),) * 2)
NAN, INF = math.nan, math.inf
SIDES = {"prediction empty": (ONE, EMPTY), "target empty": (EMPTY, ONE), "both empty": (EMPTY, EMPTY)}


def assert_still(found, expected, package):
    """The tool still gives this value; NaN equals NaN."""
    message = f"{installed(package)} now gives {found}, not {expected}: it was repaired, or broke in another way"
    np.testing.assert_allclose(np.asarray(found, float), expected, rtol=1e-5, err_msg=message)


def tensor(labels):
    return load("torch").from_numpy(labels[None].astype(np.int64))


def one_hot(labels):
    """The plane of class 1, (1, 1, ...)."""
    return load("torch").from_numpy(labels[None, None].astype(np.float32))


def as_maps(target, labels, case_id="a"):
    return maps_of(target, labels, SPEC, case_id=case_id)


OBJECT = boxes((40, 40), np.s_[10:20, 10:20])


def found_and_missed(missed, total=20):
    """As many pairs, in which the object was found four pixels off, or missed."""
    return [(OBJECT, 0 * OBJECT if i < missed else np.roll(OBJECT, 4, axis=1)) for i in range(total)]


@pytest.mark.parametrize(("missed", "theirs"), [(0, 4.0), (10, 4.0), (18, 4.0), (20, 0.0)])
def test_monai_rewards_misses_in_hd95(missed, theirs):
    metrics = load("monai.metrics")
    metric = metrics.HausdorffDistanceMetric(percentile=95, include_background=True)
    with quiet():
        for target, labels in found_and_missed(missed):
            metric(one_hot(labels), one_hot(target))
        assert_still(float(metric.aggregate()), theirs, "monai")
    ours = np.mean([surface_metrics(t > 0, p > 0, spacing=(1, 1)).hd95 for t, p in found_and_missed(missed)])
    assert ours == (INF if missed else 4.0)


def test_our_monai_preset_does_not_turn_missing_everything_into_a_perfect_distance():
    for missed, hd95 in ((20, NAN), (18, 4.0)):
        cases = [as_maps(*pair, f"{i}") for i, pair in enumerate(found_and_missed(missed))]
        np.testing.assert_equal(score_maps_under("monai", cases)["hd95"], hd95)


def test_monais_own_hausdorff_and_percentile_disagree_on_a_miss():
    metrics = load("monai.metrics")
    options = {"include_background": True}
    with quiet():
        whole = float(metrics.compute_hausdorff_distance(one_hot(EMPTY), one_hot(ONE), **options))
        share = float(metrics.compute_hausdorff_distance(one_hot(EMPTY), one_hot(ONE), percentile=95, **options))
    assert_still([whole, share], [INF, NAN], "monai")
    ours = surface_metrics(ONE > 0, EMPTY > 0, spacing=(1, 1))
    assert (ours.hd, ours.hd95) == (INF, INF)


def test_monais_percentile_is_off_by_the_rounding_of_its_rank():
    """0.95 in float32 is a little less, so a value between two of 1001 points comes out; torch 2.13 rounds it away."""
    hausdorff, torch = load("monai.metrics.hausdorff_distance"), load("torch")
    distances = torch.cat([torch.zeros(950), torch.full((51,), 10.0)])
    found = float(hausdorff._compute_percentile_hausdorff_distance(distances, 95))
    expected = 9.9998808 if torch.__version__ >= (2, 14) else 10
    np.testing.assert_allclose(found, expected, rtol=1e-7, err_msg=installed("monai"))
    assert np.percentile(distances.numpy().astype(float), 95) == 10


@pytest.mark.parametrize(
    ("sides", "hd95", "assd", "nsd", "dice"),
    [("prediction empty", NAN, INF, 0, 0), ("target empty", NAN, INF, 0, NAN), ("both empty", NAN, NAN, NAN, NAN)],
)
def test_empty_sides_of_monai(sides, hd95, assd, nsd, dice):
    """Dice of a false positive is undefined, so that inventing objects costs nothing."""
    metrics = load("monai.metrics")
    target, labels = map(one_hot, SIDES[sides])
    options = {"include_background": True}
    with quiet():
        found = [
            float(metrics.compute_hausdorff_distance(labels, target, percentile=95, **options)),
            float(metrics.compute_average_surface_distance(labels, target, symmetric=True, **options)),
            float(metrics.compute_surface_dice(labels, target, [1.0], **options)),
            float(metrics.compute_dice(labels, target)),
        ]
    assert_still(found, [hd95, assd, nsd, dice], "monai")


def test_monais_mean_dice_of_nothing_is_zero():
    metric = load("monai.metrics").DiceMetric()
    with quiet():
        metric(one_hot(EMPTY), one_hot(EMPTY))
        assert_still(float(metric.aggregate()), 0.0, "monai")
    assert math.isnan(overlap_scores(confusion_matrix(EMPTY, EMPTY, num_classes=2)).dice[1])


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("call", ["hd", "hd95", "assd", "asd"])
def test_empty_sides_of_medpy(sides, call):
    target, labels = SIDES[sides]
    with pytest.raises(RuntimeError, match="does not contain any binary object"):
        getattr(load("medpy.metric.binary"), call)(labels, target)


@pytest.mark.parametrize(
    ("sides", "theirs"), [("both empty", [NAN, 1.0]), ("prediction empty", [0, 0]), ("target empty", [0, 0])]
)
def test_medpys_dice_of_nothing_was_meant_to_be_one(sides, theirs):
    """It catches ZeroDivisionError, where NumPy's integers only warn; its Jaccard is 1. Our preset follows it."""
    binary, (target, labels) = load("medpy.metric.binary"), SIDES[sides]
    with quiet():
        assert_still([binary.dc(labels, target), binary.jc(labels, target)], theirs, "medpy")
    ours = score_maps_under("medpy", [as_maps(target, labels)])
    np.testing.assert_array_equal([ours["mean_dice"], ours["mean_iou"]], theirs)


@pytest.mark.parametrize(
    ("sides", "hd95", "means", "nsd"),
    [
        ("prediction empty", INF, (INF, NAN), 0),
        ("target empty", INF, (NAN, INF), 0),
        ("both empty", INF, (NAN, NAN), NAN),
    ],
)
def test_empty_sides_of_surface_distance(sides, hd95, means, nsd, monkeypatch):
    """Two empty masks are infinitely far apart for it, though it calls every other figure of them undefined."""
    peer = load("surface_distance", "surface-distance")
    monkeypatch.setattr(np, "Inf", np.inf, raising=False)  # it was written for NumPy 1
    with quiet():
        found = peer.compute_surface_distances(*(one > 0 for one in SIDES[sides]), (1, 1))
        theirs = peer.compute_robust_hausdorff(found, 95), *peer.compute_average_surface_distance(found)
        assert_still(theirs, (hd95, *means), "surface-distance")
        assert_still(peer.compute_surface_dice_at_tolerance(found, 1), nsd, "surface-distance")


def test_surface_distance_crashes_on_empty_sides_with_numpy_2(monkeypatch):
    peer = load("surface_distance", "surface-distance")
    monkeypatch.delattr(np, "Inf", raising=False)  # torchmetrics puts it back for everyone
    with quiet(), pytest.raises(AttributeError, match="NaN"):
        peer.compute_dice_coefficient(EMPTY > 0, EMPTY > 0)
    with quiet(), pytest.raises(AttributeError, match="Inf"):
        peer.compute_surface_distances(ONE > 0, EMPTY > 0, (1, 1))


@pytest.mark.parametrize("sides", ["prediction empty", "target empty"])
def test_panoptica_measures_to_a_corner_of_the_array(sides):
    """The distance transform of no point: a finite, harmless-looking HD95 for a miss, by its raw functions."""
    surface = load("panoptica.metrics._surface_distances")
    with quiet():
        pair = surface._surface_distance_pair(*(one > 0 for one in SIDES[sides]))
        assert_still(surface._hd95_from_pair(*pair), 10.220551, "panoptica")
        assert_still(
            [surface._assd_from_pair(*pair), surface._nsd_from_pair(*pair, None, 1.0)], [NAN, NAN], "panoptica"
        )
    assert score_maps_under("panoptica", [as_maps(*SIDES[sides])])["hd95"] == INF


def test_panoptica_of_nothing():
    surface = load("panoptica.metrics._surface_distances")
    dice = load("panoptica.metrics.dice")
    with quiet():
        pair = surface._surface_distance_pair(EMPTY > 0, EMPTY > 0)
        with pytest.raises(IndexError):
            surface._hd95_from_pair(*pair)
        assert_still(dice._compute_dice_coefficient(EMPTY > 0, EMPTY > 0), 0.0, "panoptica")


@pytest.mark.parametrize(("sides", "theirs"), [("prediction empty", INF), ("target empty", INF), ("both empty", 0)])
def test_empty_sides_of_scikit_image(sides, theirs):
    skimage = load("skimage.metrics", "scikit-image")
    assert_still(skimage.hausdorff_distance(*SIDES[sides]), theirs, "scikit-image")


@pytest.mark.parametrize(("name", "call"), [("iou", "jaccard_score"), ("dice", "f1_score")])
def test_scikit_learn_scores_nothing_as_zero(name, call):
    sklearn = load("sklearn.metrics", "scikit-learn")
    with quiet():
        assert_still(getattr(sklearn, call)(EMPTY.ravel(), EMPTY.ravel()), 0.0, "scikit-learn")
    assert math.isnan(getattr(overlap_scores(confusion_matrix(EMPTY, EMPTY, num_classes=2)), name)[1])


def test_scikit_images_hausdorff_of_masks_starts_inside_them():
    """Of masks and not of their borders it is smaller: a hole that was filled is near to everything around it."""
    hole = next(case for case in BOTH_HOLD_ONE if case.name == "hole")
    skimage = load("skimage.metrics", "scikit-image")
    assert_still(skimage.hausdorff_distance(*hole.masks()), math.sqrt(17), "scikit-image")
    assert surface_metrics(*hole.masks(), spacing=(1, 1)).hd == pytest.approx(math.sqrt(45))


def test_panopticas_surface_dice_is_not_the_published_one():
    spur = next(case for case in BOTH_HOLD_ONE if case.name == "spur")
    surface = load("panoptica.metrics._surface_distances")
    theirs = surface._nsd_from_pair(*surface._surface_distance_pair(*spur.masks()), None, 1.0)
    ours = surface_metrics(*spur.masks(), spacing=(1, 1), tolerances=(1,))
    assert theirs == pytest.approx((ours.near_target[0] + ours.near_mask[0]) / 2, rel=1e-6)
    assert abs(theirs - ours.nsd[0]) > 0.01


def test_monais_panoptic_quality_of_nothing_is_zero():
    metrics = load("monai.metrics")
    assert_still(float(metrics.compute_panoptic_quality(tensor(EMPTY)[0], tensor(EMPTY)[0])), 0.0, "monai")
    assert math.isnan(match_instances(EMPTY, EMPTY).pq)


def test_predictions_outside_the_classes_are_refused_here_and_miscounted_or_dropped_elsewhere():
    labels = ONE.copy()
    labels[0, 0] = 7
    sklearn = load("sklearn.metrics", "scikit-learn")
    assert sklearn.confusion_matrix(ONE.ravel(), labels.ravel(), labels=[0, 1]).sum() == ONE.size - 1
    with pytest.raises(InputError, match="7"):
        confusion_matrix(ONE, labels, num_classes=2)
