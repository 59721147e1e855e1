"""Reads annotation files, each of which holds the masks of many images: COCO, Label Studio and CVAT.

The path of an image's mask leads into the file: ``annotations.json/000123`` is the image called 000123, and for a
multilabel task ``annotations.json/car/000123`` is the plane of one class.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, some
from segmeter.data.files.array import Opening, array_header
from segmeter.data.files.sniff import check_json, damage_named, show
from segmeter.data.masks.coco import open_coco
from segmeter.data.masks.drawn import Drawn, draw_objects, draw_plane, find_object_labels
from segmeter.data.masks.exports import Annotated, Objects, draw_region, draw_shape, parse_cvat, parse_label_studio
from segmeter.data.masks.options import Reading
from segmeter.errors import DataError

ANNOTATION_SUFFIXES = (".json", ".xml")


class AnnotationFile(Protocol):
    """The masks of several images, by name without suffix."""

    @property
    def images(self) -> Mapping[str, Any]:
        """Everything the file says about each image, as plain values."""

    def shape(self, name: str) -> tuple[int, int]:
        """Height and width of an image."""

    def digest(self, name: str) -> bytes:
        """A hash of everything that decides the mask of an image."""

    def draw(self, path: Path, name: str, shape: tuple[int, int], reading: Reading) -> NDArray[Any]:
        """Draw the map of an image, or for multilabel the plane of the class that `path` names."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NamedObjects:
    """Objects whose classes go by name: what Label Studio and CVAT export.

    `images` maps a name to its size, (height, width), and its objects: class, layer, and what `mask_of` draws.
    """

    images: Mapping[str, tuple[tuple[int, int], Objects]]
    mask_of: Callable[[Path, Any, tuple[int, int]], NDArray[np.bool_]]

    def shape(self, name: str) -> tuple[int, int]:
        return self.images[name][0]

    def digest(self, name: str) -> bytes:
        return hashlib.sha256(json.dumps(self.images[name]).encode()).digest()

    def draw(self, path: Path, name: str, shape: tuple[int, int], reading: Reading) -> NDArray[Any]:
        objects = self.images[name][1]
        labels = find_object_labels(path, (each[0] for each in objects), reading)
        drawn: Iterator[Drawn] = (
            Drawn(mask=self.mask_of(path, region, shape), label=labels[label], layer=layer)
            for label, layer, region in objects
        )
        if reading.spec.is_multilabel:
            return draw_plane(drawn, shape, reading.spec.names.index(path.parent.name))
        return draw_objects(path, drawn, shape, reading)


def annotations_of(path: Path) -> Path | None:
    """Return the annotation file that a path leads into, or None."""
    if not any(suffix in str(path).lower() for suffix in ANNOTATION_SUFFIXES):  # most paths, at a fraction of the time
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
    folder = path / plane if plane else path
    return {name: [folder / name] for name in open_annotations(path).images}


def hash_annotated(path: Path) -> str:
    """Return the sha256 of everything that decides one image's mask."""
    found = open_annotations(_file_of(path))
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
    found = open_annotations(_file_of(path))
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
        raise DataError(expected(show(path), "file", "to be readable", error.strerror or error)) from error


@lru_cache(maxsize=4)
def _open(path: Path, mtime: int, size: int) -> AnnotationFile:
    check_json(path, size)
    with damage_named(path):
        if path.name.lower().endswith(".xml"):
            return _named(path, parse_cvat(path.read_bytes()), draw_shape)
        content = json.loads(path.read_bytes())
        if isinstance(content, dict):
            return open_coco(path, content)
        if all("image_id" in each for each in content):
            rule, remedy = "to name images and categories", "Put its entries into the references' file as annotations."
            raise DataError(expected(show(path), "file", rule, "a list of results", remedy))
        return _named(path, parse_label_studio(path, content), draw_region)


def _named(
    path: Path,
    images: Iterable[Annotated],
    mask_of: Callable[[Path, Any, tuple[int, int]], NDArray[np.bool_]],
) -> NamedObjects:
    by_name: dict[str, tuple[tuple[int, int], Objects]] = {}
    twice = []
    for name, shape, objects in images:
        if name in by_name:
            twice.append(name)
        by_name[name] = (shape, objects)
    if twice or not by_name:
        rule = "to hold images, each with a file name of its own"
        raise DataError(expected(show(path), "images", rule, some(twice) if twice else "none"))
    return NamedObjects(images=by_name, mask_of=mask_of)


def _file_of(path: Path) -> Path:
    file = annotations_of(path)
    assert file is not None, "callers ask annotations_of first"
    return file
