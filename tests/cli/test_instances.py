"""A folder of images and maps of objects, from training to the report in three commands, without a label map."""

import json
import re
from pathlib import Path

import numpy as np
from PIL import Image

from segmeter.cli.main import main
from segmeter.metrics.cases.stored import read_cases

PAGE = Path(__file__).parents[2] / "docs" / "instances.md"


def draw_cells(root: Path, count: int = 12) -> None:
    """Bright discs, some of which touch, and maps of their numbers."""
    rows, columns = np.ogrid[:64, :64]
    for number in range(count):
        rng = np.random.default_rng(number)
        objects = np.zeros((64, 64), np.uint16)
        for index in range(1, 8):
            row, column, radius = rng.integers(6, 58), rng.integers(6, 58), rng.integers(4, 8)
            objects[(rows - row) ** 2 + (columns - column) ** 2 < radius**2] = index
        image = 40 + 150 * (objects > 0) + rng.normal(0, 8, objects.shape)
        for folder, one in (("images", np.clip(image, 0, 255).astype(np.uint8)), ("masks", objects)):
            (root / folder).mkdir(parents=True, exist_ok=True)
            Image.fromarray(one).save(root / folder / f"cell{number:02d}.png")


def commands() -> list[str]:
    """As the page shows them."""
    lines = re.findall(r"^    (segmeter .*)$", PAGE.read_text(), re.MULTILINE)[:3]
    assert [line.split()[1] for line in lines] == ["train", "eval", "report"]
    return lines


def test_three_commands_lead_from_maps_of_objects_to_a_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    draw_cells(tmp_path / "cells")
    train, evaluate, report = (line.split()[1:] for line in commands())
    small = ["training.epochs=1", "training.batch_size=2", "data.samples_per_epoch=4"]
    small += ["model.encoder=tu-test_resnet", "model.depth=3", "model.decoder_channels=[8,8,4]"]
    main([*train, *small, "run.name=mine"])
    (run,) = (tmp_path / "runs" / "train").iterdir()
    main([*(part.replace("RUN", str(run)) for part in evaluate), "metrics.bootstrap=50"])
    assert re.search(r"^\W*PQ ", capsys.readouterr().out, re.MULTILINE), "in the headline"
    (folder,) = (tmp_path / "runs" / "eval").iterdir()
    main([part.replace("EVALUATION", str(folder)) for part in report])
    assert "PQ" in (folder / "report.html").read_text()
    summary = json.loads((folder / "metrics.json").read_text())
    assert summary["measure_settings"][0]["objects"] == "maps"
    assert summary["classes"] == ["background", "object"]
    rows = read_cases(folder)
    assert all("pq/object" in row.scores for row in rows), "in the rows of cases"
    masks = [np.unique(np.asarray(Image.open(tmp_path / "cells" / "masks" / f"{row.case_id}.png"))) for row in rows]
    objects = sum(int((ids > 0).sum()) for ids in masks)
    pq = summary["measures"]
    assert pq["tp"]["object"]["dataset"] + pq["fn"]["object"]["dataset"] == objects, "by their numbers, not as parts"
