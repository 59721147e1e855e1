"""Small folders of masks, and the run folders that come of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from segmeter.classes import ClassSpec
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from segmeter.evaluation.mask_pairs import Missing, Pairing, find_pairs
from segmeter.evaluation.score import Scoring
from segmeter.metrics.config.metrics import MetricsConfig
from tests.data.crafted import THREE, put
from tests.data.volumes import save_volume

FEW = MetricsConfig(bootstrap=50)
TARGETS = {"a": [[0, 0, 1], [2, 2, 255]], "b": [[1, 1, 1], [0, 0, 2]]}
LABELS = {"a": [[0, 1, 1], [2, 0, 0]], "b": [[1, 1, 1], [0, 0, 0]]}


def pair_masks(predictions: Path, references: Path, **options: Any) -> Pairing:
    """Pairs without a problem; DataError with all there are."""
    found = find_pairs(predictions, references, **options)
    if found.problems:
        raise DataError(found.problems)
    return found


def write_mask(path: Path, mask: np.ndarray) -> None:
    """In the format of the suffix."""
    put(path, mask) if path.suffix == ".png" else save_volume(path, mask)


def put_masks(folder: Path, masks: dict[str, list[list[int]]]) -> Path:
    for name, rows in masks.items():
        put(folder / f"{name}.png", np.array(rows, np.uint8))
    return folder


def scoring(
    root: Path, *, spec: ClassSpec = THREE, missing: Missing = "error", label_map: dict[str, int] | None = None
) -> Scoring:
    """The job of the folders ``predictions`` and ``references`` under `root`."""
    return Scoring(
        pairing=pair_masks(root / "predictions", root / "references", spec=spec, missing=missing),
        reading=Reading(spec=spec, label_map=label_map or {}, max_pixels=10_000),
        metrics=FEW,
        folder=root,
    )


def changed(job: Scoring, **changes: Any) -> Scoring:
    """The job with other fields, of its reading too."""
    of_reading = {name: changes.pop(name) for name in list(changes) if hasattr(job.reading, name)}
    return replace(job, reading=replace(job.reading, **of_reading), **changes)


def two_cases(root: Path) -> Path:
    put_masks(root / "references", TARGETS)
    put_masks(root / "predictions", LABELS)
    return root


def put_sides(
    root: Path, target: np.ndarray, labels: np.ndarray, name: str = "a.png", write: Callable[..., object] = write_mask
) -> None:
    """One case: its reference, and the prediction."""
    for side, mask in (("references", target), ("predictions", labels)):
        (root / side).mkdir(parents=True, exist_ok=True)
        write(root / side / name, mask)
