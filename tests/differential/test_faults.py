"""Where other tools are wrong, crash, or disagree: what they do, pinned so that a repair is noticed, and what we do.

A test here that fails names the release; where the tool now does as we do, move its case to the comparisons.
"""

import math
from unittest import mock

import numpy as np
import pytest

from segmeter.errors import InputError
from segmeter.metrics.objects.scores import match_instances
from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.pixels.overlap import overlap_scores
from segmeter.metrics.summary.conventions import score_maps_under
from segmeter.metrics.surfaces import surface_metrics
from tests.differential.cases import BOTH_HOLD_ONE, EMPTY, ONE, boxes
from tests.differential.peers import installed, load, quiet, tensors
from tests.metrics.build import class_spec, maps_of

NAN, INF = math.nan, math.inf
SIDES = {"prediction empty": (ONE, EMPTY), "target empty": (EMPTY, ONE), "both empty": (EMPTY, EMPTY)}


def assert_still(found, expected, package):
    """The tool still gives this value; NaN equals NaN."""
    message = f"{installed(package)} now gives {found}, not {expected}: it was repaired, or broke in another way"
    np.testing.assert_allclose(np.asarray(found, float), expected, rtol=1e-5, err_msg=message)


def tensor(labels):
    return tensors(labels)[0]


def plane(labels):
    """The plane of class 1, (1, 1, ...)."""
    return tensor(labels)[None].float()


def as_maps(target, labels, case_id="a"):
    return maps_of(target, labels, class_spec(2, ignore_index=None), case_id=case_id)


OBJECT = boxes((40, 40), np.s_[10:20, 10:20])


@pytest.mark.parametrize(("missed", "theirs", "preset"), [(0, 4, 4), (10, 4, 4), (18, 4, 4), (20, 0, NAN)])
def test_monai_rewards_misses_in_hd95(missed, theirs, preset):
    """It is found four pixels off or missed. Our preset follows it, but missing everything is no perfect distance."""
    metric = load("monai.metrics").HausdorffDistanceMetric(percentile=95, include_background=True)
    pairs = [(OBJECT, 0 * OBJECT if i < missed else np.roll(OBJECT, 4, axis=1)) for i in range(20)]
    with quiet():
        for target, labels in pairs:
            metric(plane(labels), plane(target))
        assert_still(float(metric.aggregate()), theirs, "monai")
    ours = np.mean([surface_metrics(target > 0, labels > 0, spacing=(1, 1)).hd95 for target, labels in pairs])
    assert ours == (INF if missed else 4.0)
    cases = [as_maps(*pair, f"{i}") for i, pair in enumerate(pairs)]
    np.testing.assert_equal(score_maps_under("monai", cases)["hd95"], preset)


def test_monais_percentile_is_off_by_the_rounding_of_its_rank():
    """0.95 in float32 is a little less, so a value between two of 1001 points comes out; torch 2.13 rounds it away."""
    hausdorff, torch = load("monai.metrics.hausdorff_distance"), load("torch")
    distances = torch.cat([torch.zeros(950), torch.full((51,), 10.0)])
    found = float(hausdorff._compute_percentile_hausdorff_distance(distances, 95))
    expected = 9.9998808 if torch.__version__ >= (2, 14) else 10
    np.testing.assert_allclose(found, expected, rtol=1e-7, err_msg=installed("monai"))
    assert np.percentile(distances.numpy().astype(float), 95) == 10


def monai(target, labels):
    """Its distance and that by percentile disagree; Dice of a false positive is undefined, so it costs nothing."""
    metrics, given = load("monai.metrics"), [plane(labels), plane(target)]
    options = {"include_background": True}
    return [
        metrics.compute_hausdorff_distance(*given, **options),
        metrics.compute_hausdorff_distance(*given, percentile=95, **options),
        metrics.compute_average_surface_distance(*given, symmetric=True, **options),
        metrics.compute_surface_dice(*given, [1.0], **options),
        metrics.compute_dice(*given),
    ]


def medpy(target, labels):
    """It catches ZeroDivisionError, where NumPy's integers only warn; its Jaccard is 1. Our preset follows it."""
    binary = load("medpy.metric.binary")
    found = [binary.dc(labels, target), binary.jc(labels, target)]
    ours = score_maps_under("medpy", [as_maps(target, labels)])
    np.testing.assert_array_equal([ours["mean_dice"], ours["mean_iou"]], found)
    return found


