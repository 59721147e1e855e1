"""Matched objects and their scores equal those of panoptica, torchmetrics and MONAI, run live."""

from functools import cache

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
from segmeter.metrics.objects.scores import match_instances
from tests.differential.cases import SWEEP, assert_agree, blobs, boxes
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


def test_there_is_something_to_match():
    found = ours()
    assert sum(one.tp for one in found) > SWEEP
    assert min(sum(one.fp for one in found), sum(one.fn for one in found)) > SWEEP / 4


def test_numbers_of_panoptica():
    for one, other in zip(ours(), of_panoptica(), strict=True):
        assert (one.tp, one.fp, one.fn) == (other.tp, other.fp, other.fn)


@pytest.mark.parametrize("name", ["rq", "pq", "sq", "mean_dice", "mean_masd"])
def test_qualities_of_panoptica(name):
    """Over a match it is the same; without one its PQ is 0 as ours, and a mean of nothing its edge case."""
    theirs = {"mean_dice": "sq_dsc", "mean_masd": "sq_assd"}.get(name, name)
    matched = [(one, other) for one, other in zip(ours(), of_panoptica(), strict=True) if one.tp]
    assert len(matched) > SWEEP * 0.8
    assert_agree([getattr(one, name) for one, _ in matched], [getattr(other, theirs) for _, other in matched])


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


def test_panoptic_quality_of_torchmetrics():
    torch, detection = load("torch"), load("torchmetrics.functional.detection")
    found = []
    for target, instances in pairs():
        planes = [np.stack([one > 0, one], axis=-1)[None].astype(np.int64) for one in (instances, target)]
        given = [torch.from_numpy(plane) for plane in planes]
        options = {"things": {1}, "stuffs": {0}, "return_sq_and_rq": True, "return_per_class": True}
        with quiet():
            found.append(detection.panoptic_quality(*given, **options)[0].tolist())
    expected = [[one.pq, np.nan_to_num(one.sq), one.rq] for one in ours()]
    assert_agree(expected, found)


@pytest.mark.parametrize("name", ["pq", "sq", "rq"])
def test_panoptic_quality_of_monai(name):
    torch, quality = load("torch"), load("monai.metrics").compute_panoptic_quality
    for one, (target, instances) in zip(ours(), pairs(), strict=True):
        if target.ndim == 2:
            given = [torch.from_numpy(each.astype(np.int64)) for each in (instances, target)]
            assert_agree(getattr(one, name), float(quality(*given, metric_name=name, smooth_numerator=0)))


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
    target[boxes((20, 30), np.s_[0:6, 0:6]) > 0] = 5
    target[10:18, 20:30] = 9
    instances[0:6, 0:5] = 3
    instances[10:18, 20:25], instances[10:18, 25:30] = 1, 2  # halves: an IoU of 0.5 is no match
    one = match_instances(target, instances)
    (theirs,) = of_panoptica(given=lambda: [(target, instances)])
    assert (one.tp, one.fp, one.fn) == (theirs.tp, theirs.fp, theirs.fn) == (1, 2, 1)
    assert_agree(one.pq, theirs.pq)
