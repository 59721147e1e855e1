"""Measures the objects of a cleaned label map, one row per object."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import ndimage
from skimage.measure import regionprops

from segmeter.classes import ClassSpec
from segmeter.postprocess.instances import InstanceArray, number_parts
from segmeter.postprocess.masks import Mask
from segmeter.postprocess.planes import LabelArray

COLUMNS = (
    "class", "object", "pixels", "row_min", "column_min", "row_max", "column_max", "row_centre", "column_centre",
    "axis_major", "axis_minor", "angle_deg", "perimeter", "solidity",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Region:
    """One object: the value of its class, its number, its box, and its mask in that box."""

    label: int
    number: int
    box: tuple[slice, slice]
    mask: Mask


def find_regions(labels: LabelArray, instances: InstanceArray | None, spec: ClassSpec) -> Iterator[Region]:
    """Go through the objects of a cleaned label map, class by class.

    Parameters
    ----------
    labels
        (H, W), or (K, H, W) in {0, 1} for multilabel.
    instances
        Same shape, 0 = none; None: the objects are the 8-connected parts of each class, numbered from 1 over all
        classes. The first class is background and left out, except for multilabel.
    """
    count = 0
    for label in range(0 if spec.is_multilabel else 1, spec.num_classes):
        mask = labels[label] != 0 if spec.is_multilabel else labels == label
        if instances is None:
            numbered = number_parts(mask)
            first, count = count, count + int(numbered.max())
        else:
            numbered, first = np.where(mask, instances[label] if spec.is_multilabel else instances, 0), 0
        for number, box in enumerate(ndimage.find_objects(numbered), 1):
            if box is not None:
                rows, columns = box
                inside = numbered[box] == number
                yield Region(label=label, number=first + number, box=(rows, columns), mask=inside)


def region_table(labels: LabelArray, instances: InstanceArray | None, spec: ClassSpec) -> list[dict[str, Any]]:
    """Measure each object.

    Parameters
    ----------
    labels, instances
        As for `find_regions`.

    Returns
    -------
    A row per object, with the keys `COLUMNS`. Lengths are in pixels; boxes leave their end out; the centre of pixel
    (0, 0) is at 0, 0; the axes are those of the ellipse with the object's second moments, and `angle_deg` (-90 to 90)
    turns from the column axis to the longer one, counter-clockwise; the perimeter is by scikit-image's weights of
    border pixels; solidity is the share of the convex hull that the object fills.
    """
    return [_row(region, spec) for region in find_regions(labels, instances, spec)]


def _row(region: Region, spec: ClassSpec) -> dict[str, Any]:
    (found,) = regionprops(region.mask.astype(np.uint8))  # type: ignore[no-untyped-call]
    rows, columns = region.box
    centre = found.centroid
    values = (
        spec.names[region.label], region.number, int(found.area),
        rows.start, columns.start, rows.stop, columns.stop,
        float(centre[0] + rows.start), float(centre[1] + columns.start),
        float(found.axis_major_length), float(found.axis_minor_length), _angle(float(found.orientation)),
        float(found.perimeter), float(found.solidity),
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def _angle(from_rows: float) -> float:
    """Degrees from the column axis; scikit-image gives radians from the row axis, -pi/2 to pi/2."""
    degrees = float(np.degrees(from_rows)) - 90
    return degrees + 180 if degrees <= -90 else degrees