def surface_distance(target, labels):
    """Two empty masks are infinitely far apart for it, though it calls every other figure of them undefined."""
    peer = load("surface_distance", "surface-distance")
    with mock.patch.object(np, "Inf", np.inf, create=True):  # it was written for NumPy 1
        found = peer.compute_surface_distances(target > 0, labels > 0, (1, 1))
        means = peer.compute_average_surface_distance(found)
        return [peer.compute_robust_hausdorff(found, 95), *means, peer.compute_surface_dice_at_tolerance(found, 1)]


def panoptica(target, labels):
    """HD95 to a corner of the array, the distance transform of no point: finite and harmless-looking for a miss."""
    surface = load("panoptica.metrics._surface_distances")
    pair = surface._surface_distance_pair(target > 0, labels > 0)
    assert score_maps_under("panoptica", [as_maps(target, labels)])["hd95"] == INF
    return [surface._hd95_from_pair(*pair), surface._assd_from_pair(*pair), surface._nsd_from_pair(*pair, None, 1.0)]


def scikit_image(target, labels):
    return [load("skimage.metrics", "scikit-image").hausdorff_distance(target, labels)]


@pytest.mark.parametrize(("tool", "sides", "theirs"), [
    (monai, "prediction empty", [INF, NAN, INF, 0, 0]),
    (monai, "target empty", [INF, NAN, INF, 0, NAN]),
    (monai, "both empty", [NAN, NAN, NAN, NAN, NAN]),
    (medpy, "prediction empty", [0, 0]),
    (medpy, "target empty", [0, 0]),
    (medpy, "both empty", [NAN, 1]),
    (surface_distance, "prediction empty", [INF, INF, NAN, 0]),
    (surface_distance, "target empty", [INF, NAN, INF, 0]),
    (surface_distance, "both empty", [INF, NAN, NAN, NAN]),
    (panoptica, "prediction empty", [10.220551, NAN, NAN]),
    (panoptica, "target empty", [10.220551, NAN, NAN]),
    (scikit_image, "prediction empty", [INF]),
    (scikit_image, "target empty", [INF]),
    (scikit_image, "both empty", [0]),
])  # fmt: skip
def test_empty_sides(tool, sides, theirs):
    """For us a miss is infinitely far, and nothing has no distance."""
    with quiet():
        assert_still([float(one) for one in tool(*SIDES[sides])], theirs, tool.__name__.replace("_", "-"))
    ours = surface_metrics(*(one > 0 for one in SIDES[sides]), spacing=(1, 1))
    np.testing.assert_equal([ours.hd, ours.hd95], [NAN if sides == "both empty" else INF] * 2)


def mean_dice_of_monai():
    metric = load("monai.metrics").DiceMetric()
    metric(plane(EMPTY), plane(EMPTY))
    return float(metric.aggregate())


def of_scikit_learn(call):
    return getattr(load("sklearn.metrics", "scikit-learn"), call)(EMPTY.ravel(), EMPTY.ravel())


def of_smp(target, labels, num_classes, reduction, **options):
    """IoU of classes, or of one mask."""
    smp = load("segmentation_models_pytorch.metrics", "segmentation_models_pytorch")
    mode = {"mode": "multiclass", "num_classes": num_classes} if num_classes else {"mode": "binary"}
    given = [tensor(one) if num_classes else plane(one).long() for one in (labels, target)]
    with quiet():
        return float(smp.iou_score(*smp.get_stats(*given, **mode), reduction=reduction, **options))


def of_torchmetrics(call, target, labels, **options):
    peer = load("torchmetrics.functional.segmentation")
    return getattr(peer, call)(tensor(labels), tensor(target), num_classes=2, input_format="index", **options)


OF_NOTHING = {
    "monai, mean Dice": (mean_dice_of_monai, 0),
    "monai, PQ": (lambda: load("monai.metrics").compute_panoptic_quality(tensor(EMPTY)[0], tensor(EMPTY)[0]), 0),
    "panoptica": (lambda: load("panoptica.metrics.dice")._compute_dice_coefficient(EMPTY > 0, EMPTY > 0), 0),
    "scikit-learn, IoU": (lambda: of_scikit_learn("jaccard_score"), 0),
    "scikit-learn, Dice": (lambda: of_scikit_learn("f1_score"), 0),
    "torchmetrics": (lambda: of_torchmetrics("mean_iou", EMPTY, EMPTY, per_class=True)[0], [1, -1]),
    "segmentation_models_pytorch": (lambda: of_smp(EMPTY, EMPTY, 2, "macro"), 1),
    "segmentation_models_pytorch, micro": (lambda: of_smp(EMPTY, EMPTY, 0, "micro"), NAN),
    "segmentation_models_pytorch, macro": (lambda: of_smp(EMPTY, EMPTY, 0, "macro"), 1),
    "segmentation_models_pytorch, images": (lambda: of_smp(EMPTY, EMPTY, 0, "micro-imagewise"), 1),
}


