"""Makes a run of every kind that a report shows from drawn data, each through its own command.

    python docs/drawn_runs.py FOLDER [NAME ...]

Without names all of them; FOLDER/NAME/report.html is then the page (of a comparison compare.html).
"""

import argparse
import csv
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from drawn_roads import LIGHT, VOID, draw_road, predict_road
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.cli.commands.train import draw_batch
from segmeter.cli.main import main
from segmeter.cli.sweep import SweepJob, write_sweep
from segmeter.data.classes_config import CAMVID_CLASSES, CAMVID_COLOURS
from segmeter.data.synthetic import draw_scene
from segmeter.files import remove, write_json
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.summary.summarise import summarise
from segmeter.report.html import write_index, write_report
from segmeter.report.pictures.flatten import draw_overlay, write_overlay
from segmeter.report.pictures.layers import draw_layers, write_layers

SEED = 20240917
FEWER = "metrics.bootstrap=500"
_ROADS = [f"data.classes=[{','.join(CAMVID_CLASSES)}]", f"data.ignore_index={VOID}"]


def save(path: Path, values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)


def run(folder: Path, command: str, *arguments: str) -> None:
    """Run a command, and move what it leaves to a folder whose name holds no time."""
    main([command, *arguments, FEWER, f"run.root={folder}-runs"])
    (made,) = Path(f"{folder}-runs", command).iterdir()
    made.rename(folder)
    remove(Path(f"{folder}-runs"))


def score(data: Path, folder: Path, *options: str, predictions: str = "predictions") -> None:
    images = [f"images={data / 'images'}"] if (data / "images").is_dir() else []
    given = [f"predictions={data / predictions}", f"references={data / 'masks'}", *images]
    run(folder, "score", *given, *options)


