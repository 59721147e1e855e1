"""The summary of measures: failures are counted, undefined is left out, infinity stays infinity."""

import json
from dataclasses import replace

import numpy as np
import pytest

from segmeter.metrics.cases.table import MeasureColumn
from segmeter.metrics.config.measures import BoundaryConfig, InstancesConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.summarise import summarise
from tests.metrics.build import case_row, class_spec

CONFIG = MetricsConfig(bootstrap=0, measures=(SurfaceConfig(), BoundaryConfig()))
QUICK = CONFIG.replace(bootstrap=300)
BOTH, MISSED, EMPTY = [[5, 0], [0, 3]], [[5, 0], [3, 0]], [[8, 0], [0, 0]]


def rows_of(*values, counts=None):
    counts = counts or [BOTH] * len(values)
    given = [{"hd95/sky": sky, "hd95/road": road} for sky, road in values]
    return [case_row(f"c{i}", held, scores=scores) for i, (held, scores) in enumerate(zip(counts, given, strict=True))]


def test_means_medians_and_what_they_rest_on_by_hand():
    rows = rows_of((1.0, 4.0), (3.0, np.inf), (5.0, np.nan), (7.0, 6.0), counts=[BOTH, MISSED, EMPTY, BOTH])
    hd95 = summarise(rows, class_spec(2), CONFIG)["measures"]["hd95"]
    assert hd95["sky"] == {
        "mean": 4.0,
        "median": 4.0,
        "std": pytest.approx((20 / 3) ** 0.5, rel=1e-12),  # 9 + 1 + 1 + 9 over 3
        "std_population": pytest.approx(5**0.5, rel=1e-12),  # and over 4
        "n_used": 4,
        "n_penalised": 0,
        "n_undefined": 0,
        "ci95": None,
    }
    road = hd95["road"]
    assert (road["mean"], road["median"], road["std"]) == ("inf", 6.0, None)
    assert (road["n_used"], road["n_penalised"], road["n_undefined"]) == (3, 1, 1)
    # per case: (1 + 4) / 2, inf, 5 (road is undefined), 6.5
    mean = hd95["mean"]
    assert (mean["mean"], mean["median"], mean["n_used"], mean["n_penalised"]) == ("inf", 5.75, 4, 1)


def test_a_failure_is_counted_whatever_stands_for_it():
    for value in (np.nan, 0.0, 99.0):
        rows = rows_of((1.0, 4.0), (1.0, value), counts=[BOTH, MISSED])
        road = summarise(rows, class_spec(2), CONFIG)["measures"]["hd95"]["road"]
        assert road["n_penalised"] == 1
        assert road["n_used"] + road["n_undefined"] == 2


def test_the_mean_over_classes_leaves_out_what_the_means_leave_out():
    rows = rows_of((1.0, 4.0), (3.0, 6.0), counts=[BOTH, MISSED])
    config = CONFIG.replace(background=False)
    assert summarise(rows, class_spec(2), config)["measures"]["hd95"]["mean"]["mean"] == 5.0
    grouped = [replace(row, measured=(*row.measured, MeasureColumn("hd95", "all", 100.0))) for row in rows]
    config = CONFIG.replace(groups={"all": ("sky", "road")})
    hd95 = summarise(grouped, class_spec(2), config)["measures"]["hd95"]
    assert hd95["mean"]["mean"] == 3.5
    assert (hd95["all"]["mean"], hd95["all"]["n_penalised"]) == (100.0, 0)


def test_sums_over_cases_become_scores_of_the_data_set():
    scores = [{"sum:boundary_common/road": 3.0, "sum:boundary_union/road": 4.0}]
    scores += [{"sum:boundary_common/road": 1.0, "sum:boundary_union/road": 16.0, "boundary_iou/road": 1 / 16}]
    rows = [case_row(f"c{i}", BOTH, scores=one) for i, one in enumerate(scores)]
    found = summarise(rows, class_spec(2), CONFIG)["measures"]["boundary_iou"]
    assert found["road"]["dataset"] == found["mean"]["dataset"] == 4 / 20
    assert (found["road"]["mean"], found["road"]["n_used"]) == (1 / 16, 1)


def test_intervals_are_of_the_same_resamples_as_the_rest():
    rows = []
    for i, (first, second) in enumerate(np.random.default_rng(0).integers(1, 50, (60, 2)).tolist()):
        scores = {"hd95/road": float(second), "sum:boundary_common/road": first}
        scores |= {"sum:boundary_union/road": first + second}
        rows.append(case_row(f"c{i:02d}", np.diag([first, second]), scores=scores))
    summary = summarise(rows, class_spec(2), QUICK)
    low, high = summary["measures"]["hd95"]["road"]["ci95"]
    assert low < summary["measures"]["hd95"]["road"]["mean"] < high
    ends = summary["measures"]["boundary_iou"]["road"]["dataset_ci95"]
    assert ends[0] < summary["measures"]["boundary_iou"]["road"]["dataset"] < ends[1]
    assert summarise(rows[::-1], class_spec(2), QUICK) == summary
    clustered = summarise(rows, class_spec(2), QUICK.replace(cluster=r"^c(\d)"))
    assert clustered["measures"]["hd95"]["road"]["ci95"] != [low, high]


def test_numbers_of_objects_are_sums_and_have_no_mean_over_classes():
    numbers = {"tp": 3.0, "fp": 1.0, "fn": 0.0, "iou": 2.5, "dice": 2.7}
    scores = {f"sum:instances_{name}/{k}": value for name, value in numbers.items() for k in ("sky", "road")}
    rows = [case_row(f"c{i}", BOTH, scores=scores) for i in range(60)]
    found = summarise(rows, class_spec(2), QUICK.replace(measures=(InstancesConfig(),)))["measures"]
    assert found["tp"]["road"]["dataset"] == 180
    assert found["tp"]["road"]["dataset_ci95"] == [180, 180]  # every resample has the same sum
    assert all(list(found[name]) == ["sky", "road"] for name in ("tp", "fp", "fn"))
    assert found["pq"]["mean"]["dataset"] == found["pq"]["road"]["dataset"] == 2.5 / 3.5


def test_an_interval_with_failures_ends_at_infinity_and_json_can_say_it():
    rows = rows_of(*[(1.0, float(i)) for i in range(9)], (1.0, np.inf))
    summary = summarise(rows, class_spec(2), QUICK)
    entry = summary["measures"]["hd95"]["road"]
    assert entry["mean"] == "inf"
    assert entry["ci95"][1] == "inf"
    assert float(entry["ci95"][0]) >= 0
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
