"""Measures as a user asks for them: by bare names, with options, from a plugin, and misspelt."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from segmeter.metrics.config.metrics import MEASURES
from tests.cli.sharded import run as code_of
from tests.data.crafted import put

RUN = ["score", "predictions=predictions", "references=references", "data.num_classes=2", "data.task=binary"]
RUN += ["metrics.bootstrap=20", "run.name=x"]
PLUGIN = """
from segmeter.metrics.cases.table import MeasureColumn
from segmeter.metrics.config.metrics import MEASURES
from segmeter.metrics.config.measures import MeasureConfig

@MEASURES.register("area", builder="area_plugin:build_area")
class AreaConfig(MeasureConfig):
    name: str = "area"
    unit: float = 1.0

class Area:
    def __init__(self, config, regions):
        self.config, self.regions = config, regions

    def __call__(self, maps):
        for region in self.regions:
            area = self.config.unit * maps.masks(region)[1].sum()
            yield MeasureColumn("area", region.name, area)
            yield MeasureColumn("area", region.name, area, summed=True)

    def summarise(self, sums):
        return {("total_area", region): total for (metric, region), total in sums.items()}

def build_area(config, *, spec, regions):
    return Area(config, regions)
"""


@pytest.fixture(autouse=True)
def _two_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, shift in (("a", 2), ("b", 5)):
        target = np.zeros((12, 20), np.uint8)
        target[3:8, 3:9] = 1
        put(tmp_path / "references" / f"{name}.png", target)
        put(tmp_path / "predictions" / f"{name}.png", np.roll(target, shift, 1))


def measures() -> dict[str, Any]:
    (folder,) = Path("runs/score").iterdir()
    found: dict[str, Any] = json.loads((folder / "metrics.json").read_text())["measures"]
    return found


def test_bare_names_take_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(*RUN, "metrics.measures=[surface,boundary]") == 0
    assert measures()["hd95"]["class_1"]["mean"] == 3.5
    assert set(measures()) == {"hd", "hd95", "hd95_pooled", "assd", "masd", "nsd@1", "boundary_iou"}
    shown = capsys.readouterr().out
    rows = {line.partition("  ")[0].strip(): line.split() for line in shown.splitlines()}
    assert rows["HD95 (pixels)"][-4] == "3.5"
    (folder,) = Path("runs/score").iterdir()
    assert "hd95_pooled" in (folder / "report.html").read_text()
    assert "extra_hd95/class_1" in (folder / "cases.csv").read_text()


def test_options_and_spacing_reach_the_measure() -> None:
    assert (
        code_of(*RUN, "metrics.measures=[{name: surface, tolerances: [4, 10], penalty: inf}]", "metrics.spacing=[1, 2]")
        == 0
    )
    assert measures()["hd"]["class_1"]["mean"] == 7.0
    assert measures()["nsd@10"]["class_1"]["mean"] == 1.0
    assert measures()["nsd@4"]["class_1"]["mean"] < 1.0


def test_a_custom_measure_comes_in_by_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "area_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert code_of(*RUN, "plugins=[area_plugin]", "metrics.measures=[{name: area, unit: 0.5}]") == 0
    finally:
        MEASURES._entries.pop("area", None)
        sys.modules.pop("area_plugin", None)
    assert measures()["area"]["class_1"]["mean"] == 15.0
    assert measures()["total_area"]["class_1"]["dataset"] == 30.0


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("metrics.measures=[surfase]", "got 'surfase'. Did you mean 'surface'?"),
        ("metrics.measures=[{name: surface, tolerance: 2}]", "Did you mean 'metrics.measures[0].tolerances'?"),
        ("metrics.measures=[{tolerances: [2]}]", "`metrics.measures[0]` to name a measure, one of "),
        ("metrics.measures=[{name: surface, penalty: worst}]", "`metrics.measures[0].penalty` to be one of"),
        ("metrics.measures=[{name: surface, school: B}]", "It is called 'metrics.measures[0].surface' now."),
        ("metrics.measures=[{name: surface, surface: B}]", "one of border_pixels, marching_cubes, both, got"),
        ("metrics.measures=[{name: aji, touching: sides}]", "It is called 'metrics.measures[0].connectivity' now."),
        ("metrics.measures=[{name: aji, connectivity: 6}]", "`metrics.measures[0].connectivity` to be one of 8, 4"),
        ("metrics.measures=[surface,surface]", "to name each measure once"),
        ("metrics.measures=[{name: surface, classes: [clas_1]}]", "got 'clas_1'. Did you mean 'class_1'?"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(override: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(*RUN, override) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert "Traceback" not in errors


def test_a_measure_without_its_brackets_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(*RUN, "metrics.measures=surface") == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "`metrics.measures` to be a list, each a measure: aji, " in line
    assert "got 'surface'. Write [a,b]." in line


def test_a_cluster_that_no_case_matches_is_refused_before_a_run_begins(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(*RUN, "metrics.cluster='^(patient\\d+)'") == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "metrics: expected `cluster` to match every case id ('^(patient\\d+)'), got 2 without: 'a'" in line
    assert not Path("runs").exists()
