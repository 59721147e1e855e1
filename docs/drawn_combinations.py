"""Makes every kind of run with few, some and many cases of few and many classes, to look at their pages.

    python docs/drawn_combinations.py FOLDER [NAME ...]

A name is KIND-CASES-CLASSES, such as volumes-300-150; FOLDER/NAME/report.html is then the page. Targets are random
blocks, and numbers of large runs that take long to measure are random too: the pages are for the eye alone.
"""

import argparse
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from segmeter.classes import ClassSpec
from segmeter.files import write_json
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow, MeasureColumn
from segmeter.metrics.config.measures import InstancesConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.pixels.confusion import confusion_matrix, multilabel_counts
from segmeter.metrics.summary.summarise import summarise
from segmeter.report.html import write_report
from segmeter.report.pictures.layers import draw_layers, write_layers
from segmeter.report.pictures.objects import NO_OBJECTS, Objects

KINDS = ("images", "volumes", "multilabel", "instances", "unpictured")
CASES = (3, 300, 10_000)
CLASSES = (2, 150)
NAMES = tuple(f"{kind}-{cases}-{classes}" for kind, cases, classes in itertools.product(KINDS, CASES, CLASSES))

BLOCK = 8  # pixels of a side
SHAPE = (12, 18)  # blocks
HELD = 9  # classes of a case
PICTURED = 24
DEPTH = 40


def spec_of(kind: str, classes: int) -> ClassSpec:
    few = ("background", "lesion") if kind != "multilabel" else ("vessel", "optic nerve")
    many = tuple(f"{k:03} {('asphalt', 'broad-leaved forest', 'car', 'sea and ocean')[k % 4]}" for k in range(classes))
    colours = tuple((37 * k % 256, 101 * k % 256, 59 * k % 256) for k in range(classes))
    task = "multilabel" if kind == "multilabel" else "binary" if classes == 2 else "multiclass"
    first = (230, 159, 0) if task == "multilabel" else (0, 0, 0)
    return ClassSpec(task=task, names=few if classes == 2 else many, colours=(first, *colours[1:]))


def draw_case(rng: np.random.Generator, kind: str, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Blocks of the target, of the prediction, and the number of each block's object."""
    held = rng.choice(classes, min(classes, HELD), replace=False)
    if kind == "multilabel":
        target = np.zeros((classes, *SHAPE), np.uint8)
        for k in held:
            top, left = rng.integers(0, SHAPE[0] - 4), rng.integers(0, SHAPE[1] - 6)
            target[k, top : top + 4, left : left + 6] = 1
        return target, np.roll(target, rng.integers(0, 3), axis=-1), target[0]
    target = held[rng.integers(0, len(held), SHAPE)].astype(np.uint8)
    if classes == 2:
        target = (rng.random(SHAPE) < 0.3).astype(np.uint8)
    wrong = rng.random(SHAPE) < rng.beta(1, 4)
    labels = np.where(wrong, np.roll(target, 1, axis=1), target)
    return target, labels, np.arange(target.size).reshape(SHAPE) + 1


def enlarge(blocks: np.ndarray) -> np.ndarray:
    return blocks.repeat(BLOCK, -1).repeat(BLOCK, -2)


def measured(rng: np.random.Generator, kind: str, names: Sequence[str], held: set[str]) -> tuple[MeasureColumn, ...]:
    """Numbers such as measures give of every class, undefined where a case does not hold it, and some infinite."""
    given = {"volumes": ("hd95", "assd", "nsd@1"), "instances": ("pq", "sq", "rq")}.get(kind, ())
    columns = [
        MeasureColumn(metric, name, float(rng.random()) if name in held else float("nan"))
        for metric in given
        for name in names
    ]
    if kind == "volumes" and rng.random() < 0.1:
        lost = next(i for i, column in enumerate(columns) if column.region in held)
        columns[lost] = columns[lost]._replace(value=float("inf"))
    for name in names if kind == "instances" else ():
        tp, fp, fn = rng.integers(0, 20, 3).tolist() if name in held else (0, 0, 0)
        sums = {"tp": tp, "fp": fp, "fn": fn, "iou": 0.7 * tp, "dice": 0.8 * tp}
        columns += [MeasureColumn(f"instances_{part}", name, float(value), True) for part, value in sums.items()]
    return tuple(columns)


def build(folder: Path, kind: str, cases: int, classes: int) -> None:
    rng = np.random.default_rng(20240917)
    spec, rows = spec_of(kind, classes), list[CaseRow]()
    folder.mkdir(parents=True)
    for i in range(cases):
        target, labels, numbers = draw_case(rng, kind, classes)
        name = f"ward {i % 7}/{kind}_{i:05}"
        counts = (
            multilabel_counts(target, labels)
            if spec.is_multilabel
            else confusion_matrix(target, labels, num_classes=classes)
        )
        height, width = (BLOCK * side for side in SHAPE)
        held = set(spec.names[:2]) if spec.is_multilabel else {spec.names[k] for k in np.unique(target)}
        rows.append(
            CaseRow(
                case_id=name,
                height=height,
                width=width,
                depth=DEPTH if kind == "volumes" else None,
                counts=counts * BLOCK**2,
                loss=float(rng.random()),
                measured=measured(rng, kind, spec.names, held),
            )
        )
        if i < PICTURED and kind != "unpictured":
            picture(folder, name, spec, (target, labels, numbers), kind)
    config = MetricsConfig(
        bootstrap=0 if cases * classes > 100_000 else 100,
        measures={"volumes": (SurfaceConfig(),), "instances": (InstancesConfig(),)}.get(kind, ()),
        slice_by=(r"ward (\d)",),
    )
    write_cases(folder, rows, spec)
    write_json(folder / "metrics.json", summarise(rows, spec, config))
    write_json(folder / "run.json", {"command": "score", "state": "done", "start": "2024-09-17T12:00:00"})
    write_report(folder)


def picture(folder: Path, name: str, spec: ClassSpec, drawn: tuple[np.ndarray, ...], kind: str) -> None:
    target, labels, numbers = map(enlarge, drawn)
    rng = np.random.default_rng(len(name))
    grey = (target.sum(axis=0) if spec.is_multilabel else target) * 9 % 120 + 60
    image = (grey[..., None] + rng.integers(0, 30, (*grey.shape, 3))).astype(np.uint8)
    objects = NO_OBJECTS
    if kind == "instances":
        objects = Objects(target=numbers * (target > 0), prediction=numbers * (labels > 0))
    files = {"image": [f"{name}.tif"], "target": [f"{name}.png"], "prediction": [f"{name}.png"]}
    notes = {"files": files} | ({"slice": [17, DEPTH]} if kind == "volumes" else {})
    layers = draw_layers(image, target, labels, spec, edge=480, objects=objects, notes=notes)
    write_layers(folder, name, layers)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("name", nargs="*", default=NAMES)
    given = parser.parse_args()
    for name in given.name:
        kind, cases, classes = name.split("-")
        build(given.folder / name, kind, int(cases), int(classes))
        sys.stdout.write(f"{name}\n")
