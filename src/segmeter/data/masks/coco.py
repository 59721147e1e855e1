"""Reads COCO files of instances and of panoptic segments; polygons are filled by pycocotools, in a reader process."""

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import some
from segmeter.classes import IGNORED_KEY
from segmeter.data.files.formats import stem_of
from segmeter.data.files.reader_process import need, read_apart
from segmeter.data.files.refusals import damaged, file_error
from segmeter.data.images import read_image
from segmeter.data.masks.drawn import Drawn, check_corners, check_object_classes, draw_objects, find_object_labels
from segmeter.data.sample import Reading

_MOST_SHIFT = 60  # A number has at most this many bits before its last digit.

Entries = list[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class CocoFile:
    """A parsed COCO file. Its classes are the categories' names; a label map has the categories' ids.

    The keys of `images` are names without suffix, those of `annotations` are ids of images. `categories` maps an id to
    a name, and `stuff` holds the ids of categories without objects.
    """

    path: Path
    images: Mapping[str, Mapping[str, Any]]
    annotations: Mapping[Any, Entries]
    categories: Mapping[int, str]
    stuff: frozenset[int]

    def shape(self, name: str) -> tuple[int, int]:
        image = self.images[name]
        return int(image["height"]), int(image["width"])

    def digest(self, name: str) -> bytes:
        """Hash the entries of an image, and its picture in a panoptic file; DataError if the picture is gone."""
        image = self.images[name]
        annotations = self.annotations.get(image["id"], [])
        digest = hashlib.sha256(json.dumps([self.categories, image, annotations], sort_keys=True).encode())
        try:
            for annotation in annotations:
                if "segments_info" in annotation:
                    digest.update(self._picture_of(annotation).read_bytes())
        except (OSError, LookupError, TypeError) as error:
            raise damaged(self.path / name, error) from error
        return digest.digest()

    def draw(self, path: Path, name: str, shape: tuple[int, int], reading: Reading) -> NDArray[Any]:
        annotations = self.annotations.get(self.images[name]["id"], [])
        spec = reading.spec
        labels = self._labels(path, annotations, reading)
        if any("segments_info" in annotation for annotation in annotations):
            drawn = self._draw_segments(path, annotations, shape, labels, reading)
            if not spec.is_multilabel:
                return drawn
            plane = (drawn == spec.names.index(path.parent.name)).astype(drawn.dtype)
            return np.where(spec.is_ignored(drawn), drawn, plane)  # ignored pixels stay ignored
        masks = read_masks(path, [annotation["segmentation"] for annotation in annotations], shape)
        objects = (
            Drawn(mask=mask, label=labels.get(int(annotation["category_id"]), 0), crowd=bool(annotation.get("iscrowd")))
            for mask, annotation in zip(masks, annotations, strict=True)
        )
        return draw_objects(path, objects, shape, reading)

    def _labels(self, path: Path, annotations: Entries, reading: Reading) -> dict[int, int]:
        """Return the label of each category on an image. Object numbers need only the label of stuff, which is 0."""
        is_numbered = bool(reading.instances)
        label_map = reading.label_map
        is_panoptic = any("segments_info" in annotation for annotation in annotations)
        segments = [segment for entry in annotations for segment in entry.get("segments_info", [entry])]
        ids = sorted({int(segment["category_id"]) for segment in segments})
        ids = [category for category in ids if not (is_numbered and is_panoptic and category in self.stuff)]
        if label_map:
            labels = {category: label_map.get(str(category), -1) for category in ids}
            foreign = [str(category) for category, label in labels.items() if label < 0]
            if is_numbered:
                check_object_classes(path, {str(category): label for category, label in labels.items()}, reading.spec)
            elif foreign:
                raise file_error(path, "categories", "to be in data.label_map", some(foreign))
        else:
            names = {category: self.categories[category] for category in ids}
            label_of_name = find_object_labels(path, names.values(), reading, may_be_first=is_panoptic)
            labels = {category: label_of_name[name] for category, name in names.items()}
        return dict.fromkeys(self.stuff, 0) if is_numbered else labels

    def _picture_of(self, annotation: Mapping[str, Any]) -> Path:
        """Find the picture of a panoptic image, in the folder that is named like the JSON file."""
        return self.path.with_suffix("") / Path(annotation["file_name"]).name

    def _draw_segments(
        self, path: Path, annotations: Entries, shape: tuple[int, int], labels: Mapping[int, int], reading: Reading
    ) -> NDArray[Any]:
        """Read labels or object numbers from a picture whose colours are ids: red + 256 green + 65536 blue."""
        (annotation,) = annotations
        colours = read_image(self._picture_of(annotation)).astype(np.int64)
        if colours.shape != (*shape, 3):
            raise ValueError(f"a picture of shape {colours.shape}")
        ids, id_of_pixel = np.unique(colours @ np.array([1, 256, 65536]), return_inverse=True)
        segments = {int(segment["id"]): segment for segment in annotation["segments_info"]}
        spec = reading.spec
        is_numbered = bool(reading.instances)
        foreign = [segment_id for segment_id in ids.tolist() if segment_id and segment_id not in segments]
        if foreign or (0 in ids and not spec.has_ignored):
            what = f"ids {some(map(str, foreign))}" if foreign else "uncovered pixels"
            remedy = "" if foreign else f"Set {IGNORED_KEY}=255, which they then have."
            raise file_error(path, "picture", "to have colours of its segments only", what, remedy)
        values = {0: spec.unlabelled_value}
        for number, (segment_id, segment) in enumerate(segments.items(), 1):
            value = labels.get(int(segment["category_id"]), spec.number_of(number))
            is_ignored_crowd = is_numbered and segment.get("iscrowd") and spec.has_ignored
            values[segment_id] = spec.unlabelled_value if is_ignored_crowd else value
        drawn = np.array([values[segment_id] for segment_id in ids.tolist()], np.int64)[id_of_pixel].reshape(shape)
        return drawn if is_numbered else drawn.astype(np.uint16)


def check_names(path: Path, names: Iterable[str]) -> None:
    """Refuse an annotation file without images, or with two images of the same name."""
    counts = Counter(names)
    twice = [name for name, count in counts.items() if count > 1]
    if twice or not counts:
        rule = "to hold images, each with a file name of its own"
        raise file_error(path, "images", rule, some(twice) if twice else "none")


def open_coco(path: Path, content: Mapping[str, Any]) -> CocoFile:
    """Sort the parsed content of a file by image.

    Raises
    ------
    DataError
        The file holds no images or two of the same name or id, or an annotation belongs to no image.
    """
    named = [(stem_of(Path(image["file_name"]).name), image) for image in content["images"]]
    check_names(path, (name for name, _ in named))
    annotations = defaultdict[Any, list[Any]](list)
    for annotation in content["annotations"]:
        annotations[annotation["image_id"]].append(annotation)
    ids = Counter(image["id"] for image in content["images"])
    same_id = [repr(image_id) for image_id, count in ids.items() if count > 1]
    foreign = [repr(image_id) for image_id in annotations if image_id not in ids]
    if same_id:
        raise file_error(path, "images", "to have an id of its own each", some(same_id))
    if foreign:
        rule, remedy = "to be the id of an image of the file", "Correct it; 1 and '1' are two ids."
        raise file_error(path, "image_id", rule, some(foreign), remedy)
    names = {int(category["id"]): str(category["name"]) for category in content["categories"]}
    stuff = frozenset(int(category["id"]) for category in content["categories"] if not category.get("isthing", 1))
    return CocoFile(path=path, images=dict(named), annotations=dict(annotations), categories=names, stuff=stuff)


def read_masks(path: Path, segmentations: list[Any], shape: tuple[int, int]) -> Iterator[NDArray[np.bool_]]:
    """Yield the mask of each segmentation, which is a list of polygons, or run lengths of the whole image.

    Raises
    ------
    DataError, ValueError, KeyError, TypeError
        A segmentation is damaged, too long or of another size.
    """
    objects = []  # the polygons (x, y, x, y, ...) of each object that has any
    for segmentation in segmentations:
        if not isinstance(segmentation, list):
            continue
        polygons = [np.array(polygon, np.float64) for polygon in segmentation]
        if not polygons or not all(map(_has_corners, polygons)):
            raise ValueError("a polygon of fewer than three finite corners")
        for polygon in polygons:
            check_corners(path, polygon.reshape(-1, 2), shape)
        objects.append(polygons)
    if objects:
        size = sum(polygon.nbytes for polygons in objects for polygon in polygons)
        filled = iter(read_apart(path, _fill, objects, shape, size=size, max_pixels=math.prod(shape)))
    yield from (_mask(next(filled) if isinstance(runs, list) else runs, shape) for runs in segmentations)


def _has_corners(polygon: NDArray[np.float64]) -> bool:
    is_list = polygon.ndim == 1 and len(polygon) >= 6 and len(polygon) % 2 == 0
    return is_list and bool(np.isfinite(polygon).all())


def _fill(objects: list[list[NDArray[np.float64]]], shape: tuple[int, int]) -> list[dict[str, Any]]:
    """Return the run lengths of objects that have one or more polygons each; runs in the reader process."""
    mask = need("pycocotools.mask", "coco", "polygons of COCO")
    merged = [mask.merge(mask.frPyObjects([polygon.tolist() for polygon in polygons], *shape)) for polygons in objects]
    return [{"size": runs["size"], "counts": runs["counts"].decode()} for runs in merged]


def _mask(runs: Mapping[str, Any], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Expand run lengths. They are summed as Python integers, because a sum in int64 may wrap around to any number."""
    lengths = expand_runs(runs["counts"]) if isinstance(runs["counts"], str) else runs["counts"]
    are_integers = all(type(length) is int and length >= 0 for length in lengths)
    if not are_integers or tuple(runs["size"]) != shape or sum(lengths) != math.prod(shape):
        raise ValueError(f"run lengths of another size than {shape}")
    return np.repeat(np.arange(len(lengths)) % 2 == 1, lengths).reshape(shape[::-1]).T


def expand_runs(text: str) -> list[int]:
    """Return the run lengths of COCO's text: the inverse of `segmeter.export.objects.compress_runs`.

    Raises
    ------
    ValueError
        The text holds other characters or a number beyond int64, or ends within a number.

    Examples
    --------
    >>> expand_runs("52203")
    [5, 2, 2, 2, 5]
    """
    runs: list[int] = []
    value = shift = 0
    for character in text:
        digit = ord(character) - 48
        if not 0 <= digit < 64 or shift > _MOST_SHIFT:
            raise ValueError("run lengths as a text that can't be read")
        value |= (digit & 31) << shift
        shift += 5
        if not digit & 32:
            value -= (digit & 16) << (shift - 4)  # the last digit's fifth bit is the sign
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value = shift = 0
    if shift:
        raise ValueError("run lengths as a text that ends within a number")
    return runs
