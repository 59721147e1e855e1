"""Arrays -> RGB panels: the image for display, label maps painted over it, and where they are wrong."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from segmeter.classes import ClassSpec, Colour

RGB = NDArray[np.uint8]
Mask = NDArray[np.bool_]

MISSED: Colour = (255, 66, 140)
FALSE: Colour = (64, 156, 255)
WRONG: Colour = (255, 196, 0)
MATCHED: Colour = (60, 200, 110)
ERROR_COLOURS = (MISSED, FALSE, WRONG)
OBJECT_COLOURS = (MATCHED, MISSED, FALSE)
TINT, GREY_TINT = 0.45, 0.85  # share of a class colour over the grey image: of a pure one, and of a grey one
DIM = 0.45  # brightness of the image under the error map
HATCH = 8  # pixels from stripe to stripe over ignored pixels
_PERCENTILES = (0.5, 99.5)  # of a channel that is not uint8: what becomes black and white
_GREY_WEIGHTS = (0.299, 0.587, 0.114)  # ITU-R BT.601 luma


def display_image(image: NDArray[Any]) -> RGB:
    """Make any image visible.

    Parameters
    ----------
    image
        (H, W, C). uint8 is shown as it is; other dtypes are stretched per channel between two percentiles, what is
        not finite is black. One channel is grey, two lack blue, of more than three the first three are shown.

    Returns
    -------
    (H, W, 3) uint8
    """
    shown = image[..., :3]
    if shown.dtype != np.uint8:
        shown = np.stack([_stretch(channel) for channel in np.moveaxis(shown, -1, 0)], axis=-1)
    if shown.shape[-1] == 1:
        return np.repeat(shown, 3, axis=-1)
    return np.pad(shown, ((0, 0), (0, 0), (0, 3 - shown.shape[-1])))


def _stretch(channel: NDArray[Any]) -> NDArray[np.uint8]:
    values = channel.astype(np.float64)
    finite = np.isfinite(values)
    if not finite.any():
        return np.zeros(values.shape, np.uint8)
    low, high = np.percentile(values[finite], _PERCENTILES)
    scaled = (np.where(finite, values, low) - low) / (high - low if high > low else 1.0)
    return np.asarray(np.rint(scaled.clip(0, 1) * 255), np.uint8)


def resize(array: NDArray[Any], shape: tuple[int, int], *, smooth: bool) -> NDArray[Any]:
    """Bring (H, W) or (H, W, 3) uint8 to (height, width): averaged where `smooth`, else the pixel at each centre."""
    if array.shape[:2] == shape:
        return array
    if smooth and shape[0] < array.shape[0]:
        return np.asarray(Image.fromarray(array).resize((shape[1], shape[0]), Image.Resampling.BOX))
    rows, columns = (
        (2 * np.arange(new) + 1) * old // (2 * new) for new, old in zip(shape, array.shape[:2], strict=True)
    )
    return np.asarray(array[rows[:, None], columns])


def paint_labels(image: RGB, labels: NDArray[Any], spec: ClassSpec, objects: NDArray[Any] | None = None) -> RGB:
    """Tint a greyed image with class colours and draw their contours; ignored pixels are hatched.

    Parameters
    ----------
    image
        (H, W, 3) uint8.
    labels
        (H, W), or (K, H, W) for multilabel, where overlapping classes mix. Black classes leave the image untinted,
        and so does class 0 of a binary task.
    spec
        Gives colours and the ignored value.
    objects
        (H, W), a number per object and 0 for none: then each object has its contour, also where two touch.
    """
    grey = _grey(image) * 0.75 + 32  # neither black nor white, so that a tint shows on both
    colours = np.array(spec.colours, float)
    tint, share = (_mix_planes if labels.ndim == 3 else _mix_map)(labels, colours, spec)
    painted = grey * (1 - share) + tint * share
    edge = contours(labels if objects is None else objects)[..., None] & (share > 0)
    painted = np.where(edge, 0.75 * tint + 0.25 * 255, painted)
    return _hatch(painted, ignored(labels, spec), grey)


def _mix_map(labels: NDArray[Any], colours: NDArray[np.float64], spec: ClassSpec) -> tuple[Any, Any]:
    known = np.asarray(labels < len(colours))
    index = np.where(known, labels, 0)
    plain = np.asarray(~colours.any(axis=1))
    plain[0] |= spec.task == "binary"
    share = np.where(plain, 0.0, _strengths(colours))[index] * known
    return colours[index], share[..., None]


def _mix_planes(labels: NDArray[Any], colours: NDArray[np.float64], _: ClassSpec) -> tuple[Any, Any]:
    on = (labels == 1).astype(float)
    count = on.sum(axis=0)[..., None]
    return np.einsum("khw,kc->hwc", on, colours) / np.maximum(count, 1), TINT * (count > 0)


def _strengths(colours: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares of class colours over the grey image: the greyer a colour itself is, the more of it is needed."""
    brightest = np.maximum(colours.max(axis=1), 1)
    return np.asarray(TINT + (GREY_TINT - TINT) * colours.min(axis=1) / brightest)


