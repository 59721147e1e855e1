"""`segmeter eval`: what is refused before any data is read, what it takes from the checkpoint, and what it shows."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import confusion_matrix

from segmeter.cli.commands import eval as command
from tests.cli.sharded import EVAL, newest, run
from tests.data.crafted import noise, put

pytestmark = pytest.mark.usefixtures("in_here")
SMALL = [*EVAL, "report.overlays=0", "report.worst=0", "metrics.bootstrap=0"]


def test_the_summary_is_that_of_the_label_maps_and_is_shown(capsys):
    assert run("eval", *SMALL, "objective=mean_dice") == 0
    folder = newest("runs/eval")
    out = capsys.readouterr().out
    counts = np.zeros((3, 3), int)
    for path in Path("masks").iterdir():
        target, labels = (np.asarray(Image.open(each)) for each in (path, folder / "predictions/labels" / path.name))
        kept = target != 255
        counts += confusion_matrix(target[kept], labels[kept], labels=range(3))
    assert json.loads((folder / "metrics.json").read_text())["confusion_matrix"] == counts.tolist()
    assert f"metrics   {folder / 'metrics.json'}\ncases     {folder / 'cases.csv'}\n" in out
    assert not [word for word in ("worst  ", "overlays  ", "report  ") if word in out]
    dice = 2 * np.diag(counts) / (counts.sum(0) + counts.sum(1))
    result = json.loads((folder / "run.json").read_text())["result"]
    name, value = next(iter(result.items()))
    assert ("dice" in name.lower(), value) == (True, pytest.approx(dice.mean(), rel=1e-12))


def test_what_is_written_beside_the_figures_is_named(capsys):
    assert run("eval", *SMALL, "report.overlays=2", "report.worst=1", "report.html=true") == 0
    folder, out = newest("runs/eval"), capsys.readouterr().out
    for name, path in (("worst", "worst.csv"), ("overlays", "overlays"), ("report", "report.html")):
        assert f"\n{name:<10}{folder / path}\n" in out
        assert (folder / path).exists()


@pytest.mark.parametrize(("overrides", "message"), [
    (["metrics.spacing=[3,1,1]"], "metrics: expected `spacing` to have 2 values, as images do, got (3.0, 1.0, 1.0)"),
    (["objective=iou"], "`objective` to be a metric that is measured, got 'iou'"),
    (["metrics.groups={x: [nothing]}"], "nothing"),
    (["postprocess.steps=[{name: fill_holes, classes: [road]}]"], "road"),
    (["checkpoint=nowhere"], "nowhere"),
    (["resume=images"], "`resume` to be a run folder with manifest.json"),
], ids=["spacing", "objective", "groups", "class", "checkpoint", "resume"])  # fmt: skip
def test_what_needs_no_data_is_checked_before_any_is_read(overrides, message, monkeypatch, tmp_path, capsys):
    def refuse(*given):
        raise AssertionError("data were read")

    monkeypatch.setattr(command, "open_splits", refuse)
    assert run("eval", *SMALL, *overrides, f"run.root={tmp_path / 'runs'}") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_images_of_another_scale_are_warned_about(tmp_path, capsys):
    for path in Path("masks").iterdir():
        put(tmp_path / "masks" / path.name, path.read_bytes())
        height, width = np.asarray(Image.open(path)).shape
        put(tmp_path / "images" / path.name, noise(height, width) // 200)
    assert run("eval", *SMALL, f"data.root={tmp_path}", "export.labels=false") == 0
    assert "The model was trained on another scale or dtype" in capsys.readouterr().err
