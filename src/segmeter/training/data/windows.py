"""Image and target -> the part of them inside a window, at the size that is wanted (NumPy, and one resize)."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.nn import functional

from segmeter.bridge.to_numpy import to_numpy
from segmeter.bridge.to_torch import to_torch
from segmeter.classes import ClassSpec
from segmeter.training.data.augment_config import Size

Image = NDArray[Any]

_GOLDEN = (math.sqrt(5) - 1) / 2  # steps of this part of a circle stay far from the places visited before


@dataclass(frozen=True)
class Window:
    """A rectangle of an image; it may reach beyond the image."""

    top: int
    left: int
    height: int
    width: int


def slide(image: int, window: int, part: float) -> int:
    """Start of a window inside an image, or of one around it where it is larger; each start is as likely."""
    low, high = sorted((0, image - window))
    return low + int(part * (high - low + 1))


def other_window(window: Window, image: Size, repeat: int) -> Window | None:
    """Another place for a window of the same size; each repeat has its own, and None is left when there are no more.

    Steps that share no divisor with the number of places visit all of them before any comes again.
    """
    low_row, low_column = min(0, image[0] - window.height), min(0, image[1] - window.width)
    columns = abs(image[1] - window.width) + 1
    places = (abs(image[0] - window.height) + 1) * columns
    if repeat >= places:
        return None
    step = max(1, round(_GOLDEN * places))
    while math.gcd(step, places) > 1:
        step += 1
    start = (window.top - low_row) * columns + window.left - low_column
    row, column = divmod((start + repeat * step) % places, columns)
    return Window(low_row + row, low_column + column, window.height, window.width)


def cut(image: Image, target: NDArray[Any], window: Window, spec: ClassSpec) -> tuple[Image, NDArray[Any]]:
    """Image and target inside a window; beyond the image it is mirrored, and ignored where the data can say so."""
    full = image.shape[:2]
    rows, above, below = _span(window.top, window.height, full[0])
    columns, before, after = _span(window.left, window.width, full[1])
    inner, inner_target = image[rows, columns], target[..., rows, columns]
    border = ((above, below), (before, after))
    if not any(map(any, border)):
        return inner, inner_target
    lead = ((0, 0),) * (target.ndim - 2)
    padded = np.pad(inner, (*border, (0, 0)), mode="symmetric")
    if spec.ignore_index is None:
        return padded, np.pad(inner_target, (*lead, *border), mode="symmetric")
    return padded, np.pad(inner_target, (*lead, *border), constant_values=spec.ignore_index)


def resize_image(image: Image, size: Size) -> Image:
    """Bilinear, with every pixel of a larger image taken into account (antialiased); the dtype stays.

    Parameters
    ----------
    image : (H, W, C), uint8, uint16 or float32
    size
        Height and width wanted.
    """
    if image.shape[:2] == size:
        return image
    wide = None if image.dtype == np.uint8 else "float32"
    tensor = to_torch(image, dtype=wide).permute(2, 0, 1)[None]
    resized = functional.interpolate(tensor, size, mode="bilinear", antialias=True, align_corners=False)
    if image.dtype == np.uint16:
        resized = resized.round_().clamp_(0, 65535)  # the weights of a pixel add up to 1 but for rounding
    return to_numpy(resized[0].permute(1, 2, 0), dtype=image.dtype)


def resize_target(target: NDArray[Any], size: Size) -> NDArray[Any]:
    """The value at the centre of each new pixel; nothing is blended.

    Parameters
    ----------
    target : (..., H, W), any dtype
    size
        Height and width wanted.
    """
    rows, columns = (_centres(old, new) for old, new in zip(target.shape[-2:], size, strict=True))
    return np.ascontiguousarray(target[..., rows[:, None], columns])


def _centres(old: int, new: int) -> NDArray[np.int64]:
    return ((2 * np.arange(new) + 1) * old) // (2 * new)


def _span(start: int, length: int, full: int) -> tuple[slice, int, int]:
    """The part of a span that is inside, and how much lies before and after it."""
    inside = slice(max(start, 0), min(start + length, full))
    return inside, inside.start - start, start + length - inside.stop
