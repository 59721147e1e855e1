"""Images beside scored masks -> their pixels, for pictures and for what a case is sliced by."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files.images import IMAGE_DTYPES, decode_image, read_file
from segmeter.data.files.masks import read_values
from segmeter.data.files.sniff import show, volume_format
from segmeter.data.folders.pairing import find_beside
from segmeter.errors import DataError
from segmeter.evaluation.pairing import Pairing, Pairs
from segmeter.evaluation.places import write_shape


def find_images(folder: Path, pairing: Pairing) -> dict[str, Path]:
    """Find the image of every case, by its stem.

    Raises
    ------
    DataError
        A case has none or two, or the folder can't be read.
    """
    stems, remedy = (pair.stem for pair in pairing.pairs), "Leave images= out to score without them."
    return find_beside(folder, stems, role="images", what="an image", remedy=remedy)


def put_beside(pairing: Pairing, images: Mapping[str, Path]) -> Pairing:
    """Give each pair its image, from `find_images`; its hash then covers it."""
    return replace(pairing, pairs=Pairs(replace(pair, image=images[pair.stem]) for pair in pairing.pairs))


def read_case_image(path: Path, shape: tuple[int, ...], *, max_pixels: int) -> tuple[NDArray[np.generic], str]:
    """Read the image of a case, (H, W, C), or (D, H, W, 1) of a volume, and the sha256 of its file.

    `shape` is that of its reference.

    Raises
    ------
    DataError
        It can't be read, or has another size.
    """
    if len(shape) == 2 and volume_format(path) is None:
        file = read_file(path, max_pixels=max_pixels)
        image, digest = decode_image(file, channels=None, orientation="refuse"), file.sha256
        found = image.shape[:2]
    else:
        stored = read_values(path, max_pixels=max_pixels)
        values, digest = stored.values, stored.sha256
        image = values if values.dtype.name in IMAGE_DTYPES else values.astype(np.float32)
        image, found = image[..., None], values.shape
    if found != shape:
        axes = "(height x width)" if len(found) == 2 else "(depth x height x width)"
        rule = f"to have the size of its reference, {write_shape(shape)}"
        raise DataError(expected(show(path), "image", rule, f"{write_shape(found)} {axes}"))
    return image, digest
