"""Writes and reads calibration.npz, from which shards are merged, and makes the calibration part of metrics.json."""

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
CURVE_POINTS = 101  # A precision-recall curve in metrics.json has at most this many points.

_COUNTS = ("tops", "classes", "impossible")


def summarise_calibration(scores: CalibrationScores, spec: ClassSpec) -> dict[str, Any]:
    """Turn the scores into values for JSON; undefined is None, and an infinite `nll` is the text "inf".

    Returns
    -------
    dict
        ``{"n", "bins", "ece", "mce", "reliability", "classwise_ece", "brier", "nll", "n_impossible",
        "mean_average_precision", "per_class": {name: {"ece", "mce", "reliability", "average_precision",
        "average_precision_error", "best_f1", "best_threshold", "curve"}}}``. The outer ece, mce and reliability are of
        the winning class, and None for multilabel. For binary, ``per_class`` has the object only.
    """
    names = spec.names[1:] if spec.task == "binary" else spec.names
    top = scores.top_label
    per_class: dict[str, Any] = {}
    for name, reliability, sweep in zip(names, scores.classwise, scores.sweeps, strict=True):
        curve = _lists(sweep.thinned(CURVE_POINTS), "thresholds", "precision", "recall")
        sweep_scores = {score: json_number(getattr(sweep, score)) for score in OF_A_CURVE}
        per_class[name] = _describe(reliability) | sweep_scores | {"curve": curve}
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


def _describe(reliability: Reliability) -> dict[str, Any]:
    bins = {"counts": reliability.counts.tolist(), **_lists(reliability, "confidence", "accuracy")}
    return {"ece": json_number(reliability.ece), "mce": json_number(reliability.mce), "reliability": bins}


def _lists(scores: Reliability | PrecisionRecallCurve, *names: str) -> dict[str, list[float | None]]:
    return {name: [json_number(value) for value in getattr(scores, name)] for name in names}


def empty_sums(spec: ClassSpec) -> Calibration:
    """Return sums over no image yet."""
    return Calibration(task=spec.task, **spec.counting)


def write_sums(folder: Path, sums: Calibration) -> None:
    """Write `NAME`: the counts (the curves' without zeros), and the exact sums in hexadecimal."""
    places = np.flatnonzero(sums.counts["sweeps"])
    arrays: dict[str, Any] = {name: sums.counts[name] for name in _COUNTS}
    arrays["sums"] = np.array([f"{value:x}" for value in sums.sums])
    arrays |= {"sweep_places": places, "sweep_counts": sums.counts["sweeps"].reshape(-1)[places]}
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_bytes(folder / NAME, content.getvalue())


def read_sums(folder: Path, spec: ClassSpec) -> Calibration:
    """Read what `write_sums` wrote for the same classes.

    Raises
    ------
    DataError
        The file is missing or damaged, or has other classes.
    """
    sums = empty_sums(spec)
    path = folder / NAME
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            for name in _COUNTS:
                sums.counts[name][...] = stored[name]
            sums.counts["sweeps"].reshape(-1)[stored["sweep_places"]] = stored["sweep_counts"]
            values = [int(text, 16) for text in stored["sums"].tolist()]
            if len(values) != len(sums.sums):
                raise ValueError("other classes")
    except (OSError, EOFError, ValueError, KeyError, IndexError, zipfile.BadZipFile) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or "damaged"
        raise DataError(expected("merge", "runs", f"to hold {NAME}", f"{path} ({reason})")) from error
    sums.sums = values
    return sums
