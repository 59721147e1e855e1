"""The layers of a case: its image, and index maps over it, which a page colours and `flatten` makes one picture of.

They have the pixels of the case up to a longest side of `LONGEST`. Larger cases are reduced, so that every structure of
a map stays whole, and say so. A map is stored as a grey PNG. Its entries, such as the classes that occur, are spread
evenly over the grey values: entry i of n has the value i * (255 // (n - 1)). So a page tells them apart even where a
screen's colours shift values by one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.classes import ClassSpec, Colour
from segmeter.errors import InputError
from segmeter.files import fresh_folder, json_bytes, make_folder, remove, safe_id, write_bytes
from segmeter.report.pictures.images import (
    RGB,
    Mask,
    contours,
    display_image,
    encode,
    find_range,
    reduce_image,
    reduce_ranks,
    reduced_shape,
)
from segmeter.report.pictures.objects import NO_OBJECTS, Objects, find_kinds

Entry = dict[str, Any]  # of a map: a class, or a name with a colour

FOLDER = "pictures"  # of a run's folder
NOTES = "layers.json"  # of a case's folder
PLANE = "plane-"  # begins the name of a folder of a further plane
QUALITY = 82  # of the image, WebP
LONGEST = 1536  # side of the stored layers, pixels; larger cases also have tiles
TILE = 512  # side of a tile, which has the case's own pixels
MOST_TILES = 48  # of a case: those with the most wrong pixels
SMALL = 320  # side of the maps that a page shows where there is no room for every pixel
MISSED: Colour = (255, 66, 140)
FALSE: Colour = (64, 156, 255)
WRONG: Colour = (255, 196, 0)
MATCHED: Colour = (60, 200, 110)
_OUTLINE: Colour = (255, 255, 255)
_IGNORED: Colour = (128, 128, 128)
_UNKNOWN: Colour = (255, 0, 255)
_MOST_ENTRIES = 254  # of one map; rarer classes are drawn as one
IGNORED = 4  # of the kinds of error, the last
_PLANES = 6  # of a multilabel map: each combination is an entry


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerMap:
    """An index map over the image.

    Parameters
    ----------
    role, file
        "target", "prediction" or "errors", and the name of its file.
    index : (H, W), integer
        The entry of each pixel, or with `planes` one bit for each of these classes.
    entries
        A class, or a name with a colour. ``hidden`` shows nothing, ``absent`` is not in the legend, ``faint`` is more
        transparent, ``strong`` covers the image, and ``hatched`` marks ignored pixels.
    """

    role: str
    file: str
    index: NDArray[Any]
    entries: Sequence[Entry] = ()
    planes: Sequence[int] = ()

    @property
    def size(self) -> int:
        """The number of values that the index can have."""
        return 2 ** len(self.planes) if self.planes else len(self.entries)

    def reduce(self, shape: tuple[int, int], *, background: bool) -> "LayerMap":
        """Reduce the map by the most important entry in each block of pixels: outlines, then what is rare.

        `background` says whether class 0 is one, which yields to any other class.
        """
        if self.index.shape == shape:
            return self
        if self.planes:
            return replace(self, index=reduce_ranks(self.index, shape, np.bitwise_or))
        counts = np.bincount(self.index.ravel(), minlength=self.size)

        def importance(i: int) -> tuple[bool, bool, bool, bool, int]:
            entry = self.entries[i]
            shown, solid = not entry.get("hidden"), not (entry.get("hatched") or entry.get("faint"))
            return (
                shown,
                not (background and entry.get("class") == 0),
                solid,
                bool(entry.get("strong")),
                -int(counts[i]),
            )

        order = np.array(sorted(range(self.size), key=importance), np.uint8)
        ranks = np.argsort(order).astype(np.uint8)
        return replace(self, index=order[reduce_ranks(ranks[self.index], shape)])


@dataclass(frozen=True, kw_only=True, eq=False)
class Layers:
    """The layers of a case. `facts` are further plain values, such as the slice of a volume, or ``at`` of a tile."""

    image: RGB
    maps: Sequence[LayerMap]
    spec: ClassSpec
    facts: Mapping[str, Any]

    def reduce(self, edge: int) -> "Layers":
        """The same with a longest side of at most `edge` pixels."""
        shape = reduced_shape(self.image.shape, edge)
        maps = [each.reduce(shape, background=self.spec.has_background) for each in self.maps]
        return replace(self, image=reduce_image(self.image, shape), maps=maps)

    def cut(self, wrong: Mask | None) -> "list[Layers]":
        """Cut layers larger than an overview into tiles, those with the most `wrong` pixels (H, W) first."""
        height, width = self.image.shape[:2]
        if max(height, width) <= LONGEST:
            return []
        windows = [
            (slice(top, top + TILE), slice(left, left + TILE))
            for top in range(0, height, TILE)
            for left in range(0, width, TILE)
        ]
        if wrong is not None:
            windows.sort(key=lambda window: -int(wrong[window].sum()))
        return [
            replace(
                self,
                image=self.image[window],
                maps=[replace(each, index=each.index[window]) for each in self.maps],
                facts={"at": (window[0].start, window[1].start)},
            )
            for window in windows[:MOST_TILES]
        ]

    @property
    def has_small(self) -> bool:
        """Whether there are also smaller maps; a tile has none."""
        return max(self.image.shape) > SMALL and "at" not in self.facts

    @property
    def notes(self) -> dict[str, Any]:
        """The plain values that a page needs in addition to the files.

        ``size`` (rows, columns) of the case and ``shown`` of its layers; ``range``, between which a dim image is worth
        stretching; ``task``; ``classes``: name and colour of those that occur, by number; ``maps``: ``role``, ``file``
        and ``entries`` or ``planes`` of each; and the facts.
        """
        found = {entry["class"] for each in self.maps for entry in each.entries if "class" in entry}
        found |= {k for each in self.maps for k in each.planes}
        maps = [
            {"role": each.role, "file": each.file}
            | ({"small": f"small-{each.file}"} if self.has_small else {})
            | ({"planes": list(each.planes)} if each.planes else {"entries": list(each.entries)})
            for each in self.maps
        ]
        classes = {str(k): {"name": self.spec.names[k], "colour": self.spec.colours[k]} for k in sorted(found)}
        shown: dict[str, Any] = {"shown": self.image.shape[:2], "range": find_range(self.image)}
        shown |= {"task": self.spec.task, "classes": classes, "maps": maps}
        return shown | dict(self.facts)

    @property
    def files(self) -> dict[str, bytes]:
        """Contents by file name: ``image.webp``, a grey PNG of each map, and smaller ones beside large maps."""
        files = {"image.webp": encode(self.image, "WEBP", quality=QUALITY, method=2)}
        found = {each.file: each for each in self.maps}
        if self.has_small:
            found |= {f"small-{each.file}": each for each in self.reduce(SMALL).maps}
        for name, each in found.items():
            spread = each.index * np.uint8(255 // max(1, each.size - 1))
            files[name] = encode(spread, "PNG", compress_level=6)
        return files


def draw_layers(
    image: NDArray[Any],
    target: NDArray[Any] | None,
    labels: NDArray[Any],
    spec: ClassSpec,
    *,
    edge: int | None = None,
    errors: NDArray[np.uint8] | None = None,
    objects: Objects = NO_OBJECTS,
    notes: Mapping[str, Any] | None = None,
) -> Layers:
    """Make the layers of a case.

    Parameters
    ----------
    image
        (H, W, C) uint8, uint16 or float; see `display_image`.
    target, labels
        (H, W) integer; multilabel (K, H, W) in {0, 1}. `target` is None where there is no reference.
    edge
        Longest side, pixels: larger cases are reduced. Nothing is enlarged.
    errors : (H, W), uint8
        The errors of a case whose maps are reduced, as `classify_errors` finds them; None: find them in the maps.
    objects
        Of maps (H, W): each object gets an outline. Where both sides are known, the errors are those of objects.
    notes
        Further facts of the picture, such as the slice of a volume; plain values.

    Raises
    ------
    InputError
        The shapes do not go together.
    """
    _check_shapes(image, target, labels)
    maps = _label_maps("prediction", labels, spec)
    if target is not None:
        maps += _label_maps("target", target, spec)
    if target is not None and target.ndim == 2 and objects.matched:
        maps += _object_maps(objects, target, labels, spec)
    else:
        sides = {"target": objects.target, "prediction": objects.prediction}
        maps += [_outlines(role, [("object", _OUTLINE, each)]) for role, each in sides.items() if each is not None]
        if target is not None:
            maps.append(error_map(classify_errors(target, labels, spec) if errors is None else errors, spec))
    facts = {"size": list(image.shape[:2])} | dict(notes or {})
    layers = Layers(image=display_image(image), maps=maps, spec=spec, facts=facts)
    return layers if edge is None else layers.reduce(edge)


def layers_path(folder: Path, case_id: str) -> Path:
    """Return the folder of a case's layers, below a run's folder."""
    return folder / FOLDER / safe_id(case_id)


def write_layers(
    folder: Path, case_id: str, layers: Layers, *, tiles: Sequence[Layers] = (), planes: Sequence[Layers] = ()
) -> Path:
    """Write a case's layers into a folder of its own, which appears complete or not at all; return it.

    Tiles get the folders ``tile-0``, ``tile-1`` and so on, and further planes of a volume ``plane-00`` and so on.
    """
    place = layers_path(folder, case_id)
    if place.exists():
        remove(place)
    with fresh_folder(place) as fresh:
        parts = {"": layers} | {f"tile-{number}": tile for number, tile in enumerate(tiles)}
        parts |= {f"{PLANE}{number:02d}": plane for number, plane in enumerate(planes)}
        for below, each in parts.items():
            make_folder(fresh / below)
            for name, content in each.files.items():
                write_bytes(fresh / below / name, content)
            write_bytes(fresh / below / NOTES, json_bytes({"case": clean(case_id)} | each.notes))
    return place


def _check_shapes(image: NDArray[Any], target: NDArray[Any] | None, labels: NDArray[Any]) -> None:
    where = "draw_layers"
    if image.ndim != 3 or not image.size:
        raise InputError(expected(where, "image", "(H, W, C)", image.shape))
    if labels.ndim not in (2, 3) or labels.shape[-2:] != image.shape[:2]:
        raise InputError(expected(where, "labels", f"of the image's size {image.shape[:2]}", labels.shape))
    if target is not None and target.shape != labels.shape:
        raise InputError(expected(where, "target", f"of the labels' shape {labels.shape}", target.shape))


def clean(text: str) -> str:
    """Replace half surrogates, which UTF-8 can't encode."""
    return text.encode("utf-8", "replace").decode()


