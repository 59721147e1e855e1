"""The lines of docs/python.md: a model in three, with the bytes of the command line."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.cli.main import main
from segmeter.export.formats import encode_labels_png
from segmeter.models.checkpoint import write_checkpoint
from segmeter.models.config import ModelCard
from segmeter.models.segmenter import build_segmenter

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
SPEC = ClassSpec(task="multiclass", names=("a", "b", "c"), colours=((0, 0, 0), (255, 0, 0), (0, 255, 0)))


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines_below(heading: str) -> list[str]:
    """The block of code with which a section begins."""
    (block,) = re.findall(rf"^## {heading}\n\n((?:    .*\n)+)", PAGE, re.MULTILINE)
    return [line.strip() for line in block.splitlines()]


def test_a_model_in_three_lines_gives_the_bytes_of_predict(in_folder):
    lines = lines_below("A model in three lines")
    assert len(lines) == 3
    checkpoint = lines[1].split('"')[1]
    torch.manual_seed(0)
    model = {"name": "unet", "encoder": "resnet18", "decoder_channels": [16, 8, 8, 8, 8]}
    card = ModelCard(model=model, spec=SPEC, in_channels=3, mean=(0.5,) * 3, std=(0.25,) * 3)
    write_checkpoint(
        Path(checkpoint), segmenter_state=build_segmenter(card).state_dict(), card=card, state=None, progress={}
    )
    image = np.random.default_rng(0).integers(0, 256, (50, 70, 3), np.uint8)
    names = {"image": image}
    exec("\n".join(lines), names)  # the page's own text
    assert len(np.unique(names["labels"])) > 1
    Image.fromarray(image).save("x.png")
    main(["predict", f"checkpoint={checkpoint}", "input=x.png", "report.html=false", "report.overlays=0"])
    (written,) = Path("runs/predict").glob("*/predictions/labels/x.png")
    assert written.read_bytes() == encode_labels_png(names["labels"], SPEC.colours)
