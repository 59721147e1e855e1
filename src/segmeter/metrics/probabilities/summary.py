"""calibration scores -> their part of metrics.json."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import mean_defined, plain, say
from segmeter.metrics.probabilities.calibration import CalibrationScores, Reliability
from segmeter.metrics.probabilities.precision_recall import PrecisionRecallCurve

CURVE_POINTS = 101  # of a precision-recall curve in metrics.json


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
    precisions = np.array([sweep.average_precision for sweep in scores.sweeps])
    top = scores.top_label
    return {
        "n": scores.n,
        "bins": len(scores.classwise[0].counts),
        "ece": None if top is None else plain(top.ece),
        "mce": None if top is None else plain(top.mce),
        "reliability": None if top is None else _bins(top),
        "classwise_ece": plain(scores.classwise_ece),
        "brier": plain(scores.brier),
        "nll": say(scores.nll),
        "n_impossible": scores.n_impossible,
        "mean_average_precision": plain(mean_defined(precisions)),
        "per_class": {
            name: _class_entry(one, sweep)
            for name, one, sweep in zip(names, scores.classwise, scores.sweeps, strict=True)
        },
    }


def _class_entry(one: Reliability, sweep: PrecisionRecallCurve) -> dict[str, Any]:
    curve = sweep.thinned(CURVE_POINTS)
    return {
        "ece": plain(one.ece),
        "mce": plain(one.mce),
        "reliability": _bins(one),
        "average_precision": plain(sweep.average_precision),
        "average_precision_error": plain(sweep.average_precision_error),
        "best_f1": plain(sweep.best_f1),
        "best_threshold": plain(sweep.best_threshold),
        "curve": {name: _plain_list(getattr(curve, name)) for name in ("thresholds", "precision", "recall")},
    }


def _bins(one: Reliability) -> Mapping[str, Any]:
    return {
        "counts": one.counts.tolist(),
        "confidence": _plain_list(one.confidence),
        "accuracy": _plain_list(one.accuracy),
    }


def _plain_list(values: NDArray[Any]) -> list[float | None]:
    return [plain(value) for value in values]