def _ignored(labels: NDArray[Any], spec: ClassSpec) -> Mask:
    """Find the pixels (H, W) with the ignored value; of planes, in all of them."""
    mask = ~spec.valid(labels)
    return np.asarray(mask.all(axis=0) if labels.ndim == 3 else mask)


def _label_maps(role: str, labels: NDArray[Any], spec: ClassSpec) -> list[LayerMap]:
    if labels.ndim == 3:
        return _plane_maps(role, labels, spec)
    values, counts = np.unique(labels, return_counts=True)
    kept = np.sort(values[np.argsort(-counts, kind="stable")[:_MOST_ENTRIES]])
    entries = [_class_entry(int(value), spec) for value in kept]
    index = np.searchsorted(kept, labels).clip(max=len(kept) - 1).astype(np.uint8)
    rare = kept[index] != labels
    if rare.any():
        entries.append({"name": "classes with fewer pixels", "colour": _UNKNOWN})
        index[rare] = len(entries) - 1
    return [LayerMap(role=role, file=f"{role}.png", index=index, entries=entries)]


def _class_entry(value: int, spec: ClassSpec) -> Entry:
    if value < spec.num_classes:
        return {"class": value}
    if value == spec.ignore_index:
        return {"name": "ignored", "colour": _IGNORED, "hatched": True}
    return {"name": f"value {value}, no class", "colour": _UNKNOWN}


