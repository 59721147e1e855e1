"""Plans from finished runs: what the rows say of one run, two runs, clusters and slices."""

from pathlib import Path

import numpy as np
import pytest

from segmeter.errors import ConfigError, InputError
from segmeter.evaluation.decisions.config import PlanKeys
from segmeter.evaluation.decisions.plan import plan_runs, points_table
from segmeter.files import write_json
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.needed_cases import Aims, Plan
from segmeter.metrics.summary.summarise import summarise
from segmeter.report.decisions import show_plan
from tests.data.crafted import BINARY

CONFIG = MetricsConfig(bootstrap=1000)
WIDTH = Aims(width=0.04)


def make_run(folder, *, seed=0, cases=40, shift=0, spread=0.0):
    """A finished run whose object has 100 pixels, or log-normally many, of which some are missed."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(cases):
        held = round(100 * np.exp(spread * rng.normal()))
        missed = min(held, rng.binomial(held, 0.2) + shift)
        counts = np.array([[400, 0], [missed, held - missed]])
        rows.append(CaseRow(case_id=f"p{i // 4:02}_{i:03}", height=1, width=400 + held, counts=counts))
    folder.mkdir()
    write_cases(folder, rows, BINARY)
    write_json(folder / "metrics.json", summarise(rows, BINARY, MetricsConfig(bootstrap=0)))
    return folder


def plan_iou(runs, aims=WIDTH, config=CONFIG):
    return plan_runs(runs, config, aims, scores=["iou/cell"])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("pilot") / "run")


def row(plan, kind, score="iou/cell"):
    return next(one for one in plan["rows"] if (one["kind"], one["score"]) == (kind, score) and one["slice"] is None)


def test_twice_as_many_units_are_needed_for_an_interval_that_is_narrower_by_the_root_of_two(run):
    wide, narrow = (row(plan_iou([run], Aims(width=width)), "per_case") for width in (0.02, 0.02 / 2**0.5))
    assert narrow["width"]["units"] / wide["width"]["units"] == pytest.approx(2, rel=0.05)
    assert wide["width"]["units_ci95"][0] < wide["width"]["units"] < wide["width"]["units_ci95"][1]
    assert wide["width"]["after_10_more"] < wide["width"]["now"]
    assert wide["width"]["now"] == pytest.approx(wide["pilot_width"], rel=0.1)


def test_a_difference_needs_fewer_cases_if_it_is_larger(run, tmp_path):
    runs = [run, make_run(tmp_path / "b", seed=1)]
    small, large = (row(plan_iou(runs, Aims(detect=by)), "per_case")["power"]["units"] for by in (0.01, 0.02))
    assert small / large == pytest.approx(4, rel=0.2)


def test_clusters_are_counted_with_their_cases_and_design_effect(run):
    found = row(plan_iou([run], config=CONFIG.replace(cluster="prefix:_")), "per_case")
    assert (found["n_units"], found["n_cases"]) == (10, 40)
    assert found["width"]["cases"] == 4 * found["width"]["units"]
    assert found["design_effect"] == pytest.approx(1, abs=0.7)  # cases are independent here


def test_slices_are_planned_by_their_own_cases(run):
    plan = plan_iou([run], config=CONFIG.replace(slice_by=("^p(.)",)))
    sliced = [(one["slice"]["value"], one["n_cases"]) for one in plan["rows"] if one["slice"]]
    assert set(sliced) == {("0", 40)}


def test_large_cases_that_outweigh_the_others_leave_the_data_set_without_an_answer(tmp_path):
    plan = plan_iou([make_run(tmp_path / "run", spread=1.6)])
    untold, told = row(plan, "dataset"), row(plan, "per_case")
    assert "outweigh the others" in untold["cannot_tell"]
    assert untold["width"] is None
    assert untold["ask_again"] > 40
    assert told["cannot_tell"] is None
    assert "this pilot cannot tell" in " ".join(show_plan(plan).notes)


def test_a_width_that_no_number_of_cases_reaches_is_said(run):
    plan = plan_iou([run], Aims(width=1e-12))
    assert row(plan, "per_case")["width"]["units"] is None
    assert "10 million cases do not reach this aim" in " ".join(show_plan(plan).notes)


def test_a_plan_fits_its_schema_and_its_points_its_table(run):
    plan = plan_runs([run], CONFIG, WIDTH)
    assert Plan.model_validate(plan, strict=True).model_dump(by_alias=True) == plan
    table = points_table(plan)
    assert len(table) == sum(len(one["curve"]) for one in plan["rows"])
    assert table["drawn_width"].null_count < len(table)


@pytest.mark.parametrize(
    ("count", "scores", "line"),
    [(3, (), "one run, or"), (1, ("iou/cel",), "Did you mean"), (2, (), "same cases")],
    ids=["three runs", "unknown score", "other cases"],
)
def test_what_cannot_be_planned_is_refused(tmp_path, count, scores, line):
    runs = [make_run(tmp_path / f"r{i}", cases=40 + 4 * i * (count == 2)) for i in range(count)]
    with pytest.raises(InputError, match=line):
        plan_runs(runs, CONFIG, WIDTH, scores=scores)


RUN = Path("run")


PILOTS = [({"runs": RUN, "width": 0.1}, 1), ({"runs": (RUN, RUN), "detect": 0.1}, 2), ({"sd": 0.1, "detect": 0.1}, 0)]
PUBLISHED = {"sd": 0.1, "mean": 0.8, "cases": 20, "width": 0.1}


@pytest.mark.parametrize(("given", "folders"), [*PILOTS, (PUBLISHED, 0)])
def test_one_pilot_with_an_aim_is_accepted(given, folders):
    assert len(PlanKeys(metrics=MetricsConfig(), **given).folders) == folders


@pytest.mark.parametrize("resamples", [0, 999])
def test_too_few_resamples_are_refused(resamples):
    with pytest.raises(ConfigError, match="1000 or more"):
        PlanKeys(runs=RUN, width=0.1, metrics=MetricsConfig(bootstrap=resamples))
