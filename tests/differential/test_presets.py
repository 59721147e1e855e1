"""A preset gives its tool's headline, case by case, with the tool run live."""

from functools import cache

import numpy as np
import pytest

from segmeter.metrics.convention_scores import score_maps_under
from segmeter.metrics.measures import CaseMaps
from segmeter.vocabulary import ClassSpec
from tests.differential.cases import BOTH_HOLD_ONE, Case, assert_agree, sweep
from tests.differential.peers import load, quiet

TOLERANCE = 1.37
PAIRS = (*BOTH_HOLD_ONE, *sweep(num_classes=3, seed=4))


def figures(name: str) -> dict[str, list[float]]:
    """Every headline figure of each case under a preset."""
    found = [score_maps_under(name, [as_maps(case)], tolerances=(TOLERANCE,)) for case in PAIRS]
    return {figure: [one[figure] for one in found] for figure in found[0]}


def as_maps(case: Case) -> CaseMaps:
    names = ("rest", "one", "other")[: case.num_classes]
    spec = ClassSpec(task="multiclass", names=names, colours=((0, 0, 0),) * case.num_classes)
    return CaseMaps(case_id=case.name, target=case.target, labels=case.labels, spacing=case.spacing, spec=spec)


def mean_over_objects(measure) -> list[float]:
    """Of a tool that scores pairs of masks: the mean over the classes but background of each case."""
    with quiet():
        return [np.mean([measure(*case.masks(k), case.spacing) for k in range(1, case.num_classes)]) for case in PAIRS]


def assert_figures(name, theirs):
    found = figures(name)
    assert found.keys() == theirs.keys()
    for figure, values in theirs.items():
        assert_agree(found[figure], values, (name, figure))


def test_monai(exact_quantile):
    torch, metrics = load("torch"), load("monai.metrics")

    @cache
    def one_hot(case):
        planes = [np.stack([one == k for k in range(case.num_classes)])[None] for one in (case.labels, case.target)]
        return [torch.from_numpy(plane.astype(np.float32)) for plane in planes]

    def of(build, spaced=True):
        values = []
        for case in PAIRS:
            metric = build(case.num_classes)
            with quiet():
                metric(*one_hot(case), **({"spacing": case.spacing} if spaced else {}))
            values.append(float(metric.aggregate()))
        return values

    theirs = {
        "mean_iou": of(lambda _: metrics.MeanIoU(), spaced=False),
        "mean_dice": of(lambda _: metrics.DiceMetric(), spaced=False),
        "hd95": of(lambda _: metrics.HausdorffDistanceMetric(percentile=95)),
        "assd": of(lambda _: metrics.SurfaceDistanceMetric(symmetric=True)),
        f"nsd@{TOLERANCE:g}": of(lambda k: metrics.SurfaceDiceMetric([TOLERANCE] * (k - 1))),
    }
    assert_figures("monai", theirs)


def test_medpy():
    binary = load("medpy.metric.binary")
    theirs = {
        "mean_iou": mean_over_objects(lambda target, mask, _: binary.jc(mask, target)),
        "mean_dice": mean_over_objects(lambda target, mask, _: binary.dc(mask, target)),
        "hd95": mean_over_objects(lambda target, mask, spacing: binary.hd95(mask, target, spacing)),
        "assd": mean_over_objects(lambda target, mask, spacing: binary.assd(mask, target, spacing)),
    }
    assert_figures("medpy", theirs)


def test_deepmind():
    peer = load("surface_distance", "surface-distance")

    def of(measure):
        return mean_over_objects(lambda *given: measure(peer.compute_surface_distances(*given)))

    theirs = {
        "mean_dice": mean_over_objects(lambda target, mask, _: peer.compute_dice_coefficient(target, mask)),
        "hd95": of(lambda found: peer.compute_robust_hausdorff(found, 95)),
        "assd": of(lambda found: np.mean(peer.compute_average_surface_distance(found))),
        f"nsd@{TOLERANCE:g}": of(lambda found: peer.compute_surface_dice_at_tolerance(found, TOLERANCE)),
    }
    assert_figures("deepmind", theirs)


def test_panoptica():
    surface = load("panoptica.metrics._surface_distances")
    iou, dice = load("panoptica.metrics.iou"), load("panoptica.metrics.dice")

    def of(measure, *options):
        return mean_over_objects(lambda *given: measure(*surface._surface_distance_pair(*given), *options))

    theirs = {
        "mean_iou": mean_over_objects(lambda target, mask, _: iou._compute_iou(target, mask)),
        "mean_dice": mean_over_objects(lambda target, mask, _: dice._compute_dice_coefficient(target, mask)),
        "hd95": of(surface._hd95_from_pair),
        "assd": of(surface._assd_from_pair),
        f"nsd@{TOLERANCE:g}": of(surface._nsd_from_pair, None, TOLERANCE),
    }
    assert_figures("panoptica", theirs)


@pytest.mark.parametrize(("figure", "call"), [("mean_iou", "iou_score"), ("mean_dice", "f1_score")])
def test_smp(figure, call):
    torch = load("torch")
    smp = load("segmentation_models_pytorch.metrics", "segmentation_models_pytorch")
    theirs = []
    for case in PAIRS:
        given = [torch.from_numpy(one[None].astype(np.int64)) for one in (case.labels, case.target)]
        stats = smp.get_stats(*given, mode="multiclass", num_classes=case.num_classes)
        theirs.append(float(getattr(smp, call)(*stats, reduction="micro")))
    assert_agree(figures("smp")[figure], theirs)
