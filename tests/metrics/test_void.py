"""The one rule for void in measures of objects, against panopticapi's counting written as plain loops over pixels."""

from collections import Counter
from itertools import product
from math import inf

import numpy as np
import pytest
from scipy import ndimage

from segmeter.metrics.config.measures import (
    AjiConfig,
    AveragePrecisionConfig,
    InstancesConfig,
    PartitionConfig,
    SizesConfig,
)
from segmeter.metrics.objects.scores import match_instances
from tests.metrics.build import BINARY, class_spec, maps_of
from tests.metrics.build import measured as measured_by

VOID = 255
THRESHOLDS = (0.5, 0.7, 0.9)
LIMITS = (6,)


def measured(target, labels, spec=BINARY, connectivity=8, **objects):
    options = {"connectivity": connectivity, "objects": "maps"}
    measures = (
        InstancesConfig(**options, distances=True),
        AveragePrecisionConfig(**options, thresholds=THRESHOLDS),
        AjiConfig(**options),
        SizesConfig(**options, limits=LIMITS),
        PartitionConfig(**options),
    )
    return measured_by(measures, maps_of(target, labels, spec, **objects), background=spec.task != "multiclass")


def loops(target, instances, void):
    """Every figure, as panopticapi counts: from a table of (target's id, predicted id), void being an id of its own."""
    table, predicted_areas = Counter(), Counter()
    for place in product(*map(range, target.shape)):
        t, p = -1 if void[place] else int(target[place]), int(instances[place])
        table[t, p] += 1
        predicted_areas[p] += 1
    targets = sorted({t for t, _ in table if t > 0})
    predictions = sorted(p for p in predicted_areas if p > 0)
    areas = {t: sum(n for (one, _), n in table.items() if one == t) for t in targets}
    kept = {p: predicted_areas[p] - table[-1, p] for p in predictions}

    def iou(t, p):
        return table[t, p] / (areas[t] + kept[p] - table[t, p]) if table[t, p] else 0.0

    def spurious(matched):
        return [p for p in predictions if p not in matched and not table[-1, p] / predicted_areas[p] > 0.5]

    found = {}
    for threshold in THRESHOLDS:
        pairs = {t: p for t, p in product(targets, predictions) if iou(t, p) > threshold}
        tp, fp, fn = len(pairs), spurious(pairs.values()), [t for t in targets if t not in pairs]
        objects = tp + len(fp) + len(fn)
        found[f"ap@{threshold}"] = tp / objects if objects else np.nan
        if threshold == 0.5:
            total = sum(iou(t, p) for t, p in pairs.items())
            weight = tp + len(fp) / 2 + len(fn) / 2
            found |= {"tp": tp, "fp": len(fp), "fn": len(fn), "pq": total / weight if weight else np.nan}
            for size, low, high in (("small", 0, LIMITS[0]), ("large", LIMITS[0], np.inf)):
                found[f"fp@{size}"] = sum(low <= kept[p] < high for p in fp)
                found[f"fn@{size}"] = sum(low <= areas[t] < high for t in fn)
                found[f"tp@{size}"] = sum(low <= areas[t] < high for t in pairs)
    common, union, used = 0, 0, set()
    for t in targets:
        best = max(predictions, key=lambda p: (iou(t, p), -p), default=None)
        if best is None or not table[t, best]:
            union += areas[t]
            continue
        common, union = common + table[t, best], union + areas[t] + kept[best] - table[t, best]
        used.add(best)
    union += sum(kept[p] for p in spurious(used))
    return found | {"aji": common / union if union else np.nan}


def as_loops(columns, region):
    """The same figures from our columns."""
    found = {name: columns[f"sum:instances_{name}/{region}"] for name in ("tp", "fp", "fn")}
    found |= {name: columns[f"{name}/{region}"] for name in ("pq", "aji")}
    for threshold in THRESHOLDS:
        tp, every = (columns[f"sum:ap_{name}@{threshold}/{region}"] for name in ("tp", "all"))
        found[f"ap@{threshold}"] = tp / every if every else np.nan
    for name, size in product(("tp", "fp", "fn"), ("small", "large")):
        found[f"{name}@{size}"] = columns[f"sum:sizes_{name}@{size}/{region}"]
    return found


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-12, abs=1e-12, nan_ok=True), name


