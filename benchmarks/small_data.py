"""Trains on seven images of 960 x 999 for 10 minutes of a CPU, without an override except the data.

    python benchmarks/small_data.py --work FOLDER

The images of an eye's fundus are drawn, with branching vessels of 1 to 9 pixels, uneven light, spots and noise. Six
are for training, one for validation, and twenty others for testing. `segmeter train training=auto`, then `segmeter
eval`. Settings of the training can be added, such as training.time_budget=4m. Beside its Dice stands that of a black
top-hat with the radius, smoothing and threshold that suit the seven images best.

    python benchmarks/small_data.py --objects --work FOLDER

trains on objects that touch, with cores (`data=instances`) and on plain masks, for the same steps. One set is
`draw_scene` of `data=cells`. The other has ellipses of very unequal sizes. Plain masks are split by a watershed.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage
from skimage.draw import disk

from record import RESULTS, circumstances, write_record
from segmeter.cli.main import main
from segmeter.data.synthetic import draw_scene

SIZE = (960, 999)
SPLITS = {"train": 6, "val": 1, "test": 20}
OBJECT_SIZE, OBJECT_SPLITS = 96, {"train": 48, "val": 8, "test": 32}
SHORT = (  # a light network and few steps, so that all of it takes half an hour
    *("model.encoder=resnet18", "model.depth=3", "model.decoder_channels=[64,32,16]", "augment.crop=[64,64]"),
    *("optimizer.lr=0.002", "training.ema=0.98", "training.steps=600", "training.validate_every=600"),
    *("training.validate_unit=steps", "training.pictures=0", "loss=sum"),
)
QUIET = ("metrics.bootstrap=0", "report.html=false", "report.overlays=0")
WATERSHED = "postprocess.steps=[{name:remove_small_objects,min_pixels:16},{name:watershed}]"
VARIANTS = (("cores", (), ()), ("plain", ("data.core_depth=null",), (WATERSHED,)))
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


def segmeter(command: str, runs: Path, *overrides: str, here: bool = False) -> Path:
    """Run a command, in this process if `here`; the folder of its only run."""
    arguments = [command, f"run.root={runs}", *overrides]
    if here:
        main([*arguments])
    else:
        subprocess.run([sys.executable, "-m", "segmeter", *arguments], check=True)
    (folder,) = (runs / command).iterdir()
    return folder


def draw_unequal(rng: np.random.Generator, size: int) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    """Image and objects: dull ellipses, radius 4 to 14, most of them beside another one that they may touch."""
    lines, columns = np.mgrid[:size, :size]
    objects, light = np.zeros((size, size), np.uint16), np.full((size, size), 0.12)
    grain = ndimage.gaussian_filter(rng.normal(size=(size, size)), 1.2)
    covered, number = rng.uniform(0.35, 0.6), 0
    for _ in range(600):
        radius, stretch, turn = np.exp(rng.uniform(*np.log((4, 14)))), rng.uniform(1, 2.6) ** 0.5, rng.uniform(0, np.pi)
        centre = rng.uniform(0, size, 2)
        if number and rng.random() < 0.7:
            centre = rng.choice(np.argwhere(objects)) + rng.normal(0, 1.3 * radius, 2)
        y, x = lines - centre[0], columns - centre[1]
        along, across = y * np.sin(turn) + x * np.cos(turn), y * np.cos(turn) - x * np.sin(turn)
        outline = 1 + 0.1 * np.cos(3 * np.arctan2(across, along) + rng.uniform(0, 6))
        depth = np.hypot(along / stretch, across * stretch) / (radius * outline)
        mask = depth < 1
        if mask.sum() >= 30 and (objects[mask] > 0).mean() <= 0.06:
            mask, number = mask & (objects == 0), number + 1
            objects[mask] = number
            dome = 0.6 + 0.4 * np.sqrt(1 - depth[mask] ** 2)
            light[mask] += rng.uniform(0.25, 0.5) * dome * (1 + 0.12 * grain[mask] / grain.std())
        if (objects > 0).mean() > covered:
            break
    seen = ndimage.gaussian_filter(light, 1.0) + rng.normal(0, 0.03, light.shape)
    return np.clip(255 * seen, 0, 255).round().astype(np.uint8), objects


def draw_touching(rng: np.random.Generator, size: int) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    """Image and objects of the cells that are built in: round, long and dividing ones, which touch and overlap."""
    scene = draw_scene(rng, size)
    return scene.image, scene.instances


def write_objects(root: Path, draw: Callable[..., tuple[NDArray[np.uint8], NDArray[np.uint16]]]) -> None:
    """Images, maps of object numbers, and the lists of the splits."""
    first = 0
    for split, count in OBJECT_SPLITS.items():
        numbers = range(first, first + count)
        for number in numbers:
            for folder, pixels in zip(
                ("images", "masks"), draw(np.random.default_rng(number), OBJECT_SIZE), strict=True
            ):
                (root / folder).mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(root / folder / f"{number:03d}.png")
        (root / f"{split}.txt").write_text("".join(f"{number:03d}.png\n" for number in numbers), encoding="utf-8")
        first += count


def measure_objects(work: Path) -> dict[str, Any]:
    """PQ and IoU on the test images of each set for each seed, with cores and on plain masks, in turn."""
    found: dict[str, Any] = {}
    for name, draw in (("touching", draw_touching), ("unequal", draw_unequal)):
        root = work / name
        write_objects(root, draw)
        data = ("data=instances", f"data.root={root}", "data.lists=.", "data.in_channels=1")
        for seed, (variant, trains, splits) in itertools.product(range(3), VARIANTS):
            runs = work / f"{name}_{variant}_{seed}"
            trained = segmeter("train", runs, *data, *SHORT, *trains, f"seed={seed}", here=True)
            tested = segmeter("eval", runs, f"checkpoint={trained}", *QUIET, *splits, here=True)
            summary = json.loads((tested / "metrics.json").read_bytes())
            history = [json.loads(line) for line in (trained / "history.jsonl").read_text("utf-8").splitlines()]
            stages = [line["stages"] for line in history if "stages" in line]
            run = {
                "pq": summary["measures"]["pq"]["object"]["dataset"],
                "iou": summary["per_class"]["object"]["iou"],
                "step_s": round(sum(each.get("step", 0) for each in stages) / history[-1]["step"], 4),
                "validation_s": round(sum(each.get("validation", 0) for each in stages), 1),
                "load": round(os.getloadavg()[0], 1),
            }
            found.setdefault(name, {}).setdefault(variant, []).append(run)
            print(name, variant, seed, run, flush=True)
    return found


def measure(work: Path, *settings: str) -> dict[str, Any]:
    root, runs = work / "data", work / "runs"
    write_cases(root)
    data = ("data=folder", f"data.root={root}", "data.lists=.", "data.classes=[background,vessel]")
    trained = segmeter("train", runs, *data, "training=auto", *settings)
    tested = segmeter("eval", runs, f"checkpoint={trained}", "data.split=test")
    record = json.loads((trained / "run.json").read_bytes())
    summary = json.loads((tested / "metrics.json").read_bytes())
    assert summary["n_cases"] == SPLITS["test"], "the lists were not taken"
    seven = read_cases(root, "train", "val")
    choice = max(itertools.product(*TOP_HATS), key=lambda choice: dice_of_top_hat(seven, *choice))
    return {
        "settings": settings,
        "training": record["result"],
        "planned": record.get("planned"),
        "load": round(os.getloadavg()[0], 1),
        "vessel": summary["per_class"]["vessel"],
        "top_hat": {"choice": choice, "dice": round(dice_of_top_hat(read_cases(root, "test"), *choice), 4)},
    }


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a new folder for data and runs")
    parser.add_argument("--objects", action="store_true", help="objects that touch, with cores and without")
    parser.add_argument("settings", nargs="*", help="of the training, such as training.time_budget=4m seed=1")
    parser.add_argument("--output", type=Path, help="by default small_data.json or objects.json in results/")
    given = parser.parse_args()
    found = measure_objects(given.work) if given.objects else measure(given.work, *given.settings)
    print(json.dumps(found, indent=2))
    record = given.output or RESULTS / ("objects.json" if given.objects else "small_data.json")
    write_record(record, found | circumstances())


if __name__ == "__main__":
    run()
