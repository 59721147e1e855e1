"""Measures and conventions as a user asks for them: by names, with options, from a plugin, and misspelt."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from segmeter.metrics.config.conventions import CONVENTIONS
from segmeter.metrics.config.metrics import MEASURES
from tests.cli.sharded import newest, run
from tests.data.crafted import put

RUN = ["score", "predictions=predictions", "references=references", "data.num_classes=2", "data.task=binary"]
RUN += ["metrics.bootstrap=20"]
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


def summary() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((newest("runs/score") / "metrics.json").read_text())
    return found


def test_bare_names_take_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*RUN, "metrics.measures=[surface,boundary]") == 0
    measures = summary()["measures"]
    assert measures["hd95"]["class_1"]["mean"] == 3.5
    assert set(measures) == {"hd", "hd95", "hd95_pooled", "assd", "masd", "nsd@1", "boundary_iou"}
    rows = {line.partition("  ")[0].strip(): line.split() for line in capsys.readouterr().out.splitlines()}
    assert rows["HD95 (pixels)"][-4] == "3.5"
    folder = newest("runs/score")
    assert "hd95_pooled" in (folder / "report.html").read_text()
    assert "extra_hd95/class_1" in (folder / "cases.csv").read_text()


def test_options_and_spacing_reach_the_measure() -> None:
    measure = "metrics.measures=[{name: surface, tolerances: [4, 10], penalty: inf}]"
    assert run(*RUN, measure, "metrics.spacing=[1, 2]", "report.html=false") == 0
    means = {name: found["class_1"]["mean"] for name, found in summary()["measures"].items()}
    assert (means["hd"], means["nsd@10"]) == (7.0, 1.0)
    assert means["nsd@4"] < 1.0


def test_a_custom_measure_comes_in_by_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "area_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(MEASURES, "_entries", dict(MEASURES._entries))
    assert run(*RUN, "plugins=[area_plugin]", "metrics.measures=[{name: area, unit: 0.5}]") == 0
    del sys.modules["area_plugin"]
    measures = summary()["measures"]
    assert measures["area"]["class_1"]["mean"] == 15.0
    assert measures["total_area"]["class_1"]["dataset"] == 30.0


def test_all_conventions_or_one_beside_ours_are_printed_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    """One object moved by 2 columns: 20 pixels in common of 30 + 30, surfaces up to 2 apart; the other is missed."""
    put(Path("predictions/b.png"), np.zeros((12, 20), np.uint8))
    assert run(*RUN, "metrics.convention=all", "metrics.measures=[surface]") == 0
    entries = {entry["name"]: entry for entry in summary()["conventions"]}
    assert (list(entries), summary()["convention"]) == (list(CONVENTIONS), "segmeter")
    dice, iou = pytest.approx(2 * 20 / 60 / 2), pytest.approx(20 / 40 / 2)
    assert entries["brats"]["figures"] == {"mean_dice": dice, "hd95": pytest.approx(187.56433)}
    assert (entries["monai"]["figures"]["hd95"], entries["monai"]["left_out"]) == (2.0, {"hd95": 1})
    assert entries["deepmind"]["figures"]["hd95"] == "inf"
    text = " ".join(capsys.readouterr().out.split())
    assert "nnunet differs from ours" in text
    assert "not copied from monai: 0.0 for the mean distance when every object was missed" in text
    assert run(*RUN, "metrics.convention=nnunet", "report.html=false") == 0
    assert (summary()["convention"], summary()["headline"]) == ("nnunet", {"mean_iou": iou, "mean_dice": dice})
    assert [entry["name"] for entry in summary()["conventions"]] == ["segmeter", "nnunet"]
    assert "HD95" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("metrics.measures=[surfase]", "got 'surfase'. Did you mean 'surface'?"),
        ("metrics.measures=[{name: surface, tolerance: 2}]", "Did you mean 'metrics.measures[0].tolerances'?"),
        ("metrics.measures=[{tolerances: [2]}]", "`metrics.measures[0]` to name a measure, one of "),
        ("metrics.measures=[{name: surface, school: B}]", "It is called 'metrics.measures[0].surface' now."),
        ("metrics.measures=[{name: surface, classes: [clas_1]}]", "got 'clas_1'. Did you mean 'class_1'?"),
        ("metrics.measures=surface", "each a measure: aji, "),
        ("metrics.measures=surface", "got 'surface'. Write [a,b]."),
        ("metrics.convention=nunet", "Did you mean 'nnunet'"),
        ("metrics.cluster='^(patient\\d+)'", "`cluster` to match every case id ('^(patient\\d+)'), got 2 without: 'a'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_before_a_run_begins(override, message, capsys):
    assert run(*RUN, override) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    assert not Path("runs").exists()
