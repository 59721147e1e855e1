"""`segmeter score` as a user types it: the run folder, the exit codes, and no torch."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.sharded import run
from tests.data.crafted import noise, put

FAST = ["metrics.bootstrap=20", "data.num_classes=3", "data.ignore_index=255", "run.name=x"]
FOLDERS = ["predictions=predictions", "references=references"]
RECORDS = {"cases.parquet", "cases.csv", "metrics.json", "config.yaml", "overrides.yaml", "run.json", "log.txt"}


@pytest.fixture(autouse=True)
def _three_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate("abc"):
        target = noise(20, 30, None, seed=seed) % 3
        labels = np.where(noise(20, 30, None, seed=seed + 9) < 30 * (seed + 1), 0, target).astype(np.uint8)
        put(tmp_path / "references" / f"{name}.png", target)
        put(tmp_path / "predictions" / f"{name}.png", labels)
        put(tmp_path / "images" / f"{name}.png", noise(20, 30, seed=seed))


def run_folder() -> Path:
    (folder,) = Path("runs/score").iterdir()
    return folder


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


def test_what_is_missing_or_extra_is_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    Path("predictions/c.png").rename("predictions/d.png")
    assert run("score", *FOLDERS, *FAST, "missing=as_background", "report.html=false") == 0
    warnings = capsys.readouterr().err
    assert "cases without a prediction, scored as background (1: c)" in warnings
    assert "predictions without a reference in predictions (1: d)" in warnings
    assert json.loads((run_folder() / "metrics.json").read_text())["missing_predictions"]["cases"] == ["c"]


def test_names_that_cannot_be_paired_are_all_listed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("predictions/c.png").unlink()
    Path("predictions/a.npy").write_bytes(b"twice")
    assert run("score", *FOLDERS, *FAST, "metrics.measures=[surface]") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if line.startswith("segmeter:")]) == 2
    for text in (
        "`a prediction` for every name, got none for 1: c.",
        "`predictions` to have one file per name, as for 'a', got 2: a.npy, a.png.",
    ):
        assert any(text in line for line in lines), (text, lines)
    assert not Path("runs").exists()


@pytest.mark.parametrize(("overrides", "message"), [
    pytest.param(["data.num_classes=null"], "Set data.classes=[background,cell], or data.num_classes=2.", id="none"),
    pytest.param(["data.classes=[a,b]"], "`data.num_classes` to be 2, as many as data.classes, got 3", id="both"),
    pytest.param(["missing=skip"], "expected `missing` to be one of error, as_background, got 'skip'", id="missing"),
    pytest.param(["+metrics.groups.g=[nope]"], "got 'nope'", id="groups"),
    pytest.param(["images=images"], "none for 1: a", id="a case without an image"),
])  # fmt: skip
def test_what_can_not_be_scored_has_one_line_and_leaves_no_folder(overrides, message, capsys):
    Path("images/a.png").unlink()
    assert run("score", *FOLDERS, *FAST, *overrides) == 2
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


def test_multilabel_from_the_command_line() -> None:
    for seed, name in enumerate(("cell", "dirt")):
        target = noise(20, 30, None, seed=seed) % 2
        put(Path("t/references", name, "a.png"), target)
        put(Path("t/predictions", name, "a.png"), np.where(noise(20, 30, None) < 50, 0, target).astype(np.uint8))
    given = ["predictions=t/predictions", "references=t/references", "data.task=multilabel", "data.classes=[cell,dirt]"]
    assert run("score", *given, "metrics.bootstrap=20", "report.html=false", "metrics.measures=[surface]") == 0
    summary = json.loads((run_folder() / "metrics.json").read_text())
    assert summary["task"] == "multilabel"
    assert [np.sum(matrix) for matrix in summary["confusion_matrices"]] == [600] * 2
