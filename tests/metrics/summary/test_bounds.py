"""Infinite distances are ordered and never subtracted: misses are compared as misses, the rest as distances."""

import numpy as np
import pytest

from segmeter.metrics.summary.compare import compare_runs, lay_out
from segmeter.metrics.summary.gates import decide
from segmeter.metrics.summary.slices import _worst
from segmeter.metrics.summary.summarise import summarise
from segmeter.report.page.comparison import requirement_line
from tests.metrics.build import class_spec
from tests.metrics.summary.test_gates import QUICK, run

INF, NAN = np.inf, np.nan
NEAR = np.array([2.0 + i % 3 for i in range(40)])


def gate(base, new, require):
    given = lay_out({"base": run(base), "new": run(new)}, class_spec(), QUICK, require=[require])
    found = decide(*given.boards.values(), given.required, {})
    return found["outcome"], {each["require"]: each for each in found["requirements"]}


def missed(values, *cases):
    """The values, infinite in these cases."""
    return np.where(np.isin(np.arange(40), cases), INF, values)


def test_misses_that_the_base_hardly_has_are_a_regression():
    outcome, found = gate(missed(NEAR, 3), missed(NEAR, *range(36)), "hd95/car <= base + 1")
    assert outcome == "regression"
    finite, misses = found["hd95/car <= base + 1"], found["infinite(hd95/car) <= base"]
    assert (finite["outcome"], finite["n_used"], finite["margin"]) == ("unknown", 4, 1)
    assert misses["n_infinite"] == finite["n_infinite"] == {"base": 1, "new": 36, "cases": 40}
    assert (misses["outcome"], misses["change"]) == ("regression", "worse")
    assert (misses["base"], misses["new"], misses["margin"]) == (1 / 40, 36 / 40, pytest.approx(-35 / 40, rel=1e-12))
    line = requirement_line(misses)
    assert line.startswith("infinite(hd95/car) <= base: REGRESSION, margin -0.8750 [")
    assert line.endswith("; infinite in 36 of 40 cases, in the base in 1")


@pytest.mark.parametrize(
    ("base", "new", "finite", "misses"),
    [
        pytest.param(missed(NEAR, 3), missed(NEAR, 3), "pass", "pass", id="same"),
        pytest.param(missed(NEAR, 3), missed(NEAR + 3, 3), "regression", "pass", id="farther"),
        pytest.param(missed(NEAR, *range(9)), NEAR, "pass", "pass", id="found"),
        pytest.param(missed(NEAR, *range(9)), NEAR + 3, "regression", "pass", id="found but farther"),
        pytest.param(NEAR, missed(NEAR, 3), "pass", "unknown", id="one more"),
        pytest.param(missed(NEAR, 3), missed(NEAR, 4), "pass", "unknown", id="another one"),
        pytest.param(NEAR, missed(NEAR, *range(9)), "pass", "regression", id="more"),
        pytest.param(np.full(40, INF), np.full(40, INF), None, "pass", id="all"),
        pytest.param(NEAR, np.full(40, INF), None, "regression", id="lost all"),
        pytest.param(np.full(40, INF), NEAR, None, "pass", id="got all"),
    ],
)
def test_misses_and_distances_are_decided_apart_and_the_worse_counts(base, new, finite, misses):
    outcome, found = gate(base, new, "hd95 <= base + 1")
    entries = {"hd95/mean <= base + 1": finite, "infinite(hd95/mean) <= base": misses}
    assert {name: each["outcome"] for name, each in found.items()} == {k: v for k, v in entries.items() if v}
    assert outcome == next(each for each in ("regression", "unknown", "pass") if each in (finite, misses))


def test_a_false_alarm_is_infinite_where_the_base_has_nothing_to_measure():
    # nothing is there, and the base finds nothing: undefined; what the new run finds there is infinitely far off
    nothing = np.where(np.arange(40) < 9, NAN, NEAR)
    alarms = missed(NEAR, *range(9))
    outcome, found = gate(nothing, alarms, "hd95/car <= base + 1")
    assert (outcome, found["hd95/car <= base + 1"]["outcome"]) == ("regression", "pass")
    assert found["infinite(hd95/car) <= base"]["n_infinite"] == {"base": 0, "new": 9, "cases": 40}
    assert gate(alarms, nothing, "hd95/car <= base + 1")[0] == "pass", "and no loss the other way round"


