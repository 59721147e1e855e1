"""Reads what annotation tools export: Label Studio's JSON with polygons and brush strokes, and CVAT's XML.

The XML is that of "CVAT for images 1.1": polygons, and masks as run lengths.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, some
from segmeter.data.files.sniff import show, stem_of
from segmeter.data.masks.drawn import fill_polygon
from segmeter.errors import DataError

_UPLOAD = re.compile(r"/upload/.*/[0-9a-f]{8}-([^/]+)$")  # Label Studio's prefix to the names of uploaded files
_KINDS = ("polygonlabels", "brushlabels")
_NO_MASK = ("choices", "textarea", "rating", "relation", "number", "taxonomy")  # results about the image as a whole
_CHANNELS = 4  # brush strokes are stored as the RGBA pixels of a canvas

Objects = list[tuple[str, int, Any]]  # class, layer, and what the function that draws them takes
Annotated = tuple[str, tuple[int, int], Objects]  # name, (height, width) and objects of an image


def parse_label_studio(path: Path, tasks: list[Any]) -> Iterator[Annotated]:
    """Yield name, size and objects of each task's image.

    Raises
    ------
    DataError
        A task has several annotations or none, so that its mask would have to be guessed; or a result is another shape
        than a polygon or brush stroke.
    """
    open_tasks, odd = [], set()
    for task in tasks:
        done = [each for each in task["annotations"] if not each.get("was_cancelled")]
        name = _name_of(task["data"])
        if len(done) != 1 or not done[0]["result"]:
            open_tasks.append(name)
            continue
        results = [each for each in done[0]["result"] if each["type"] not in _NO_MASK]
        odd |= {each["type"] for each in results if each["type"] not in _KINDS}
        sizes = {(each["original_height"], each["original_width"]) for each in results}
        if not odd and len(sizes) == 1:
            yield name, sizes.pop(), [(label, 0, _region(each)) for each in results for label in _labels_of(each)]
        elif not odd:
            raise ValueError(f"{len(sizes)} sizes of the image {name!r}")
    if odd:
        rule = "to be polygonlabels or brushlabels"
        raise DataError(expected(show(path), "results", rule, some(sorted(odd)), "Draw polygons or brush strokes."))
    if open_tasks:
        rule = "to have one annotation with a result, that is not cancelled"
        remedy = "Export one annotator's work; an image without objects needs a mask of its own."
        raise DataError(expected(show(path), "tasks", rule, some(open_tasks), remedy))


def _name_of(data: Mapping[str, Any]) -> str:
    """The image's name without suffix, from the only entry of a task's data that is a path or URL with a suffix."""
    given = data.get("image") or next(value for value in data.values() if isinstance(value, str) and "." in value)
    url = unquote(given).replace("\\", "/").partition("?d=")
    place = url[2] or url[0].partition("?")[0]
    uploaded = _UPLOAD.search(place)
    return stem_of(uploaded[1] if uploaded else place.rpartition("/")[2])


def _labels_of(result: Mapping[str, Any]) -> list[str]:
    labels: list[str] = result["value"][result["type"]]
    if len(labels) != 1:
        raise ValueError(f"{len(labels)} labels of one region")
    return labels


def _region(result: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a result that decide its mask, after a look at its rotation."""
    value = result["value"]
    if result.get("image_rotation"):
        raise ValueError("a region on a rotated image")
    if result["type"] == "polygonlabels":
        return {"points": value["points"]}
    if value["format"] != "rle":
        raise ValueError(f"a brush stroke in the format {value['format']!r}")
    return {"rle": value["rle"]}


def draw_region(path: Path, region: Mapping[str, Any], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the mask of a polygon, whose corners are per cent of the image, or of a brush stroke."""
    if "points" in region:
        corners = np.array(region["points"], np.float64).reshape(-1, 2) / 100 * shape[::-1]
        return fill_polygon(path, corners, shape)
    pixels = expand_brush(bytes([*region["rle"]]), shape[0] * shape[1] * _CHANNELS)
    return pixels.reshape(*shape, _CHANNELS)[..., 3] > 0


def expand_brush(packed: bytes, size: int) -> NDArray[np.uint8]:
    """Unpack `size` values of the bit stream that Label Studio stores brush strokes in.

    The stream is a series of numbers, highest bit first: 32 bits for the number of values, 5 for the bits of a value
    minus 1, and four times 4 for the possible bits of a length minus 1. Each run then has 1 bit for whether one value
    is repeated, 2 for which of the four length sizes it has, its length minus 1, and its value or values.

    Raises
    ------
    ValueError
        The stream ends early, holds another number of values, or values of more than 8 bits.
    """
    bits, at = "".join(f"{byte:08b}" for byte in packed), 0

    def take(count: int) -> int:
        nonlocal at
        at += count
        if at > len(bits):
            raise ValueError("a brush stroke that ends early")
        return int(bits[at - count : at], 2)

    count, width = take(32), take(5) + 1
    sizes = [take(4) + 1 for _ in range(4)]
    if count != size or width > 8:
        raise ValueError(f"a brush stroke of {count} values of {width} bits, where the image has {size}")
    values, done = np.empty(size, np.uint8), 0
    while done < size:
        repeated, length = take(1), take(sizes[take(2)]) + 1
        stop = done + length
        if stop > size:
            raise ValueError("a brush stroke beyond its image")
        values[done:stop] = take(width) if repeated else [take(width) for _ in range(length)]
        done = stop
    return values


def parse_cvat(content: bytes) -> Iterator[Annotated]:
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
        odd = {shape.tag for shape in image} - {"polygon", "mask", "tag"}  # a tag is about the whole image
        if odd:
            raise ValueError(f"a {min(odd)} on image {image.get('name')}, where polygons and masks are read")
        objects = [
            (shape.attrib["label"], int(shape.get("z_order", 0)), {"kind": shape.tag, **shape.attrib})
            for shape in image
            if shape.tag != "tag"
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
