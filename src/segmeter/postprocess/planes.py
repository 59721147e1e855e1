"""Label map <-> one mask per class: how a step on masks becomes a step on label maps.

Rules, the same for every step:

* A step works through its classes in the given order; each sees what the earlier ones left.
* Pixels that a class gains are taken from whatever class held them.
* Pixels that a class loses get the class `fill`, or with None that of the nearest pixel that is not lost, counted in
  steps up, left, right and down; of equally near ones the first in that order. Where a whole image is lost it stays.
* Multilabel planes (K, H, W) are independent: what one loses no other gains, and `fill` does not apply.
* Predictions hold classes only; the ignored value does not occur in them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import nearest
from segmeter.errors import ConfigError
from segmeter.postprocess.config import ClassNames
from segmeter.postprocess.masks import Mask
from segmeter.vocabulary import ClassSpec

LabelArray = NDArray[np.uint8] | NDArray[np.uint16]
MaskStep = Callable[[Mask], Mask]


def class_indices(classes: ClassNames, spec: ClassSpec, *, where: str) -> tuple[int, ...]:
    """Label values of the named classes; None is all but the first, or all for multilabel.

    Raises
    ------
    ConfigError
        A name is not a class.
    """
    if classes is None:
        return tuple(range(0 if spec.task == "multilabel" else 1, spec.num_classes))
    strange = [name for name in classes if name not in spec.names]
    if strange:
        raise ConfigError(
            [f"{where}: expected `classes` to be class names, got {n!r}. {nearest(n, spec.names)}" for n in strange]
        )
    return tuple(spec.names.index(name) for name in classes)


def fill_index(fill: str | None, spec: ClassSpec, *, where: str) -> int | None:
    """Label value of the class that removed pixels get; ConfigError where there is no such class."""
    return None if fill is None else class_indices((fill,), spec, where=where)[0]


def apply_per_class(
    labels: LabelArray, step: MaskStep, *, classes: tuple[int, ...], multilabel: bool, fill: int | None = None
) -> LabelArray:
    """Run `step` on the mask of each class in turn and put the result back into a new label map.

    Parameters
    ----------
    labels
        (H, W), or (K, H, W) in {0, 1} for multilabel.
    step
        (H, W) bool -> (H, W) bool.
    classes
        Label values, or planes, in the order in which they are done.
    multilabel
        Whether `labels` are planes.
    fill
        The value of pixels that a class loses; None: the nearest.
    """
    result = labels.copy()
    for index in classes:
        mask = result[index].astype(bool) if multilabel else result == index
        if not mask.any():
            continue
        after = step(mask)
        if multilabel:
            result[index] = after
        else:
            _put_back(result, index, mask, after, fill=fill)
    return result


def _put_back(result: LabelArray, index: int, mask: Mask, after: Mask, *, fill: int | None) -> None:
    lost = mask & ~after
    result[after & ~mask] = index
    if fill is None:
        fill_from_nearest(result, lost)
    else:
        result[lost] = fill


def fill_from_nearest(labels: NDArray[Any], lost: Mask) -> None:
    """Give each lost pixel, in place, the label of the nearest kept one; works inwards ring by ring.

    The cost grows with the lost pixels only, whatever the image's size and however thick they lie.
    """
    if lost.all():
        return
    stride = lost.shape[1] + 2
    sides = (-stride, stride, -1, 1)
    unknown = np.pad(lost, 1).ravel()
    usable = np.pad(~lost, 1).ravel()  # the frame is neither: it is not filled and nothing is taken from it
    values = np.pad(labels, 1).ravel()
    ring = np.flatnonzero(unknown)
    while ring.size:
        source = np.full(ring.size, -1)
        for side in sides:
            source = np.where((source < 0) & usable[ring + side], ring + side, source)
        found = source >= 0
        ring = ring[found]
        values[ring] = values[source[found]]
        unknown[ring] = False
        usable[ring] = True
        beside = np.unique(np.concatenate([ring + side for side in sides]))
        ring = beside[unknown[beside]]
    labels[...] = values.reshape(-1, stride)[1:-1, 1:-1]
