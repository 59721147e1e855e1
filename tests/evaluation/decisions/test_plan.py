"""Plans from finished runs: what the rows say of one run, two runs, clusters and slices."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from segmeter.errors import InputError
from segmeter.evaluation.decisions.plan import plan_runs, points_table
from segmeter.files import write_json
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.plan import Aims, Plan
from segmeter.metrics.summary.summarise import summarise
from segmeter.report.decisions import show_plan
from tests.data.crafted import BINARY

CONFIG = MetricsConfig(bootstrap=1000)
WIDTH = Aims(width=0.04)


def make_run(folder: Path, *, seed: int = 0, cases: int = 40, shift: int = 0, spread: float = 0.0) -> Path:
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


def row(plan: dict[str, Any], kind: str, score: str = "iou/cell") -> dict[str, Any]:
    return next(one for one in plan["rows"] if (one["kind"], one["score"]) == (kind, score) and one["slice"] is None)


def test_twice_as_many_units_are_needed_for_an_interval_that_is_narrower_by_the_root_of_two(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    wide, narrow = (row(plan_runs([run], CONFIG, Aims(width=w)), "per_case") for w in (0.02, 0.02 / 2**0.5))
    assert narrow["width"]["units"] / wide["width"]["units"] == pytest.approx(2, rel=0.05)
    assert wide["width"]["units_ci95"][0] < wide["width"]["units"] < wide["width"]["units_ci95"][1]
    assert wide["width"]["after_10_more"] < wide["width"]["now"]
    assert wide["width"]["now"] == pytest.approx(wide["pilot_width"], rel=0.1)


def test_a_difference_needs_fewer_cases_if_it_is_larger(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", seed=1)]
    small, large = (row(plan_runs(runs, CONFIG, Aims(detect=by)), "per_case")["power"]["units"] for by in (0.01, 0.02))
    assert small / large == pytest.approx(4, rel=0.2)


def test_clusters_are_counted_with_their_cases_and_design_effect(tmp_path: Path) -> None:
    plan = plan_runs([make_run(tmp_path / "run")], CONFIG.replace(cluster="prefix:_"), WIDTH)
    found = row(plan, "per_case")
    assert (found["n_units"], found["n_cases"]) == (10, 40)
    assert found["width"]["cases"] == 4 * found["width"]["units"]
    assert found["design_effect"] == pytest.approx(1, abs=0.7)  # cases are independent here


def test_slices_are_planned_by_their_own_cases(tmp_path: Path) -> None:
    plan = plan_runs([make_run(tmp_path / "run")], CONFIG.replace(slice_by=("^p(.)",)), WIDTH, scores=["iou/cell"])
    sliced = [one for one in plan["rows"] if one["slice"]]
    assert {one["slice"]["value"] for one in sliced} == {"0"}
    assert {one["n_cases"] for one in sliced} == {40}


def test_large_cases_that_outweigh_the_others_leave_the_data_set_without_an_answer(tmp_path: Path) -> None:
    plan = plan_runs([make_run(tmp_path / "run", spread=1.6)], CONFIG, WIDTH)
    untold, told = row(plan, "dataset"), row(plan, "per_case")
    assert "outweigh the others" in untold["cannot_tell"]
    assert untold["width"] is None
    assert untold["ask_again"] > 40
    assert told["cannot_tell"] is None
    assert "this pilot cannot tell" in " ".join(show_plan(plan).notes)


def test_a_width_that_no_number_of_cases_reaches_is_said(tmp_path: Path) -> None:
    plan = plan_runs([make_run(tmp_path / "run")], CONFIG, Aims(width=1e-12))
    assert row(plan, "per_case")["width"]["units"] is None
    assert "10 million cases do not reach this aim" in " ".join(show_plan(plan).notes)


def test_a_plan_fits_its_schema_and_its_points_its_table(tmp_path: Path) -> None:
    plan = plan_runs([make_run(tmp_path / "run")], CONFIG, WIDTH)
    assert Plan.model_validate(plan, strict=True).model_dump(by_alias=True) == plan
    table = points_table(plan)
    assert len(table) == sum(len(one["curve"]) for one in plan["rows"])
    assert table["drawn_width"].null_count < len(table)


@pytest.mark.parametrize(
    ("count", "scores", "line"),
    [(3, (), "one run, or"), (1, ("iou/cel",), "Did you mean"), (2, (), "^plan: .*same cases")],
    ids=["three runs", "unknown score", "other cases"],
)
def test_what_cannot_be_planned_is_refused(tmp_path: Path, count: int, scores: tuple[str, ...], line: str) -> None:
    runs = [make_run(tmp_path / f"r{i}", cases=40 + 4 * i * (count == 2)) for i in range(count)]
    with pytest.raises(InputError, match=line):
        plan_runs(runs, CONFIG, WIDTH, scores=scores)
