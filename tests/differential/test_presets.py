"""A preset gives its tool's headline, case by case, with the tool run live."""

import copy
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from PIL import Image

from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.pixels.overlap import overlap_scores
from segmeter.metrics.summary.conventions import score_maps_under
from segmeter.metrics.summary.summarise import summarise
from tests.differential.cases import BOTH_HOLD_ONE, VOID, Case, assert_agree, sweep
from tests.differential.peers import exact_quantile, load, nnunet_on_arrays, one_hot, quiet, tensors
from tests.metrics.build import class_spec, maps_of

TOLERANCE = 1.37
PAIRS = (*BOTH_HOLD_ONE, *sweep(num_classes=3, seed=4))


def as_maps(case: Case) -> CaseMaps:
    spec = class_spec(case.num_classes, ignore_index=case.ignore_index)
    return maps_of(case.target, case.labels, spec, case_id=case.name, spacing=case.spacing)


def assert_figures(name, theirs):
    """Every headline figure of each case is that of the tool."""
    found = [score_maps_under(name, [as_maps(case)], tolerances=(TOLERANCE,)) for case in PAIRS]
    assert found[0].keys() == theirs.keys()
    for figure, values in theirs.items():
        assert_agree([one[figure] for one in found], values, (name, figure))


def test_monai():
    metrics = load("monai.metrics")

    def of(build, spaced=True):
        values = []
        for case in PAIRS:
            metric = build(case.num_classes)
            with quiet(), exact_quantile():
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


def medpy():
    binary = load("medpy.metric.binary")
    return {
        "mean_iou": lambda target, mask, _: binary.jc(mask, target),
        "mean_dice": lambda target, mask, _: binary.dc(mask, target),
        "hd95": lambda target, mask, spacing: binary.hd95(mask, target, spacing),
        "assd": lambda target, mask, spacing: binary.assd(mask, target, spacing),
    }


def deepmind():
    peer = load("surface_distance", "surface-distance")
    distances = peer.compute_surface_distances
    return {
        "mean_dice": lambda target, mask, _: peer.compute_dice_coefficient(target, mask),
        "hd95": lambda *given: peer.compute_robust_hausdorff(distances(*given), 95),
        "assd": lambda *given: np.mean(peer.compute_average_surface_distance(distances(*given))),
        f"nsd@{TOLERANCE:g}": lambda *given: peer.compute_surface_dice_at_tolerance(distances(*given), TOLERANCE),
    }


def panoptica():
    surface, iou, dice = (load(f"panoptica.metrics.{name}") for name in ("_surface_distances", "iou", "dice"))
    distances = surface._surface_distance_pair
    return {
        "mean_iou": lambda target, mask, _: iou._compute_iou(target, mask),
        "mean_dice": lambda target, mask, _: dice._compute_dice_coefficient(target, mask),
        "hd95": lambda *given: surface._hd95_from_pair(*distances(*given)),
        "assd": lambda *given: surface._assd_from_pair(*distances(*given)),
        f"nsd@{TOLERANCE:g}": lambda *given: surface._nsd_from_pair(*distances(*given), None, TOLERANCE),
    }


@pytest.mark.parametrize("tool", [medpy, deepmind, panoptica])
def test_a_tool_of_two_masks(tool):
    """Its mean over the classes but background of each case."""
    theirs = {}
    for figure, measure in tool().items():
        with quiet():
            each = [[measure(*case.masks(k), case.spacing) for k in range(1, case.num_classes)] for case in PAIRS]
        theirs[figure] = list(map(np.mean, each))
    assert_figures(tool.__name__, theirs)


def test_brats():
    """Regions in place of classes, over a data set, by medpy."""
    binary, cases = load("medpy.metric.binary"), list(sweep(num_classes=3, count=20, seed=15))
    regions = {"whole": (("road", "car"), [1, 2]), "core": (("car",), [2])}

    def of(measure):
        masks = [
            (np.isin(one.labels, k), np.isin(one.target, k), one.spacing) for one in cases for _, k in regions.values()
        ]
        return np.mean([measure(*given) for given in masks])

    groups = {name: members for name, (members, _) in regions.items()}
    found = score_maps_under("brats", [as_maps(case) for case in cases], groups=groups)
    assert found.keys() == {"mean_dice", "hd95"}
    assert_agree(found["mean_dice"], of(lambda mask, target, _: binary.dc(mask, target)))
    assert_agree(found["hd95"], of(binary.hd95))


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
    cases = list(sweep(num_classes=3, count=12, seed=10))
    maps = {f"ref/{i}": case.target for i, case in enumerate(cases)}
    maps |= {f"pred/{i}": case.labels for i, case in enumerate(cases)}
    theirs, _ = nnunet_on_arrays(maps, map(str, range(12)), [1, 2])
    found = score_maps_under("nnunet", [as_maps(case) for case in cases])
    assert found.keys() == {"mean_iou", "mean_dice"}
    assert_agree(list(found.values()), [theirs["foreground_mean"][name] for name in ("IoU", "Dice")])


