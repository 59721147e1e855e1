"""Images and index maps as pictures need them: visible, smaller, outlined, and encoded."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

RGB = NDArray[np.uint8]
Mask = NDArray[np.bool_]
_PERCENTILES = (0.5, 99.5)  # of an image: they become black and white where it is stretched
_DIM = 100  # an image of 8 bits whose upper percentile is below this is stretched too


def display_image(image: NDArray[Any], ranges: NDArray[np.float64] | None = None) -> RGB:
    """Make any image visible.

    Parameters
    ----------
    image
        (H, W, C). uint8 is shown as it is; other dtypes are stretched per channel between two percentiles, and pixels
        that are not finite are black. One channel is grey, two lack blue, and the first three of more are shown.
    ranges
        What becomes black and white in each channel, as `display_ranges` finds it; None: find it in the image.

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
    """The two percentiles of a displayed image between which it is worth stretching, 0 to 255."""
    low, high = np.percentile(image, _PERCENTILES)
    return int(low), max(int(np.ceil(high)), int(low) + 1)


def lighten(image: RGB) -> RGB:
    """Stretch an image that would look black, as one of dim nuclei does; others stay as they are."""
    low, high = find_range(image)
    if high >= _DIM:
        return image
    return np.asarray(np.rint((image.astype(np.float32) - low).clip(0, high - low) * (255 / (high - low))), np.uint8)


def contours(labels: NDArray[Any]) -> Mask:
    """Pixels (H, W) with another label above, below, left or right of them."""
    down, right = labels[1:] != labels[:-1], labels[:, 1:] != labels[:, :-1]
    edge = np.zeros(labels.shape, bool)
    edge[:-1] |= down
    edge[1:] |= down
    edge[:, :-1] |= right
    edge[:, 1:] |= right
    return edge


def display_ranges(image: NDArray[Any]) -> NDArray[np.float64]:
    """Find two percentiles of each shown channel (C, 2), between which an image that is not uint8 is stretched."""
    channels = (channel[np.isfinite(channel)] for channel in np.moveaxis(image[..., :3], -1, 0))
    return np.array([np.percentile(values, _PERCENTILES) if values.size else (0.0, 0.0) for values in channels])


def reduced_shape(shape: tuple[int, ...], edge: int) -> tuple[int, int]:
    """The shape of an image (H, W, ...) whose longest side is at most `edge`; smaller ones are not enlarged."""
    share = min(1.0, edge / max(shape[:2]))
    return max(1, round(shape[0] * share)), max(1, round(shape[1] * share))


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


def mean_blocks(image: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """Reduce an image (H, W, C) of any dtype by the mean of each block."""
    sums = reduce_ranks(image.astype(np.float64), shape, np.add)
    sizes = reduce_ranks(np.ones((*image.shape[:2], 1)), shape, np.add)
    return np.asarray((sums / sizes).astype(image.dtype))


def reduce_image(image: RGB, shape: tuple[int, int]) -> RGB:
    """Average an image down to a shape."""
    if image.shape[:2] == shape:
        return image
    return np.asarray(Image.fromarray(image).resize((shape[1], shape[0]), Image.Resampling.BOX))


def encode(image: NDArray[np.uint8], form: str, **options: int) -> bytes:
    """The bytes of a file of Pillow's format `form`."""
    content = io.BytesIO()
    Image.fromarray(image).save(content, form, **options)
    return content.getvalue()
