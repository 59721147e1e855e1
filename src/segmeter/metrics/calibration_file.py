"""Writes and reads a run's calibration: calibration.npz, by which shards are merged, and its part of metrics.json."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import DataError
from segmeter.files import write_bytes
from segmeter.metrics.arrays import json_number, json_number_or_inf, mean_defined
from segmeter.metrics.precision_recall import OF_A_CURVE, PrecisionRecallCurve
from segmeter.metrics.probabilities import Calibration, CalibrationScores, Reliability

NAME = "calibration.npz"
CURVE_POINTS = 101  # of a precision-recall curve in metrics.json

_COUNTS = ("tops", "classes", "impossible")


def summarise_calibration(scores: CalibrationScores, spec: ClassSpec) -> dict[str, Any]:
    """Make the scores plain; undefined is None, an infinite `nll` the text "inf".

    Returns
    -------
    dict
        ``{"n", "bins", "ece", "mce", "reliability", "classwise_ece", "brier", "nll", "n_impossible",
        "mean_average_precision", "per_class": {name: {"ece", "mce", "reliability", "average_precision",
        "average_precision_error", "best_f1", "best_threshold", "curve"}}}``. The first three of scores are of the
        winning class, None for multilabel; for binary ``per_class`` has the object only.
    """
    names = spec.names[1:] if spec.task == "binary" else spec.names
    top, per_class = scores.top_label, dict[str, Any]()
    for name, one, sweep in zip(names, scores.classwise, scores.sweeps, strict=True):
        curve = _lists(sweep.thinned(CURVE_POINTS), "thresholds", "precision", "recall")
        per_class[name] = (
            _describe(one) | {each: json_number(getattr(sweep, each)) for each in OF_A_CURVE} | {"curve": curve}
        )
    return {
        "n": scores.n,
        "bins": len(scores.classwise[0].counts),
        **(dict.fromkeys(("ece", "mce", "reliability")) if top is None else _describe(top)),
        "classwise_ece": json_number(scores.classwise_ece),
        "brier": json_number(scores.brier),
        "nll": json_number_or_inf(scores.nll),
        "n_impossible": scores.n_impossible,
        "mean_average_precision": json_number(
            mean_defined(np.array([sweep.average_precision for sweep in scores.sweeps]))
        ),
        "per_class": per_class,
    }


def _describe(one: Reliability) -> dict[str, Any]:
    bins = {"counts": one.counts.tolist(), **_lists(one, "confidence", "accuracy")}
    return {"ece": json_number(one.ece), "mce": json_number(one.mce), "reliability": bins}


def _lists(one: Reliability | PrecisionRecallCurve, *names: str) -> dict[str, list[float | None]]:
    return {name: [json_number(value) for value in getattr(one, name)] for name in names}


def empty_sums(spec: ClassSpec) -> Calibration:
    """Return sums over no image yet."""
    return Calibration(task=spec.task, **spec.counting)


def write_sums(folder: Path, sums: Calibration) -> None:
    """Write `NAME`: the counts, those of the curves without their zeros, and the exact sums in hexadecimal."""
    places, content = np.flatnonzero(sums.counts["sweeps"]), io.BytesIO()
    arrays: dict[str, Any] = {name: sums.counts[name] for name in _COUNTS}
    arrays["sums"] = np.array([f"{value:x}" for value in sums.sums])
    arrays |= {"sweep_places": places, "sweep_counts": sums.counts["sweeps"].reshape(-1)[places]}
    np.savez_compressed(content, **arrays)
    write_bytes(folder / NAME, content.getvalue())


def read_sums(folder: Path, spec: ClassSpec) -> Calibration:
    """Read what `write_sums` wrote for the same classes.

    Raises
    ------
    DataError
        The file is missing, damaged, or of other classes.
    """
    found, path = empty_sums(spec), folder / NAME
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            for name in _COUNTS:
                found.counts[name][...] = stored[name]
            found.counts["sweeps"].reshape(-1)[stored["sweep_places"]] = stored["sweep_counts"]
            values = [int(text, 16) for text in stored["sums"].tolist()]
            if len(values) != len(found.sums):
                raise ValueError("other classes")
    except (OSError, EOFError, ValueError, KeyError, IndexError, zipfile.BadZipFile) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or "damaged"
        raise DataError(expected("merge", "runs", f"to hold {NAME}", f"{path} ({reason})")) from error
    found.sums = values
    return found
