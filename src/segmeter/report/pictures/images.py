"""Arrays of images and labels as pictures need them: visible, smaller, outlined, and encoded."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

RGB = NDArray[np.uint8]
Mask = NDArray[np.bool_]
_PERCENTILES = (0.5, 99.5)  # of a channel that is not uint8: they become black and white


def display_image(image: NDArray[Any]) -> RGB:
    """Make any image visible.

    Parameters
    ----------
    image
        (H, W, C). uint8 is shown as it is; other dtypes are stretched per channel between two percentiles, and pixels
        that are not finite are black. One channel is grey, two lack blue, of more than three the first three are shown.

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


def contours(labels: NDArray[Any]) -> Mask:
    """Pixels (H, W) with another label above, below, left or right of them."""
    down, right = labels[1:] != labels[:-1], labels[:, 1:] != labels[:, :-1]
    edge = np.zeros(labels.shape, bool)
    edge[:-1] |= down
    edge[1:] |= down
    edge[:, :-1] |= right
    edge[:, 1:] |= right
    return edge


def _stretch(channel: NDArray[Any]) -> NDArray[np.uint8]:
    values = channel.astype(np.float64)
    finite = np.isfinite(values)
    if not finite.any():
        return np.zeros(values.shape, np.uint8)
    low, high = np.percentile(values[finite], _PERCENTILES)
    scaled = (np.where(finite, values, low) - low) / (high - low if high > low else 1.0)
    return np.asarray(np.rint(scaled.clip(0, 1) * 255), np.uint8)


def reduce_labels(labels: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """Reduce (..., H, W) to a shape: the pixel at each centre."""
    rows, columns = (
        (2 * np.arange(new) + 1) * old // (2 * new) for new, old in zip(shape, labels.shape[-2:], strict=True)
    )
    return labels if labels.shape[-2:] == shape else labels[..., rows[:, None], columns]


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
