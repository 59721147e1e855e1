"""nnU-Net's dataset.json -> classes and regions; rows -> the summary.json that nnU-Net reads. Needs no nnU-Net."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.config import ClassesConfig
from segmeter.errors import DataError, InputError
from segmeter.files import atomic_write
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.pixels.overlap import divide, mean_defined

Region = int | tuple[int, ...]

_COUNTS = ("FP", "TP", "FN", "TN", "n_pred", "n_ref")


@dataclass(frozen=True, kw_only=True)
class NnunetLabels:
    """What a dataset.json says of its labels.

    Parameters
    ----------
    spec
        The classes, called "label 1" and so on where there are regions, and the ignored value.
    groups
        Names of regions to names of their classes, for ``metrics.groups``; empty without regions.
    regions
        What nnU-Net evaluates, in its order: labels, or tuples of labels; without background.
    """

    spec: ClassSpec
    groups: Mapping[str, tuple[str, ...]]
    regions: tuple[Region, ...]


def read_labels(path: str | Path) -> NnunetLabels:
    """Read the labels of a dataset.json (nnU-Net 2): names, regions and ignore label.

    Raises
    ------
    DataError
        It can't be read, or its labels are not numbered from 0 without gaps, the ignore label last.
    """
    try:
        labels = json.loads(Path(path).read_bytes())["labels"]
        known = {str(name): _region(value) for name, value in labels.items() if name != "ignore"}
        ignored = labels.get("ignore")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(expected("dataset.json", "labels", "to map names to labels", error)) from error
    numbers = sorted({label for region in known.values() for label in _members(region)})
    last = len(numbers)
    if numbers != list(range(last)) or known.get("background") != 0 or ignored not in (None, last):
        rule = 'to be 0 ("background"), 1, 2, ... and last "ignore"'
        raise DataError(expected("dataset.json", "labels", rule, labels))
    regions = {name: region for name, region in known.items() if region != 0}
    grouped = any(isinstance(region, tuple) and len(region) > 1 for region in regions.values())
    names = ["background", *(f"label {label}" for label in numbers[1:])]
    if not grouped:
        for name, region in regions.items():
            names[_members(region)[0]] = name
    spec = ClassesConfig(classes=tuple(names), ignore_index=ignored).spec()
    groups = {name: tuple(names[label] for label in _members(region)) for name, region in regions.items()}
    return NnunetLabels(spec=spec, groups=groups if grouped else {}, regions=tuple(regions.values()))


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

    Undefined is NaN there, as in nnU-Net's own files.

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
        Folders, and what follows a case's name, for the names of files.

    Raises
    ------
    InputError
        The task is multilabel, there is no row, or a region names no class.
    """
    chosen = tuple(range(1, spec.num_classes)) if regions is None else tuple(_region(region) for region in regions)
    if spec.is_multilabel or not rows:
        raise InputError(
            expected("write_summary", "rows", "to be one or more of maps with one class per pixel", "none")
        )
    foreign = [region for region in chosen if not all(0 <= label < spec.num_classes for label in _members(region))]
    if foreign or not chosen:
        rule = f"to hold labels 0 to {spec.num_classes - 1}"
        raise InputError(expected("write_summary", "regions", rule, foreign or "none"))
    cases: list[dict[str, Any]] = [
        {
            "reference_file": str(Path(references, row.case_id + file_ending)),
            "prediction_file": str(Path(predictions, row.case_id + file_ending)),
            "metrics": {str(region): _measure(row.counts, _members(region)) for region in chosen},
        }
        for row in sorted(rows, key=lambda row: row.case_id)
    ]
    means = {str(region): _means([case["metrics"][str(region)] for case in cases]) for region in chosen}
    foreground = [means[str(region)] for region in chosen if region != 0]
    overall = {name: float(np.mean([one[name] for one in foreground])) for name in foreground[0]} if foreground else {}
    content = {"foreground_mean": overall, "mean": means, "metric_per_case": cases}
    with atomic_write(Path(path)) as file:
        file.write(json.dumps(content, indent=4, sort_keys=True).encode())


def _region(value: Any) -> Region:
    """A label, or a tuple of labels."""
    return tuple(int(label) for label in value) if isinstance(value, list | tuple) else int(value)


def _members(region: Region) -> tuple[int, ...]:
    return region if isinstance(region, tuple) else (region,)


def _measure(counts: NDArray[np.int64], members: tuple[int, ...]) -> dict[str, float | int]:
    held = list(members)
    n_ref, n_pred = int(counts[held].sum()), int(counts[:, held].sum())
    tp = int(counts[np.ix_(held, held)].sum())
    fp, fn = n_pred - tp, n_ref - tp
    numbers = (fp, tp, fn, int(counts.sum()) - tp - fp - fn, n_pred, n_ref)
    dice, iou = divide(np.array([2 * tp, tp]), np.array([2 * tp + fp + fn, tp + fp + fn])).tolist()
    return {"Dice": dice, "IoU": iou, **dict(zip(_COUNTS, numbers, strict=True))}


def _means(cases: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means over the cases that have a value; NaN where none has."""
    columns = {name: np.array([case[name] for case in cases], np.float64) for name in cases[0]}
    return {name: float(mean_defined(values)) for name, values in columns.items()}
