"""Metrics for training loops of other libraries: each is a module that needs its library.

All of them count batches of label tensors with the functions below.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.bridge.arrays import to_numpy
from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.metrics.arrays import without_channel
from segmeter.metrics.pixels.confusion import count_case
from segmeter.metrics.pixels.overlap import AGGREGATES, overlap_scores


def count_batch(where: str, labels: Any, target: Any, spec: ClassSpec) -> NDArray[np.int64]:
    """Count every case of a batch.

    Parameters
    ----------
    where
        The name of the metric, for messages.
    labels, target : (B, ...), for multilabel (B, K, ...), integer or bool tensors
        Decided classes and their reference; for a binary task also (B, 1, ...).
    spec
        The classes.

    Returns
    -------
    (B, *spec.counts_shape), int64.

    Raises
    ------
    InputError
        The tensors have other shapes or dtypes, or contain a value that is not a class.
    """
    for name, tensor in (("preds", labels), ("target", target)):
        if getattr(tensor, "is_floating_point", lambda: False)():
            remedy = "Decide on classes first: logits.argmax(1), or logits > 0 for binary and multilabel."
            raise InputError(expected(where, name, "to hold labels", f"{tensor.dtype} {tuple(tensor.shape)}", remedy))
    labels, target = to_numpy(labels), to_numpy(target)
    if spec.task == "binary":
        labels, target = without_channel(labels, target), without_channel(target, labels)
    if labels.shape != target.shape:
        raise InputError(expected(where, "preds", f"to have the target's shape {target.shape}", labels.shape))
    if labels.ndim < 2:
        raise InputError(expected(where, "preds", "to have an axis of cases and at least one more", labels.shape))
    cases = zip(target, labels, strict=True)
    return np.array([count_case(*case, spec) for case in cases], np.int64).reshape(-1, *spec.counts_shape)


def score_counts(counts: NDArray[np.int64], spec: ClassSpec) -> dict[str, float]:
    """Return every aggregate, and IoU and Dice of each class as "iou/car"; NaN is undefined."""
    overlap = overlap_scores(counts, task=spec.task, count_invalid=spec.count_invalid)
    scores = {name: float(getattr(overlap, name)) for name in AGGREGATES}
    for name in ("iou", "dice"):
        by_class = getattr(overlap, name)
        scores |= {f"{name}/{class_name}": float(by_class[k]) for k, class_name in enumerate(spec.names)}
    return scores
