"""One case -> the layers of its picture: the image, and indexed maps that a page colours as its reader wants.

A map is a grey PNG. Its entries, such as the classes that occur, are spread evenly over the grey values: entry i of n
has the value i * (255 // (n - 1)), so that a page tells them apart even where a screen's colours shift values by one.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from segmeter.classes import ClassSpec, Colour
from segmeter.files import fresh_folder, json_bytes, remove, safe_id, write_bytes
from segmeter.records import Form, read_json
from segmeter.report.pictures.objects import NO_OBJECTS, Objects, find_kinds
from segmeter.report.pictures.overlay import check_shapes, object_names, panel_shape, resize_labels
from segmeter.report.pictures.paint import (
    ERROR_COLOURS,
    OBJECT_COLOURS,
    contours,
    display_image,
    error_kinds,
    ignored,
    resize,
)

FOLDER = "pictures"  # of a run's folder
NOTES = "layers.json"  # of a case's folder
QUALITY = 82  # of the image, WebP
_MOST_ENTRIES = 254  # of one map; rarer classes are drawn as one
_PLANES = 6  # of a multilabel map: each combination is an entry
_IGNORED: Colour = (128, 128, 128)
_UNKNOWN: Colour = (255, 0, 255)

Entry = Mapping[str, Any]


class _Map(Form):
    """One map of a picture's notes; its file lies beside them."""

    file: Annotated[str, Field(pattern=r"^\w[\w.-]*$")]
    role: str


class _Notes(Form):
    """What is noted of a picture."""

    case: str
    shown: list[int]
    maps: list[_Map]


@dataclass(frozen=True, kw_only=True)
class Layers:
    """A case as a page shows it.

    Parameters
    ----------
    files
        Contents by file name: ``image.webp``, ``target.png``, ``prediction.png``, ``errors.png``, further planes, and
        outlines of objects, ``target-objects.png`` and ``prediction-objects.png``.
    notes
        ``size`` (rows, columns) of the case and ``shown`` of its layers; ``task``; ``classes``: name and colour of
        those that occur, by number; ``maps``: for each map its ``role`` (target, prediction, errors), ``file`` and
        ``entries`` (class, or name and colour), or ``planes`` for multilabel: the class of each bit; and what the
        caller noted, such as the slice.
    """

    files: Mapping[str, bytes]
    notes: Mapping[str, Any] = field(default_factory=dict)


def draw_layers(
    image: NDArray[Any],
    target: NDArray[Any] | None,
    labels: NDArray[Any],
    spec: ClassSpec,
    *,
    panel: int,
    objects: Objects = NO_OBJECTS,
    notes: Mapping[str, Any] | None = None,
) -> Layers:
    """Make the layers of a case; arrays as `draw_overlay` takes them.

    Parameters
    ----------
    panel
        Longest side, pixels: larger cases are reduced, maps to the value at each pixel's centre. Nothing is enlarged.
    notes
        Further facts of the picture, such as the slice of a volume; plain values.
    """
    check_shapes("draw_layers", image, target, labels)
    size = (int(image.shape[0]), int(image.shape[1]))
    shape = panel_shape(size, panel) if max(size) > panel else size
    found = resize_labels(labels, shape)
    files = {"image.webp": _webp(resize(display_image(image), shape, smooth=True))}
    maps = _label_maps("prediction", found, spec, files)
    if target is not None:
        wanted = resize_labels(target, shape)
        maps += _label_maps("target", wanted, spec, files)
        if objects.matched and target.ndim == 2:
            maps += _object_maps(objects, target, labels, spec, shape, files)
        else:
            maps.append(_error_map(wanted, found, spec, files))
    facts = {"size": size, "shown": shape, "task": spec.task, "classes": _classes(maps, spec), "maps": maps}
    return Layers(files=files, notes=facts | dict(notes or {}))


def file_names(files: Mapping[str, Sequence[Path]]) -> dict[str, list[str]]:
    """Names of a case's files by role, as the note ``files``; of several with their folders, which say the class."""
    return {
        role: [_clean(f"{path.parent.name}/{path.name}" if len(paths) > 1 else path.name) for path in paths]
        for role, paths in files.items()
        if paths
    }


