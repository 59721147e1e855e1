"""COCO instance or panoptic JSON -> the label map of each image; polygons need pycocotools.

One file holds many images. ``annotations.json/000123`` names the image called 000123 in it, and for a multilabel task
``annotations.json/car/000123`` the plane of one class.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, some
from segmeter.classes import ClassSpec
from segmeter.data.files.formats.coco_masks import read_masks
from segmeter.data.files.formats.drawn import (
    Drawn,
    Overlap,
    check_object_classes,
    draw_objects,
    find_labels,
)
from segmeter.data.files.images import read_image
from segmeter.data.files.npy import check_pixels
from segmeter.data.files.sniff import check_json, damaged, show, stem_of
from segmeter.errors import DataError


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
    owner, name = _parts(path)
    found = open_coco(owner)
    image = found.images[name]
    drawn = found.annotations.get(image["id"], [])
    digest = hashlib.sha256(json.dumps([found.categories, image, drawn], sort_keys=True).encode())
    try:
        for each in drawn:
            if "segments_info" in each:
                digest.update(_picture(owner, each).read_bytes())
    except (OSError, LookupError, TypeError) as error:
        raise damaged(path, error) from error
    return digest.hexdigest()


def read_coco(
    path: Path, *, spec: ClassSpec, label_map: Mapping[str, int], numbered: bool, overlap: Overlap, max_pixels: int
) -> NDArray[Any]:
    """Draw the objects of one image.

    Classes go by the names of categories, or by their ids in a label map. What no object covers is class 0 in an
    instance file, and ignored in a panoptic one.

    Parameters
    ----------
    path
        Into the file, as `coco_images` gives it.
    spec, numbered, overlap
        As for `draw_objects`.
    label_map
        From the id of a category to a label; empty goes by names.
    max_pixels
        The most pixels of an image.

    Returns
    -------
    (H, W): labels, numbers of objects, or 0 and 1 for one class of a multilabel task.

    Raises
    ------
    DataError
        A category is no class, an object is damaged or of another size, or objects overlap.
    """
    owner, name = _parts(path)
    found = open_coco(owner)
    try:
        image = found.images[name]
        shape = (int(image["height"]), int(image["width"]))
        check_pixels(path, shape, np.dtype(np.uint8), max_pixels)
        annotations = found.annotations.get(image["id"], [])
        labels = _labels(path, found, annotations, spec, label_map, numbered)
        if any("segments_info" in each for each in annotations):
            labels |= dict.fromkeys(found.stuff, 0) if numbered else {}
            drawn = _panoptic(owner, path, annotations, shape, labels, spec=spec, numbered=numbered)
            return _plane(drawn, path.parent.name, spec) if spec.is_multilabel else drawn
        masks = read_masks(path, [each["segmentation"] for each in annotations], shape)
        objects = (
            Drawn(mask=mask, label=labels.get(each["category_id"], 0), crowd=bool(each.get("iscrowd")))
            for mask, each in zip(masks, annotations, strict=True)
        )
        if not spec.is_multilabel:
            return draw_objects(path, objects, shape, spec=spec, numbered=numbered, overlap=overlap)
        wanted = spec.names.index(path.parent.name)
        plane = np.zeros(shape, np.uint8)
        for each in objects:
            plane[each.mask & (each.label == wanted)] = 1
        return plane
    except DataError:
        raise
    except Exception as error:  # JSON of other tools holds anything, and pycocotools raises many types
        raise damaged(path, error) from error


@lru_cache(maxsize=4)
def _open(path: Path, mtime: int, size: int) -> CocoFile:
    check_json(path, size)
    try:
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
    except DataError:
        raise
    except Exception as error:  # JSON of other tools holds anything
        raise damaged(path, error) from error
    twice = [name for name, found in images.items() if len(found) > 1]
    if twice or not images:
        rule = "to hold images, each with a file name of its own"
        raise DataError(expected(show(path), "images", rule, some(twice) if twice else "none"))
    _check_ids(path, ids, annotations)
    return CocoFile(
        images={name: found[0] for name, found in images.items()},
        annotations=dict(annotations),
        categories=categories,
        stuff=stuff,
    )


def _check_ids(path: Path, ids: Mapping[Any, int], annotated: Iterable[Any]) -> None:
    """Refuse an id of two images, and annotations of none."""
    twice = [repr(each) for each, count in ids.items() if count > 1]
    if twice:
        raise DataError(expected(show(path), "images", "to have an id of its own each", some(twice)))
    foreign = [repr(each) for each in annotated if each not in ids]
    if foreign:
        rule, remedy = "to be the id of an image of the file", "Correct it; 1 and '1' are two ids."
        raise DataError(expected(show(path), "image_id", rule, some(foreign), remedy))


def _parts(path: Path) -> tuple[Path, str]:
    owner = coco_of(path)
    assert owner is not None, "asked for by those who know"
    return owner, path.name


def _labels(
    path: Path,
    found: CocoFile,
    annotations: list[Mapping[str, Any]],
    spec: ClassSpec,
    label_map: Mapping[str, int],
    numbered: bool,
) -> dict[int, int]:
    """The label of each category on the image; numbers of objects need none."""
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
    owner: Path,
    path: Path,
    annotations: list[Mapping[str, Any]],
    shape: tuple[int, int],
    labels: Mapping[int, int],
    *,
    spec: ClassSpec,
    numbered: bool,
) -> NDArray[Any]:
    """Labels, or numbers of the things, of the picture whose colours are ids: red + 256 green + 65536 blue."""
    (annotation,) = annotations
    colours = read_image(_picture(owner, annotation)).astype(np.int64)
    if colours.shape != (*shape, 3):
        raise ValueError(f"a picture of shape {colours.shape}")
    found, places = np.unique(colours @ np.array([1, 256, 65536]), return_inverse=True)
    segments = {int(each["id"]): each for each in annotation["segments_info"]}
    void = spec.ignore_index
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


def _plane(drawn: NDArray[Any], name: str, spec: ClassSpec) -> NDArray[Any]:
    """0 and 1 for one class of a map of labels; void stays void."""
    plane: NDArray[Any] = (drawn == spec.names.index(name)).astype(drawn.dtype)
    if spec.ignore_index is not None:
        plane[drawn == spec.ignore_index] = spec.ignore_index
    return plane


def _picture(owner: Path, annotation: Mapping[str, Any]) -> Path:
    """Beside the JSON, in the folder of its name."""
    return owner.with_suffix("") / Path(annotation["file_name"]).name