def _plane_maps(role: str, labels: NDArray[Any], spec: ClassSpec) -> list[LayerMap]:
    """Make maps with one bit per class that occurs."""
    present = [k for k in range(len(labels)) if (labels[k] == 1).any()]
    maps = []
    for start in range(0, len(present), _PLANES):
        planes = present[start : start + _PLANES]
        bits = np.asarray(sum((labels[k] == 1).astype(np.uint8) << bit for bit, k in enumerate(planes)))
        name = f"{role}.png" if not start else f"{role}-{start // _PLANES + 1}.png"
        maps.append(LayerMap(role=role, file=name, index=bits, planes=planes))
    void = _ignored(labels, spec)
    return [*maps, _kind_map(role, f"{role}-ignored.png", [_void(void)])] if void.any() else maps


_Kind = tuple[Entry, Mask]


def _kind_map(role: str, name: str, kinds: Sequence[_Kind]) -> LayerMap:
    """Make a map of masks (H, W); the last mask wins where they overlap, and pixels outside all are hidden."""
    index = np.zeros(kinds[0][1].shape, np.uint8)
    for number, (_, mask) in enumerate(kinds, start=1):
        index[mask] = number
    return LayerMap(role=role, file=name, index=index, entries=[{"hidden": True}, *(entry for entry, _ in kinds)])


