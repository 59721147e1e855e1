"""Trains on seven images of 960 x 999 for 10 minutes of a CPU, without an override except the data.

    python benchmarks/small_data.py --work FOLDER

The images of an eye's fundus are drawn, with branching vessels of 1 to 9 pixels, uneven light, spots and noise. Six
are for training, one for validation, and twenty others for testing. `segmeter train training=auto`, then `segmeter
eval`. Beside its Dice stands that of a black top-hat with the radius, smoothing and threshold that suit the seven
images best.
"""

import argparse
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage
from skimage.draw import disk

from record import RESULTS, circumstances, write_record

SIZE = (960, 999)
SPLITS = {"train": 6, "val": 1, "test": 20}
TOP_HATS = ((6, 9), (1.5, 2.5), (0.03, 0.04, 0.05, 0.06, 0.08))  # radius, deviation of the smoothing, threshold


def draw_vessels(rng: np.random.Generator) -> NDArray[np.bool_]:
    """Trees that leave the optic disc, turn at random, branch, and get thinner."""
    mask = np.zeros(SIZE, bool)
    start = rng.uniform((430, 180), (530, 280))
    ends = [(start, angle, rng.uniform(3.0, 4.5)) for angle in rng.uniform(0, 2 * np.pi, 14)]
    while ends:
        place, angle, radius = ends.pop()
        for _ in range(int(rng.integers(60, 220))):
            angle += rng.normal(0, 0.09)
            place = place + 2.0 * np.array([np.sin(angle), np.cos(angle)])
            mask[disk(tuple(place), max(radius, 0.75), shape=SIZE)] = True
        if radius > 0.9 and ((place > 0) & (place < SIZE)).all():
            turns = rng.uniform(0.2, 0.7, 2) * (-1, 1)
            ends += [(place, angle + turn, radius * rng.uniform(0.6, 0.9)) for turn in turns]
    return mask


def draw_image(mask: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.uint8]:
    """RGB: vessels darker by a contrast that changes over the image, under uneven light, with spots and noise."""

    def cloud(width: float) -> NDArray[np.float64]:
        smooth = ndimage.gaussian_filter(rng.normal(size=SIZE), width)
        return smooth / smooth.std()

    light = 0.45 + 0.08 * cloud(120) + 0.02 * cloud(12)
    contrast = np.clip(0.10 + 0.04 * cloud(80), 0.03, None)
    spots = np.clip(cloud(5) - 2.6, 0, None) * rng.choice((-0.06, 0.08))
    green = light - contrast * ndimage.gaussian_filter(mask.astype(float), 1.2) + spots
    channels = np.stack([1.5 * green + 0.1, green, 0.5 * green], axis=-1)
    noisy = channels + rng.normal(0, 0.035, channels.shape)
    return np.clip(255 * noisy, 0, 255).round().astype(np.uint8)


def write_cases(root: Path) -> None:
    """Images, masks, and the lists of what is for training, validation and test."""
    for name in ("images", "masks"):
        (root / name).mkdir(parents=True)
    first = 0
    for split, count in SPLITS.items():
        names = [f"{number:02d}.png" for number in range(first, first + count)]
        (root / f"{split}.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
        for name in names:
            rng = np.random.default_rng(int(name[:2]))
            mask = draw_vessels(rng)
            Image.fromarray(draw_image(mask, rng)).save(root / "images" / name)
            Image.fromarray(mask.astype(np.uint8)).save(root / "masks" / name)
        first += count


def read_cases(root: Path, *splits: str) -> list[tuple[NDArray[np.float64], NDArray[np.bool_]]]:
    """Green channel, in 0 to 1, and mask of every case."""
    names = [name for split in splits for name in (root / f"{split}.txt").read_text(encoding="utf-8").split()]
    read = [(np.array(Image.open(root / "images" / n)), np.array(Image.open(root / "masks" / n))) for n in names]
    return [(image[..., 1] / 255.0, mask > 0) for image, mask in read]


def dice_of_top_hat(
    cases: list[tuple[NDArray[np.float64], NDArray[np.bool_]]], radius: int, width: float, threshold: float
) -> float:
    """Dice of all pixels of all cases together."""
    overlap = total = 0
    for green, mask in cases:
        smooth = ndimage.gaussian_filter(green, width)
        predicted = ndimage.black_tophat(smooth, size=2 * radius + 1) > threshold
        overlap += int((predicted & mask).sum())
        total += int(predicted.sum() + mask.sum())
    return 2 * overlap / total


def segmeter(command: str, runs: Path, *overrides: str) -> Path:
    """Run a command; the folder of its only run."""
    subprocess.run([sys.executable, "-m", "segmeter", command, f"run.root={runs}", *overrides], check=True)
    (folder,) = (runs / command).iterdir()
    return folder


def measure(work: Path) -> dict[str, Any]:
    root, runs = work / "data", work / "runs"
    write_cases(root)
    data = ("data=folder", f"data.root={root}", "data.lists=.", "data.classes=[background,vessel]")
    trained = segmeter("train", runs, *data, "training=auto")
    tested = segmeter("eval", runs, f"checkpoint={trained}", "data.split=test")
    record = json.loads((trained / "run.json").read_bytes())
    summary = json.loads((tested / "metrics.json").read_bytes())
    assert summary["n_cases"] == SPLITS["test"], "the lists were not taken"
    seven = read_cases(root, "train", "val")
    choice = max(itertools.product(*TOP_HATS), key=lambda choice: dice_of_top_hat(seven, *choice))
    return {
        "training": record["result"],
        "vessel": summary["per_class"]["vessel"],
        "top_hat": {"choice": choice, "dice": round(dice_of_top_hat(read_cases(root, "test"), *choice), 4)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a new folder for data and runs")
    parser.add_argument("--output", type=Path, default=RESULTS / "small_data.json")
    given = parser.parse_args()
    found = measure(given.work)
    print(json.dumps(found, indent=2))
    write_record(given.output, found | circumstances())


if __name__ == "__main__":
    main()