def draw_roads(data: Path, count: int) -> None:
    """Scenes of three kinds of light and four streets, predicted by two models, and a table of facts."""
    rng = np.random.default_rng(SEED)
    rows = [("case_id", "light", "street", "traffic")]
    for i in range(count):
        light, street = list(LIGHT)[rng.integers(3)], f"street {'ABCD'[i * 4 // count]}"
        image, target = draw_road(rng, light)
        name = f"{street.replace(' ', '_')}_{i:03}"
        save(data / "images" / f"{name}.png", image)
        save(data / "masks" / f"{name}.png", target)
        for model, skill in (("predictions", 0.86), ("others", 0.8)):
            found = predict_road(rng, target, skill=skill - (0.12 if light == "dusk" else 0) + rng.normal(0, 0.04))
            save(data / model / f"{name}.png", found)
        rows.append((name, light, street, str(int((target == 8).sum()))))
    with (data / "facts.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def roads(folder: Path, count: int = 48) -> None:
    """CamVid-like: 11 classes, groups, slices, types of errors, surfaces."""
    data = Path(f"{folder}-data")
    draw_roads(data, count)
    measures = [
        "metrics.measures=[error_types]",
        "metrics.groups={vehicles:[Car,Bicyclist],ground:[Road,Pavement]}",
    ]
    slices = [f"metrics.slices={data / 'facts.csv'}", "metrics.slice_by=[light,street,'thirds(traffic)']"]
    more = [*_ROADS, *measures, *slices]
    score(data, folder, *more)
    score(data, Path(f"{folder}-other"), *more, predictions="others")
    run(Path(f"{folder}-compared"), "compare", f"runs=[{folder}-other,{folder}]", *slices)


def draw_cells(data: Path, count: int, size: int = 192) -> None:
    """Cells with their numbers; some are predicted joined, missed or made up."""
    rng = np.random.default_rng(SEED)
    for i in range(count):
        scene = draw_scene(rng, size)
        found = np.where(rng.random(scene.instances.max() + 1)[scene.instances] < 0.12, 0, scene.instances)
        found = np.roll(found, rng.integers(0, 5), axis=1)
        found[20:34, 20:34][found[20:34, 20:34] == 0] = found.max() + 1
        save(data / "images" / f"cell_{i:03}.png", scene.image)
        save(data / "masks" / f"cell_{i:03}.png", scene.instances)
        save(data / "predictions" / f"cell_{i:03}.png", found.astype(np.uint16))


def instances(folder: Path) -> None:
    data = Path(f"{folder}-data")
    draw_cells(data, 12)
    score(data, folder, "data.task=binary", "data.classes=[background,cell]", "data.instances=true")


def three(folder: Path) -> None:
    """Three cases of two classes; one has an empty reference."""
    rng = np.random.default_rng(SEED)
    data = Path(f"{folder}-data")
    for i in range(3):
        scene = draw_scene(rng, 160)
        target = (scene.labels > 0).astype(np.uint8) * (i != 1)
        save(data / "images" / f"scan {i}.png", scene.image)
        save(data / "masks" / f"scan {i}.png", target)
        save(data / "predictions" / f"scan {i}.png", np.roll(target, 3 + i, axis=0))
    score(data, folder, "data.task=binary", "data.classes=[background,lesion]")


def volumes(folder: Path) -> None:
    rng = np.random.default_rng(SEED)
    data = Path(f"{folder}-data")
    for part in ("masks", "predictions", "images"):
        (data / part).mkdir(parents=True)
    for i in range(8):
        grid = np.indices((12, 96, 128))
        middle = rng.uniform((4, 30, 40), (8, 66, 88))
        distance = np.sqrt((((grid.T - middle) / (3, 24, 30)) ** 2).sum(-1)).T
        target = ((distance < 1).astype(np.uint8) + (distance < 0.5)).astype(np.uint8)
        image = (90 + 60 * (target > 0) + 30 * (target > 1) + rng.normal(0, 9, target.shape)).clip(0, 255)
        for part, values in (("masks", target), ("predictions", np.roll(target, rng.integers(0, 6), axis=2))):
            np.save(data / part / f"patient-{i:02}_with_a_rather_long_name_of_its_examination.npy", values)
        np.save(
            data / "images" / f"patient-{i:02}_with_a_rather_long_name_of_its_examination.npy", image.astype(np.uint8)
        )
    score(
        data,
        folder,
        "data.classes=[background,liver,tumour]",
        "metrics.measures=[surface]",
        "metrics.spacing=[3,0.5,0.5]",
    )


def multilabel(folder: Path) -> None:
    rng = np.random.default_rng(SEED)
    data = Path(f"{folder}-data")
    for i in range(10):
        grid = np.indices((120, 160))
        image = rng.normal(110, 10, (120, 160))
        for k, name in enumerate(("vessel", "lesion", "nerve")):
            middle, size = rng.uniform((30, 40), (90, 120)), rng.uniform(14, 40)
            target = (np.hypot(*(grid - middle[:, None, None])) < size).astype(np.uint8)
            image += 22 * target * (k - 0.5)
            save(data / "masks" / name / f"eye_{i}.png", target)
            save(data / "predictions" / name / f"eye_{i}.png", np.roll(target, rng.integers(0, 9), axis=1))
        save(data / "images" / f"eye_{i}.png", image.clip(0, 255).astype(np.uint8))
    score(data, folder, "data.task=multilabel", "data.classes=[vessel,lesion,nerve]")


def counted(folder: Path, cases: int, classes: int, *, pictures: int) -> None:
    """Random counts, and a few pictures of stripes."""
    rng = np.random.default_rng(SEED)
    colours = tuple((37 * k % 256, 101 * k % 256, 59 * k % 256) for k in range(classes))
    names = tuple(f"{k:03} land cover of kind {k % 7}" for k in range(classes))
    spec = ClassSpec(task="multiclass", names=names, colours=colours, ignore_index=255)
    folder.mkdir(parents=True)
    rows = []
    for i in range(cases):
        target = rng.integers(0, classes, (8, 12)).astype(np.uint8).repeat(8, 0).repeat(8, 1)
        labels = np.where(rng.random(target.shape) < 0.3, np.roll(target, 3, 1), target)
        counts = confusion_matrix(target, labels, num_classes=classes, ignore_index=255)
        rows.append(CaseRow(case_id=f"tile/{i:05}", height=64, width=96, counts=counts, loss=float(rng.random())))
        if i < pictures:
            image = (np.repeat(target[..., None], 3, -1) + rng.integers(0, 99, (64, 96, 3))).astype(np.uint8)
            write_layers(folder, rows[-1].case_id, draw_layers(image, target, labels, spec, edge=480))
    write_cases(folder, rows, spec)
    write_json(folder / "metrics.json", summarise(rows, spec, MetricsConfig(bootstrap=200)))
    write_json(folder / "run.json", {"command": "score", "state": "done", "start": "2024-09-17T12:00:00"})
    write_report(folder)


def training(folder: Path) -> None:
    """Return the history of a training on 11 classes that gets better, and pictures of it."""
    rng = np.random.default_rng(SEED)
    rows: list[dict[str, Any]] = []
    spec = ClassSpec(task="multiclass", names=CAMVID_CLASSES, colours=CAMVID_COLOURS, ignore_index=VOID)
    scenes = [draw_road(rng, light) for light in [*LIGHT, *LIGHT]]
    crops = [
        (image[60:316, left : left + 256], target[60:316, left : left + 256])
        for (image, target), left in zip(scenes, rng.integers(0, 224, 6), strict=True)
    ]
    folder.mkdir(parents=True)
    draw_batch(*map(np.stack, zip(*crops, strict=True)), [f"street_{i:03}" for i in range(6)], folder, spec=spec)
    for step in range(1, 401):
        seen = {"step": step, "epoch": step / 20, "seconds": 3.1 * step, "lr": 1e-3 * (1 - step / 420)}
        rates = {"images_per_second": 21 + rng.normal(), "data_wait": 0.02, "peak_memory_mb": 3100 + step / 10}
        rows.append(
            seen | {"loss": 2 / (1 + step / 40) + rng.normal(0, 0.05), "grad_norm": 3 / (1 + step / 90)} | rates
        )
        if step % 50:
            continue
        skill = 0.9 - 30 / (step + 60)
        scores = {f"iou/{name}": max(0.0, skill - k / 30) for k, name in enumerate(CAMVID_CLASSES)}
        found = scores | {
            "mean_iou": skill - 0.15,
            "mean_dice": skill,
            "pixel_accuracy": skill + 0.05,
            "loss": 1 - skill,
        }
        rows.append({key: seen[key] for key in ("step", "epoch", "seconds")} | {"val": found, "best": step != 400})
        for i, (image, target) in enumerate(scenes[:3]):
            labels = predict_road(rng, target, skill=skill)
            picture = draw_overlay(
                image, target, labels, spec, title=f"street_{i:03}", headline="mean_iou", score=skill, panel=320
            )
            write_overlay(folder / "validation" / f"step-{step:08}", f"street_{i:03}", picture)
    (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_json(folder / "run.json", {"command": "train", "state": "done", "start": "2024-09-17T12:00:00"})
    write_report(folder)


def unpictured(folder: Path) -> None:
    """Objects by connected parts, without images."""
    rng = np.random.default_rng(SEED)
    data = Path(f"{folder}-data")
    for i in range(5):
        scene = draw_scene(rng, 128)
        save(data / "masks" / f"{i}.png", (scene.labels > 0).astype(np.uint8))
        save(data / "predictions" / f"{i}.png", np.roll(scene.labels > 0, i, axis=0).astype(np.uint8))
    score(data, folder, "data.task=binary", "data.classes=[background,cell]", "metrics.measures=[instances]")


def sweep(folder: Path) -> None:
    """Jobs of a sweep, one of which was stopped."""
    rng = np.random.default_rng(SEED)
    folder.mkdir(parents=True)
    jobs = []
    for number, (rate, gamma) in enumerate(itertools.product(("1e-05", "0.0001", "0.001", "0.01"), ("0", "1", "2"))):
        scores = {"mean_iou": float(rng.uniform(0.3, 0.9)), "mean_dice": float(rng.uniform(0.5, 0.95)), "steps": 400.0}
        jobs.append(
            SweepJob(
                number=number,
                folder=f"{number}_optimizer.lr={rate},loss.gamma={gamma}",
                settings={"optimizer.lr": rate, "loss.gamma": gamma, "model.encoder": "resnet18"},
                result={} if number == 7 else scores,
                state="failed: the loss is not finite" if number == 7 else "done",
            )
        )
        if number != 7:
            (folder / jobs[-1].folder).mkdir()
            (folder / jobs[-1].folder / "report.html").write_text("<title>a job</title>")
    write_sweep(folder, jobs)


RUNS: dict[str, Callable[[Path], None]] = {
    "roads": roads,
    "three": three,
    "instances": instances,
    "volumes": volumes,
    "multilabel": multilabel,
    "unpictured": unpictured,
    "classes-150": lambda folder: counted(folder, 300, 150, pictures=30),
    "cases-10000": lambda folder: counted(folder, 10_000, 19, pictures=0),
    "training": training,
    "sweep": sweep,
}


def build(root: Path, names: list[str]) -> None:
    """Make the runs of these names, and the index of all that are there."""
    for name in names:
        RUNS[name](root / name)
    write_index(root)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("name", nargs="*", default=list(RUNS))
    given = parser.parse_args()
    build(given.folder, given.name)
