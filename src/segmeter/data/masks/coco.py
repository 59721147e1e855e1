"""Reads the label map of each image of a COCO instance or panoptic file; polygons need pycocotools.

One file holds many images. ``annotations.json/000123`` names the image called 000123 in it, and for a multilabel task
``annotations.json/car/000123`` the plane of one class.
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

from segmeter.checks import expected, some
from segmeter.data.files.array import Opening, array_header
from segmeter.data.files.reader_process import need, read_apart
from segmeter.data.files.sniff import check_json, damage_named, damaged, show, stem_of
from segmeter.data.images import read_image
from segmeter.data.masks.drawn import (
    Drawn,
    check_corners,
    check_object_classes,
    draw_objects,
    find_labels,
)
from segmeter.data.masks.options import Reading
from segmeter.errors import DataError

_MOST_SHIFT = 60  # bits before the last digit of a number


@dataclass(frozen=True, kw_only=True, eq=False)
class CocoFile:
    """What a file says: its images by name without suffix, what is drawn on each, and the names of categories by id.

    `stuff` are the ids of categories that have no objects.
    """

    images: Mapping[str, Mapping[str, Any]]
    annotations: Mapping[Any, list[Mapping[str, Any]]]
    categories: Mapping[int, str]
    stuff: frozenset[int]


def coco_of(path: Path) -> Path | None:
    """The JSON file that a path leads into, or None."""
    if ".json" not in str(path).lower():  # for most files a fraction of the time
        return None
    above = (each for each in (path.parent, path.parent.parent) if each.name.lower().endswith(".json"))
    return next((each for each in above if each.is_file()), None)


def open_coco(path: Path) -> CocoFile:
    """Read an annotation file; kept until it changes.

    Raises
    ------
    DataError
        It can't be read, holds no images, two of one name, or is a list of results, which names no images.
    """
    try:
        status = path.stat()
        return _open(path, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise DataError(expected(show(path), "file", "to be readable", error.strerror or error)) from error


def coco_images(path: Path, plane: str = "") -> dict[str, list[Path]]:
    """The path of each image by its name, as `read_coco` takes it; `plane` is the class of a multilabel task."""
    folder = path / plane if plane else path
    return {name: [folder / name] for name in open_coco(path).images}


def hash_coco(path: Path) -> str:
    """Sha256 of what a file says of one image, the picture of a panoptic one included; DataError where that is gone."""
    owner = _owner(path)
    found = open_coco(owner)
    image = found.images[path.name]
    drawn = found.annotations.get(image["id"], [])
    digest = hashlib.sha256(json.dumps([found.categories, image, drawn], sort_keys=True).encode())
    try:
        for each in drawn:
            if "segments_info" in each:
                digest.update(_picture(owner, each).read_bytes())
    except (OSError, LookupError, TypeError) as error:
        raise damaged(path, error) from error
    return digest.hexdigest()


def read_coco(path: Path, reading: Reading) -> NDArray[Any]:
    """Draw the objects of one image.

    Classes go by the names of categories, or by their ids in a label map. What no object covers is class 0 in an
    instance file, and ignored in a panoptic one.

    Parameters
    ----------
    path
        Into the file, as `coco_images` gives it.
    reading
        As for `draw_objects`.

    Returns
    -------
    (H, W): labels, numbers of objects, or 0 and 1 for one class of a multilabel task.

    Raises
    ------
    DataError
        A category is no class, an object is damaged or of another size, or objects overlap.
    """
    owner = _owner(path)
    found = open_coco(owner)
    with damage_named(path):  # JSON of other tools holds anything, and pycocotools raises many types
        image = found.images[path.name]
        shape = (int(image["height"]), int(image["width"]))
        array_header(path, "coco", shape, np.dtype(np.uint8), Opening(max_pixels=reading.max_pixels, axes="map"))
        annotations = found.annotations.get(image["id"], [])
        labels, spec = _labels(path, found, annotations, reading), reading.spec
        if any("segments_info" in each for each in annotations):
            labels |= dict.fromkeys(found.stuff, 0) if reading.instances else {}
            drawn = _panoptic(_picture(owner, annotations[0]), path, annotations, shape, labels, reading)
            if not spec.is_multilabel:
                return drawn
            plane = (drawn == spec.names.index(path.parent.name)).astype(drawn.dtype)
            return np.where(drawn == spec.ignore_index, drawn, plane)  # void stays void
        masks = read_masks(path, [each["segmentation"] for each in annotations], shape)
        objects = (
            Drawn(mask=mask, label=labels.get(each["category_id"], 0), crowd=bool(each.get("iscrowd")))
            for mask, each in zip(masks, annotations, strict=True)
        )
        if not spec.is_multilabel:
            return draw_objects(path, objects, shape, reading)
        wanted = spec.names.index(path.parent.name)
        plane = np.zeros(shape, np.uint8)
        for each in objects:
            plane[each.mask & (each.label == wanted)] = 1
        return plane


@lru_cache(maxsize=4)
def _open(path: Path, mtime: int, size: int) -> CocoFile:
    check_json(path, size)
    with damage_named(path):  # JSON of other tools holds anything
        content = json.loads(path.read_bytes())
        if isinstance(content, list):
            rule, remedy = "to name images and categories", "Put its entries into the references' file as annotations."
            raise DataError(expected(show(path), "file", rule, "a list of results", remedy))
        images = defaultdict[str, list[Any]](list)
        for image in content["images"]:
            images[stem_of(Path(image["file_name"]).name)].append(image)
        annotations = defaultdict[Any, list[Any]](list)
        for each in content["annotations"]:
            annotations[each["image_id"]].append(each)
        ids = Counter(image["id"] for image in content["images"])
        categories = {int(each["id"]): str(each["name"]) for each in content["categories"]}
        stuff = frozenset(int(each["id"]) for each in content["categories"] if not each.get("isthing", 1))
    same_name = [name for name, found in images.items() if len(found) > 1]
    same_id = [repr(each) for each, count in ids.items() if count > 1]
    foreign = [repr(each) for each in annotations if each not in ids]
    if same_name or not images:
        rule = "to hold images, each with a file name of its own"
        raise DataError(expected(show(path), "images", rule, some(same_name) if same_name else "none"))
    if same_id:
        raise DataError(expected(show(path), "images", "to have an id of its own each", some(same_id)))
    if foreign:
        rule, remedy = "to be the id of an image of the file", "Correct it; 1 and '1' are two ids."
        raise DataError(expected(show(path), "image_id", rule, some(foreign), remedy))
    by_name = {name: found[0] for name, found in images.items()}
    return CocoFile(images=by_name, annotations=dict(annotations), categories=categories, stuff=stuff)


def _owner(path: Path) -> Path:
    owner = coco_of(path)
    assert owner is not None, "asked for by those who know"
    return owner


def _labels(path: Path, found: CocoFile, annotations: list[Mapping[str, Any]], reading: Reading) -> dict[int, int]:
    """The label of each category on the image; numbers of objects need none."""
    spec, label_map, numbered = reading.spec, reading.label_map, bool(reading.instances)
    filled = any("segments_info" in each for each in annotations)
    segments = [each for one in annotations for each in one.get("segments_info", [one])]
    ids = sorted({int(each["category_id"]) for each in segments} - (found.stuff if numbered and filled else set()))
    if numbered and not label_map:
        check_object_classes(path, find_labels(path, [found.categories[each] for each in ids], spec), spec)
    elif numbered:
        check_object_classes(path, {str(each): label_map.get(str(each), -1) for each in ids}, spec)
    if numbered:
        return {}
    if label_map:
        foreign = [str(each) for each in ids if str(each) not in label_map]
        if foreign:
            raise DataError(expected(show(path), "categories", "to be in data.label_map", some(foreign)))
        return {each: label_map[str(each)] for each in ids}
    named = find_labels(path, [found.categories[each] for each in ids], spec)
    labels = {each: named[found.categories[each]] for each in ids}
    if 0 in labels.values() and not filled and not spec.is_multilabel:
        rule, remedy = f"to be no category, as uncovered pixels have it: {spec.names[0]!r}", "Name a background first."
        raise DataError(expected(show(path), "the first class", rule, "a category of this name", remedy))
    return labels


def _panoptic(
    picture: Path,
    path: Path,
    annotations: list[Mapping[str, Any]],
    shape: tuple[int, int],
    labels: Mapping[int, int],
    reading: Reading,
) -> NDArray[Any]:
    """Labels, or numbers of the things, of the picture whose colours are ids: red + 256 green + 65536 blue."""
    (annotation,) = annotations
    colours = read_image(picture).astype(np.int64)
    if colours.shape != (*shape, 3):
        raise ValueError(f"a picture of shape {colours.shape}")
    found, places = np.unique(colours @ np.array([1, 256, 65536]), return_inverse=True)
    segments = {int(each["id"]): each for each in annotation["segments_info"]}
    void, numbered = reading.spec.ignore_index, bool(reading.instances)
    foreign = [each for each in found.tolist() if each and each not in segments]
    if foreign or (0 in found and void is None):
        rule = "to have colours of its segments only"
        what = f"ids {some(map(str, foreign))}" if foreign else "uncovered pixels"
        remedy = "" if foreign else "Set data.ignore_index=255, which they then have."
        raise DataError(expected(show(path), "picture", rule, what, remedy))
    values = {0: 0 if void is None else void}
    for number, (segment, each) in enumerate(segments.items(), 1):
        value = labels.get(int(each["category_id"]), number + (void is not None and number >= void))
        values[segment] = void if numbered and each.get("iscrowd") and void is not None else value
    drawn = np.array([values[each] for each in found.tolist()], np.int64)[places].reshape(shape)
    return drawn if numbered else drawn.astype(np.uint16)


def _picture(owner: Path, annotation: Mapping[str, Any]) -> Path:
    """Beside the JSON, in the folder of its name."""
    return owner.with_suffix("") / Path(annotation["file_name"]).name


def read_masks(path: Path, segmentations: list[Any], shape: tuple[int, int]) -> Iterator[NDArray[np.bool_]]:
    """Masks of polygons, or of run lengths as text or list, of the whole image, one after another.

    Raises
    ------
    DataError, ValueError, KeyError, TypeError
        One is damaged, too long or of another size.
    """
    drawn = [_polygons(path, each, shape) for each in segmentations if isinstance(each, list)]
    if drawn:
        size = sum(one.nbytes for polygons in drawn for one in polygons)
        filled = iter(read_apart(path, _fill, drawn, shape, size=size, max_pixels=math.prod(shape)))
    yield from (_mask(next(filled) if isinstance(each, list) else each, shape) for each in segmentations)


def _polygons(path: Path, polygons: list[Any], shape: tuple[int, int]) -> list[NDArray[np.float64]]:
    """Polygons as (x, y, x, y, ...), their corners and length checked.

    Raises
    ------
    DataError, ValueError
        One has too few corners, one outside of the image, or an endless outline.
    """
    found = [np.array(one, np.float64) for one in polygons]
    if not found or any(one.ndim != 1 or len(one) < 6 or len(one) % 2 for one in found):
        raise ValueError("a polygon of fewer than three finite corners")
    for one in found:
        corners = one.reshape(-1, 2)
        if not np.isfinite(one).all():
            raise ValueError("a polygon of fewer than three finite corners")
        check_corners(path, corners, shape)
    return found


def _fill(drawn: list[list[NDArray[np.float64]]], shape: tuple[int, int]) -> list[dict[str, Any]]:
    """Run lengths of objects of several polygons each, in the reader process."""
    mask = need("pycocotools.mask", "coco", "polygons of COCO")
    merged = [mask.merge(mask.frPyObjects([one.tolist() for one in polygons], *shape)) for polygons in drawn]
    return [{"size": each["size"], "counts": each["counts"].decode()} for each in merged]


def _mask(runs: Mapping[str, Any], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """The mask of run lengths, whose sum is one of Python's: that of int64 may wrap around to any number."""
    counts = expand_runs(runs["counts"]) if isinstance(runs["counts"], str) else runs["counts"]
    whole = all(type(each) is int and each >= 0 for each in counts)
    if not whole or tuple(runs["size"]) != shape or sum(counts) != math.prod(shape):
        raise ValueError(f"run lengths of another size than {shape}")
    return np.repeat(np.arange(len(counts)) % 2 == 1, counts).reshape(shape[::-1]).T


def expand_runs(text: str) -> list[int]:
    """Run lengths from COCO's text: the inverse of `segmeter.export.objects.compress_runs`.

    Raises
    ------
    ValueError
        It holds other characters, a number of more digits than any that int64 holds, or ends within a number.

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
