"""Images beside scored masks -> their pixels, for pictures and for what a case is sliced by."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files.images import IMAGE_DTYPES, read_image
from segmeter.data.files.masks import read_values
from segmeter.data.files.sniff import show, volume_format
from segmeter.data.folders.pairing import list_files, missing_problem, twice_problems
from segmeter.errors import DataError
from segmeter.evaluation.pairing import Pairing
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
    problems = missing_problem(stems, files, what="an image", remedy="Leave images= out to draw no overlays.")
    problems += twice_problems({stem: files[stem] for stem in stems if stem in files}, "images")
    if problems:
        raise DataError(problems)
    return {stem: files[stem][0] for stem in stems}


def read_case_image(path: Path, shape: tuple[int, ...], *, max_pixels: int) -> NDArray[np.generic]:
    """Read the image of a case, (H, W, C), or (D, H, W, 1) of a volume; `shape` is that of its reference.

    Raises
    ------
    DataError
        It can't be read, or has another size.
    """
    if len(shape) == 2 and volume_format(path) is None:
        image = read_image(path, max_pixels=max_pixels)
        found = image.shape[:2]
    else:
        values = read_values(path, max_pixels=max_pixels).values
        image = values if values.dtype.name in IMAGE_DTYPES else values.astype(np.float32)
        image, found = image[..., None], values.shape
    if found != shape:
        axes = "(height x width)" if len(found) == 2 else "(depth x height x width)"
        rule = f"to have the size of its reference, {write_shape(shape)}"
        raise DataError(expected(show(path), "image", rule, f"{write_shape(found)} {axes}"))
    return image
