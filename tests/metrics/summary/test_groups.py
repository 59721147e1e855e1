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


@pytest.mark.parametrize("cluster", [None, r"(.)"])
def test_a_group_has_cases_and_intervals_as_its_classes_merged_by_hand_have(cluster):
    maps = np.random.default_rng(5).integers(0, 4, (60, 2, 200), dtype=np.uint8)
    maps[:3] %= 2  # car and tree are in neither map there
    merged = np.isin(maps, [2, 3])
    rows, others = (
        [case_row(f"{i:02d}", confusion_matrix(*pair, num_classes=k)) for i, pair in enumerate(every)]
        for every, k in ((maps, 4), (merged, 2))
    )
    config = MetricsConfig(bootstrap=200, cluster=cluster)
    group = summarise(rows, class_spec(4), config.replace(groups={"green": ("car", "tree")}))["per_group"]["green"]
    alone = summarise(others, class_spec(2), config)["per_class"]["road"]
    for name in ("per_case", "ci95", "dice", "n_effective"):
        assert group[name] == alone[name], name
    assert group["per_case"]["iou"]["n_undefined"] == 3
    assert group["classes"] == ["car", "tree"]