def layers_path(folder: Path, case_id: str) -> Path:
    """Where the layers of a case are, below a run's folder."""
    return folder / FOLDER / safe_id(case_id)


def write_layers(folder: Path, case_id: str, layers: Layers) -> Path:
    """Write a case's layers into a folder of its own, which appears complete or not at all; returns it."""
    place = layers_path(folder, case_id)
    if place.exists():
        remove(place)
    with fresh_folder(place) as fresh:
        for name, content in layers.files.items():
            write_bytes(fresh / name, content)
        write_bytes(fresh / NOTES, json_bytes({"case": _clean(case_id)} | dict(layers.notes)))
    return place


def read_notes(place: Path) -> dict[str, Any]:
    """Read what `write_layers` noted in a case's folder, with ``case``, its id.

    Raises
    ------
    InputError
        It is damaged.
    """
    return read_json(place / NOTES, _Notes)


def _clean(text: str) -> str:
    """A text without half surrogates, which no file of UTF-8 holds."""
    return text.encode("utf-8", "replace").decode()


def _classes(maps: Sequence[Entry], spec: ClassSpec) -> dict[str, Entry]:
    entries = (entry["class"] for each in maps for entry in each.get("entries", ()) if "class" in entry)
    planes = (k for each in maps for k in each.get("planes", ()))
    return {str(k): {"name": spec.names[k], "colour": spec.colours[k]} for k in sorted({*entries, *planes})}


def _label_maps(role: str, labels: NDArray[Any], spec: ClassSpec, files: dict[str, bytes]) -> list[Entry]:
    if labels.ndim == 3:
        return _plane_maps(role, labels, spec, files)
    values, counts = np.unique(labels, return_counts=True)
    kept = np.sort(values[np.argsort(-counts, kind="stable")[:_MOST_ENTRIES]])
    entries = [_class_entry(int(value), spec) for value in kept]
    index = np.searchsorted(kept, labels).clip(max=len(kept) - 1)
    rare = kept[index] != labels
    if rare.any():
        entries.append({"name": "classes with fewer pixels", "colour": _UNKNOWN})
        index = np.where(rare, len(entries) - 1, index)
    return [_map(role, f"{role}.png", index, entries, files)]


def _class_entry(value: int, spec: ClassSpec) -> Entry:
    if value < spec.num_classes:
        return {"class": value}
    if value == spec.ignore_index:
        return {"name": "ignored", "colour": _IGNORED}
    return {"name": f"value {value}, no class", "colour": _UNKNOWN}


def _plane_maps(role: str, labels: NDArray[Any], spec: ClassSpec, files: dict[str, bytes]) -> list[Entry]:
    """Maps of which each bit is a class; classes that do not occur have none."""
    present = [k for k in range(len(labels)) if (labels[k] == 1).any()]
    maps: list[Entry] = []
    for start in range(0, len(present), _PLANES):
        planes = present[start : start + _PLANES]
        bits = sum((labels[k] == 1).astype(np.int64) << bit for bit, k in enumerate(planes))
        name = f"{role}.png" if not start else f"{role}-{start // _PLANES + 1}.png"
        files[name] = _png(np.asarray(bits), 2 ** len(planes))
        maps.append({"role": role, "file": name, "planes": planes})
    if ignored(labels, spec).any():
        entries: list[Entry] = [{"hidden": True}, {"name": "ignored", "colour": _IGNORED}]
        maps.append(_map(role, f"{role}-ignored.png", ignored(labels, spec).astype(np.int64), entries, files))
    return maps


