"""Matched objects and their scores equal those of panoptica, torchmetrics and MONAI, run live; lesions, picai_eval's.

What the package of BraTS 2026 does is not what ours does, which are the rules of 2023.
"""

import sys
from functools import cache
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import ndimage
from scipy.optimize import linear_sum_assignment

from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.config.measures import EventsConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.objects.matching import aggregated_jaccard, find_overlaps
from segmeter.metrics.objects.scores import brats_lesions, match_instances, picai_lesions, regional_dice
from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.pixels.overlap import overlap_scores
from segmeter.metrics.surfaces import surface_metrics
from tests.differential.cases import SWEEP, assert_agree, blobs, near
from tests.differential.peers import load, quiet
from tests.metrics.build import BINARY, maps_of


@cache
def pairs():
    """Instance maps with objects that match, are missed, split or made up; ids are in no order."""
    rng = np.random.default_rng(7)
    made = []
    while len(made) < SWEEP:
        shape = tuple(rng.integers(30, 44, 2)) if len(made) % 4 else tuple(rng.integers(10, 16, 3))
        target = ndimage.label(blobs(rng, shape, 3) == 1)[0]
        instances = np.roll(target, rng.integers(-1, 2, target.ndim), axis=tuple(range(target.ndim)))
        held = np.unique(instances)[1:]
        if len(held) < 2:
            continue
        instances[np.isin(instances, rng.choice(held, len(held) // 3, replace=False))] = 0
        extra = np.where((instances == 0) & (blobs(rng, shape, 4) == 2), instances.max() + 1, 0)
        instances = shuffle(rng, instances + extra)
        if instances.any():
            made.append((shuffle(rng, target), instances))
    return tuple(made)


def shuffle(rng, instances):
    """Other ids for the same objects, with gaps."""
    ids = np.concatenate([[0], 1 + rng.choice(60, instances.max(), replace=False)])
    return ids[instances].astype(np.uint16)


@cache
def ours():
    return tuple(match_instances(*pair, spacing=(1.0,) * pair[0].ndim) for pair in pairs())


@cache
def of_panoptica(matcher="NaiveThresholdMatching", threshold=0.5, given=None):
    """What it says of all pairs, or of the given ones."""
    panoptica = load("panoptica")
    panoptica.disable_citation_reminder()
    evaluator = panoptica.Panoptica_Evaluator(
        expected_input=panoptica.InputType.UNMATCHED_INSTANCE,
        instance_matcher=getattr(panoptica, matcher)(matching_threshold=threshold, strict_threshold=True),
        instance_metrics=[panoptica.Metric.IOU, panoptica.Metric.DSC, panoptica.Metric.ASSD],
        global_metrics=[],
        verbose=False,
    )
    with quiet():
        return [evaluator.evaluate(instances, target)["ungrouped"] for target, instances in (given or pairs)()]


def test_numbers_and_qualities_of_panoptica():
    """Over a match they are the same; without one its PQ is 0 as ours, and a mean of nothing its edge case."""
    matched = 0
    for one, other in zip(ours(), of_panoptica(), strict=True):
        assert (one.tp, one.fp, one.fn) == (other.tp, other.fp, other.fn)
        if one.tp:
            matched += 1
            found = one.rq, one.pq, one.sq, one.mean_dice, one.mean_masd
            assert_agree(found, (other.rq, other.pq, other.sq, other.sq_dsc, other.sq_assd))
    assert matched > SWEEP * 0.8
    assert sum(one.tp for one in ours()) > SWEEP
    assert min(sum(one.fp for one in ours()), sum(one.fn for one in ours())) > SWEEP / 4


def test_objects_of_the_table_lie_as_far_apart_as_panoptica_says(tmp_path):
    """The distance of the centres of every match, with a spacing."""
    distance = load("panoptica.metrics.center_distance", "panoptica")
    config = MetricsConfig(bootstrap=0, measures=(EventsConfig(distances=True),))
    compared = 0
    for i, (target, instances) in enumerate(pairs()[:40]):
        masks, spacing = ((one > 0).astype(np.uint8) for one in (target, instances)), (2.0, 0.7, 1.1)[-target.ndim :]
        maps = maps_of(*masks, case_id=str(i), spacing=spacing, target_instances=target, instances=instances)
        write_cases(tmp_path, [make_row(maps, build_measures(config, BINARY))], BINARY)
        for entry in pq.read_table(tmp_path / "objects.parquet").to_pylist():
            if entry["side"] == "target" and entry["event"] == "matched":
                given = (target, instances, entry["id"], entry["partner"])
                theirs = distance._compute_instance_center_distance(*given, voxelspacing=maps.spacing)
                assert_agree(entry["centroid_distance"], theirs, (i, entry["id"]))
                compared += 1
    assert compared > 40


def test_panoptic_quality_of_torchmetrics_and_of_monai():
    torch, detection = load("torch"), load("torchmetrics.functional.detection")
    of_monai = load("monai.metrics").compute_panoptic_quality
    options = {"things": {1}, "stuffs": {0}, "return_sq_and_rq": True, "return_per_class": True}
    for one, (target, instances) in zip(ours(), pairs(), strict=True):
        planes = [np.stack([each > 0, each], axis=-1)[None].astype(np.int64) for each in (instances, target)]
        with quiet():
            theirs = detection.panoptic_quality(*map(torch.from_numpy, planes), **options)[0]
        assert_agree([one.pq, np.nan_to_num(one.sq), one.rq], theirs)
        if target.ndim == 2:
            given = [torch.from_numpy(each.astype(np.int64)) for each in (instances, target)]
            theirs = [float(of_monai(*given, metric_name=name, smooth_numerator=0)) for name in ("pq", "sq", "rq")]
            assert_agree([one.pq, one.sq, one.rq], theirs)


def test_many_small_matches_below_one_half_are_those_of_scipys_assignment():
    """Below 0.5 the pairs are the best together, as panoptica's bipartite matching chooses them."""
    for pair, theirs in zip(pairs(), of_panoptica("MaxBipartiteMatching", 0.2), strict=True):
        one = match_instances(*pair, threshold=0.2)
        assert (one.tp, one.fp, one.fn) == (theirs.tp, theirs.fp, theirs.fn)
        if one.tp:
            assert_agree(one.pq, theirs.pq)


def renumbered(pair):
    """Ids without gaps: Cellpose takes the largest id for the number of objects."""
    return [np.unique(one, return_inverse=True)[1].reshape(one.shape).astype(np.int32) for one in pair]


def iou_table(target, instances):
    ours, theirs = ([one == i for i in range(1, one.max() + 1)] for one in (target, instances))
    return np.array([[np.sum(mask & other) / np.sum(mask | other) for other in theirs] for mask in ours])


def test_average_precision_of_cellpose():
    """An IoU equal to the threshold is a match there, and none here."""
    peer = load("cellpose.metrics", "cellpose")
    compared = 0
    for target, instances in map(renumbered, pairs()):
        for threshold in (0.5, 0.75, 0.9):
            if (iou_table(target, instances) == threshold).any():
                continue
            one, compared = match_instances(target, instances, threshold=threshold), compared + 1
            with quiet():
                ap, *numbers = peer.average_precision([target], [instances], threshold=[threshold])
            assert [one.tp, one.fp, one.fn] == [part[0, 0] for part in numbers]
            assert_agree(one.tp / (one.tp + one.fp + one.fn), ap[0, 0])
    assert compared > SWEEP


def test_the_aggregated_jaccard_index_of_cellpose_is_another():
    """It pairs objects one to one, and divides by the pixels that are in any object, each of which counts once."""
    peer = load("cellpose.metrics", "cellpose")
    apart = []
    for target, instances in map(renumbered, pairs()):
        table = iou_table(target, instances)
        rows, columns = linear_sum_assignment(-(table >= 0.5).astype(float) - table / (2 * min(table.shape)))
        common = sum(np.sum((target == i + 1) & (instances == j + 1)) for i, j in zip(rows, columns, strict=True))
        with quiet():
            theirs = peer.aggregated_jaccard_index([target], [instances])[0]
        assert_agree(theirs, common / np.sum((target > 0) | (instances > 0)))
        ours = np.divide(*aggregated_jaccard(find_overlaps(target, instances)))
        apart.append(theirs - ours)
    assert max(np.abs(apart)) > 0.1
    split = np.array([[1] * 10], np.int32), np.array([[1] * 6 + [2] * 4], np.int32)
    assert aggregated_jaccard(find_overlaps(*split)) == (6, 14)
    with quiet():
        assert peer.aggregated_jaccard_index(*([one] for one in split))[0] == 0.6


def test_objects_that_touch_the_border_and_a_split_one():
    target, instances = np.zeros((2, 20, 30), np.uint16)
    target[0:6, 0:6], target[10:18, 20:30], instances[0:6, 0:5] = 5, 9, 3
    instances[10:18, 20:25], instances[10:18, 25:30] = 1, 2  # halves: an IoU of 0.5 is no match
    one = match_instances(target, instances)
    (theirs,) = of_panoptica(given=lambda: [(target, instances)])
    assert (one.tp, one.fp, one.fn) == (theirs.tp, theirs.fp, theirs.fn) == (1, 2, 1)
    assert_agree(one.pq, theirs.pq)


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
        planes = [regions == k for k in range(1, count + 1)]
        theirs = [2 * (one & target & labels).sum() / ((one & target).sum() + (one & labels).sum()) for one in planes]
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
