"""`segmeter score` as a user types it: the run folder, measures, conventions, and what is refused."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from segmeter.metrics.config.conventions import CONVENTIONS
from segmeter.metrics.config.metrics import MEASURES
from tests.cli.sharded import latest, make_pairs, newest, run
from tests.data.crafted import noise, put

FAST = ["metrics.bootstrap=20", "data.num_classes=3", "data.ignore_index=255", "run.name=x"]
FOLDERS = ["predictions=predictions", "references=references"]
SCORE = ["score", *FOLDERS, *FAST]
RECORDS = {"cases.parquet", "cases.csv", "metrics.json", "config.yaml", "overrides.yaml", "run.json", "log.txt"}
pytestmark = pytest.mark.usefixtures("in_tmp")


@pytest.fixture
def _three_cases(in_tmp: None) -> None:
    make_pairs(Path(), "abc", wrong=lambda seed: 30 * (seed + 1))


@pytest.mark.usefixtures("_three_cases")
def test_folders_may_have_blanks_and_umlauts_and_no_home_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "/proc/none")
    Path("Zähl Bilder").mkdir()
    for name in ("predictions", "references", "images"):
        Path(name).rename(Path("Zähl Bilder") / name)
    folders = [f"{name}='Zähl Bilder/{name}'" for name in ("predictions", "references", "images")]
    assert run("score", *folders, *FAST, "report.overlays=1", "run.root='Läufe 1'") == 0
    (folder,) = Path("Läufe 1/score").iterdir()
    assert "data:image" in (folder / "report.html").read_text("utf-8")
    assert {path.name for path in folder.iterdir()} >= RECORDS
    record = json.loads((folder / "run.json").read_text())
    assert (record["state"], record["references"]) == ("done", str(Path("Zähl Bilder/references").absolute()))


@pytest.mark.usefixtures("_three_cases")
def test_what_is_missing_or_extra_is_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    Path("predictions/c.png").rename("predictions/d.png")
    assert run(*SCORE, "missing=as_background", "report.html=false") == 0
    warnings = capsys.readouterr().err
    assert "cases without a prediction, scored as background (1: c)" in warnings
    assert "predictions without a reference in predictions (1: d)" in warnings
    assert latest("score")["missing_predictions"]["cases"] == ["c"]


@pytest.mark.usefixtures("_three_cases")
def test_names_that_cannot_be_paired_are_all_listed(refused) -> None:
    Path("predictions/c.png").unlink()
    Path("predictions/a.npy").write_bytes(b"twice")
    lines = [line for line in refused(*SCORE, "metrics.measures=[surface]").splitlines() if line[:9] == "segmeter:"]
    assert len(lines) == 2
    assert any("`a prediction` for every name, got none for 1: c." in line for line in lines)
    assert any("one file per name, as for 'a', got 2: a.npy, a.png." in line for line in lines)
    assert not Path("runs").exists()


def test_multilabel_from_the_command_line() -> None:
    for seed, name in enumerate(("cell", "dirt")):
        target = noise(20, 30, None, seed=seed) % 2
        put(Path("references", name, "a.png"), target)
        put(Path("predictions", name, "a.png"), np.where(noise(20, 30, None) < 50, 0, target).astype(np.uint8))
    given = ["data.task=multilabel", "data.classes=[cell,dirt]", "metrics.measures=[surface]", *FAST[:1]]
    assert run("score", *FOLDERS, *given, "report.html=false") == 0
    summary = latest("score")
    assert summary["task"] == "multilabel"
    assert [np.sum(matrix) for matrix in summary["confusion_matrices"]] == [600] * 2


BINARY = ["score", *FOLDERS, "data.num_classes=2", "data.task=binary", "metrics.bootstrap=20"]
PLUGIN = """
from segmeter.metrics.cases.table import MeasureColumn
from segmeter.metrics.config.metrics import MEASURES
from segmeter.metrics.config.measures import MeasureConfig

@MEASURES.register("area", builder="area_plugin:Area")
class AreaConfig(MeasureConfig):
    name: str = "area"
    unit: float = 1.0

class Area:
    def __init__(self, config, *, spec, regions):
        self.config, self.regions = config, regions

    def __call__(self, maps):
        for region in self.regions:
            area = self.config.unit * maps.masks(region)[1].sum()
            yield MeasureColumn("area", region.name, area)
            yield MeasureColumn("area", region.name, area, summed=True)

    def summarise(self, sums):
        return {("total_area", region): total for (metric, region), total in sums.items()}
