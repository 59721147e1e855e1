"""Metrics for training loops of other libraries, each a module that needs its library.

Both count batches of label tensors here.
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
        Named in messages.
    labels, target : (B, ...), for multilabel (B, K, ...), integer or bool tensors
        Decided classes and their reference; of a binary task also (B, 1, ...).
    spec
        The classes.

    Returns
    -------
    (B, *spec.counts_shape), int64.

    Raises
    ------
    InputError
        They are no such tensors, or contain a value that is not a class.
    """
    for name, tensor in (("preds", labels), ("target", target)):
        if getattr(tensor, "is_floating_point", lambda: False)():
            remedy = "Decide on classes first: logits.argmax(1), or logits > 0 for binary and multilabel."
            raise InputError(expected(where, name, "to hold labels", f"{tensor.dtype} {tuple(tensor.shape)}", remedy))
    given = to_numpy(labels), to_numpy(target)
    if spec.task == "binary":
        given = without_channel(given[0], given[1]), without_channel(given[1], given[0])
    if given[0].shape != given[1].shape:
        raise InputError(expected(where, "preds", f"to have the target's shape {given[1].shape}", given[0].shape))
    if given[0].ndim < 2:
        raise InputError(expected(where, "preds", "to have an axis of cases and at least one more", given[0].shape))
    cases = zip(given[1], given[0], strict=True)
    return np.array([count_case(*case, spec) for case in cases], np.int64).reshape(-1, *spec.counts_shape)


def score_counts(counts: NDArray[np.int64], spec: ClassSpec) -> dict[str, float]:
    """Return every aggregate, and IoU and Dice of each class as "iou/car"; NaN is undefined."""
    found = overlap_scores(counts, task=spec.task, count_invalid=spec.count_invalid)
    scores = {name: float(getattr(found, name)) for name in AGGREGATES}
    for name in ("iou", "dice"):
        scores |= {f"{name}/{each}": float(getattr(found, name)[k]) for k, each in enumerate(spec.names)}
    return scores
