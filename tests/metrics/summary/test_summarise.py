"""The summary is metrics.json schema 1: named aggregations, null for undefined, the same for any order of rows."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from segmeter.errors import ConfigError, InputError
from segmeter.metrics.cases.stored import read_cases, write_cases
from segmeter.metrics.cases.table import MeasureColumn
from segmeter.metrics.config.measures import BoundaryConfig, InstancesConfig, SurfaceConfig
from segmeter.metrics.config.metrics import DEFAULT, MetricsConfig
from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.summary.summarise import summarise
from tests.metrics.build import case_row, class_spec, random_rows

QUICK = MetricsConfig(bootstrap=200)
NONE = MetricsConfig(bootstrap=0)


def test_dataset_and_per_case_means_are_told_apart():
    # a: iou 3/4 and 4/5 (car absent); b: iou 1 and, for road and car, undefined
    rows = [case_row("a", [[3, 1, 0], [0, 4, 0], [0, 0, 0]]), case_row("b", [[10, 0, 0], [0, 0, 0], [0, 0, 0]])]
    summary = summarise(rows, class_spec(), NONE)
    assert summary["dataset"]["mean_iou"] == pytest.approx((13 / 14 + 4 / 5) / 2, rel=1e-12)
    assert summary["dataset"]["n_classes_undefined"] == 1
    assert (summary["dataset_ci95"]["mean_iou"], summary["bootstrap"]["warning"]) == (None, None)
    per_case = summary["per_case"]["mean_iou"]
    first = (3 / 4 + 4 / 5) / 2
    assert per_case["mean"] == pytest.approx((first + 1) / 2, rel=1e-12)
    assert per_case["std"] == pytest.approx((1 - first) / 2**0.5, rel=1e-12)  # of two values, n - 1
    assert per_case["std_population"] == pytest.approx((1 - first) / 2, rel=1e-12)
    assert (per_case["n_used"], per_case["n_undefined"]) == (2, 0)
    road = summary["per_class"]["road"]
    assert (road["iou"], road["support"], road["per_case"]["iou"]["n_undefined"]) == (0.8, 4, 1)


def test_the_schema_that_other_tools_read():
    summary = summarise(random_rows(6, loss=0.5), class_spec(), QUICK)
    known = {"schema": 1, "convention": "segmeter", "n_cases": 6, "ignore_index": 255}
    known |= {"classes": ["sky", "road", "car"]}
    assert {name: summary[name] for name in known} == known
    np.testing.assert_array_equal(summary["confusion_matrix"], sum(row.counts for row in random_rows(6)))
    assert {"mean_iou", "mean_dice", "pixel_accuracy"} <= set(summary["dataset"])
    for name in summary["classes"]:
        assert {"iou", "dice", "precision", "recall", "support"} <= set(summary["per_class"][name])
    for entry in summary["per_case"].values():
        assert {"mean", "std", "n_used", "n_undefined", "ci95"} <= set(entry)
        low, high = entry["ci95"]
        assert low < entry["mean"] < high
    assert summary["loss"]["mean"] == 0.5
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_what_is_undefined_is_null_and_never_0():
    rows = [case_row("a", np.zeros((3, 3))), case_row("b", np.zeros((3, 3)))]
    summary = summarise(rows, class_spec(), QUICK)
    assert set(summary["dataset"].values()) == {None, 3}
    assert summary["dataset_ci95"]["mean_iou"] == [None, None]
    nothing = dict.fromkeys(("mean", "std", "std_population"))
    assert summary["per_case"]["mean_dice"] == nothing | {"n_used": 0, "n_undefined": 2, "ci95": [None, None]}
    assert summary["per_class"]["sky"]["iou"] is None
    assert summary["loss"]["mean"] is None


def test_one_case_has_no_spread_and_no_interval():
    summary = summarise([case_row("a", [[5, 1, 0], [0, 2, 0], [0, 0, 3]])], class_spec(), QUICK)
    entry = summary["per_case"]["mean_iou"]
    assert (entry["std"], entry["std_population"], entry["ci95"]) == (None, 0, [None, None])
    assert summary["dataset_ci95"]["mean_iou"] == [None, None]
    assert summary["dataset"]["mean_iou"] == pytest.approx((5 / 6 + 2 / 3 + 1) / 3, rel=1e-12)


def test_the_order_of_the_rows_and_a_trip_through_files_change_nothing(tmp_path):
    rows = random_rows(20, loss=0.1)
    summary = summarise(rows, class_spec(), QUICK)
    assert summarise(rows[::-1], class_spec(), QUICK) == summary
    write_cases(tmp_path, rows, class_spec())
    assert summarise(read_cases(tmp_path), class_spec(), QUICK) == summary


def test_the_mean_of_a_binary_task_is_over_both_classes_unless_background_is_left_out():
    spec = class_spec(2, "binary")
    rows = [case_row("a", [[90, 5], [2, 3]]), case_row("b", [[80, 5], [5, 10]])]
    both = summarise(rows, spec, NONE)
    iou = [170 / 187, 13 / 30]
    assert both["dataset"]["mean_iou"] == pytest.approx(sum(iou) / 2, rel=1e-12)
    assert both["mean_classes"] == ["sky", "road"]
    assert both["per_class"]["road"]["iou"] == pytest.approx(iou[1], rel=1e-12)
    only = summarise(rows, spec, NONE.replace(background=False))
    assert only["dataset"]["mean_iou"] == pytest.approx(iou[1], rel=1e-12)
    assert only["mean_classes"] == ["road"]
    assert only["per_case"]["mean_iou"]["mean"] == pytest.approx((3 / 10 + 10 / 20) / 2, rel=1e-12)


def test_multilabel_keeps_a_matrix_per_class():
    summary = summarise(random_rows(5, 2, task="multilabel"), class_spec(2, "multilabel"), QUICK)
    assert summary["confusion_matrix"] is None
    assert np.shape(summary["confusion_matrices"]) == (2, 2, 2)
    (_, fp), (fn, tp) = summary["confusion_matrices"][1]
    assert summary["per_class"]["road"]["iou"] == pytest.approx(tp / (tp + fp + fn), rel=1e-12)


@pytest.mark.parametrize(("n_cases", "warning"), [(4, "no intervals"), (49, "hold the true value less"), (50, None)])
def test_few_cases_are_warned_about(n_cases, warning):
    rows = [replace(row, counts=random_rows(1)[0].counts) for row in random_rows(n_cases)]
    note = summarise(rows, class_spec(), QUICK)["bootstrap"]
    assert (note["n_units"], note["interval"], note["level"]) == (n_cases, "expanded", 0.95)
    wanted = warning and f"Only {n_cases} independent units: .*{warning}"
    assert re.search(wanted, note["warning"]) if warning else note["warning"] is None


def test_a_class_that_few_cases_decide_is_named():
    # the second class: 59 cases of 1 pixel and one of 41; Kish: (59 + 41)^2 / (59 + 41^2) = 5.747
    rows = [case_row(f"{i}", [[500, 0], [0, 1]]) for i in range(59)] + [case_row("big", [[440, 20], [0, 21]])]
    summary = summarise(rows, class_spec(2), QUICK)
    assert summary["per_class"]["road"]["n_effective"] == pytest.approx(100**2 / (59 + 41**2), rel=1e-12)
    assert summary["per_class"]["sky"]["n_effective"] == pytest.approx(
        (59 * 500 + 460) ** 2 / (59 * 500**2 + 460**2), rel=1e-12
    )
    assert summary["bootstrap"]["warning"] == "Few effective units, as large cases outweigh the others: road 5.7."


def test_cases_that_look_grouped_are_named_with_the_remedy():
    rows = [replace(row, case_id=f"p{i // 20:02}_{i % 20:03}") for i, row in enumerate(random_rows(100))]
    warning = summarise(rows, class_spec(), QUICK)["bootstrap"]["warning"]
    assert "Case ids look grouped (5 groups)" in warning
    assert "set metrics.cluster=prefix:_." in warning
    grouped = summarise(rows, class_spec(), QUICK.replace(cluster="prefix:_"))
    assert "grouped" not in grouped["bootstrap"]["warning"]
    assert grouped["bootstrap"]["n_units"] == 5
    expression = summarise(rows, class_spec(), QUICK.replace(cluster=r"^(p\d+)_"))
    assert grouped["dataset_ci95"] == expression["dataset_ci95"]


def test_clusters_from_the_case_ids_widen_the_interval():
    # five patients with eight equal slices each: 40 rows, 5 independent units
    patients = random_rows(5, seed=3)
    rows = [replace(row, case_id=f"p{i}_{j}") for i, row in enumerate(patients) for j in range(8)]
    single = summarise(rows, class_spec(), QUICK)
    grouped = summarise(rows, class_spec(), QUICK.replace(cluster=r"^(p\d+)_"))
    assert grouped["bootstrap"]["n_units"] == 5
    assert grouped["dataset"] == single["dataset"]
    width = {name: np.ptp(s["dataset_ci95"]["mean_iou"]) for name, s in (("one", single), ("all", grouped))}
    assert width["all"] > 1.5 * width["one"]
    for name, entry in grouped["per_class"].items():
        assert single["per_class"][name]["n_effective"] == pytest.approx(8 * entry["n_effective"], rel=1e-12)


def test_a_loss_that_is_infinite_leaves_no_mean():
    rows = [replace(row, loss=value) for row, value in zip(random_rows(3), (0.5, np.inf, None), strict=True)]
    loss = summarise(rows, class_spec(), NONE)["loss"]
    assert (loss["mean"], loss["n_infinite"]) == (None, 1)
    kept = summarise(rows[::2], class_spec(), NONE)["loss"]
    assert (kept["mean"], kept["n_used"], kept["n_undefined"]) == (0.5, 1, 1)
    assert kept["dataset"] is None  # rows of earlier versions have no terms


def test_the_loss_of_all_cases_divides_once_and_leaves_out_a_case_without_a_pixel():
    # parts: a sum over weights, and one that is divided already (denominator 0), which is averaged over the cases
    terms = [((2.0, 1.0), (0.5, 0.0)), ((3.0, 3.0), (0.1, 0.0)), ((np.nan, 0.0), (0.0, 0.0))]
    losses = [2.5, 1.1, np.nan]
    rows = [replace(row, loss=a, loss_terms=b) for row, a, b in zip(random_rows(3), losses, terms, strict=True)]
    assert summarise(rows, class_spec(), NONE)["loss"]["dataset"] == pytest.approx(5 / 4 + 0.6 / 2, rel=1e-12)
    bad = [*rows[:2], replace(rows[2], loss_terms=((np.nan, 7.0), (0.0, 0.0)))]
    assert summarise(bad, class_spec(), NONE)["loss"]["dataset"] is None
    assert summarise(rows[2:], class_spec(), NONE)["loss"]["dataset"] is None


@pytest.mark.parametrize(
    ("rows", "config", "message"),
    [
        ([], NONE, "`rows` to hold a case, got none"),
        (random_rows(2) + random_rows(1), NONE, "twice: case-000"),
        (random_rows(2), NONE.replace(cluster="^(p)"), "`cluster` to match every case id .* got 2 without"),
    ],
    ids=["none", "twice", "cluster"],
)
def test_refusals(rows, config, message):
    with pytest.raises(InputError, match=message):
        summarise(rows, class_spec(), config)


def test_groups_are_checked_against_the_classes():
    with pytest.raises(ConfigError, match=r"`groups\.x` to name classes, got 'rod'\. Did you mean 'road'"):
        summarise(random_rows(1), class_spec(), DEFAULT.replace(groups={"x": ("rod",)}))
    with pytest.raises(ConfigError, match="to be empty for a multilabel task"):
        summarise([], class_spec(2, "multilabel"), DEFAULT.replace(groups={"x": ("sky",)}))


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
    groups = {"green": ("car", "tree"), "all": class_spec(4).names}
    found = summarise(rows, class_spec(4), config.replace(groups=groups))["per_group"]
    group = found["green"]
    alone = summarise(others, class_spec(2), config)["per_class"]["road"]
    for name in ("support", "iou", "dice", "precision", "recall", "specificity", "per_case", "ci95", "n_effective"):
        assert group[name] == alone[name], name
    assert (found["all"]["iou"], found["all"]["specificity"]) == (1.0, None)  # nothing is outside
    assert group["per_case"]["iou"]["n_undefined"] == 3
    assert group["classes"] == ["car", "tree"]


CONFIG = MetricsConfig(bootstrap=0, measures=(SurfaceConfig(), BoundaryConfig()))
RESAMPLED = CONFIG.replace(bootstrap=300)
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


def test_intervals_are_of_the_same_resamples_as_the_rest():
    rows = []
    for i, (first, second) in enumerate(np.random.default_rng(0).integers(1, 50, (60, 2)).tolist()):
        scores = {"hd95/road": float(second), "sum:boundary_common/road": first}
        scores |= {"sum:boundary_union/road": first + second}
        rows.append(case_row(f"c{i:02d}", np.diag([first, second]), scores=scores))
    summary = summarise(rows, class_spec(2), RESAMPLED)
    low, high = summary["measures"]["hd95"]["road"]["ci95"]
    assert low < summary["measures"]["hd95"]["road"]["mean"] < high
    ends = summary["measures"]["boundary_iou"]["road"]["dataset_ci95"]
    assert ends[0] < summary["measures"]["boundary_iou"]["road"]["dataset"] < ends[1]
    assert summarise(rows[::-1], class_spec(2), RESAMPLED) == summary
    clustered = summarise(rows, class_spec(2), RESAMPLED.replace(cluster=r"^c(\d)"))
    assert clustered["measures"]["hd95"]["road"]["ci95"] != [low, high]


def test_numbers_of_objects_are_sums_and_have_no_mean_over_classes():
    numbers = {"tp": 3.0, "fp": 1.0, "fn": 0.0, "iou": 2.5, "dice": 2.7}
    scores = {f"sum:instances_{name}/{k}": value for name, value in numbers.items() for k in ("sky", "road")}
    rows = [case_row(f"c{i}", BOTH, scores=scores) for i in range(60)]
    found = summarise(rows, class_spec(2), RESAMPLED.replace(measures=(InstancesConfig(),)))["measures"]
    assert found["tp"]["road"]["dataset"] == 180
    assert found["tp"]["road"]["dataset_ci95"] == [180, 180]  # every resample has the same sum
    assert all(list(found[name]) == ["sky", "road"] for name in ("tp", "fp", "fn"))
    assert found["pq"]["mean"]["dataset"] == found["pq"]["road"]["dataset"] == 2.5 / 3.5


def test_an_interval_with_failures_ends_at_infinity_and_json_can_say_it():
    rows = rows_of(*[(1.0, float(i)) for i in range(9)], (1.0, np.inf))
    summary = summarise(rows, class_spec(2), RESAMPLED)
    entry = summary["measures"]["hd95"]["road"]
    assert entry["mean"] == "inf"
    assert entry["ci95"][1] == "inf"
    assert float(entry["ci95"][0]) >= 0
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
