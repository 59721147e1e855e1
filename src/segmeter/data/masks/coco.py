"""Reads COCO files of instances and of panoptic segments; polygons are filled by pycocotools, in a reader process.

Such a file holds the masks of many images, so the path of an image's mask leads into the file:
``annotations.json/000123`` is the image called 000123, and for a multilabel task ``annotations.json/car/000123`` is the
plane of one class.
"""

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import some
from segmeter.classes import IGNORED_KEY
from segmeter.data.files.array import Opening, array_header
from segmeter.data.files.reader_process import need, read_apart
from segmeter.data.files.sniff import check_json, damage_named, file_error, stem_of
from segmeter.data.images import read_image
from segmeter.data.masks.drawn import Drawn, check_corners, check_object_classes, draw_objects, find_object_labels
from segmeter.data.sample import Reading

COCO_SUFFIX = ".json"
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

    def picture_of(self, annotation: Mapping[str, Any]) -> Path:
        """Find the picture of a panoptic image, in the folder that is named like the JSON file."""
        return self.path.with_suffix("") / Path(annotation["file_name"]).name


def annotations_of(path: Path) -> Path | None:
    """Return the COCO file that a path leads into, or None."""
    if COCO_SUFFIX not in str(path).lower():  # most paths, at a fraction of the time
        return None
    above = (each for each in (path.parent, path.parent.parent) if each.suffix.lower() == COCO_SUFFIX)
    return next((each for each in above if each.is_file()), None)


def open_coco(path: Path) -> CocoFile:
    """Parse a COCO file, which is kept until it changes.

    Raises
    ------
    DataError
        The file can't be read, holds no images, two have the same name or id, or an annotation belongs to no image.
    """
    try:
        status = path.stat()
        return _open(path, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise file_error(path, "file", "to be readable", error.strerror or error) from error


@lru_cache(maxsize=4)
def _open(path: Path, mtime: int, size: int) -> CocoFile:
    check_json(path, size)
    with damage_named(path):
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            remedy = "Put a list of results into the references' file as annotations; other tools export COCO."
            raise file_error(path, "file", "to be COCO's, with images and categories", "a list", remedy)
        names = [stem_of(Path(image["file_name"]).name) for image in content["images"]]
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice or not names:
            rule = "to hold images, each with a file name of its own"
            raise file_error(path, "images", rule, some(twice) if twice else "none")
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
        return CocoFile(
            path=path,
            images=dict(zip(names, content["images"], strict=True)),
            annotations=dict(annotations),
            categories={int(each["id"]): str(each["name"]) for each in content["categories"]},
            stuff=frozenset(int(each["id"]) for each in content["categories"] if not each.get("isthing", 1)),
        )


def hash_annotated(path: Path) -> str:
    """Return the sha256 of all that decides one image's mask: its entries, and its picture in a panoptic file."""
    file = open_coco(annotations_of(path) or path)
    with damage_named(path):
        image = file.images[path.name]
        drawn = file.annotations.get(image["id"], [])
        digest = hashlib.sha256(json.dumps([file.categories, image, drawn], sort_keys=True).encode())
        for each in drawn:
            if "segments_info" in each:
                digest.update(file.picture_of(each).read_bytes())
        return digest.hexdigest()


def read_annotated(path: Path, reading: Reading) -> NDArray[Any]:
    """Draw the mask of one image.

    Pixels that no object covers are class 0; in a panoptic file they are ignored.

    Parameters
    ----------
    path
        Leads into the file.
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
    file, spec = open_coco(annotations_of(path) or path), reading.spec
    with damage_named(path):  # other tools write anything, and decoders raise many types
        image = file.images[path.name]
        shape = int(image["height"]), int(image["width"])
        array_header(path, "coco", shape, np.dtype(np.uint8), Opening(max_pixels=reading.max_pixels, axes="map"))
        annotations = file.annotations.get(image["id"], [])
        labels = _find_labels(path, file, annotations, reading)
        if any("segments_info" in each for each in annotations):
            drawn = _draw_segments(path, file, annotations, shape, labels, reading)
            if not spec.is_multilabel:
                return drawn
            plane = (drawn == spec.names.index(path.parent.name)).astype(drawn.dtype)
            return np.where(spec.is_ignored(drawn), drawn, plane)  # void stays void
        masks = _read_masks(path, [each["segmentation"] for each in annotations], shape)
        objects = (
            Drawn(mask=mask, label=labels.get(each["category_id"], 0), crowd=bool(each.get("iscrowd")))
            for mask, each in zip(masks, annotations, strict=True)
        )
        return draw_objects(path, objects, shape, reading)


def _find_labels(path: Path, file: CocoFile, annotations: Entries, reading: Reading) -> dict[int, int]:
    """Return the label of each category on an image; object numbers need none, but stuff is then 0."""
    numbered, label_map = bool(reading.instances), reading.label_map
    panoptic = any("segments_info" in each for each in annotations)
    segments = [each for one in annotations for each in one.get("segments_info", [one])]
    ids = sorted({int(each["category_id"]) for each in segments})
    ids = [each for each in ids if not (numbered and panoptic and each in file.stuff)]
    if label_map:
        labels = {each: label_map.get(str(each), -1) for each in ids}
        foreign = [str(each) for each, label in labels.items() if label < 0]
        if numbered:
            check_object_classes(path, {str(each): label for each, label in labels.items()}, reading.spec)
        elif foreign:
            raise file_error(path, "categories", "to be in data.label_map", some(foreign))
    else:
        names = {each: file.categories[each] for each in ids}
        named = find_object_labels(path, names.values(), reading, may_be_first=panoptic)
        labels = {each: named[name] for each, name in names.items()}
    return dict.fromkeys(file.stuff, 0) if numbered else labels


def _draw_segments(
    path: Path,
    file: CocoFile,
    annotations: Entries,
    shape: tuple[int, int],
    labels: Mapping[int, int],
    reading: Reading,
) -> NDArray[Any]:
    """Read the labels, or object numbers, of a picture whose colours are ids: red + 256 green + 65536 blue."""
    (annotation,) = annotations
    colours = read_image(file.picture_of(annotation)).astype(np.int64)
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
    values = {0: spec.void}
    for number, (segment, each) in enumerate(segments.items(), 1):
        value = labels.get(int(each["category_id"]), spec.number_of(number))
        values[segment] = spec.void if numbered and each.get("iscrowd") and spec.has_ignored else value
    drawn = np.array([values[each] for each in found.tolist()], np.int64)[places].reshape(shape)
    return drawn if numbered else drawn.astype(np.uint16)


def _read_masks(path: Path, segmentations: list[Any], shape: tuple[int, int]) -> Iterator[NDArray[np.bool_]]:
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