def test_nnunet_leaves_out_what_is_ignored():
    peer = load("nnunetv2.evaluation.evaluate_predictions", "nnunetv2")
    for case in sweep(num_classes=3, ignored=0.1, count=5, seed=12):
        scores = overlap_scores(confusion_matrix(case.target, case.labels, num_classes=3, ignore_index=VOID))
        reader = SimpleNamespace(read_seg=lambda name, case=case: (getattr(case, name), {}))
        theirs = peer.compute_metrics("target", "labels", reader, [0, 1, 2], VOID)["metrics"]
        assert_agree(scores.iou, [theirs[k]["IoU"] for k in range(3)])
        assert_agree(scores.dice, [theirs[k]["Dice"] for k in range(3)])


OUT_OF_ROI = 3  # an id that Cityscapes ignores


def of_cityscapes(folder, cases, ids, objects=None):
    """Its own evaluation of maps written as PNG; `objects` has the numbers of each target, 0 where there is none."""
    peer = load("cityscapesscripts.evaluation.evalPixelLevelSemanticLabeling", "cityscapesscripts")
    files = [[], []]
    for i, case in enumerate(cases):
        target = np.where(case.target == VOID, OUT_OF_ROI, ids[np.minimum(case.target, 2)]).astype(np.uint8)
        for side, (name, one) in enumerate((("pred", ids[case.labels]), ("labelIds", target))):
            files[side].append(str(folder / f"{i}_{name}.png"))
            Image.fromarray(one).save(files[side][-1])
        if objects is not None:
            numbered = np.where(objects[i] > 0, objects[i], target).astype(np.uint16)
            Image.fromarray(numbered).save(folder / f"{i}_instanceIds.png")
    args = copy.copy(peer.args)
    args.evalInstLevelScore, args.JSONOutput, args.quiet = objects is not None, False, True
    with quiet(), mock.patch.object(np, "in1d", np.isin, create=True):  # which NumPy 2.4 has no more
        return peer.evaluateImgLists(*files, args)


@pytest.mark.parametrize("ignored", [0.0, 0.1])
def test_cityscapes(tmp_path, ignored):
    cases = list(sweep(num_classes=3, volumes=False, ignored=ignored, count=6, seed=11))
    theirs = of_cityscapes(tmp_path, cases, np.array([7, 8, 11], np.uint8))  # road, sidewalk, building
    found = score_maps_under("cityscapes", [as_maps(case) for case in cases])
    assert_agree(found["mean_iou"], theirs["averageScoreClasses"])


def test_cityscapes_instance_iou(tmp_path):
    """iIoU of classes with objects, some of whose pixels have no number, as "car group" has."""
    ids, rng = np.array([7, 24, 26], np.uint8), np.random.default_rng(5)
    names = ("road", "person", "car")  # by which Cityscapes' sizes are found
    spec = class_spec(3).replace(names=names)
    cases, objects = list(sweep(num_classes=3, volumes=False, ignored=0.1, count=6, seed=13)), []
    for case in cases:
        known = np.minimum(case.target, 2)
        rows, columns = (np.arange(side) // 4 for side in known.shape)
        numbers = rng.integers(0, 4, (9, 9))[np.ix_(rows, columns)]
        numbers[(case.target == VOID) | (known == 0)] = 0
        objects.append(np.where(numbers > 0, ids[known].astype(np.int32) * 1000 + numbers, 0))
    theirs = of_cityscapes(tmp_path, cases, ids, objects)["classInstScores"]
    config = MetricsConfig(bootstrap=0, measures=[{"name": "iiou", "average_sizes": "cityscapes"}])
    maps = [replace(as_maps(case), spec=spec, target_instances=one) for case, one in zip(cases, objects, strict=True)]
    rows = [make_row(one, build_measures(config, spec)) for one in maps]
    found = summarise(rows, spec, config)["measures"]["iiou"]
    assert found.keys() - {"mean"} == {"person", "car"}, "roads have no objects"
    for name in ("person", "car"):
        assert_agree(found[name]["dataset"], theirs[name], name)
    assert_agree(found["mean"]["dataset"], np.nanmean(list(theirs.values())))


@pytest.mark.parametrize("images", ["", "-imagewise"], ids=["whole", "by image"])
@pytest.mark.parametrize("reduction", ["micro", "macro", "weighted"])
def test_smp(reduction, images):
    """All reductions, on images one of which has a class that is on neither side."""
    torch = load("torch")
    smp = load("segmentation_models_pytorch.metrics", "segmentation_models_pytorch")
    cases = list(sweep(num_classes=3, volumes=False, ignored=0.1, count=8, seed=14))
    target, labels = cases[0].target, cases[0].labels
    without = {"target": np.where(target == 2, 1, target), "labels": np.where(labels == 2, 0, labels)}
    cases.append(replace(cases[0], name="two", **without))
    options = {"mode": "multiclass", "num_classes": 3, "ignore_index": VOID}
    parts = [smp.get_stats(*tensors(case.labels, case.target), **options) for case in cases]
    stats = [torch.cat(part) for part in zip(*parts, strict=True)]
    weights = (stats[0] + stats[2]).sum(dim=0).tolist() if reduction == "weighted" else None
    options = {"reduction": f"{reduction}{images}", "class_weights": weights, "zero_division": 1.0}
    theirs = np.array([smp.iou_score(*stats, **options), smp.f1_score(*stats, **options)])
    if reduction + images == "weighted-imagewise":
        theirs *= 3  # its mean over weighted classes, which is not copied
    name = "smp" if reduction + images == "micro" else f"smp-{reduction}{images}"
    found = score_maps_under(name, [as_maps(case) for case in cases])
    assert_agree([found["mean_iou"], found["mean_dice"]], theirs)
