"""A preset gives its tool's headline, case by case, with the tool run live."""

import copy
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.pixels.overlap import overlap_scores
from segmeter.metrics.summary.conventions import score_maps_under
from segmeter.metrics.summary.summarise import summarise
from tests.differential.cases import BOTH_HOLD_ONE, VOID, Case, assert_agree, sweep
from tests.differential.peers import load, quiet

TOLERANCE = 1.37
PAIRS = (*BOTH_HOLD_ONE, *sweep(num_classes=3, seed=4))


def figures(name: str) -> dict[str, list[float]]:
    """Every headline figure of each case under a preset."""
    found = [score_maps_under(name, [as_maps(case)], tolerances=(TOLERANCE,)) for case in PAIRS]
    return {figure: [one[figure] for one in found] for figure in found[0]}


def as_maps(case: Case) -> CaseMaps:
    names = ("rest", "one", "other")[: case.num_classes]
    colours = ((0, 0, 0),) * case.num_classes
    spec = ClassSpec(task="multiclass", names=names, colours=colours, ignore_index=case.ignore_index)
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


def test_seg_metrics():
    """One case without the class on either side, which scores 1."""
    load("SimpleITK")
    peer = load("seg_metrics.seg_metrics", "seg-metrics")
    names = {"mean_iou": "jaccard", "mean_dice": "dice"}
    for case in (*PAIRS, replace(PAIRS[0], target=0 * PAIRS[0].target, labels=0 * PAIRS[0].labels)):
        theirs = []
        for k in range(1, case.num_classes):
            masks = (mask.astype(np.uint8) for mask in reversed(case.masks(k)))
            with quiet():
                theirs.append(peer.computeQualityMeasures(*masks, case.spacing[::-1], metrics_names=names.values()))
        found = score_maps_under("seg_metrics", [as_maps(case)])
        assert found.keys() == names.keys()
        for ours, name in names.items():
            assert_agree(found[ours], np.mean([one[name] for one in theirs]), (case, ours))


def test_nnunet():
    """Its own functions on arrays, in place of the files that it reads."""
    peer = load("nnunetv2.evaluation.evaluate_predictions", "nnunetv2")
    cases = list(sweep(num_classes=3, count=12, seed=10))
    maps = {f"{side}{i}": getattr(case, side) for i, case in enumerate(cases) for side in ("target", "labels")}

    reader = SimpleNamespace(read_seg=lambda name: (maps[name], {}))
    pool = nullcontext(SimpleNamespace(starmap=lambda call, given: [call(*each) for each in given]))
    names = [[f"{side}{i}" for i in range(len(cases))] for side in ("labels", "target")]
    with (
        mock.patch.object(peer, "subfiles", side_effect=names),
        mock.patch.object(peer, "join", side_effect=lambda folder, name: name.replace("labels", folder)),
        mock.patch.object(peer.multiprocessing, "get_context", return_value=SimpleNamespace(Pool=lambda _: pool)),
    ):
        theirs = peer.compute_metrics_on_folder("target", "labels", None, reader, "", [1, 2])
    found = score_maps_under("nnunet", [as_maps(case) for case in cases])
    assert_agree(found["mean_iou"], theirs["foreground_mean"]["IoU"])
    assert_agree(found["mean_dice"], theirs["foreground_mean"]["Dice"])
    assert found.keys() == {"mean_iou", "mean_dice"}


def test_nnunet_leaves_out_what_is_ignored():
    peer = load("nnunetv2.evaluation.evaluate_predictions", "nnunetv2")
    for case in sweep(num_classes=3, ignored=0.1, count=5, seed=12):
        scores = overlap_scores(confusion_matrix(case.target, case.labels, num_classes=3, ignore_index=VOID))
        reader = SimpleNamespace(read_seg=lambda name, case=case: (getattr(case, name), {}))
        theirs = peer.compute_metrics("target", "labels", reader, [0, 1, 2], VOID)["metrics"]
        assert_agree(scores.iou, [theirs[k]["IoU"] for k in range(3)])
        assert_agree(scores.dice, [theirs[k]["Dice"] for k in range(3)])


# ids that Cityscapes evaluates (road, sidewalk, building), and one that it ignores
CITY, OUT_OF_ROI = np.array([7, 8, 11], np.uint8), 3


@pytest.mark.parametrize("ignored", [0.0, 0.1])
def test_cityscapes(tmp_path, ignored):
    peer = load("cityscapesscripts.evaluation.evalPixelLevelSemanticLabeling", "cityscapesscripts")
    cases = list(sweep(num_classes=3, volumes=False, ignored=ignored, count=6, seed=11))
    files = [[], []]
    for i, case in enumerate(cases):
        for side, (name, one) in enumerate((("labels", case.labels), ("target", case.target))):
            files[side].append(str(tmp_path / f"{name}{i}.png"))
            ids = np.where(one == VOID, OUT_OF_ROI, CITY[np.minimum(one, 2)]).astype(np.uint8)
            Image.fromarray(ids).save(files[side][-1])
    args = copy.copy(peer.args)
    args.evalInstLevelScore, args.JSONOutput, args.quiet = False, False, True
    with quiet():
        theirs = peer.evaluateImgLists(*files, args)
    found = score_maps_under("cityscapes", [as_maps(case) for case in cases])
    assert_agree(found["mean_iou"], theirs["averageScoreClasses"])