def scene(seed, classes=2, shape=(18, 23)):
    """A target with void patches, and a prediction that also says something within them."""
    rng = np.random.default_rng(seed)
    smooth = ndimage.uniform_filter(rng.random(shape), 3)
    target = (smooth > rng.uniform(0.45, 0.6)) * rng.integers(1, classes, shape).astype(np.uint8)
    target = np.where(target > 0, ndimage.maximum_filter(target, 3), 0).astype(np.uint8)
    labels = np.where(rng.random(shape) < rng.choice([0.03, 0.15]), (target + 1) % classes, target).astype(np.uint8)
    for _ in range(rng.integers(0, 7)):
        y, x = rng.integers(0, shape[0] - 2), rng.integers(0, shape[1] - 2)
        patch = slice(y, y + rng.integers(1, 7)), slice(x, x + rng.integers(1, 7))
        target[patch] = VOID
        if rng.random() < 0.5:
            labels[patch] = rng.integers(0, classes)
    return target, labels


def numbered(mask, connectivity=8):
    return ndimage.label(mask, ndimage.generate_binary_structure(2, 2 if connectivity == 8 else 1))[0]


def assert_components(target, labels, connectivity=8):
    expected = loops(numbered(target == 1, connectivity), numbered(labels == 1, connectivity), target == VOID)
    assert_same(as_loops(measured(target, labels, connectivity=connectivity), "road"), expected)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([1, 1, 1, 1, 1, 0, 0, 0, 0], {"voi": 0, "are": 0, "aji": 1, "pq": 1}),  # mostly void, and yet the partner
        ([0, 0, 1, 1, 1, 1, 0, 0, 0], {"voi": inf, "are": 1, "aji": 0, "pq": 0}),  # mostly void, without a partner
        ([0, 0, 0, 0, 0, 1, 1, 0, 0], {"voi": 1, "are": 1, "aji": 0, "pq": 0}),  # spurious, so there is an object
        ([1, 0, 1, 1, 0, 0, 0, 0, 0], {"voi": 1, "are": 1, "aji": 1 / 2, "pq": 0}),  # one part of two in void
    ],
)
def test_a_prediction_mostly_in_void_counts_where_it_has_a_partner(labels, expected):
    found = measured([[1, 1, VOID, VOID, VOID, 0, 0, 0, 0]], [labels])
    assert {name: found[f"{name}/road"] for name in expected} == expected
    assert found["sum:partition_common/road"] == (2 if expected["pq"] else 0)


@pytest.mark.parametrize("connectivity", [8, 4])
@pytest.mark.parametrize("seed", range(12))
def test_components_equal_the_loops(seed, connectivity):
    assert_components(*scene(seed), connectivity)


def test_components_of_tiny_maps_equal_the_loops():
    """One object on either side, or none, is common here."""
    for seed in range(150):
        assert_components(*scene(seed, shape=(3, 7)))


@pytest.mark.parametrize("seed", range(6))
def test_every_class_has_the_same_void(seed):
    target, labels = scene(seed, classes=4)
    found = measured(target, labels, class_spec(4))
    for k, name in enumerate(("road", "car", "tree"), 1):
        assert_same(as_loops(found, name), loops(numbered(target == k), numbered(labels == k), target == VOID))


@pytest.mark.parametrize("seed", range(6))
def test_planes_of_multilabel_have_their_own_void(seed):
    pairs = [scene(seed), scene(seed + 50)]
    found = measured(*(np.stack(planes) for planes in zip(*pairs, strict=True)), class_spec(2, "multilabel"))
    for name, (target, labels) in zip(("sky", "road"), pairs, strict=True):
        assert_same(as_loops(found, name), loops(numbered(target == 1), numbered(labels == 1), target == VOID))


@pytest.mark.parametrize("seed", range(6))
def test_instance_maps_equal_match_instances_and_the_loops(seed):
    target, labels = scene(seed)
    rng = np.random.default_rng(seed)
    void = target == VOID
    ours = np.where(target == 1, numbered(target == 1, 4) + 3, 0)
    theirs = np.where(labels == 1, rng.permutation(40)[numbered(labels == 1, 4) % 40] + 1, 0)  # in parts
    columns = measured(target, labels, target_instances=ours, instances=theirs)
    assert_same(as_loops(columns, "road"), loops(ours, theirs, void))
    alone = match_instances(ours, theirs, void=void, spacing=(1, 1))
    assert (alone.tp, alone.fp, alone.fn) == tuple(columns[f"sum:instances_{n}/road"] for n in ("tp", "fp", "fn"))
    assert columns["pq/road"] == pytest.approx(alone.pq, rel=1e-12, nan_ok=True)
    assert columns["object_masd/road"] == pytest.approx(alone.mean_masd, rel=1e-12, nan_ok=True)
