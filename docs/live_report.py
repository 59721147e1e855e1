"""Makes the report that the site shows live, from drawn cells and three kinds of mistakes.

python docs/live_report.py FOLDER          writes FOLDER/report.html
"""

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from segmeter.cli.main import main as segmeter

SIDE, CASES = 160, 12
Map = NDArray[np.uint8]


def draw_cells(rng: np.random.Generator) -> tuple[Map, Map, Map]:
    """Draw an image, its mask, and a prediction that is a little off, misses some cells and makes up others."""
    rows, columns = np.ogrid[:SIDE, :SIDE]
    target, labels = np.zeros((2, SIDE, SIDE), np.uint8)
    for _ in range(14):
        row, column, radius = *rng.uniform(12, SIDE - 12, 2), rng.uniform(6, 15)
        fate = rng.random()
        if fate < 0.93:
            target[np.hypot(rows - row, columns - column) < radius] = 1
        if fate > 0.08:
            shift = rng.normal(0, 1.2, 2)
            labels[np.hypot(rows - row - shift[0], columns - column - shift[1]) < radius + rng.normal(0, 0.8)] = 1
    noise = rng.normal(0, 12, (SIDE, SIDE))
    image = np.clip(70 + 90 * target + noise, 0, 255).astype(np.uint8)
    return image, target, labels


def write_report(folder: Path) -> None:
    """Score the drawn cells as a user would, and keep the report."""
    rng = np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for number in range(CASES):
            for name, pixels in zip(("images", "masks", "predictions"), draw_cells(rng), strict=True):
                (root / name).mkdir(exist_ok=True)
                Image.fromarray(pixels).save(root / name / f"cells{number:02}.png")
        segmeter([
            "score", f"predictions={root / 'predictions'}", f"references={root / 'masks'}", f"images={root / 'images'}",
            f"run.root={root / 'runs'}", "data.task=binary", "data.classes=[background,cell]",
            "metrics.measures=[instances,surface,error_types]", "report.overlays=12",
        ])  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(next(root.glob("runs/score/*/report.html")), folder / "report.html")


if __name__ == "__main__":
    write_report(Path(sys.argv[1]))