def test_cityscapes_instance_iou(tmp_path):
    """iIoU of classes with objects, some of whose pixels have no number, as "car group" has."""
    peer = load("cityscapesscripts.evaluation.evalPixelLevelSemanticLabeling", "cityscapesscripts")
    names, ids = ("road", "person", "car"), np.array([7, 24, 26], np.uint8)
    spec = ClassSpec(task="multiclass", names=names, colours=((0, 0, 0),) * 3, ignore_index=VOID)
    measures = [{"name": "iiou", "average_sizes": "cityscapes"}]
    rng, files, pairs = np.random.default_rng(5), [[], []], []
    for i, case in enumerate(sweep(num_classes=3, volumes=False, ignored=0.1, count=6, seed=13)):
        known = np.minimum(case.target, 2)
        numbers = np.where(
            (case.target == VOID) | (known == 0),
            0,
            rng.integers(0, 4, (9, 9))[
                np.ix_(np.arange(case.target.shape[0]) // 4, np.arange(case.target.shape[1]) // 4)
            ],
        )
        objects = ids[known].astype(np.int32) * 1000 + numbers
        target = np.where(case.target == VOID, OUT_OF_ROI, ids[known]).astype(np.uint8)
        for side, (name, one) in enumerate((("pred", ids[case.labels]), ("labelIds", target))):
            files[side].append(str(tmp_path / f"{i}_{name}.png"))
            Image.fromarray(one).save(files[side][-1])
        Image.fromarray(np.where(numbers > 0, objects, target).astype(np.uint16)).save(
            tmp_path / f"{i}_instanceIds.png"
        )
        pairs.append(
            CaseMaps(
                case_id=f"{i}",
                target=case.target,
                labels=case.labels,
                spacing=(1.0, 1.0),
                spec=spec,
                target_instances=np.where(numbers > 0, objects, 0),
            )
        )
    args = copy.copy(peer.args)
    args.evalInstLevelScore, args.JSONOutput, args.quiet = True, False, True
    with quiet(), mock.patch.object(np, "in1d", np.isin, create=True):  # which NumPy 2.4 has no more
        theirs = peer.evaluateImgLists(*files, args)["classInstScores"]
    config = MetricsConfig(bootstrap=0, measures=measures)
    rows = [make_row(maps, build_measures(config, spec)) for maps in pairs]
    found = summarise(rows, spec, config)["measures"]["iiou"]
    assert found.keys() - {"mean"} == {"person", "car"}, "roads have no objects"
    for name in ("person", "car"):
        assert_agree(found[name]["dataset"], theirs[name], name)
    assert_agree(found["mean"]["dataset"], np.nanmean(list(theirs.values())))


SMP_REDUCTIONS = ("micro", "macro", "weighted", "micro-imagewise", "macro-imagewise", "weighted-imagewise")


@pytest.mark.parametrize(("figure", "call"), [("mean_iou", "iou_score"), ("mean_dice", "f1_score")])
@pytest.mark.parametrize("reduction", SMP_REDUCTIONS)
def test_smp(figure, call, reduction):
    """All reductions, on images one of which has a class that is on neither side."""
    torch = load("torch")
    smp = load("segmentation_models_pytorch.metrics", "segmentation_models_pytorch")
    cases = list(sweep(num_classes=3, volumes=False, ignored=0.1, count=8, seed=14))
    cases.append(
        replace(
            cases[0],
            name="two",
            target=np.where(cases[0].target == 2, 1, cases[0].target),
            labels=np.where(cases[0].labels == 2, 0, cases[0].labels),
        )
    )
    parts = []
    for case in cases:
        given = [torch.from_numpy(one[None].astype(np.int64)) for one in (case.labels, case.target)]
        parts.append(smp.get_stats(*given, mode="multiclass", num_classes=3, ignore_index=VOID))
    stats = [torch.cat(part) for part in zip(*parts, strict=True)]
    weights = (stats[0] + stats[2]).sum(dim=0).tolist() if "weighted" in reduction else None
    theirs = float(getattr(smp, call)(*stats, reduction=reduction, class_weights=weights, zero_division=1.0))
    theirs *= 3 if reduction == "weighted-imagewise" else 1  # its mean over weighted classes, which is not copied
    name = "smp" if reduction == "micro" else f"smp-{reduction}"
    found = score_maps_under(name, [as_maps(case) for case in cases])
    assert_agree(found[figure], theirs)