def test_a_fixed_bound_is_about_the_new_run_alone():
    found_badly = np.where(np.arange(40) < 30, 9.0, NEAR)  # where the base finds nothing
    outcome, found = gate(missed(NEAR, *range(30)), found_badly, "hd95/car <= 5")
    assert (outcome, list(found)) == ("regression", ["hd95/car <= 5"])
    assert found["hd95/car <= 5"]["n_used"] == 40, "also the cases that the base missed"
    outcome, found = gate(NEAR, missed(NEAR, *range(9)), "hd95/car <= 5")
    assert (outcome, found["hd95/car <= 5"]["outcome"]) == ("regression", "pass")
    assert found["infinite(hd95/car) <= 0"]["outcome"] == "regression"


def test_slices_order_infinite_means_and_name_the_one_with_most():
    labels = QUICK.replace(slice_by=(r"(\d)$",))
    values = missed(NEAR, 3, 5, 15, 25)  # cases that end with 3: one of four, with 5: three of four
    found = summarise(run(values), class_spec(), labels)["slices"]["by"][r"(\d)$"]
    some, most, none = (found[label]["scores"]["hd95/mean"] for label in "352")
    assert (some["value"], most["value"]) == ("inf", "inf")
    assert (some["n_infinite"], most["n_infinite"], none["n_infinite"]) == (1, 3, 0)
    assert [each["difference"] for each in (some, most, none)] == ["inf", "inf", "-inf"]
    _, compared = pair_of(missed(NEAR, 3, 5), missed(NEAR, 3, 5, 15), slice_by=(r"(\d)$",))
    scores = {label: each["scores"]["hd95/mean"] for label, each in compared["slices"][0]["by"][r"(\d)$"].items()}
    assert (scores["3"]["difference"], scores["3"]["change"]) == (0, "equal")
    assert (scores["5"]["difference"], scores["5"]["change"]) == ("inf", "worse")


def test_the_worst_of_slices_that_are_infinite_is_that_with_the_largest_share():
    entry = {"n": 4, "scores": {"hd95/mean": {"value": "inf", "ci95": ["inf", "inf"], "n_infinite": 1}}}
    more = {"n": 4, "scores": {"hd95/mean": {"value": "inf", "ci95": ["inf", "inf"], "n_infinite": 3}}}
    assert _worst({"ward": {"a": entry, "b": more, "c": entry}}, "hd95/mean") == {"by": "ward", "slice": "b"}


def pair_of(base, new, metric="hd95/car", **options):
    found = compare_runs({"base": run(base), "new": run(new)}, class_spec(), QUICK.replace(**options))
    return found["metrics"][metric], found


def test_a_comparison_orders_infinite_means_by_how_many_cases_are():
    entry, _ = pair_of(missed(NEAR, 3), missed(NEAR, *range(36)))
    (pair,) = entry["pairs"]
    assert entry["per_case"] == {"base": "inf", "new": "inf"}
    assert entry["infinite"] == {"base": 1, "new": 36}
    assert (pair["per_case_difference"], pair["per_case_change"]) == ("inf", "worse")
    assert (pair["sign_flip_p"], pair["sign_flip_p_holm"]) == (None, None)
    assert pair["wilcoxon_p"] < 0.05
    assert "dataset_difference" not in pair
    assert (entry["better"], entry["ranked_by"]) == ("lower", "per_case")
    assert entry["ranking"]["order"] == ["base", "new"]
    assert entry["ranking"]["rank_shares"]["base"] == [1, 0]
    back, _ = pair_of(missed(NEAR, *range(36)), missed(NEAR, 3))
    assert back["ranking"]["order"] == ["new", "base"]
    assert back["pairs"][0]["per_case_change"] == "better"


def test_objects_that_the_new_run_made_up_make_it_worse():
    """The base is undefined in these cases, as neither map has the object."""
    nothing, invented = (np.where(np.arange(40) < 5, value, NEAR) for value in (NAN, INF))
    pairs = (nothing, invented), (invented, nothing), (nothing, nothing)
    found = [pair_of(*pair)[0]["pairs"][0] for pair in pairs]
    assert [one["per_case_change"] for one in found] == ["worse", "better", "equal"]
    assert [one["per_case_difference"] for one in found] == ["inf", "-inf", 0]


def test_where_as_many_are_infinite_the_finite_ones_decide():
    entry, _ = pair_of(missed(NEAR, 3), missed(NEAR + 1, 3))
    (pair,) = entry["pairs"]
    assert pair["per_case_difference"] == pytest.approx(1, rel=1e-12)
    assert pair["per_case_ci95"] == pytest.approx([1, 1], rel=1e-9)
    assert entry["ranking"]["order"] == ["base", "new"]
    same, _ = pair_of(np.full(40, INF), np.full(40, INF))
    assert same["pairs"][0]["per_case_difference"] == 0
    assert same["ranking"]["ranks"] == {"base": 1.5, "new": 1.5}
