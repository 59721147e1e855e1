"""One case -> one picture: image, target, prediction and errors side by side."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.files import make_folder, safe_id, write_bytes
from segmeter.report.figures import headline, number
from segmeter.report.pictures.canvas import Entry, compose
from segmeter.report.pictures.objects import NO_OBJECTS, ObjectKinds, Objects, find_kinds
from segmeter.report.pictures.paint import (
    ERROR_COLOURS,
    OBJECT_COLOURS,
    RGB,
    display_image,
    error_kinds,
    ignored,
    paint_errors,
    paint_labels,
    paint_objects,
    resize,
)

PANEL = 480  # longest side of a panel, pixels
COMPRESSION = 3  # of the PNG: as small as at the default 6, in less than half of its time


def draw_overlay(
    image: NDArray[Any],
    target: NDArray[Any] | None,
    labels: NDArray[Any],
    spec: ClassSpec,
    *,
    title: str = "",
    score: float | None = None,
    panel: int = PANEL,
    objects: Objects = NO_OBJECTS,
) -> RGB:
    """Draw image | target | prediction | errors with a legend; without a target only image | prediction.

    Where the objects of both sides are known, the last panel shows which are matched, missed and false.

    Parameters
    ----------
    image
        (H, W, C) uint8, uint16 or float; see `paint.display_image`.
    target, labels
        (H, W) integer; multilabel (K, H, W) in {0, 1}.
    spec
        Class names, colours and the ignored value.
    title
        The case id.
    score
        The headline of the case (see `figures.headline`), in [0, 1]; None or NaN is shown as "n/a" where there is a
        target.
    panel
        Longest side of a panel, pixels. Smaller images are enlarged by a whole factor, larger ones reduced.
    objects
        Of maps (H, W) of one class: each object gets its own contour.

    Returns
    -------
    (height, width, 3) uint8

    Raises
    ------
    InputError
        The shapes do not go together.
    """
    check_shapes("draw_overlay", image, target, labels)
    shape = panel_shape(image.shape[:2], panel)
    shown = resize(display_image(image), shape, smooth=True)
    small, small_target = resize_labels(labels, shape), None if target is None else resize_labels(target, shape)
    kinds = None
    if target is not None and target.ndim == 2 and objects.matched:
        kinds = find_kinds(objects, target, labels, spec)
    outlined = objects.prediction if kinds is None else kinds.prediction
    panels = [("image", shown), ("prediction", paint_labels(shown, small, spec, _resize(outlined, shape)))]
    legend, figure = [class_entries([small] if small_target is None else [small, small_target], spec)], ""
    if target is not None and small_target is not None:
        outlined = objects.target if kinds is None else kinds.target
        panels.insert(1, ("target", paint_labels(shown, small_target, spec, _resize(outlined, shape))))
        if kinds is not None:
            parts = (_resize(each, shape) for each in (kinds.matched, kinds.missed, kinds.spurious))
            last = "objects", paint_objects(shown, parts, small_target, spec)
            entries: list[Entry] = list(zip(object_names(kinds, objects), OBJECT_COLOURS, strict=True))
        else:
            last = "errors", paint_errors(shown, small_target, small, spec)
            entries = _error_entries(small_target, small, spec)
        panels.append(last)
        legend.append([*entries, ("ignored", None)] if ignored(small_target, spec).any() else entries)
        figure = f"{headline(spec.headline)} {number(score, 3)}"
    return compose(panels, title=title, figure=figure, legend=legend)


def write_overlay(folder: Path, case_id: str, picture: RGB) -> Path:
    """Write a picture as <case>.png, complete or not at all; returns its path."""
    content = io.BytesIO()
    Image.fromarray(picture).save(content, "PNG", compress_level=COMPRESSION)
    path = picture_path(folder, case_id)
    make_folder(folder)
    write_bytes(path, content.getvalue())
    return path


def picture_path(folder: Path, case_id: str) -> Path:
    """Where the picture of a case is."""
    return folder / f"{safe_id(case_id)}.png"


def check_shapes(where: str, image: NDArray[Any], target: NDArray[Any] | None, labels: NDArray[Any]) -> None:
    """Raise an InputError unless the arrays of a picture go together; `where` is who asks."""
    if image.ndim != 3 or not image.size:
        raise InputError(expected(where, "image", "(H, W, C)", image.shape))
    if labels.ndim not in (2, 3) or labels.shape[-2:] != image.shape[:2]:
        raise InputError(expected(where, "labels", f"of the image's size {image.shape[:2]}", labels.shape))
    if target is not None and target.shape != labels.shape:
        raise InputError(expected(where, "target", f"of the labels' shape {labels.shape}", target.shape))


def panel_shape(shape: tuple[int, int], panel: int) -> tuple[int, int]:
    """Rows and columns of a panel whose longest side is about `panel`; enlarged by a whole factor only."""
    longest = max(shape)
    if longest <= panel:
        return shape[0] * (panel // longest), shape[1] * (panel // longest)
    return max(1, round(shape[0] * panel / longest)), max(1, round(shape[1] * panel / longest))


def _resize(objects: NDArray[Any] | None, shape: tuple[int, int]) -> Any:
    return None if objects is None else resize(objects, shape, smooth=False)


def resize_labels(labels: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """Bring (H, W) or (K, H, W) labels to a shape: the pixel at each centre."""
    if labels.ndim == 2:
        return resize(labels, shape, smooth=False)
    return np.stack([resize(plane, shape, smooth=False) for plane in labels])


def class_entries(maps: Sequence[NDArray[Any]], spec: ClassSpec) -> list[Entry]:
    """The classes that occur in maps (H, W), or (K, H, W) for multilabel."""
    return [(spec.names[k], spec.colours[k]) for k in _present(maps) if k < spec.num_classes]


def _error_entries(target: NDArray[Any], labels: NDArray[Any], spec: ClassSpec) -> list[Entry]:
    """The kinds of error that occur."""
    first = spec.names[0]
    names = (f"missed: predicted as {first}", f"false: {first} in the target", "another class")
    if labels.ndim == 3:
        names = ("missed", "false", "missed and false")
    masks = error_kinds(target, labels, spec)
    return [(name, colour) for name, colour, mask in zip(names, ERROR_COLOURS, masks, strict=True) if mask.any()]


def object_names(kinds: ObjectKinds, objects: Objects) -> list[str]:
    """How many objects there are of each kind, in the order of `OBJECT_COLOURS`; of a slice, of those in it."""
    where = "" if objects.kinds is None else " in the volume"
    names = (f"matched (IoU above {objects.threshold:g}{where})", "missed", "false")
    return [f"{count} {name}" for count, name in zip(kinds.counts(), names, strict=True)]


def _present(maps: Sequence[NDArray[Any]]) -> list[int]:
    if maps[0].ndim == 3:
        return sorted({int(k) for planes in maps for k in np.flatnonzero((planes == 1).any(axis=(1, 2)))})
    return sorted({int(value) for labels in maps for value in np.unique(labels)})
