"""One case -> one picture: image, target, prediction and errors side by side."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from segmeter.checks import expected
from segmeter.errors import InputError
from segmeter.files import make_folder, safe_id, write_bytes
from segmeter.report.canvas import Entry, compose
from segmeter.report.paint import (
    ERROR_COLOURS,
    RGB,
    display_image,
    error_kinds,
    ignored,
    paint_errors,
    paint_labels,
    resize,
)
from segmeter.vocabulary import ClassSpec

PANEL = 480  # longest side of a panel, pixels
COMPRESSION = 3  # of the PNG: as small as at the default 6, in less than half of its time


def draw_overlay(
    image: NDArray[Any],
    target: NDArray[Any] | None,
    labels: NDArray[Any],
    spec: ClassSpec,
    *,
    title: str = "",
    mean_iou: float | None = None,
    panel: int = PANEL,
) -> RGB:
    """Draw image | target | prediction | errors with a legend; without a target only image | prediction.

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
    mean_iou
        In [0, 1]; None or NaN is shown as "n/a" where there is a target.
    panel
        Longest side of a panel, pixels. Smaller images are enlarged by a whole factor, larger ones reduced.

    Returns
    -------
    (height, width, 3) uint8

    Raises
    ------
    InputError
        The shapes do not go together.
    """
    _check(image, target, labels)
    shape = _panel_shape(image.shape[:2], panel)
    shown = resize(display_image(image), shape, smooth=True)
    labels = _resize_labels(labels, shape)
    panels = [("image", shown), ("prediction", paint_labels(shown, labels, spec))]
    figure = ""
    if target is not None:
        target = _resize_labels(target, shape)
        panels.insert(1, ("target", paint_labels(shown, target, spec)))
        panels.append(("errors", paint_errors(shown, target, labels, spec)))
        figure = "mean IoU n/a" if mean_iou is None or np.isnan(mean_iou) else f"mean IoU {mean_iou:.3f}"
    return compose(panels, title=title, figure=figure, legend=_legend(target, labels, spec))


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


def _check(image: NDArray[Any], target: NDArray[Any] | None, labels: NDArray[Any]) -> None:
    if image.ndim != 3 or not image.size:
        raise InputError(expected("draw_overlay", "image", "(H, W, C)", image.shape))
    if labels.ndim not in (2, 3) or labels.shape[-2:] != image.shape[:2]:
        raise InputError(expected("draw_overlay", "labels", f"of the image's size {image.shape[:2]}", labels.shape))
    if target is not None and target.shape != labels.shape:
        raise InputError(expected("draw_overlay", "target", f"of the labels' shape {labels.shape}", target.shape))


def _panel_shape(shape: tuple[int, int], panel: int) -> tuple[int, int]:
    longest = max(shape)
    if longest <= panel:
        return shape[0] * (panel // longest), shape[1] * (panel // longest)
    return max(1, round(shape[0] * panel / longest)), max(1, round(shape[1] * panel / longest))


def _resize_labels(labels: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    if labels.ndim == 2:
        return resize(labels, shape, smooth=False)
    return np.stack([resize(plane, shape, smooth=False) for plane in labels])


def _legend(target: NDArray[Any] | None, labels: NDArray[Any], spec: ClassSpec) -> list[list[Entry]]:
    """The classes that occur; below them the kinds of error that occur."""
    maps = [labels] if target is None else [labels, target]
    classes: list[Entry] = [(spec.names[k], spec.colours[k]) for k in _present(maps) if k < spec.num_classes]
    if target is None:
        return [classes]
    first = spec.names[0]
    names = (f"missed: predicted as {first}", f"false: {first} in the target", "another class")
    if labels.ndim == 3:
        names = ("missed", "false", "missed and false")
    masks = error_kinds(target, labels, spec)
    errors: list[Entry] = [
        (name, colour) for name, colour, mask in zip(names, ERROR_COLOURS, masks, strict=True) if mask.any()
    ]
    return [classes, [*errors, ("ignored", None)] if ignored(target, spec).any() else errors]


def _present(maps: list[NDArray[Any]]) -> list[int]:
    if maps[0].ndim == 3:
        return sorted({int(k) for planes in maps for k in np.flatnonzero((planes == 1).any(axis=(1, 2)))})
    return sorted({int(value) for labels in maps for value in np.unique(labels)})
