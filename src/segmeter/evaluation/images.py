"""Images beside scored masks -> their pixels, for pictures and for what a case is sliced by."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files.opened import open_array
from segmeter.data.files.sniff import show, volume_format
from segmeter.data.folders.pairing import list_files, missing_problem, twice_problems
from segmeter.data.images import IMAGE_DTYPES, image_of
from segmeter.data.masks.reading import read_values
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
    files = list_files(folder, role="images", volumes=True)
    stems = [pair.stem for pair in pairing.pairs]
    problems = missing_problem(stems, files, what="an image", remedy="Leave images= out to score without them.")
    problems += twice_problems({stem: files[stem] for stem in stems if stem in files}, "images")
    if problems:
        raise DataError(problems)
    return {stem: files[stem][0] for stem in stems}


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
        with open_array(path, settled=True, max_pixels=max_pixels) as stored:
            image, digest = image_of(stored, channels=None, orientation="refuse"), stored.sha256
        found = image.shape[:2]
    else:
        volume = read_values(path, max_pixels=max_pixels)
        values, digest = volume.values, volume.sha256
        image = values if values.dtype.name in IMAGE_DTYPES else values.astype(np.float32)
        image, found = image[..., None], values.shape
    if found != shape:
        axes = "(height x width)" if len(found) == 2 else "(depth x height x width)"
        rule = f"to have the size of its reference, {write_shape(shape)}"
        raise DataError(expected(show(path), "image", rule, f"{write_shape(found)} {axes}"))
    return image, digest
