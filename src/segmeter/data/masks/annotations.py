"""Reads annotation files, each of which holds the masks of many images: COCO, Label Studio and CVAT.

The path of an image's mask leads into the file: ``annotations.json/000123`` is the image called 000123, and for a
multilabel task ``annotations.json/car/000123`` is the plane of one class.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import some
from segmeter.data.files.array import Opening, array_header
from segmeter.data.files.formats import stem_of
from segmeter.data.files.refusals import check_json, damage_named, file_error
from segmeter.data.masks.coco import CocoFile, check_names, open_coco
from segmeter.data.masks.drawn import Drawn, draw_objects, fill_polygon, find_object_labels
from segmeter.data.sample import Reading

ANNOTATION_SUFFIXES = (".json", ".xml")
_SUFFIX = re.compile("|".join(map(re.escape, ANNOTATION_SUFFIXES)), re.IGNORECASE)
_UPLOAD = re.compile(r"/upload/.*/[0-9a-f]{8}-([^/]+)$")  # Label Studio's prefix to the names of uploaded files
_NO_MASK = ("choices", "textarea", "rating", "relation", "number", "taxonomy")  # results about the whole image
_CHANNELS = 4  # brush strokes are stored as the RGBA pixels of a canvas

Objects = list[tuple[str, int, Any]]  # class, layer, and what `draw_region` takes
Annotated = tuple[str, tuple[int, int], Objects]  # name, (height, width) and objects of an image


@dataclass(frozen=True, kw_only=True, eq=False)
class NamedObjects:
    """Objects whose classes are given by name, as Label Studio and CVAT export them.

    `images` maps a name to its size, (height, width), and its objects: class, layer, and what `draw_region` takes.
    """

    images: Mapping[str, tuple[tuple[int, int], Objects]]

    def shape(self, name: str) -> tuple[int, int]:
        return self.images[name][0]

    def digest(self, name: str) -> bytes:
        return hashlib.sha256(json.dumps(self.images[name]).encode()).digest()

    def draw(self, path: Path, name: str, shape: tuple[int, int], reading: Reading) -> NDArray[Any]:
        objects = self.images[name][1]
        labels = find_object_labels(path, (class_name for class_name, _, _ in objects), reading)
        drawn = (
            Drawn(mask=draw_region(path, region, shape), label=labels[class_name], layer=layer)
            for class_name, layer, region in objects
        )
        return draw_objects(path, drawn, shape, reading)


AnnotationFile = NamedObjects | CocoFile


def annotations_of(path: Path) -> Path | None:
    """Return the annotation file that a path leads into, or None."""
    if not _SUFFIX.search(str(path)):  # answers for most paths in a fraction of the time
        return None
    parents = (parent for parent in (path.parent, path.parent.parent) if _has_suffix(parent))
    return next((parent for parent in parents if parent.is_file()), None)


def _has_suffix(path: Path) -> bool:
    return path.name.lower().endswith(ANNOTATION_SUFFIXES)


def annotated_images(path: Path, plane: str = "") -> dict[str, list[Path]]:
    """Return the path of each image's mask by name; in a multilabel task, `plane` is the class.

    Raises
    ------
    DataError
        The file can't be read or holds no images, or two have the same name.
    """
    return {name: [path / plane / name] for name in open_annotations(path).images}


def hash_annotated(path: Path) -> str:
    """Return the sha256 of everything that decides one image's mask."""
    annotations = open_annotations(annotations_of(path) or path)
    with damage_named(path):
        return annotations.digest(path.name).hex()


def read_annotated(path: Path, reading: Reading) -> NDArray[Any]:
    """Draw the mask of one image.

    Pixels that no object covers are class 0; in a panoptic COCO file they are ignored.

    Parameters
    ----------
    path
        A path into the file, as `annotated_images` gives it.
    reading
        As for `draw_objects`.

    Returns
    -------
    (H, W): labels, object numbers, or 0 and 1 for one class of a multilabel task.

    Raises
    ------
    DataError
        A category is not a class, an object is damaged or of another size, or objects overlap.
    """
    annotations = open_annotations(annotations_of(path) or path)
    with damage_named(path):  # files of other tools may hold anything, and decoders raise many types
        shape = annotations.shape(path.name)
        array_header(path, "coco", shape, np.dtype(np.uint8), Opening(max_pixels=reading.max_pixels, axes="map"))
        return annotations.draw(path, path.name, shape, reading)


