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
from segmeter.data.files.reader_process import need, read_apart
from segmeter.data.files.sniff import damaged, file_error, stem_of
from segmeter.data.images import read_image
from segmeter.data.masks.drawn import Drawn, check_corners, check_object_classes, draw_objects, find_object_labels
from segmeter.data.sample import Reading

_MOST_SHIFT = 60  # bits before the last digit of a number

Entries = list[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class CocoFile:
    """A parsed COCO file, whose classes are the categories' names or, in a label map, their ids.

    `images` go by name without suffix, `annotations` by the image's id, `categories` are names by id, and `stuff` holds
    the ids of categories without objects.
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
        """Hash the entries of an image, and its picture in a panoptic file; DataError if that is gone."""
        image = self.images[name]
        drawn = self.annotations.get(image["id"], [])
        digest = hashlib.sha256(json.dumps([self.categories, image, drawn], sort_keys=True).encode())
        try:
            for each in drawn:
                if "segments_info" in each:
                    digest.update(self._picture_of(each).read_bytes())
        except (OSError, LookupError, TypeError) as error:
            raise damaged(self.path / name, error) from error
        return digest.digest()

    def draw(self, path: Path, name: str, shape: tuple[int, int], reading: Reading) -> NDArray[Any]:
        annotations = self.annotations.get(self.images[name]["id"], [])
        labels, spec = self._labels(path, annotations, reading), reading.spec
        if any("segments_info" in each for each in annotations):
            drawn = self._draw_segments(path, annotations, shape, labels, reading)
            if not spec.is_multilabel:
                return drawn
            plane = (drawn == spec.names.index(path.parent.name)).astype(drawn.dtype)
            return np.where(spec.is_ignored(drawn), drawn, plane)  # void stays void
        masks = read_masks(path, [each["segmentation"] for each in annotations], shape)
        objects = (
            Drawn(mask=mask, label=labels.get(each["category_id"], 0), crowd=bool(each.get("iscrowd")))
            for mask, each in zip(masks, annotations, strict=True)
        )
        return draw_objects(path, objects, shape, reading)

    def _labels(self, path: Path, annotations: Entries, reading: Reading) -> dict[int, int]:
        """Return the label of each category on an image; object numbers need none, but stuff is then 0."""
        numbered, label_map = bool(reading.instances), reading.label_map
        panoptic = any("segments_info" in each for each in annotations)
        segments = [each for one in annotations for each in one.get("segments_info", [one])]
        ids = sorted({int(each["category_id"]) for each in segments})
        ids = [each for each in ids if not (numbered and panoptic and each in self.stuff)]
        if label_map:
            labels = {each: label_map.get(str(each), -1) for each in ids}
            foreign = [str(each) for each, label in labels.items() if label < 0]
            if numbered:
                check_object_classes(path, {str(each): label for each, label in labels.items()}, reading.spec)
            elif foreign:
                raise file_error(path, "categories", "to be in data.label_map", some(foreign))
        else:
            names = {each: self.categories[each] for each in ids}
            named = find_object_labels(path, names.values(), reading, may_be_first=panoptic)
            labels = {each: named[name] for each, name in names.items()}
        return dict.fromkeys(self.stuff, 0) if numbered else labels

    def _picture_of(self, annotation: Mapping[str, Any]) -> Path:
        """Find the picture of a panoptic image, in the folder that is named like the JSON file."""
        return self.path.with_suffix("") / Path(annotation["file_name"]).name

    def _draw_segments(
        self, path: Path, annotations: Entries, shape: tuple[int, int], labels: Mapping[int, int], reading: Reading
    ) -> NDArray[Any]:
        """Read the labels, or object numbers, of a picture whose colours are ids: red + 256 green + 65536 blue."""
        (annotation,) = annotations
        colours = read_image(self._picture_of(annotation)).astype(np.int64)
        if colours.shape != (*shape, 3):
            raise ValueError(f"a picture of shape {colours.shape}")
        found, places = np.unique(colours @ np.array([1, 256, 65536]), return_inverse=True)
        segments = {int(each["id"]): each for each in annotation["segments_info"]}
        spec, numbered = reading.spec, bool(reading.instances)
        foreign = [each for each in found.tolist() if each and each not in segments]
        if foreign or (0 in found and not spec.has_ignored):
            what = f"ids {some(map(str, foreign))}" if foreign else "uncovered pixels"
            remedy = "" if foreign else f"Set {IGNORED_KEY}=255, which they then have."
            raise file_error(path, "picture", "to have colours of its segments only", what, remedy)
        values = {0: spec.unlabelled_value}
        for number, (segment, each) in enumerate(segments.items(), 1):
            value = labels.get(int(each["category_id"]), spec.number_of(number))
            values[segment] = spec.unlabelled_value if numbered and each.get("iscrowd") and spec.has_ignored else value
        drawn = np.array([values[each] for each in found.tolist()], np.int64)[places].reshape(shape)
        return drawn if numbered else drawn.astype(np.uint16)


def check_names(path: Path, names: Iterable[str]) -> None:
    """Refuse an annotation file without images, or with two of one name."""
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
        It holds no images or two of the same name or id, or an annotation belongs to no image.
    """
    named = [(stem_of(Path(image["file_name"]).name), image) for image in content["images"]]
    check_names(path, (name for name, _ in named))
    annotations = defaultdict[Any, list[Any]](list)
    for each in content["annotations"]:
        annotations[each["image_id"]].append(each)
    ids = Counter(image["id"] for image in content["images"])
    same_id = [repr(each) for each, count in ids.items() if count > 1]
    foreign = [repr(each) for each in annotations if each not in ids]
    if same_id:
        raise file_error(path, "images", "to have an id of its own each", some(same_id))
    if foreign:
        rule, remedy = "to be the id of an image of the file", "Correct it; 1 and '1' are two ids."
        raise file_error(path, "image_id", rule, some(foreign), remedy)
    names = {int(each["id"]): str(each["name"]) for each in content["categories"]}
    stuff = frozenset(int(each["id"]) for each in content["categories"] if not each.get("isthing", 1))
    return CocoFile(path=path, images=dict(named), annotations=dict(annotations), categories=names, stuff=stuff)


def read_masks(path: Path, segmentations: list[Any], shape: tuple[int, int]) -> Iterator[NDArray[np.bool_]]:
    """Yield masks of polygons, or of run lengths (text or list) of the whole image.

    Raises
    ------
    DataError, ValueError, KeyError, TypeError
        One is damaged, too long or of another size.
    """
    drawn = []
    for polygons in (each for each in segmentations if isinstance(each, list)):
        found = [np.array(one, np.float64) for one in polygons]  # (x, y, x, y, ...)
        long = all(one.ndim == 1 and len(one) >= 6 and len(one) % 2 == 0 and np.isfinite(one).all() for one in found)
        if not found or not long:
            raise ValueError("a polygon of fewer than three finite corners")
        for one in found:
            check_corners(path, one.reshape(-1, 2), shape)
        drawn.append(found)
    if drawn:
        size = sum(one.nbytes for polygons in drawn for one in polygons)
        filled = iter(read_apart(path, _fill, drawn, shape, size=size, max_pixels=math.prod(shape)))
    yield from (_mask(next(filled) if isinstance(each, list) else each, shape) for each in segmentations)


def _fill(drawn: list[list[NDArray[np.float64]]], shape: tuple[int, int]) -> list[dict[str, Any]]:
    """Return the run lengths of objects of several polygons each; runs in the reader process."""
    mask = need("pycocotools.mask", "coco", "polygons of COCO")
    merged = [mask.merge(mask.frPyObjects([one.tolist() for one in polygons], *shape)) for polygons in drawn]
    return [{"size": each["size"], "counts": each["counts"].decode()} for each in merged]


def _mask(runs: Mapping[str, Any], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Expand run lengths; they are summed as Python integers, because a sum in int64 may wrap around to any number."""
    counts = expand_runs(runs["counts"]) if isinstance(runs["counts"], str) else runs["counts"]
    whole = all(type(each) is int and each >= 0 for each in counts)
    if not whole or tuple(runs["size"]) != shape or sum(counts) != math.prod(shape):
        raise ValueError(f"run lengths of another size than {shape}")
    return np.repeat(np.arange(len(counts)) % 2 == 1, counts).reshape(shape[::-1]).T


def expand_runs(text: str) -> list[int]:
    """Return the run lengths of COCO's text: the inverse of `segmeter.export.objects.compress_runs`.

    Raises
    ------
    ValueError
        It holds other characters or a number beyond int64, or ends within a number.

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
