"""Joins the label maps that several readers made of one case: by majority, or by STAPLE."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.data.files.reader_process import need

Consensus = Literal["majority", "staple"]
KINDS: tuple[Consensus, ...] = get_args(Consensus)


def majority_vote(maps: Sequence[NDArray[Any]], spec: ClassSpec) -> NDArray[Any]:
    """Give each pixel the label that most readers gave it.

    Parameters
    ----------
    maps : R arrays (H, W) or (D, H, W), for multilabel (K, H, W) or (K, D, H, W), integer
        Labels. A pixel that one reader ignores is ignored.
    spec
        The classes. Their ignored value marks pixels that have no majority, so there must be one.

    Returns
    -------
    Labels of `spec.label_dtype`, ignored where two labels have the most votes, or a reader ignores the pixel.

    Examples
    --------
    >>> spec = ClassSpec(task="multiclass", names=("a", "b", "c"), colours=((0, 0, 0),) * 3).with_ignored()
    >>> majority_vote([np.array([[0, 1, 2]]), np.array([[0, 1, 1]]), np.array([[1, 1, 0]])], spec)
    array([[  0,   1, 255]], dtype=uint8)
    """
    found, tied = np.zeros(maps[0].shape, spec.label_dtype), np.ones(maps[0].shape, bool)
    most = np.zeros(found.shape, np.uint8 if len(maps) < 256 else np.uint32)
    for label in range(spec.num_values):
        votes = np.zeros_like(most)
        for one in maps:
            votes += one == label
        ahead, level = votes > most, (votes == most) & (votes > 0)
        found[ahead], tied[ahead], tied[level] = label, False, True
        np.maximum(most, votes, out=most)
    for one in maps:
        tied |= spec.is_ignored(one)
    return spec.ignoring(found, tied)


def staple(maps: Sequence[NDArray[Any]], spec: ClassSpec) -> NDArray[Any]:
    """Estimate the hidden truth of a case together with each reader's performance, by SimpleITK's filters.

    A binary task, and each plane of a multilabel one, takes STAPLE, at a probability of 0.5 or more. Several classes
    take its extension to labels. Both see one case at a time. Pixels that a reader ignores are background while it
    estimates, and ignored in the result.

    Parameters
    ----------
    maps, spec
        As for `majority_vote`.

    Raises
    ------
    DataError
        SimpleITK is not installed.

    References
    ----------
    Warfield, Zou and Wells 2004, "Simultaneous truth and performance level estimation (STAPLE)", IEEE Trans. Med.
    Imaging 23, 903-921. Rohlfing, Russakoff and Maurer 2003, IPMI (several labels).
    """
    ignored = np.any([spec.is_ignored(one) for one in maps], axis=0)
    seen = [np.where(ignored, 0, one).astype(spec.label_dtype) for one in maps]
    if spec.is_multilabel:
        found = np.stack([_staple_binary([one[k] for one in seen]) for k in range(spec.num_classes)])
    elif spec.task == "binary":
        found = _staple_binary(seen)
    else:
        sitk = need("SimpleITK", "itk", "STAPLE")
        images = [sitk.GetImageFromArray(one) for one in seen]
        found = sitk.GetArrayFromImage(sitk.MultiLabelSTAPLE(images, spec.values[-1]))
    return spec.ignoring(found, ignored)


def _staple_binary(maps: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
    """Select pixels in which the probability of the hidden truth is 0.5 or more; none if no reader marks a pixel."""
    sitk = need("SimpleITK", "itk", "STAPLE")
    if not any(one.any() for one in maps):
        return np.zeros(maps[0].shape, bool)
    images = [sitk.GetImageFromArray((one > 0).astype(np.uint8)) for one in maps]
    return np.asarray(sitk.GetArrayFromImage(sitk.STAPLE(images, 1.0)) >= 0.5)
