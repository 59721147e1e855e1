"""Reads the XML that CVAT exports as "CVAT for images 1.1": polygons, and masks as run lengths."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.sniff import stem_of
from segmeter.data.masks.drawn import fill_polygon

_KINDS = ("polygon", "mask")
_NO_MASK = ("tag",)  # about the image as a whole


def parse_cvat(content: bytes) -> Iterator[tuple[str, tuple[int, int], list[tuple[str, int, Any]]]]:
    """Yield name, size and objects of each image; an object's layer is its z-order.

    Raises
    ------
    ValueError
        It is another kind of XML, is not UTF-8, declares entities, or holds a shape that is neither a polygon nor a
        mask.
    """
    text = content.decode("utf-8-sig")  # the parser takes text as it is, whatever encoding the XML names
    if "\0" in text or "<!" in text.replace("<!--", ""):  # zeros: UTF-16, which would hide declarations
        raise ValueError("XML with declarations of its own, or not in UTF-8")
    root = ElementTree.fromstring(text)
    if root.tag != "annotations" or root.find("track") is not None:
        raise ValueError("no export as 'CVAT for images 1.1'")
    for image in root.iter("image"):
        odd = {shape.tag for shape in image} - {*_KINDS, *_NO_MASK}
        if odd:
            raise ValueError(f"a {min(odd)} on image {image.get('name')}, where polygons and masks are read")
        objects = [
            (shape.attrib["label"], int(shape.get("z_order", 0)), {"kind": shape.tag, **shape.attrib})
            for shape in image
            if shape.tag in _KINDS
        ]
        name = image.attrib["name"].replace("\\", "/").rpartition("/")[2]
        yield stem_of(name), (int(image.attrib["height"]), int(image.attrib["width"])), objects


def draw_shape(path: Path, shape: Mapping[str, str], size: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the mask of a polygon, or of run lengths that go line by line through the shape's own box.

    Raises
    ------
    ValueError
        The box does not lie on the image, or the run lengths do not fill it.
    """
    if shape["kind"] == "polygon":
        corners = np.array([corner.split(",") for corner in shape["points"].split(";")], np.float64)
        return fill_polygon(path, corners, size)
    left, top, width, height = (int(shape[key]) for key in ("left", "top", "width", "height"))
    runs = [int(each) for each in shape["rle"].split(",")]
    if min(left, top, width, height, *runs) < 0 or top + height > size[0] or left + width > size[1]:
        raise ValueError("a mask that does not lie on its image")
    if sum(runs) != width * height:
        raise ValueError(f"run lengths of {sum(runs)} pixels for a box of {width} x {height}")
    mask = np.zeros(size, bool)
    mask[top : top + height, left : left + width] = np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(
        height, width
    )
    return mask
