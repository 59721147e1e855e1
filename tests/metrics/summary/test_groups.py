"""Groups of classes are scored as the one region that their masks make."""

import numpy as np
import pytest

from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.summary.summarise import summarise
from tests.metrics.build import case_row, class_spec

GROUPED = MetricsConfig(bootstrap=0, groups={"things": ("road", "car"), "all": ("sky", "road", "car")})


def test_a_group_equals_its_union_of_masks():
    rng = np.random.default_rng(0)
    pairs = [rng.integers(0, 3, (2, 20, 30)) for _ in range(4)]
    rows = [case_row(str(i), confusion_matrix(*pair, num_classes=3)) for i, pair in enumerate(pairs)]
    found = summarise(rows, class_spec(3), GROUPED)["per_group"]
    target, labels = np.stack(pairs, axis=1) > 0
    things = found["things"]
    assert things["classes"] == ["road", "car"]
    assert things["support"] == target.sum()
    assert things["iou"] == pytest.approx((target & labels).sum() / (target | labels).sum(), rel=1e-12)
    assert things["recall"] == pytest.approx((target & labels).sum() / target.sum(), rel=1e-12)
    each = [(a & b).sum() / (a | b).sum() for a, b in zip(target, labels, strict=True)]
    assert things["per_case"]["iou"]["mean"] == pytest.approx(np.mean(each), rel=1e-12)
    unions = (target | labels).sum(axis=(1, 2))
    assert things["n_effective"] == pytest.approx(unions.sum() ** 2 / (unions**2).sum(), rel=1e-12)
    assert (found["all"]["iou"], found["all"]["specificity"]) == (1.0, None)  # nothing is outside
    assert things["ci95"] == {"iou": None, "dice": None}


def test_intervals_hold_the_score_and_follow_the_clusters():
    rng = np.random.default_rng(1)
    rows = [case_row(f"c{i // 5}_{i:02d}", rng.integers(1, 60, (3, 3))) for i in range(30)]
    config = MetricsConfig(bootstrap=300, groups={"things": ("road", "car")})
    alone = summarise(rows, class_spec(3), config)["per_group"]["things"]
    grouped = summarise(rows, class_spec(3), config.replace(cluster="prefix:_"))["per_group"]["things"]
    low, high = alone["ci95"]["iou"]
    assert low < alone["iou"] < high
    assert grouped["iou"] == alone["iou"]
    assert grouped["ci95"] != alone["ci95"]
    assert grouped["n_effective"] < alone["n_effective"]
