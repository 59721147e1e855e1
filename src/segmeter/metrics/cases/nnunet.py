"""Writes a summary.json that nnU-Net can read, and reads those that nnU-Net wrote. nnU-Net need not be installed."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, require_file
from segmeter.classes import ClassSpec
from segmeter.data.classes_config import ClassesConfig
from segmeter.data.files.formats import stem_of
from segmeter.data.files.refusals import show
from segmeter.data.labels_config import Region, as_region, members_of
from segmeter.errors import DataError, InputError
from segmeter.files import atomic_write
from segmeter.metrics.arrays import divide, mean_defined
from segmeter.metrics.cases.table import CaseRow
from segmeter.records import MOST_OF_CASES, read_json

_COUNTS = ("FP", "TP", "FN", "TN", "n_pred", "n_ref")
_REMEDY = "Give the summary.json of nnUNetv2_evaluate_folder, or a run's folder."


def write_summary(
    path: str | Path,
    rows: Sequence[CaseRow],
    spec: ClassSpec,
    *,
    regions: Sequence[Region] | None = None,
    references: str = "",
    predictions: str = "",
    file_ending: str = "",
) -> None:
    """Write the summary.json that nnU-Net's ``evaluate_predictions`` writes and its ``load_summary_json`` reads.

    Undefined is NaN, as in nnU-Net's own files.

    Parameters
    ----------
    path
        The file.
    rows
        From `read_cases` or an evaluation.
    spec
        Their classes; not multilabel.
    regions
        Labels or tuples of labels; None takes every class but 0.
    references, predictions, file_ending
        Folders and the suffix of the files that the summary names.

    Raises
    ------
    InputError
        The task is multilabel, there is no row, a region names no class, or the folder of the file does not exist.
    """
    target = require_file("write_summary", "path", path)
    chosen = tuple(map(as_region, range(1, spec.num_classes) if regions is None else regions))
    if spec.is_multilabel or not rows:
        rule = "to be one or more of maps with one class per pixel"
        raise InputError(expected("write_summary", "rows", rule, "none"))
    invalid = [region for region in chosen if not all(0 <= label < spec.num_classes for label in members_of(region))]
    if invalid or not chosen:
        rule = f"to hold labels 0 to {spec.num_classes - 1}"
        raise InputError(expected("write_summary", "regions", rule, invalid or "none"))
    cases: list[dict[str, Any]] = [
        {
            "reference_file": str(Path(references, row.case_id + file_ending)),
            "prediction_file": str(Path(predictions, row.case_id + file_ending)),
            "metrics": {str(region): _measure(row.counts, members_of(region)) for region in chosen},
        }
        for row in sorted(rows, key=lambda row: row.case_id)
    ]
    means: dict[str, dict[str, float]] = {}  # means over the cases that have a value; NaN if no case has
    for region in chosen:
        metrics = [case["metrics"][str(region)] for case in cases]
        columns = {name: np.array([of_case[name] for of_case in metrics], np.float64) for name in metrics[0]}
        means[str(region)] = {name: float(mean_defined(values)) for name, values in columns.items()}
    foreground = [means[str(region)] for region in chosen if region != 0]
    measured = foreground[0] if foreground else ()
    overall = {name: float(np.mean([mean[name] for mean in foreground])) for name in measured}
    content = {"foreground_mean": overall, "mean": means, "metric_per_case": cases}
    with atomic_write(target) as file:
        file.write(json.dumps(content, indent=4, sort_keys=True).encode())


def _measure(counts: NDArray[np.int64], members: tuple[int, ...]) -> dict[str, float | int]:
    labels = list(members)
    n_ref, n_pred = int(counts[labels].sum()), int(counts[:, labels].sum())
    tp = int(counts[np.ix_(labels, labels)].sum())
    fp, fn = n_pred - tp, n_ref - tp
    numbers = (fp, tp, fn, int(counts.sum()) - tp - fp - fn, n_pred, n_ref)
    dice, iou = divide(np.array([2 * tp, tp]), np.array([2 * tp + fp + fn, tp + fp + fn])).tolist()
    return {"Dice": dice, "IoU": iou, **dict(zip(_COUNTS, numbers, strict=True))}


def is_nnunet(path: str | Path) -> bool:
    """Tell whether a path is that of a summary.json, and not of a run's folder or table."""
    return isinstance(path, str | Path) and Path(path).suffix == ".json" and not Path(path).is_dir()


def read_summary(path: str | Path) -> tuple[ClassSpec, list[CaseRow]]:
    """Read the classes and rows of a summary.json that nnU-Net 2 or `write_summary` wrote.

    The file counts each label or region separately, so the task is read as multilabel, and the classes have the names
    in the file, such as "1" or "(1, 2)". The size of the images is not in the file, so rows have a height of 1.

    Raises
    ------
    DataError
        The file is of another kind, or its counts contradict each other.
    """
    file = Path(path)
    try:
        cases = read_json(file.resolve(), most=MOST_OF_CASES)["metric_per_case"]
        names = tuple(cases[0]["metrics"])
        rows = [_read_case(case, names) for case in cases]
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        given = f"{show(file)} ({error.strerror if isinstance(error, OSError) else f'{type(error).__name__}: {error}'})"
        raise DataError(expected("read_summary", "path", "to be nnU-Net's summary.json", given, _REMEDY)) from error
    return ClassesConfig(task="multilabel", classes=names).spec(), rows


def _read_case(case: Mapping[str, Any], names: Sequence[str]) -> CaseRow:
    """Read one case; ValueError if its counts contradict each other."""
    if set(case["metrics"]) != set(names):
        raise ValueError(f"labels {', '.join(case['metrics'])} in one case and {', '.join(names)} in the first one")
    numbers = [case["metrics"][name][count] for name in names for count in _COUNTS]
    for number in numbers:
        if not math.isfinite(number) or number != int(number) or number < 0:
            raise ValueError(f"{number} pixels")
    fp, tp, fn, tn, n_pred, n_ref = np.array([int(number) for number in numbers], np.int64).reshape(-1, len(_COUNTS)).T
    pixels = tp + fp + fn + tn
    case_id = stem_of(Path(case["reference_file"]))
    if len(np.unique(pixels)) != 1 or (n_pred != tp + fp).any() or (n_ref != tp + fn).any():
        raise ValueError(f"counts of case {case_id!r} that do not go together")
    counts = np.stack([tn, fp, fn, tp], axis=1).reshape(-1, 2, 2)
    return CaseRow(case_id=case_id, height=1, width=int(pixels[0]), counts=counts)
