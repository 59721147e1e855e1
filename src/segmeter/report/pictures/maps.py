"""Turns images, label maps, errors and objects into what pictures show.

An image becomes visible. All others become index maps: numbers per pixel, with a name and a colour for each.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from segmeter.classes import ClassSpec, Colour
from segmeter.report.pictures.objects import Objects, find_kinds

RGB = NDArray[np.uint8]
Mask = NDArray[np.bool_]
_PERCENTILES = (0.5, 99.5)  # These percentiles of an image become black and white where it is stretched.
_DIM = 100  # An 8-bit image is stretched too if its upper percentile is below this.

Entry = dict[str, Any]
"""An entry of a map: a class, or a name with a colour."""
MISSED: Colour = (255, 66, 140)
FALSE: Colour = (64, 156, 255)
WRONG: Colour = (255, 196, 0)
MATCHED: Colour = (60, 200, 110)
OUTLINE: Colour = (255, 255, 255)
HATCHED: Colour = (128, 128, 128)
_UNKNOWN: Colour = (255, 0, 255)
_MOST_ENTRIES = 254  # A map has at most this many entries. Rarer classes are drawn as one.
IGNORED = 4  # The last of the kinds of error.


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerMap:
    """An index map over the image.

    Parameters
    ----------
    role, file
        "target", "prediction" or "errors", and the name of its file.
    index : (H, W), integer
        The entry of each pixel.
    entries
        A class, or a name with a colour. ``hidden`` shows nothing, ``absent`` is not in the legend, ``faint`` is more
        transparent, ``strong`` covers the image, and ``hatched`` marks ignored pixels.
    """

    role: str
    file: str
    index: NDArray[Any]
    entries: Sequence[Entry]

    def reduce(self, shape: tuple[int, int], *, background: bool) -> "LayerMap":
        """Reduce the map by the most important entry in each block of pixels: outlines, then what is rare.

        `background` says whether class 0 is background, which yields to any other class.
        """
        if self.index.shape == shape:
            return self

        def importance(i: int) -> tuple[bool, ...]:
            entry = self.entries[i]
            shown = not entry.get("hidden")
            solid = not (entry.get("hatched") or entry.get("faint"))
            return shown, not (background and entry.get("class") == 0), solid, bool(entry.get("strong"))

        return replace(self, index=reduce_by(importance, self.index, shape))


def _ignored(labels: NDArray[Any], spec: ClassSpec) -> Mask:
    """Find the pixels (H, W) with the ignored value; in planes (K, H, W), those that all planes ignore."""
    mask = ~spec.valid(labels)
    return np.asarray(mask.all(axis=0) if labels.ndim == 3 else mask)


def label_maps(role: str, labels: NDArray[Any], spec: ClassSpec) -> list[LayerMap]:
    """Make the map of a label map (H, W), or of planes (K, H, W) a map for each class that occurs."""
    if labels.ndim == 3:
        occurring = [k for k in range(len(labels)) if (labels[k] == 1).any()]
        maps = [_kind_map(role, f"{role}-{k}.png", [({"class": k}, labels[k] == 1)]) for k in occurring]
        ignored = _ignored(labels, spec)
        return [*maps, _kind_map(role, f"{role}-ignored.png", [_ignored_kind(ignored)])] if ignored.any() else maps
    values, counts = np.unique(labels, return_counts=True)
    kept = np.sort(values[np.argsort(-counts, kind="stable")[:_MOST_ENTRIES]])
    entries = list[Entry]()
    for value in kept.tolist():
        if 0 <= value < spec.num_classes:
            entries.append({"class": value})
        elif spec.is_ignored(value):
            entries.append({"name": "ignored", "colour": HATCHED, "hatched": True})
        else:
            entries.append({"name": f"value {value}, no class", "colour": _UNKNOWN})
    index = np.searchsorted(kept, labels).clip(max=len(kept) - 1).astype(np.uint8)
    rare = kept[index] != labels
    if rare.any():
        entries.append({"name": "classes with fewer pixels", "colour": _UNKNOWN})
        index[rare] = len(entries) - 1
    return [LayerMap(role=role, file=f"{role}.png", index=index, entries=entries)]


_Kind = tuple[Entry, Mask]


def _kind_map(role: str, name: str, kinds: Sequence[_Kind]) -> LayerMap:
    """Make a map of masks (H, W). The last mask wins where they overlap, and pixels outside all masks are hidden."""
    index = np.zeros(kinds[0][1].shape, np.uint8)
    for number, (_, mask) in enumerate(kinds, start=1):
        index[mask] = number
    return LayerMap(role=role, file=name, index=index, entries=[{"hidden": True}, *(entry for entry, _ in kinds)])


def _ignored_kind(mask: Mask) -> _Kind:
    return {"name": "ignored", "colour": HATCHED, "hatched": True} | ({} if mask.any() else {"absent": True}), mask


def classify_errors(target: NDArray[Any], labels: NDArray[Any], spec: ClassSpec) -> NDArray[np.uint8]:
    """Find the kind of error of each pixel (H, W).

    Returns
    -------
    (H, W) uint8
        0: right; 1: missed, only the target has a class; 2: false, only the prediction has one; 3: another class, or
        with planes one class missed and another false; 4: ignored.
    """
    differ = (target != labels) & spec.valid(target)
    missed, false = differ & (labels == 0), differ & (target == 0)
    if target.ndim == 3:
        missed, false = missed.any(axis=0), false.any(axis=0)
        kinds = missed + np.uint8(2) * false
    elif spec.has_background:
        kinds = np.where(missed, 1, np.where(false, 2, 3 * differ))
    else:
        kinds = 3 * differ
    return np.where(_ignored(target, spec), np.uint8(IGNORED), kinds.astype(np.uint8))


def find_wrong(errors: NDArray[np.uint8]) -> Mask:
    """Find the wrong pixels among kinds of error, as `classify_errors` finds them."""
    return (errors > 0) & (errors < IGNORED)


def error_map(errors: NDArray[np.uint8], spec: ClassSpec) -> LayerMap:
    """Make the map of errors, as `classify_errors` finds them."""
    first = spec.names[0]
    names = [f"missed: predicted as {first}", f"false: {first} in the target", "another class"]
    if spec.is_multilabel:
        names = ["missed", "false", "missed and false"]
    entries: list[Entry] = [{"hidden": True}]
    for name, colour in zip(names, (MISSED, FALSE, WRONG), strict=True):
        absent = {} if (errors == len(entries)).any() else {"absent": True}
        entries.append({"name": name, "colour": colour, **absent})
    ignored, _ = _ignored_kind(errors == IGNORED)
    return LayerMap(role="errors", file="errors.png", index=errors, entries=[*entries, ignored])


def object_maps(objects: Objects, target: NDArray[Any], labels: NDArray[Any], spec: ClassSpec) -> list[LayerMap]:
    """Make outlines of the objects of both sides, and an error map with all of them filled."""
    kinds = find_kinds(objects, target, labels, spec)
    words = (f"matched (IoU above {objects.threshold:g})", "missed", "false")
    matched, missed, false = (f"{count} {name}" for count, name in zip(kinds.counts(), words, strict=True))
    of_target = (missed, MISSED, kinds.missed)
    of_prediction = [(matched, MATCHED, kinds.matched), (false, FALSE, kinds.spurious)]
    filled, edges = list[_Kind](), list[_Kind]()
    for name, colour, numbers in (of_prediction[0], of_target, of_prediction[1]):
        filled.append(({"name": name, "colour": colour, "faint": True}, numbers > 0))
        edges.append(({"name": name, "colour": colour, "strong": True}, (numbers > 0) & contours(numbers)))
    errors = _kind_map("errors", "errors.png", [*filled, _ignored_kind(_ignored(target, spec)), *edges])
    target_outlines = outlines("target", [(matched, MATCHED, kinds.found), of_target])
    return [target_outlines, outlines("prediction", of_prediction), errors]


def outlines(role: str, kinds: Sequence[tuple[str, Colour, NDArray[Any]]]) -> LayerMap:
    """Make a map of the contour of each object, also where two touch."""
    first, last = kinds[0][2], kinds[-1][2]
    edge = contours(np.where(last > 0, last, first))
    masks = list[_Kind]()
    for name, colour, numbers in kinds:
        masks.append(({"name": name, "colour": colour, "strong": True}, (numbers > 0) & edge))
    return _kind_map(role, f"{role}-objects.png", masks)


def display_image(image: NDArray[Any], ranges: NDArray[np.float64] | None = None) -> RGB:
    """Make any image visible.

    Parameters
    ----------
    image
        (H, W, C). uint8 is shown as it is. Other dtypes are stretched per channel between two percentiles, with pixels
        that are not finite in black. One channel is grey, two lack blue, and of more the first three are shown.
    ranges
        The values of each channel that become black and white, as `display_ranges` finds them; None: find them in the
        image.

    Returns
    -------
    (H, W, 3) uint8
    """
    shown = image[..., :3]
    if shown.dtype != np.uint8:
        low, high = (display_ranges(image) if ranges is None else ranges).T
        values = np.where(np.isfinite(shown), shown, low).astype(np.float64)
        scaled = (values - low) / np.where(high > low, high - low, 1)
        shown = np.rint(scaled.clip(0, 1) * 255).astype(np.uint8)
    if shown.shape[-1] == 1:
        return np.repeat(shown, 3, axis=-1)
    return np.pad(shown, ((0, 0), (0, 0), (0, 3 - shown.shape[-1])))


def find_range(image: RGB) -> tuple[int, int]:
    """Find the two percentiles of a displayed image, 0 to 255, between which it is worth stretching."""
    low, high = np.percentile(image, _PERCENTILES)
    return int(low), max(int(np.ceil(high)), int(low) + 1)


def lighten(image: RGB) -> RGB:
    """Stretch an image that would look black, such as one of dim nuclei; other images stay as they are."""
    low, high = find_range(image)
    if high >= _DIM:
        return image
    return np.asarray(np.rint((image.astype(np.float32) - low).clip(0, high - low) * (255 / (high - low))), np.uint8)


def contours(labels: NDArray[Any]) -> Mask:
    """Find pixels (H, W) with another label above, below, left or right of them."""
    edge = np.zeros(labels.shape, bool)
    for values, view in ((labels, edge), (labels.T, edge.T)):
        differ = values[1:] != values[:-1]
        view[:-1] |= differ
        view[1:] |= differ
    return edge


def display_ranges(image: NDArray[Any]) -> NDArray[np.float64]:
    """Find the two percentiles (C, 2) of each shown channel between which an image that is not uint8 is stretched."""
    channels = (channel[np.isfinite(channel)] for channel in np.moveaxis(image[..., :3], -1, 0))
    return np.array([np.percentile(values, _PERCENTILES) if values.size else (0.0, 0.0) for values in channels])


def reduce_ranks(ranks: NDArray[Any], shape: tuple[int, int], merge: np.ufunc = np.maximum) -> NDArray[Any]:
    """Reduce a map (H, W) by the highest rank of each block, so that a structure of one pixel's width stays whole.

    Examples
    --------
    >>> diagonal = np.eye(4, dtype=int)
    >>> reduce_ranks(diagonal, (2, 2))
    array([[1, 0],
           [0, 1]])
    """
    if ranks.shape == shape:
        return ranks
    for axis in (0, 1):
        starts = np.arange(shape[axis]) * ranks.shape[axis] // shape[axis]
        ranks = merge.reduceat(ranks, starts, axis=axis)
    return ranks


def reduce_by(
    importance: Callable[[int], tuple[bool, ...]], values: NDArray[Any], shape: tuple[int, int]
) -> NDArray[Any]:
    """Reduce a map (H, W) by the most important value of each block; of equally important ones, the rarer wins."""
    counts = np.bincount(values.ravel())
    order = np.array(sorted(range(len(counts)), key=lambda value: (*importance(value), -int(counts[value]))))
    ranks = np.argsort(order).astype(values.dtype)
    return np.asarray(order.astype(values.dtype)[reduce_ranks(ranks[values], shape)])


def encode(image: NDArray[np.uint8], form: str, **options: int) -> bytes:
    """Return the bytes of a file of Pillow's format `form`."""
    content = io.BytesIO()
    Image.fromarray(image).save(content, form, **options)
    return content.getvalue()
