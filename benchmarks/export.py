"""Compares segmeter's PNG encoder of label maps with Pillow's default: `python benchmarks/export.py`.

Each map is encoded in turn by both, and decoded again to check that no value changed.
"""

import argparse
import io
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from harness import Row, compare, demand, publish, race
from record import RESULTS, circumstances
from segmeter.export.formats import encode_labels_png

CLASSES = 21  # Pillow wraps values beyond its palette, so the palette must hold them all
Labels = NDArray[np.uint8]


def colours(labels: Labels) -> list[tuple[int, int, int]]:
    return [(12 * k, 255 - 12 * k, 40) for k in range(12 if labels.max() < 12 else CLASSES)]


def pillow(labels: Labels) -> bytes:
    content = io.BytesIO()
    image = Image.fromarray(labels)
    image.putpalette([part for colour in colours(labels) for part in colour])
    image.save(content, "PNG")
    return content.getvalue()


def segmeter(labels: Labels) -> bytes:
    return encode_labels_png(labels, colours(labels))


def regions(side: int, grain: int, count: int, seed: int) -> Labels:
    """Smooth random regions of about `grain` pixels."""
    rng = np.random.default_rng(seed)
    small = rng.standard_normal((count, side // grain + 2, side // grain + 2))
    fields = [ndimage.zoom(field, grain, order=3)[:side, :side] for field in small]
    return np.argmax(fields, axis=0).astype(np.uint8)


def label_maps(side: int, camvid: Path | None) -> dict[str, Labels]:
    maps = {
        "two classes, large regions": regions(side, 64, 2, 0),
        "8 classes, large regions": regions(side, 64, 8, 1),
        "8 classes, small regions": regions(side, 8, 8, 2),
        f"{CLASSES} classes, large regions": regions(side, 64, CLASSES, 3),
    }
    rng = np.random.default_rng(4)
    maps["8 classes, large rectangles"] = np.kron(
        rng.integers(0, 8, (16, 16)), np.ones((side // 16, side // 16))
    ).astype(np.uint8)
    speckled = maps["8 classes, large regions"].copy()
    dots = rng.random(speckled.shape) < 0.01
    speckled[dots] = rng.integers(0, 8, int(dots.sum()))
    maps["8 classes, 1 % of pixels random"] = speckled
    masks = sorted(camvid.glob("*.png") if camvid else ())[: -(-side // 360) * -(-side // 480)]
    if masks:
        rows = -(-side // 360)
        tiles = [np.asarray(Image.open(path)) for path in masks]
        columns = len(tiles) // rows
        stitched = np.vstack([np.hstack(tiles[row * columns : (row + 1) * columns]) for row in range(rows)])
        maps["road scenes side by side"] = np.ascontiguousarray(stitched[:side, :side])
        enlarged = Image.open(masks[0]).resize((side, side), Image.Resampling.NEAREST)
        maps["one road scene enlarged"] = np.asarray(enlarged)
    return maps


def measure(name: str, labels: Labels, rounds: int) -> Row:
    """Encode a map by both."""
    sizes = {}
    for encoder, encode in (("segmeter", segmeter), ("Pillow", pillow)):
        content = encode(labels)
        demand(np.array_equal(np.asarray(Image.open(io.BytesIO(content))), labels), f"{encoder} changed a value")
        sizes[encoder] = len(content)
    times = race({"segmeter": partial(segmeter, labels), "Pillow": partial(pillow, labels)}, rounds)
    note = f"size {sizes['segmeter'] / sizes['Pillow']:.3f} of Pillow's"
    return compare(f"label PNG, {len(labels)} x {len(labels)}, {name}", times, {"Pillow": 3.0}, note=note)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--camvid", type=Path, help="a folder of masks of CamVid, for two more maps")
    parser.add_argument("--output", type=Path, default=RESULTS / "export.json", help="where the JSON goes")
    arguments = parser.parse_args()
    before = circumstances("pillow", "imagecodecs")
    maps = label_maps(arguments.side, arguments.camvid)
    rows = (measure(name, labels, arguments.rounds) for name, labels in maps.items())
    publish(arguments.output, before, rows, rounds=arguments.rounds)


if __name__ == "__main__":
    main()
