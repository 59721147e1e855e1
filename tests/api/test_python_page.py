"""The lines of docs/python.md: a model in three, with the bytes of the command line."""

import re
from pathlib import Path

import numpy as np
from PIL import Image

from segmeter.cli.main import main
from segmeter.export.formats import encode_labels_png
from tests.api.conftest import write_network
from tests.models.parts import make_spec

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")


def lines_below(heading: str) -> list[str]:
    """The block of code with which a section begins."""
    (block,) = re.findall(rf"^## {heading}\n\n((?:    .*\n)+)", PAGE, re.MULTILINE)
    return [line.strip() for line in block.splitlines()]


def test_a_model_in_three_lines_gives_the_bytes_of_predict(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = lines_below("A model in three lines")
    assert len(lines) == 3
    checkpoint = write_network(Path(lines[1].split('"')[1]), in_channels=3)
    image = np.random.default_rng(0).integers(0, 256, (50, 70, 3), np.uint8)
    names = {"image": image}
    exec("\n".join(lines), names)  # the page's own text
    assert len(np.unique(names["labels"])) > 1
    Image.fromarray(image).save("x.png")
    main(["predict", f"checkpoint={checkpoint}", "input=x.png", "report.html=false", "report.overlays=0"])
    (written,) = Path("runs/predict").glob("*/predictions/labels/x.png")
    assert written.read_bytes() == encode_labels_png(names["labels"], make_spec().colours)