def _error_map(target: NDArray[Any], labels: NDArray[Any], spec: ClassSpec, files: dict[str, bytes]) -> Entry:
    names = ("missed", "false", "missed and false")
    if target.ndim == 2:
        first = spec.names[0]
        names = (f"missed: predicted as {first}", f"false: {first} in the target", "another class")
    index = np.zeros(target.shape[-2:], np.int64)
    kinds = list(zip(names, ERROR_COLOURS, error_kinds(target, labels, spec), strict=True))
    kinds.append(("ignored", _IGNORED, ignored(target, spec)))
    found = _kind_map(index, kinds, files)
    for entry, (_, _, mask) in zip(found["entries"][1:], kinds, strict=True):
        entry |= {} if mask.any() else {"absent": True}  # from the legend
    return found


def _object_maps(
    objects: Objects,
    target: NDArray[Any],
    labels: NDArray[Any],
    spec: ClassSpec,
    shape: tuple[int, int],
    files: dict[str, bytes],
) -> list[Entry]:
    """Outlines of the objects of both sides, and all of them filled as errors."""
    kinds = find_kinds(objects, target, labels, spec)
    void = resize(ignored(target, spec), shape, smooth=False)
    matched, missed, false = zip(object_names(kinds, objects), OBJECT_COLOURS, strict=True)
    sides = {
        "target": [(*matched, kinds.found), (*missed, kinds.missed)],
        "prediction": [(*matched, kinds.matched), (*false, kinds.spurious)],
    }
    maps = [_outlines(role, drawn, shape, files) for role, drawn in sides.items()]
    return [*maps, _object_map([*sides["prediction"][:1], sides["target"][1], sides["prediction"][1]], void, files)]


def _outlines(
    role: str, kinds: Sequence[tuple[str, Colour, Any]], shape: tuple[int, int], files: dict[str, bytes]
) -> Entry:
    """The contour of each object, also where two touch."""
    numbers = [resize(each, shape, smooth=False) for _, _, each in kinds]
    edge = contours(np.where(numbers[1] > 0, numbers[1], numbers[0]))
    drawn = [(name, colour, (each > 0) & edge) for (name, colour, _), each in zip(kinds, numbers, strict=True)]
    found = _kind_map(np.zeros(shape, np.int64), drawn, files, role=role, name=f"{role}-objects.png")
    for entry in found["entries"][1:]:
        entry["strong"] = True
    return found


def _object_map(kinds: Sequence[tuple[str, Colour, Any]], void: NDArray[np.bool_], files: dict[str, bytes]) -> Entry:
    """Matched, missed and false objects: each is filled, and its contour is an entry of its own."""
    drawn = [(name, colour, resize(each, void.shape, smooth=False)) for name, colour, each in kinds]
    filled = [(name, colour, each > 0) for name, colour, each in drawn]
    edges = [(name, colour, (each > 0) & contours(each)) for name, colour, each in drawn]
    found = _kind_map(np.zeros(void.shape, np.int64), [*filled, ("ignored", _IGNORED, void), *edges], files)
    for entry in found["entries"][1:4]:
        entry["faint"] = True
    found["entries"][4] |= {} if void.any() else {"absent": True}
    return found


def _kind_map(
    index: NDArray[np.int64],
    kinds: Sequence[tuple[str, Colour, Any]],
    files: dict[str, bytes],
    *,
    role: str = "errors",
    name: str = "errors.png",
) -> Entry:
    for number, (_, _, mask) in enumerate(kinds, start=1):
        index[mask] = number
    named: list[Entry] = [{"name": words, "colour": colour} for words, colour, _ in kinds]
    return _map(role, name, index, [{"hidden": True}, *named], files)


def _map(role: str, name: str, index: NDArray[Any], entries: Sequence[Entry], files: dict[str, bytes]) -> Entry:
    files[name] = _png(index, len(entries))
    return {"role": role, "file": name, "entries": list(entries)}


def _png(index: NDArray[Any], entries: int) -> bytes:
    spread = index * (255 // max(1, entries - 1))
    content = io.BytesIO()
    Image.fromarray(spread.astype(np.uint8)).save(content, "PNG", compress_level=9)
    return content.getvalue()


def _webp(image: NDArray[np.uint8]) -> bytes:
    content = io.BytesIO()
    Image.fromarray(image).save(content, "WEBP", quality=QUALITY, method=2)
    return content.getvalue()
