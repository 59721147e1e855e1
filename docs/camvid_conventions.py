"""Prints how the metrics of a made-up prediction of CamVid move between conventions (for docs/why-tools-differ.md).

    python docs/camvid_conventions.py <folder of CamVid>

The prediction is the reference moved by 2 rows and 3 columns. It misses classes of fewer than 300 pixels of a picture.
So it is a little off everywhere, and blind to small things.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from segmeter.classes import ClassSpec
from segmeter.metrics.config.measures import SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.summary.summarise import summarise

NAMES = ("Sky", "Building", "Pole", "Road", "Pavement", "Tree", "SignSymbol", "Fence", "Car", "Pedestrian", "Bicyclist")
VOID = 11
CASES, SMALL, DOWN, RIGHT = 20, 300, 2, 3
CONFIG = MetricsConfig(bootstrap=0, convention="all", measures=(SurfaceConfig(tolerances=(2.0,)),))
SPEC = ClassSpec(task="multiclass", names=NAMES, colours=((0, 0, 0),) * len(NAMES), ignore_index=VOID)


def compare(folder: Path) -> list[dict[str, Any]]:
    """Score the made-up predictions of the first test cases under every convention."""
    ids = (folder / "test.txt").read_text().split()[:CASES]
    targets = [np.asarray(Image.open(folder / "masks" / f"{case_id}.png")) for case_id in ids]
    cases = [
        CaseMaps(case_id=case_id, target=target, labels=make_up(target), spacing=(1.0, 1.0), spec=SPEC)
        for case_id, target in zip(ids, targets, strict=True)
    ]
    measures = build_measures(CONFIG, SPEC)
    rows = [make_row(maps, measures) for maps in cases]
    entries: list[dict[str, Any]] = summarise(rows, SPEC, CONFIG)["conventions"]
    return entries


def make_up(target: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the moved reference; small classes and void take the nearest other label."""
    height, width = target.shape
    moved = np.pad(target, ((DOWN, 0), (RIGHT, 0)), mode="edge")[:height, :width]
    lost = np.isin(moved, np.flatnonzero(np.bincount(moved.reshape(-1), minlength=VOID + 1) < SMALL)) | (moved == VOID)
    _, nearest = ndimage.distance_transform_edt(lost, return_indices=True)
    return moved[tuple(nearest)]


def table(entries: list[dict[str, Any]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    lines = ["| convention | mean IoU | mean Dice | HD95 | ASSD | NSD at 2 px | what differs from ours |"]
    lines.append("|---|---|---|---|---|---|---|")
    for entry in entries:
        figures = [entry["figures"].get(name, "-") for name in ("mean_iou", "mean_dice", "hd95", "assd", "nsd@2")]
        cells = [f"{value:.4f}" if isinstance(value, float) else str(value) for value in figures]
        left_out = [f"{count} left out of {name.upper()}" for name, count in entry["left_out"].items()]
        lines.append(f"| {' | '.join([entry['name'], *cells, '; '.join(entry['differs'] + left_out)])} |")
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join(table(compare(Path(sys.argv[1])))) + "\n")