def contours(labels: NDArray[Any]) -> Mask:
    """Pixels (H, W) with another label, in any plane, above, below, left or right of them."""
    planes = labels[None] if labels.ndim == 2 else labels
    down = (planes[:, 1:] != planes[:, :-1]).any(axis=0)
    right = (planes[:, :, 1:] != planes[:, :, :-1]).any(axis=0)
    edge = np.zeros(planes.shape[1:], bool)
    edge[:-1] |= down
    edge[1:] |= down
    edge[:, :-1] |= right
    edge[:, 1:] |= right
    return edge


def ignored(labels: NDArray[Any], spec: ClassSpec) -> Mask:
    """Pixels (H, W) that hold the ignored value; of planes, in every one of them."""
    mask = ~spec.valid(labels)
    return np.asarray(mask.all(axis=0) if labels.ndim == 3 else mask)


def error_kinds(target: NDArray[Any], labels: NDArray[Any], spec: ClassSpec) -> tuple[Mask, Mask, Mask]:
    """Where the prediction is wrong, by kind; each pixel is of at most one.

    Returns
    -------
    missed
        (H, W) bool. The target has a class, the prediction background (multilabel: some plane lacks pixels).
    false
        The target has background, the prediction a class (multilabel: some plane has too many).
    wrong
        Two different classes, neither being background (multilabel: both of the above).
    """
    differ = (target != labels) & spec.valid(target)
    missed, false = differ & (labels == 0), differ & (target == 0)
    if target.ndim == 2 and not spec.has_background:
        return np.zeros_like(differ), np.zeros_like(differ), differ
    if target.ndim == 2:
        return missed, false, differ & ~missed & ~false
    missed, false = missed.any(axis=0), false.any(axis=0)
    return missed & ~false, false & ~missed, missed & false


def paint_errors(image: RGB, target: NDArray[Any], labels: NDArray[Any], spec: ClassSpec) -> RGB:
    """Dim the image and paint each kind of error in its own strong colour; ignored pixels are hatched."""
    grey = _grey(image) * DIM
    painted = np.repeat(grey, 3, axis=-1)
    for mask, colour in zip(error_kinds(target, labels, spec), ERROR_COLOURS, strict=True):
        painted[mask] = np.array(colour) * 0.85 + painted[mask] * 0.15
    return _hatch(painted, ignored(target, spec), grey)


def paint_objects(image: RGB, kinds: Iterable[NDArray[Any]], target: NDArray[Any], spec: ClassSpec) -> RGB:
    """Dim the image and paint matched, missed and spurious objects, each with its contour; ignored pixels are hatched.

    Parameters
    ----------
    image
        (H, W, 3) uint8.
    kinds
        Three maps (H, W) of numbers, 0 for none, in the order of `OBJECT_COLOURS`; where they overlap the last one
        is seen, under the contours of all.
    target, spec
        Say which pixels are ignored.
    """
    maps = list(kinds)
    grey = _grey(image) * DIM
    painted = np.repeat(grey, 3, axis=-1)
    for objects, colour in zip(maps, OBJECT_COLOURS, strict=True):
        painted[objects > 0] = np.array(colour) * 0.45 + painted[objects > 0] * 0.55
    for objects, colour in zip(maps, OBJECT_COLOURS, strict=True):
        painted[(objects > 0) & contours(objects)] = colour
    return _hatch(painted, ignored(target, spec), grey)


def _grey(image: RGB) -> NDArray[np.float64]:
    return np.asarray(image @ np.array(_GREY_WEIGHTS))[..., None]


def _hatch(painted: NDArray[np.float64], mask: Mask, grey: NDArray[np.float64]) -> RGB:
    height, width = mask.shape
    stripe = np.add.outer(np.arange(height), np.arange(width)) % HATCH < HATCH // 4
    flat = np.where(stripe[..., None], 150.0, 40 + 0.3 * grey)
    return np.asarray(np.rint(np.where(mask[..., None], flat, painted)), np.uint8)
