"""Encodes label maps as PNG. Every pixel of the file holds its label value, and a palette holds the colours."""

import io
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from segmeter.checks import expected
from segmeter.classes import Colour
from segmeter.errors import InputError
from segmeter.files import safe_id

BLACK: Colour = (0, 0, 0)
IGNORE_COLOUR: Colour = (224, 224, 224)
UNUSED_COLOUR: Colour = (255, 0, 255)  # magenta: a value without a class should stand out


def encode_labels_png(labels: NDArray[Any], colours: Sequence[Colour], *, ignore_index: int | None = None) -> bytes:
    """Encode a label map as PNG; every pixel of the file holds its label value.

    Label maps are long runs of one value, which zlib's run-length strategy packs faster and smaller than its search for
    matches does (`benchmarks/export.py`).

    Parameters
    ----------
    labels
        (H, W) uint8 or uint16. uint8 gives a palette PNG with 4 bits per pixel if all values are below 16, and 8
        otherwise. uint16 gives a 16-bit greyscale PNG, because palettes end at 256 entries.
    colours
        One (red, green, blue) per class, 0 to 255. Entries without a class are magenta. Not used for uint16.
    ignore_index
        The ignored value, which is not a class; it is light grey.

    Returns
    -------
    The file's bytes. Pillow reads them as mode "P" or "I;16" with the given values.

    Raises
    ------
    InputError
        Wrong dtype or dimensions, an empty map, or more than 256 colours for a uint8 map.

    Examples
    --------
    >>> encode_labels_png(np.zeros((2, 3), np.uint8), [(0, 0, 0)])[1:4]
    b'PNG'
    """
    where = "encode_labels_png"
    if labels.dtype.kind != "u" or labels.dtype.itemsize > 2 or labels.ndim != 2:
        rule, given = "(H, W) uint8 or uint16", f"{labels.dtype} {labels.shape}"
        raise InputError(expected(where, "labels", rule, given, "Check the range, then cast it yourself."))
    if not labels.size:
        raise InputError(expected(where, "labels", "to have at least one pixel", labels.shape))
    options: dict[str, Any] = {"compress_type": zlib.Z_RLE, "compress_level": 1}
    if labels.dtype.itemsize == 2:
        image = Image.fromarray(labels.astype(np.uint16, order="C"))
    else:
        if len(colours) > 256:
            raise InputError(expected(where, "colours", "to be at most 256 for uint8 labels", len(colours)))
        options["bits"] = 4 if labels.max() < 16 and len(colours) <= 16 else 8
        image = Image.fromarray(np.ascontiguousarray(labels))
        image.putpalette(_palette(colours, ignore_index, size=2 ** options["bits"]))
    file = io.BytesIO()
    image.save(file, "PNG", **options)
    return file.getvalue()


def palette_of(colours: Sequence[Colour], ignore_index: int | None) -> NDArray[np.uint16]:
    """The palette of a uint8 label map for TIFF: (3, 256), 65535 is full. Entries are as in `encode_labels_png`."""
    entries = np.frombuffer(_palette(colours, ignore_index, size=256), np.uint8).reshape(256, 3)
    return np.ascontiguousarray(entries.T.astype(np.uint16) * 257)


def _palette(colours: Sequence[Colour], ignore_index: int | None, *, size: int) -> bytes:
    entries = [*colours, *[UNUSED_COLOUR] * (size - len(colours))]
    if ignore_index is not None and ignore_index < size:
        entries[ignore_index] = IGNORE_COLOUR
    return bytes(part for colour in entries for part in colour)


def class_folder(name: str) -> str:
    """The folder of a class: its name if that can be a folder's, as data sets are read, or a safe form of it."""
    return name if Path(name).name == name and not name.startswith(".") and name.isprintable() else safe_id(name)
