"""Ranks images without a reference by how much their labels would teach a model. No torch.

With several models, or one model on flipped images, their disagreement counts: the entropy of the mean minus the mean
of the entropies. With one set of probabilities, their entropy is used instead. Images like those already chosen count
less, so that the first ones cover the others.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import xlogy

from segmeter.checks import expected, some
from segmeter.errors import DataError
from segmeter.evaluation.decisions.held_out import find_probs, read_probs
from segmeter.evaluation.drive import collect
from segmeter.metrics.arrays import FloatArray, say
from segmeter.records import Form

SCHEMA = 1  # of label_next.json
_CELLS = 4  # squares per axis, whose mean probabilities describe an image
_MOST_PIXELS = 1 << 31


class LabelNext(Form):
    """label_next.json: the result of `segmeter suspects order=label_next`."""

    schema_: int = Field(SCHEMA, alias="schema")
    by: str
    """"disagreement" of several runs, or "entropy" of one."""
    images: list[dict[str, Any]]
    """The best first: ``rank, case_id``, ``gain`` (nats per pixel) and ``distance`` to the nearest image above it."""


def rank_images(runs: Sequence[Path]) -> dict[str, Any]:
    """Rank the images of runs of predict as the content of label_next.json.

    Raises
    ------
    DataError
        A run kept no probabilities, the runs differ in their images, or a file can't be read.
    """
    files = [find_probs("suspects", folder) for folder in runs]
    ids = list(files[0])
    if any(each.keys() != files[0].keys() for each in files):
        other = sorted(set().union(*files) - set(ids).intersection(*files[1:]))
        raise DataError(expected("suspects", "runs", "to predict the same images", f"others ({some(other)})"))
    found = collect(lambda case_id: _describe([each[case_id] for each in files]), ids, what="reading")
    gains, places = zip(*found, strict=True)
    order, distances = cover(np.array(gains), np.stack(places))
    images = [
        {"rank": rank, "case_id": ids[i], "gain": float(gains[i]), "distance": say(distance)}
        for rank, (i, distance) in enumerate(zip(order, distances, strict=True), start=1)
    ]
    return {"schema": SCHEMA, "by": "disagreement" if len(runs) > 1 else "entropy", "images": images}


def _describe(paths: Sequence[Path]) -> tuple[float, FloatArray]:
    """Return the gain of an image, and the mean probabilities of its squares."""
    members = [read_probs(path, max_pixels=_MOST_PIXELS) for path in paths]
    if len({each.shape for each in members}) > 1:
        raise DataError(expected(str(paths[0]), "probabilities", "to have one size in all runs", "several"))
    mean = np.mean(members, axis=0)
    gain = _entropy(mean) - (float(np.mean([_entropy(each) for each in members])) if len(members) > 1 else 0.0)
    cells = [cell for rows in np.array_split(mean, _CELLS, axis=1) for cell in np.array_split(rows, _CELLS, axis=2)]
    return gain, np.concatenate([(cell if cell.size else mean).mean(axis=(1, 2)) for cell in cells])


def _entropy(probs: NDArray[Any]) -> float:
    """Average the entropy over the pixels, in nats. Channels that don't sum to 1 are independent classes, present or
    not.
    """
    rounding = 1e-3 + len(probs) / 500  # of one byte per channel
    alone = len(probs) == 1 or float(np.abs(probs.sum(axis=0) - 1).max(initial=0)) > rounding
    every = np.concatenate([1 - probs, probs]) if alone else probs
    return float(-xlogy(every, every).sum(axis=0).mean())


def cover(gains: FloatArray, places: FloatArray) -> tuple[list[int], list[float]]:
    """Choose images one after another, by the product of gain and distance to those already chosen.

    Parameters
    ----------
    gains : (N,)
    places : (N, D)

    Returns
    -------
    The order, and each image's distance to the nearest one before it, which is inf for the first.

    Examples
    --------
    Of two equal images with large gains the second comes last:

    >>> cover(np.array([3.0, 2.9, 1.0]), np.array([[0.0], [0.0], [1.0]]))[0]
    [0, 2, 1]
    """
    nearest, left = np.full(len(gains), np.inf), np.ones(len(gains), bool)
    order, distances, weight = list[int](), list[float](), gains
    for _ in range(len(gains)):
        chosen = int(np.flatnonzero(left)[np.argmax(weight[left])])
        order.append(chosen)
        distances.append(float(nearest[chosen]))
        left[chosen] = False
        nearest = np.minimum(nearest, np.linalg.norm(places - places[chosen], axis=1))
        weight = gains * nearest
    return order, distances
