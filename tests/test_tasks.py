"""Folders of a user, for the tasks that the built-in data does not have, from files to figures and the report."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from segmeter.classes import CORE
from segmeter.cli.commands import train as command
from segmeter.metrics.cases.stored import read_cases
from tests.cli.sharded import newest, run
from tests.data.crafted import put

SIZE = (40, 52)
TRAIN = [
    *("data.samples_per_epoch=6", "training.epochs=1", "training.batch_size=2"),
    *("model.encoder=tu-test_resnet", "model.depth=3", "model.decoder_channels=[8,8,4]"),
]
DATA = ["data=folder", "data.root=set", "data.val_fraction=0.25", "data.test_fraction=0.25"]
DISCS = [*DATA, "data.task=binary", "data.classes=[background,disc]"]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write_scenes(root: str, masks_of: Callable[[np.ndarray], dict[str, np.ndarray]]) -> None:
    """Bright discs on noise, and the masks of each by their folders, from the pixels of the disc."""
    rng = np.random.default_rng(0)
    rows, columns = np.indices(SIZE)
    for number in range(12):
        centre = rng.integers(12, 28, 2)
        disc = (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 < 81
        image = rng.integers(0, 90, (*SIZE, 3)) + 150 * disc[..., None]
        for folder, array in {"images": image.astype(np.uint8), **masks_of(disc)}.items():
            put(Path(root, folder, f"scene-{number:02d}.png"), array)


def train_and_evaluate(*data: str) -> tuple[Path, dict[str, Any]]:
    """The folder of the evaluation, and its figures."""
    assert run("train", *data, *TRAIN) == 0
    more = ["metrics.measures=[]", "export.probs=true", "report.html=false"]
    assert run("eval", f"checkpoint={newest('runs/train')}", *data, *more) == 0
    folder = newest("runs/eval")
    return folder, json.loads((folder / "metrics.json").read_text())


def test_a_binary_task_with_masks_of_0_and_255_needs_a_map(capsys):
    write_scenes("set", lambda disc: {"masks": disc.astype(np.uint8) * 255})
    assert run("train", *DISCS, *TRAIN) == 2
    assert "data.label_map={0: 0, 255: 1}" in capsys.readouterr().err
    assert not Path("runs").exists(), "refused before the first step"
    folder, summary = train_and_evaluate(*DISCS, "data.label_map={0: 0, 255: 1}")
    assert summary["task"] == "binary"
    assert np.shape(summary["confusion_matrix"]) == (2, 2)
    assert np.sum(summary["confusion_matrix"]) == summary["n_cases"] * SIZE[0] * SIZE[1]
    for path in (folder / "predictions/labels").iterdir():
        probs = np.load(folder / "predictions/probs" / f"{path.stem}.npy")
        assert probs.shape == (1, *SIZE)
        assert ((probs[0] > 0.5) == np.asarray(Image.open(path))).all()


def test_a_multilabel_task_with_a_folder_per_class():
    left = np.zeros(SIZE, np.uint8)
    left[:, : SIZE[1] // 2] = 1  # overlaps the disc
    write_scenes("set", lambda disc: {"masks/disc": disc.astype(np.uint8), "masks/left": left})
    folder, summary = train_and_evaluate(*DATA, "data.task=multilabel", "data.classes=[disc,left]")
    assert summary["confusion_matrix"] is None
    assert np.shape(summary["confusion_matrices"]) == (2, 2, 2)
    for label in ("disc", "left"):
        assert len(list((folder / "predictions/labels" / label).glob("*.png"))) == summary["n_cases"]


def test_three_commands_of_the_page_lead_from_maps_of_objects_to_a_report(monkeypatch, capsys):
    """Mutation seen to fail: a training on maps without the cores of objects."""
    draw_batch, targets = command.draw_batch, []

    def noted(images, batch, *more, **options):
        targets.append(batch)
        return draw_batch(images, batch, *more, **options)

    monkeypatch.setattr(command, "draw_batch", noted)
    halves = 1 + (np.indices(SIZE)[1] > 20)  # of a disc that touch, with numbers of their own
    write_scenes("cells", lambda disc: {"images": np.uint8([30, 190])[disc * 1], "masks": np.uint16(disc * halves)})
    page = Path(__file__).parents[1] / "docs" / "instances.md"
    lines = re.findall(r"^    segmeter (.*)$", page.read_text(), re.MULTILINE)[:3]
    train, evaluate, report = (line.split() for line in lines)
    assert (train[0], evaluate[0], report[0]) == ("train", "eval", "report")
    assert run(*train, *TRAIN, "run.name=mine") == 0
    assert {1, CORE} <= set(np.unique(targets).tolist())
    evaluate = [part.replace("RUN", str(newest("runs/train"))) for part in evaluate]
    assert run(*evaluate, "metrics.bootstrap=50") == 0
    assert re.search(r"^\W*PQ ", capsys.readouterr().out, re.MULTILINE), "in the headline"
    folder = newest("runs/eval")
    assert run(*(part.replace("EVALUATION", str(folder)) for part in report)) == 0
    assert "PQ" in (folder / "report.html").read_text()
    summary = json.loads((folder / "metrics.json").read_text())
    assert summary["measure_settings"][0]["objects"] == "maps"
    assert summary["classes"] == ["background", "object"]
    rows = read_cases(folder)
    assert all("pq/object" in row.scores for row in rows), "in the rows of cases"
    masks = [np.unique(np.asarray(Image.open(Path("cells/masks", f"{row.case_id}.png")))) for row in rows]
    objects = sum(int((ids > 0).sum()) for ids in masks)
    pq = summary["measures"]
    assert objects > len(rows)
    assert pq["tp"]["object"]["dataset"] + pq["fn"]["object"]["dataset"] == objects, "by their numbers, not as parts"