def _void(mask: Mask) -> _Kind:
    return {"name": "ignored", "colour": _IGNORED, "hatched": True} | ({} if mask.any() else {"absent": True}), mask


def classify_errors(target: NDArray[Any], labels: NDArray[Any], spec: ClassSpec) -> NDArray[np.uint8]:
    """Find the kind of error of each pixel (H, W).

    Returns
    -------
    (H, W) uint8
        0: right; 1: missed, only the target has a class; 2: false, only the prediction has one; 3: another class, or of
        planes one missed and another false; 4: ignored.
    """
    differ = (target != labels) & spec.valid(target)
    missed, false = differ & (labels == 0), differ & (target == 0)
    if target.ndim == 3:
        missed, false = missed.any(axis=0), false.any(axis=0)
        found = missed + np.uint8(2) * false
    elif spec.has_background:
        found = np.where(missed, 1, np.where(false, 2, 3 * differ))
    else:
        found = 3 * differ
    return np.where(_ignored(target, spec), np.uint8(IGNORED), found.astype(np.uint8))


def error_map(errors: NDArray[np.uint8], spec: ClassSpec) -> LayerMap:
    """Make the map of errors, as `classify_errors` finds them."""
    first = spec.names[0]
    names = [f"missed: predicted as {first}", f"false: {first} in the target", "another class"]
    if spec.is_multilabel:
        names = ["missed", "false", "missed and false"]
    looks = zip((*names, "ignored"), (MISSED, FALSE, WRONG, _IGNORED), strict=True)
    entries: list[Entry] = [{"name": name, "colour": colour} for name, colour in looks]
    entries[-1]["hatched"] = True
    for kind, entry in enumerate(entries, start=1):
        entry |= {} if (errors == kind).any() else {"absent": True}
    return LayerMap(role="errors", file="errors.png", index=errors, entries=[{"hidden": True}, *entries])


def _object_maps(objects: Objects, target: NDArray[Any], labels: NDArray[Any], spec: ClassSpec) -> list[LayerMap]:
    """Make outlines of the objects of both sides, and an error map with all of them filled."""
    kinds = find_kinds(objects, target, labels, spec)
    where = "" if objects.kinds is None else " in the volume"
    words = (f"matched (IoU above {objects.threshold:g}{where})", "missed", "false")
    matched, missed, false = (f"{count} {name}" for count, name in zip(kinds.counts(), words, strict=True))
    sides = {
        "target": [(matched, MATCHED, kinds.found), (missed, MISSED, kinds.missed)],
        "prediction": [(matched, MATCHED, kinds.matched), (false, FALSE, kinds.spurious)],
    }
    filled, edges = list[_Kind](), list[_Kind]()
    for name, colour, numbers in (sides["prediction"][0], sides["target"][1], sides["prediction"][1]):
        filled.append(({"name": name, "colour": colour, "faint": True}, numbers > 0))
        edges.append(({"name": name, "colour": colour, "strong": True}, (numbers > 0) & contours(numbers)))
    void = _void(_ignored(target, spec))
    outlines = [_outlines(role, drawn) for role, drawn in sides.items()]
    return [*outlines, _kind_map("errors", "errors.png", [*filled, void, *edges])]


def _outlines(role: str, kinds: Sequence[tuple[str, Colour, NDArray[Any]]]) -> LayerMap:
    """Make a map of the contour of each object, also where two touch."""
    first, last = kinds[0][2], kinds[-1][2]
    edge = contours(np.where(last > 0, last, first))
    drawn: list[_Kind] = [
        ({"name": name, "colour": colour, "strong": True}, (each > 0) & edge) for name, colour, each in kinds
    ]
    return _kind_map(role, f"{role}-objects.png", drawn)