"""


@pytest.fixture
def _two_cases(in_tmp: None) -> None:
    """One object each, which is predicted some columns off."""
    for name, shift in (("a", 2), ("b", 5)):
        target = np.zeros((12, 20), np.uint8)
        target[3:8, 3:9] = 1
        put(Path(f"references/{name}.png"), target)
        put(Path(f"predictions/{name}.png"), np.roll(target, shift, 1))


@pytest.mark.usefixtures("_two_cases")
def test_bare_names_take_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*BINARY, "metrics.measures=[surface,boundary]") == 0
    measures = latest("score")["measures"]
    assert measures["hd95"]["class_1"]["mean"] == 3.5
    assert set(measures) == {"hd", "hd95", "hd95_pooled", "assd", "masd", "nsd@1", "boundary_iou"}
    rows = {line.partition("  ")[0].strip(): line.split() for line in capsys.readouterr().out.splitlines()}
    assert rows["HD95 (pixels)"][-4] == "3.5"
    folder = newest("runs/score")
    assert "hd95_pooled" in (folder / "report.html").read_text()
    assert "extra_hd95/class_1" in (folder / "cases.csv").read_text()


@pytest.mark.usefixtures("_two_cases")
def test_options_and_spacing_reach_the_measure() -> None:
    measure = "metrics.measures=[{name: surface, tolerances: [4, 10], penalty: inf}]"
    assert run(*BINARY, measure, "metrics.spacing=[1, 2]", "report.html=false") == 0
    means = {name: found["class_1"]["mean"] for name, found in latest("score")["measures"].items()}
    assert (means["hd"], means["nsd@10"]) == (7.0, 1.0)
    assert means["nsd@4"] < 1.0


@pytest.mark.usefixtures("_two_cases")
def test_a_custom_measure_comes_in_by_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("area_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(MEASURES, "_entries", dict(MEASURES._entries))
    assert run(*BINARY, "plugins=[area_plugin]", "metrics.measures=[{name: area, unit: 0.5}]") == 0
    del sys.modules["area_plugin"]
    measures = latest("score")["measures"]
    assert measures["area"]["class_1"]["mean"] == 15.0
    assert measures["total_area"]["class_1"]["dataset"] == 30.0


@pytest.mark.usefixtures("_two_cases")
def test_all_conventions_or_one_beside_ours_are_printed_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    """One object moved by 2 columns: 20 pixels in common of 30 + 30, surfaces up to 2 apart; the other is missed."""
    put(Path("predictions/b.png"), np.zeros((12, 20), np.uint8))
    assert run(*BINARY, "metrics.convention=all", "metrics.measures=[surface]") == 0
    summary = latest("score")
    entries = {entry["name"]: entry for entry in summary["conventions"]}
    assert (list(entries), summary["convention"]) == (list(CONVENTIONS), "segmeter")
    dice, iou = pytest.approx(2 * 20 / 60 / 2), pytest.approx(20 / 40 / 2)
    assert entries["brats"]["figures"] == {"mean_dice": dice, "hd95": pytest.approx(187.56433)}
    assert (entries["monai"]["figures"]["hd95"], entries["monai"]["left_out"]) == (2.0, {"hd95": 1})
    assert entries["deepmind"]["figures"]["hd95"] == "inf"
    text = " ".join(capsys.readouterr().out.split())
    assert "nnunet differs from ours" in text
    assert "not copied from monai: 0.0 for the mean distance when every object was missed" in text
    assert run(*BINARY, "metrics.convention=nnunet", "report.html=false") == 0
    summary = latest("score")
    assert (summary["convention"], summary["headline"]) == ("nnunet", {"mean_iou": iou, "mean_dice": dice})
    assert [entry["name"] for entry in summary["conventions"]] == ["segmeter", "nnunet"]
    assert "HD95" not in capsys.readouterr().out


@pytest.mark.parametrize(("overrides", "message"), [
    (["data.num_classes=null"], "Set data.classes=[background,cell], or data.num_classes=2."),
    (["data.classes=[a,b]", "data.num_classes=3"], "`data.num_classes` to be 2, as many as data.classes, got 3"),
    (["missing=skip"], "expected `missing` to be one of error, as_background, got 'skip'"),
    (["+metrics.groups.g=[nope]"], "got 'nope'"),
    (["images=images"], "none for 1: a"),  # without an image of it
    (["metrics.measures=[surfase]"], "got 'surfase'. Did you mean 'surface'?"),
    (["metrics.measures=[{name: surface, tolerance: 2}]"], "Did you mean 'metrics.measures[0].tolerances'?"),
    (["metrics.measures=[{tolerances: [2]}]"], "`metrics.measures[0]` to name a measure, one of "),
    (["metrics.measures=[{name: surface, school: B}]"], "It is called 'metrics.measures[0].surface' now."),
    (["metrics.measures=[{name: surface, classes: [clas_1]}]"], "got 'clas_1'. Did you mean 'class_1'?"),
    (["metrics.measures=surface"], "each a measure: aji, "),
    (["metrics.measures=surface"], "got 'surface'. Write [a,b]."),
    (["metrics.convention=nunet"], "Did you mean 'nnunet'"),
    (["metrics.cluster='^(patient\\d+)'"], "`cluster` to match every case id ('^(patient\\d+)'), got 2 without: 'a'"),
])  # fmt: skip
@pytest.mark.usefixtures("_two_cases")
def test_what_is_wrong_is_said_in_one_line_before_a_run_begins(overrides, message, refused):
    put(Path("images/b.png"), noise(12, 20))
    (line,) = refused(*BINARY, *overrides).strip().splitlines()
    assert message in line
    assert not Path("runs").exists()
