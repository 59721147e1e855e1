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
from segmeter.data.files.sniff import check_json, damage_named, file_error, stem_of
from segmeter.data.masks.coco import CocoFile, check_names, open_coco
from segmeter.data.masks.drawn import Drawn, draw_objects, fill_polygon, find_object_labels
from segmeter.data.sample import Reading

ANNOTATION_SUFFIXES = (".json", ".xml")
_SUFFIX = re.compile("|".join(map(re.escape, ANNOTATION_SUFFIXES)), re.IGNORECASE)
_UPLOAD = re.compile(r"/upload/.*/[0-9a-f]{8}-([^/]+)$")  # Label Studio's prefix to the names of uploaded files
_NO_MASK = ("choices", "textarea", "rating", "relation", "number", "taxonomy")  # results about the image as a whole
_CHANNELS = 4  # brush strokes are stored as the RGBA pixels of a canvas

Objects = list[tuple[str, int, Any]]  # class, layer, and what `draw_region` takes
Annotated = tuple[str, tuple[int, int], Objects]  # name, (height, width) and objects of an image


@dataclass(frozen=True, kw_only=True, eq=False)
class NamedObjects:
    """Objects whose classes go by name: what Label Studio and CVAT export.

    `images` maps a name to its size, (height, width), and its objects: class, layer, and what `draw_region` takes.
    """

    images: Mapping[str, tuple[tuple[int, int], Objects]]

    def shape(self, name: str) -> tuple[int, int]:
        return self.images[name][0]

    def digest(self, name: str) -> bytes:
        return hashlib.sha256(json.dumps(self.images[name]).encode()).digest()

    def draw(self, path: Path, name: str, shape: tuple[int, int], reading: Reading) -> NDArray[Any]:
        objects = self.images[name][1]
        labels = find_object_labels(path, (each[0] for each in objects), reading)
        drawn = (
            Drawn(mask=draw_region(path, each[2], shape), label=labels[each[0]], layer=each[1]) for each in objects
        )
        return draw_objects(path, drawn, shape, reading)


AnnotationFile = NamedObjects | CocoFile


def annotations_of(path: Path) -> Path | None:
    """Return the annotation file that a path leads into, or None."""
    if not _SUFFIX.search(str(path)):  # most paths, at a fraction of the time
        return None
    above = (each for each in (path.parent, path.parent.parent) if each.name.lower().endswith(ANNOTATION_SUFFIXES))
    return next((each for each in above if each.is_file()), None)


def annotated_images(path: Path, plane: str = "") -> dict[str, list[Path]]:
    """Return the path of each image's mask by name; `plane` is the class of a multilabel task.

    Raises
    ------
    DataError
        The file can't be read or holds no images, or two have the same name.
    """
    return {name: [path / plane / name] for name in open_annotations(path).images}


def hash_annotated(path: Path) -> str:
    """Return the sha256 of everything that decides one image's mask."""
    found = open_annotations(annotations_of(path) or path)
    with damage_named(path):
        return found.digest(path.name).hex()


def read_annotated(path: Path, reading: Reading) -> NDArray[Any]:
    """Draw the mask of one image.

    Pixels that no object covers are class 0; in a panoptic COCO file they are ignored.

    Parameters
    ----------
    path
        Leads into the file, as `annotated_images` gives it.
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
    found = open_annotations(annotations_of(path) or path)
    with damage_named(path):  # other tools write anything, and decoders raise many types
        shape = found.shape(path.name)
        array_header(path, "coco", shape, np.dtype(np.uint8), Opening(max_pixels=reading.max_pixels, axes="map"))
        return found.draw(path, path.name, shape, reading)


def open_annotations(path: Path) -> AnnotationFile:
    """Parse an annotation file, which is kept until it changes; raises as `annotated_images`."""
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
            if all("image_id" in each for each in content):
                remedy = "Put its entries into the references' file as annotations."
                raise file_error(path, "file", "to name images and categories", "a list of results", remedy)
            images = list(parse_label_studio(path, content))
        check_names(path, (name for name, _, _ in images))
        return NamedObjects(images={name: (shape, objects) for name, shape, objects in images})


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
        data = task["data"]  # whose only path or URL with a suffix is the image
        given = data.get("image") or next(each for each in data.values() if isinstance(each, str) and "." in each)
        url = unquote(given).replace("\\", "/").partition("?d=")
        place = url[2] or url[0].partition("?")[0]
        uploaded = _UPLOAD.search(place)
        name = stem_of(uploaded[1] if uploaded else place.rpartition("/")[2])
        if len(done) != 1 or not done[0]["result"]:
            open_tasks.append(name)
            continue
        results = [each for each in done[0]["result"] if each["type"] not in _NO_MASK]
        odd |= {each["type"] for each in results if each["type"] not in ("polygonlabels", "brushlabels")}
        sizes = {(each["original_height"], each["original_width"]) for each in results}
        if not odd and len(sizes) == 1:
            yield name, sizes.pop(), [_object_of(each) for each in results]
        elif not odd:
            raise ValueError(f"{len(sizes)} sizes of the image {name!r}")
    if odd:
        rule = "to be polygonlabels or brushlabels"
        raise file_error(path, "results", rule, some(sorted(odd)), "Draw polygons or brush strokes.")
    if open_tasks:
        rule = "to have one annotation with a result, that is not cancelled"
        remedy = "Export one annotator's work; an image without objects needs a mask of its own."
        raise file_error(path, "tasks", rule, some(open_tasks), remedy)


def _object_of(result: Mapping[str, Any]) -> tuple[str, int, dict[str, Any]]:
    """Return label, layer and what decides the mask of a result; ValueError for regions of another form."""
    value, kind = result["value"], result["type"]
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
    """Return the mask of a polygon, a brush stroke or, of CVAT, run lengths line by line through a box of their own.

    Raises
    ------
    ValueError
        The box does not lie on the image, or the run lengths do not fill it.
    """
    kind, (height, width) = region.get("kind"), shape
    if kind is None and "points" in region:  # in per cent of the image
        corners = np.array(region["points"], np.float64).reshape(-1, 2) / 100 * shape[::-1]
        return fill_polygon(path, corners, shape)
    if kind is None:
        pixels = expand_brush(bytes([*region["rle"]]), height * width * _CHANNELS)
        return pixels.reshape(*shape, _CHANNELS)[..., 3] > 0
    if kind == "polygon":
        corners = np.array([corner.split(",") for corner in region["points"].split(";")], np.float64)
        return fill_polygon(path, corners, shape)
    left, top, wide, high = (int(region[key]) for key in ("left", "top", "width", "height"))
    runs = [int(each) for each in region["rle"].split(",")]
    if min(left, top, wide, high, *runs) < 0 or top + high > height or left + wide > width:
        raise ValueError("a mask that does not lie on its image")
    if sum(runs) != wide * high:
        raise ValueError(f"run lengths of {sum(runs)} pixels for a box of {wide} x {high}")
    mask, inside = np.zeros(shape, bool), np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    mask[top : top + high, left : left + wide] = inside.reshape(high, wide)
    return mask


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
