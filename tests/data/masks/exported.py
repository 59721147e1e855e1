"""Masks as annotation tools export them, written from descriptions of their formats."""

import numpy as np

from segmeter.classes import ClassSpec
from segmeter.data.sample import Reading
from segmeter.postprocess.objects import polygonise
from tests.data.crafted import put
from tests.data.formats_written import NAMES

SPEC = ClassSpec(task="multiclass", names=NAMES, colours=((0, 0, 0),) * 3)
CELLS = ClassSpec(task="binary", names=("none", "cell"), colours=((0, 0, 0), (1, 1, 1)))
READING = Reading(spec=SPEC, label_map={}, max_pixels=10_000)
OBJECTS = Reading(spec=CELLS, label_map={}, max_pixels=10_000, instances=True)
SHAPE = (24, 30)


def parts_of(mask):
    """The outline of every part of every class without holes; those of one class may not touch."""
    for label in range(1, len(NAMES)):
        for outline, *holes in polygonise(mask == label):
            assert not holes
            yield label, np.array(outline, float)


def blocks():
    mask = np.zeros(SHAPE, np.uint8)
    mask[2:9, 3:12], mask[12:20, 5:9], mask[9:14, 20:30] = 1, 2, 1
    return mask


def write_yolo(path, mask):
    """As Ultralytics stores polygons: class id, then x and y as fractions of the image."""
    lines = [
        f"{label - 1} {' '.join(f'{value:.6f}' for value in (corners / mask.shape[::-1]).ravel())}"
        for label, corners in parts_of(mask)
    ]
    put(path, "\n".join(lines).encode())