@pytest.mark.parametrize("name", OF_NOTHING)
def test_a_class_that_is_nowhere_has_a_score_elsewhere(name):
    """As bad as can be, perfect, -1, or either by the reduction."""
    measure, value = OF_NOTHING[name]
    with quiet():
        assert_still(measure(), value, name.partition(",")[0])


def test_a_class_that_is_nowhere_has_no_score_here():
    scores = overlap_scores(confusion_matrix(EMPTY, EMPTY, num_classes=2))
    assert np.isnan([scores.iou[1], scores.dice[1], match_instances(EMPTY, EMPTY).pq]).all()
    assert scores.n_undefined == 1


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("call", ["hd", "hd95", "assd", "asd"])
def test_empty_sides_of_medpy(sides, call):
    target, labels = SIDES[sides]
    with pytest.raises(RuntimeError, match="does not contain any binary object"):
        getattr(load("medpy.metric.binary"), call)(labels, target)


def test_surface_distance_crashes_on_empty_sides_with_numpy_2(monkeypatch):
    peer = load("surface_distance", "surface-distance")
    monkeypatch.delattr(np, "Inf", raising=False)  # torchmetrics puts it back for everyone
    with quiet(), pytest.raises(AttributeError, match="NaN"):
        peer.compute_dice_coefficient(EMPTY > 0, EMPTY > 0)
    with quiet(), pytest.raises(AttributeError, match="Inf"):
        peer.compute_surface_distances(ONE > 0, EMPTY > 0, (1, 1))


def test_panopticas_distances_of_nothing_crash():
    surface = load("panoptica.metrics._surface_distances")
    with quiet(), pytest.raises(IndexError):
        surface._hd95_from_pair(*surface._surface_distance_pair(EMPTY > 0, EMPTY > 0))


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


def test_predictions_outside_the_classes_are_refused_here_and_miscounted_or_dropped_elsewhere():
    labels = ONE.copy()
    labels[0, 0] = 7
    sklearn = load("sklearn.metrics", "scikit-learn")
    assert sklearn.confusion_matrix(ONE.ravel(), labels.ravel(), labels=[0, 1]).sum() == ONE.size - 1
    with pytest.raises(InputError, match="7"):
        confusion_matrix(ONE, labels, num_classes=2)


def corners(shape):
    return boxes(shape, np.s_[2:6, 2:6]), boxes(shape, np.s_[-6:-2, -6:-2])


@pytest.mark.parametrize(("shape", "theirs", "ours"), [
    ((20, 26), 23.706539, 21.633308),
    ((14, 51), 44.0, 43.416587),
    ((20, 20), 16.970563, 16.970563),
], ids=["wide", "very wide", "square"])  # fmt: skip
def test_torchmetrics_hausdorff_is_right_of_square_maps_only(shape, theirs, ours):
    target, labels = corners(shape)
    assert_still(float(of_torchmetrics("hausdorff_distance", target, labels)), theirs, "torchmetrics")
    assert surface_metrics(target > 0, labels > 0, spacing=(1, 1)).hd == pytest.approx(ours, rel=1e-6)


def test_torchmetrics_hausdorff_of_tall_maps_and_of_nothing_crashes():
    target, labels = corners((26, 20))
    with pytest.raises(IndexError, match="out of bounds"):
        of_torchmetrics("hausdorff_distance", target, labels)
    assert surface_metrics(target > 0, labels > 0, spacing=(1, 1)).hd == pytest.approx(21.633308, rel=1e-6)
    square = np.zeros((9, 9), np.uint8)
    with pytest.raises(RuntimeError):
        of_torchmetrics("hausdorff_distance", square, square)


def test_torchmetrics_segmentation_has_no_ignore_index():
    target = ONE.copy()
    target[0] = 255
    for call in ("mean_iou", "dice_score"):
        with pytest.raises(RuntimeError, match="must be smaller than num_classes"):
            of_torchmetrics(call, target, ONE)
    assert overlap_scores(confusion_matrix(target, ONE, num_classes=2, ignore_index=255)).mean_iou == 1


@pytest.mark.parametrize("reduction", ["weighted-imagewise", "macro", "macro-imagewise"])
def test_smp_with_weights_gives_a_perfect_prediction_a_quarter(reduction):
    """It divides equal weights by the number of classes twice."""
    target = np.tile(np.arange(4, dtype=np.uint8), (4, 1))
    found = of_smp(target, target, 4, reduction, class_weights=[1.0] * 4)
    assert_still(found, 0.25, "segmentation_models_pytorch")
    assert overlap_scores(confusion_matrix(target, target, num_classes=4)).frequency_weighted_iou == 1