def open_annotations(path: Path) -> AnnotationFile:
    """Parse an annotation file and keep the result until the file changes; raises as `annotated_images` does."""
    try:
        status = path.stat()
        return _open(path, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise file_error(path, "file", "to be readable", error.strerror or error) from error


@lru_cache(maxsize=4)
def _open(path: Path, mtime: int, size: int) -> AnnotationFile:
    check_json(path, size)
    with damage_named(path):
        if path.name.lower().endswith(".xml"):
            images = list(parse_cvat(path.read_bytes()))
        else:
            content = json.loads(path.read_bytes())
            if isinstance(content, dict):
                return open_coco(path, content)
            if all("image_id" in entry for entry in content):
                remedy = "Put its entries into the references' file as annotations."
                raise file_error(path, "file", "to name images and categories", "a list of results", remedy)
            images = list(parse_label_studio(path, content))
        check_names(path, (name for name, _, _ in images))
        return NamedObjects(images={name: (shape, objects) for name, shape, objects in images})


def parse_label_studio(path: Path, tasks: list[Any]) -> Iterator[Annotated]:
    """Yield the name, size and objects of each task's image.

    Raises
    ------
    DataError
        A task has several annotations or none, so that its mask would have to be guessed. Or a result is another shape
        than a polygon or brush stroke.
    """
    open_tasks = []
    unknown_types = set()
    for task in tasks:
        finished = [annotation for annotation in task["annotations"] if not annotation.get("was_cancelled")]
        data = task["data"]  # without a key "image", the only path or URL with a suffix is the image
        image = data.get("image") or next(value for value in data.values() if isinstance(value, str) and "." in value)
        url, _, local_path = unquote(image).replace("\\", "/").partition("?d=")
        image_path = local_path or url.partition("?")[0]
        uploaded = _UPLOAD.search(image_path)
        name = stem_of(uploaded[1] if uploaded else image_path.rpartition("/")[2])
        if len(finished) != 1 or not finished[0]["result"]:
            open_tasks.append(name)
            continue
        results = [result for result in finished[0]["result"] if result["type"] not in _NO_MASK]
        unknown_types |= {result["type"] for result in results} - {"polygonlabels", "brushlabels"}
        sizes = {(result["original_height"], result["original_width"]) for result in results}
        if not unknown_types and len(sizes) == 1:
            yield name, sizes.pop(), [_object_of(result) for result in results]
        elif not unknown_types:
            raise ValueError(f"{len(sizes)} sizes of the image {name!r}")
    if unknown_types:
        rule = "to be polygonlabels or brushlabels"
        raise file_error(path, "results", rule, some(sorted(unknown_types)), "Draw polygons or brush strokes.")
    if open_tasks:
        rule = "to have one annotation with a result, that is not cancelled"
        remedy = "Export one annotator's work; an image without objects needs a mask of its own."
        raise file_error(path, "tasks", rule, some(open_tasks), remedy)


def _object_of(result: Mapping[str, Any]) -> tuple[str, int, dict[str, Any]]:
    """Return the label, the layer and the region of a result; ValueError for regions of another form."""
    value = result["value"]
    kind = result["type"]
    if len(value[kind]) != 1:
        raise ValueError(f"{len(value[kind])} labels of one region")
    (label,) = value[kind]
    if result.get("image_rotation"):
        raise ValueError("a region on a rotated image")
    if kind == "polygonlabels":
        return label, 0, {"points": value["points"]}
    if value["format"] != "rle":
        raise ValueError(f"a brush stroke in the format {value['format']!r}")
    return label, 0, {"rle": value["rle"]}


def draw_region(path: Path, region: Mapping[str, Any], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the mask of a polygon, of a brush stroke, or of CVAT's run lengths, which go line by line through a box.

    Raises
    ------
    ValueError
        The box does not lie on the image, or the run lengths do not fill it.
    """
    kind = region.get("kind")
    height, width = shape
    if kind is None and "points" in region:  # coordinates in per cent of the image's size
        corners = np.array(region["points"], np.float64).reshape(-1, 2) / 100 * shape[::-1]
        return fill_polygon(path, corners, shape)
    if kind is None:
        pixels = expand_brush(bytes([*region["rle"]]), height * width * _CHANNELS)
        return pixels.reshape(*shape, _CHANNELS)[..., 3] > 0
    if kind == "polygon":
        corners = np.array([corner.split(",") for corner in region["points"].split(";")], np.float64)
        return fill_polygon(path, corners, shape)
    left, top, box_width, box_height = (int(region[key]) for key in ("left", "top", "width", "height"))
    runs = [int(run) for run in region["rle"].split(",")]
    if min(left, top, box_width, box_height, *runs) < 0 or top + box_height > height or left + box_width > width:
        raise ValueError("a mask that does not lie on its image")
    if sum(runs) != box_width * box_height:
        raise ValueError(f"run lengths of {sum(runs)} pixels for a box of {box_width} x {box_height}")
    mask = np.zeros(shape, bool)
    in_box = np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(box_height, box_width)
    mask[top : top + box_height, left : left + box_width] = in_box
    return mask


def expand_brush(packed: bytes, size: int) -> NDArray[np.uint8]:
    """Unpack `size` values from the bit stream in which Label Studio stores brush strokes.

    The stream is a series of numbers, highest bit first. Its head has 32 bits for the number of values, 5 bits for the
    width of a value minus 1, and four times 4 bits for the possible widths of a length minus 1. Each run then has 1 bit
    for whether one value is repeated, 2 bits to choose the width of its length, its length minus 1, and its value or
    values.

    Raises
    ------
    ValueError
        The stream ends early, has another number of values, or has values of more than 8 bits.
    """
    bits = "".join(f"{byte:08b}" for byte in packed)
    position = 0

    def read_number(width: int) -> int:
        nonlocal position
        position += width
        if position > len(bits):
            raise ValueError("a brush stroke that ends early")
        return int(bits[position - width : position], 2)

    count = read_number(32)
    value_width = read_number(5) + 1
    length_widths = [read_number(4) + 1 for _ in range(4)]
    if count != size or value_width > 8:
        raise ValueError(f"a brush stroke of {count} values of {value_width} bits, where the image has {size}")
    values = np.empty(size, np.uint8)
    start = 0
    while start < size:
        is_repeated = read_number(1)
        stop = start + read_number(length_widths[read_number(2)]) + 1
        if stop > size:
            raise ValueError("a brush stroke beyond its image")
        values[start:stop] = (
            read_number(value_width) if is_repeated else [read_number(value_width) for _ in range(start, stop)]
        )
        start = stop
    return values


def parse_cvat(content: bytes) -> Iterator[Annotated]:
    """Yield the name, size and objects of each image; an object's layer is its z-order.

    Raises
    ------
    ValueError
        The file is another kind of XML, is not UTF-8, declares entities, or holds a shape that is neither a polygon nor
        a mask.
    """
    text = content.decode("utf-8-sig")  # the parser takes text as it is, whatever encoding the XML names
    if "\0" in text or "<!" in text.replace("<!--", ""):  # zeros mean UTF-16, which would hide declarations
        raise ValueError("XML with declarations of its own, or not in UTF-8")
    root = ElementTree.fromstring(text)
    if root.tag != "annotations" or root.find("track") is not None:
        raise ValueError("no export as 'CVAT for images 1.1'")
    for image in root.iter("image"):
        unknown = {shape.tag for shape in image} - {"polygon", "mask", "tag"}  # a tag is about the whole image
        if unknown:
            raise ValueError(f"a {min(unknown)} on image {image.get('name')}, where polygons and masks are read")
        objects = [
            (shape.attrib["label"], int(shape.get("z_order", 0)), {"kind": shape.tag, **shape.attrib})
            for shape in image
            if shape.tag != "tag"
        ]
        name = image.attrib["name"].replace("\\", "/").rpartition("/")[2]
        yield stem_of(name), (int(image.attrib["height"]), int(image.attrib["width"])), objects
