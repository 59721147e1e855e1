"""Each convention gives its tool's figure: live tools where they install, else the formula that they publish."""

import numpy as np
import pytest
from scipy import ndimage

from segmeter.metrics.measures.protocol import CaseMaps
from segmeter.metrics.summary.conventions import score_maps_under
from tests.differential.peers import load, quiet
from tests.metrics.build import class_spec

PLANES = ("2-D", (26, 33), (1.0, 1.0)), ("2-D spaced", (26, 33), (0.7, 1.9)), ("3-D", (9, 14, 12), (2.5, 1.0, 0.8))
TOLERANCE = 1.5
REGULAR = 1e-6  # relative, what is promised of a regular case


def label_maps(shape, spacing, *, seed, cases=5, spec=None):
    """Cases in which target and prediction hold every class of three."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(cases):
        field = ndimage.gaussian_filter(rng.standard_normal(shape), 2)
        target = np.digitize(field, np.quantile(field, [0.5, 0.8])).astype(np.uint8)
        moved = np.roll(field, 1 + i % 2, axis=0) + 0.02 * rng.standard_normal(shape)
        labels = np.digitize(moved, np.quantile(moved, [0.55, 0.85])).astype(np.uint8)
        made.append(CaseMaps(case_id=f"{i}", target=target, labels=labels, spacing=spacing, spec=spec or class_spec(3)))
    return made


@pytest.fixture(params=PLANES, ids=[name for name, *_ in PLANES])
def cases(request):
    return label_maps(*request.param[1:], seed=len(request.param[0]))


def scored(name, cases, **options):
    return score_maps_under(name, cases, tolerances=(TOLERANCE,), **options)


def mean_over_cases(measure, cases, classes):
    """Of a tool that scores one pair of masks: mean over classes in each case, then over cases."""
    pairs = [[measure(maps.labels == k, maps.target == k, maps.spacing) for k in classes] for maps in cases]
    return np.mean([np.mean(scores) for scores in pairs])


def intersections(cases, k):
    """Intersection, target and prediction of one class, in pixels of all cases."""
    inside = [(maps.target == k, maps.labels == k) for maps in cases]
    return (
        sum(int((target & mask).sum()) for target, mask in inside),
        sum(int(target.sum()) for target, _ in inside),
        sum(int(mask.sum()) for _, mask in inside),
    )


def assert_figures(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=REGULAR), name


def test_mmseg(cases):
    areas = [intersections(cases, k) for k in range(3)]
    iou = np.nanmean([common / (target + mask - common) for common, target, mask in areas])
    dice = np.nanmean([2 * common / (target + mask) for common, target, mask in areas])
    assert_figures(scored("mmseg", cases), {"mean_iou": iou, "mean_dice": dice})


def test_cityscapes(cases):
    matrix = np.zeros((3, 3), np.int64)
    for maps in cases:
        np.add.at(matrix, (maps.target.ravel(), maps.labels.ravel()), 1)
    scores = [matrix[k, k] / (matrix[k].sum() + np.delete(matrix[:, k], k).sum()) for k in range(3)]
    assert_figures(scored("cityscapes", cases), {"mean_iou": np.mean(scores)})


def test_nnunet(cases):
    def of(measure):
        per_class = [[measure(*intersections([maps], k)) for maps in cases] for k in (1, 2)]
        return np.mean([np.nanmean(scores) for scores in per_class])

    iou, dice = of(lambda common, t, m: common / (t + m - common)), of(lambda common, t, m: 2 * common / (t + m))
    assert_figures(scored("nnunet", cases), {"mean_iou": iou, "mean_dice": dice})


def test_monai(cases):
    torch, metrics = pytest.importorskip("torch"), load("monai.metrics")

    def one_hot(labels):
        return torch.from_numpy(np.stack([labels == k for k in range(3)])[None].astype(np.float32))

    def of(metric, **options):
        for maps in cases:
            metric(one_hot(maps.labels), one_hot(maps.target), **options)
        return float(metric.aggregate())

    spacing = {"spacing": cases[0].spacing}
    with quiet():
        expected = {
            "mean_iou": of(metrics.MeanIoU()),
            "mean_dice": of(metrics.DiceMetric()),
            "hd95": of(metrics.HausdorffDistanceMetric(percentile=95), **spacing),
            "assd": of(metrics.SurfaceDistanceMetric(symmetric=True), **spacing),
            f"nsd@{TOLERANCE:g}": of(metrics.SurfaceDiceMetric([TOLERANCE] * 2), **spacing),
        }
    assert_figures(scored("monai", cases), expected)


def test_medpy(cases):
    binary = load("medpy.metric.binary", "medpy")
    expected = {
        "mean_iou": mean_over_cases(lambda mask, target, _: binary.jc(mask, target), cases, (1, 2)),
        "mean_dice": mean_over_cases(lambda mask, target, _: binary.dc(mask, target), cases, (1, 2)),
        "hd95": mean_over_cases(binary.hd95, cases, (1, 2)),
        "assd": mean_over_cases(binary.assd, cases, (1, 2)),
    }
    assert_figures(scored("medpy", cases), expected)


@pytest.mark.filterwarnings("ignore:Please import:DeprecationWarning")
def test_deepmind(cases):
    peer = load("surface_distance", "surface-distance")

    def of(measure):
        return mean_over_cases(
            lambda mask, target, spacing: measure(peer.compute_surface_distances(target, mask, spacing)), cases, (1, 2)
        )

    expected = {
        "mean_dice": mean_over_cases(
            lambda mask, target, _: peer.compute_dice_coefficient(target, mask), cases, (1, 2)
        ),
        "hd95": of(lambda found: peer.compute_robust_hausdorff(found, 95)),
        "assd": of(lambda found: np.mean(peer.compute_average_surface_distance(found))),
        f"nsd@{TOLERANCE:g}": of(lambda found: peer.compute_surface_dice_at_tolerance(found, TOLERANCE)),
    }
    assert_figures(scored("deepmind", cases), expected)


def test_panoptica(cases):
    surface, overlap = load("panoptica.metrics._surface_distances", "panoptica"), load("panoptica.metrics.dice")
    iou = load("panoptica.metrics.iou")

    def of(measure, *options):
        def one(mask, target, spacing):
            return measure(*surface._surface_distance_pair(target, mask, spacing), *options)

        return mean_over_cases(one, cases, (1, 2))

    expected = {
        "mean_iou": mean_over_cases(lambda mask, target, _: iou._compute_iou(target, mask), cases, (1, 2)),
        "mean_dice": mean_over_cases(
            lambda mask, target, _: overlap._compute_dice_coefficient(target, mask), cases, (1, 2)
        ),
        "hd95": of(surface._hd95_from_pair),
        "assd": of(surface._assd_from_pair),
        f"nsd@{TOLERANCE:g}": of(surface._nsd_from_pair, None, TOLERANCE),
    }
    assert_figures(scored("panoptica", cases), expected)


def test_smp(cases):
    torch = pytest.importorskip("torch")
    metrics = load("segmentation_models_pytorch.metrics", "segmentation_models_pytorch")
    labels, target = (torch.from_numpy(np.stack([getattr(m, side) for m in cases]).astype(np.int64)) for side in SIDES)
    stats = metrics.get_stats(labels, target, mode="multiclass", num_classes=3)
    iou, dice = (float(score(*stats, reduction="micro")) for score in (metrics.iou_score, metrics.f1_score))
    assert_figures(scored("smp", cases), {"mean_iou": iou, "mean_dice": dice})


SIDES = ("labels", "target")


def test_brats(cases):
    binary, regions = load("medpy.metric.binary", "medpy"), {"whole": ("road", "car"), "core": ("car",)}
    members = {"whole": [1, 2], "core": [2]}

    def of(measure):
        scores = [
            [measure(np.isin(m.labels, held), np.isin(m.target, held), m.spacing) for m in cases]
            for held in members.values()
        ]
        return np.mean([np.mean(one) for one in scores])

    expected = {"mean_dice": of(lambda mask, target, _: binary.dc(mask, target)), "hd95": of(binary.hd95)}
    assert_figures(scored("brats", cases, groups=regions), expected)


# measured with MetricsReloaded at commit ca3d352 on the cases of the fixture, which is not on the package index
METRICS_RELOADED = {
    "2-D": (0.44699593482829164, 0.6112142404695116, 2.6481838862379705, 0.817353688661332, 0.8794070351486691),
    "2-D spaced": (0.4070250867335254, 0.5705805550887444, 3.693440207251167, 0.901612819504497, 0.8849437451840554),
    "3-D": (0.36266021127088, 0.5264292556957807, 3.0913753620171294, 0.8202691769373308, 0.8112499193319597),
}


@pytest.mark.parametrize(("name", "shape", "spacing"), PLANES, ids=METRICS_RELOADED)
def test_metrics_reloaded(name, shape, spacing):
    names = ("mean_iou", "mean_dice", "hd95", "assd", f"nsd@{TOLERANCE:g}")
    expected = dict(zip(names, METRICS_RELOADED[name], strict=True))
    assert_figures(scored("metrics-reloaded", label_maps(shape, spacing, seed=len(name))), expected)
