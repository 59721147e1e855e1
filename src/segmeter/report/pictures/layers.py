"""Makes the layers of a case: its image and index maps over it, which a page colours and `flatten` merges.

Layers have the case's own pixels up to a longest side of `LONGEST`. Larger cases are reduced so that every structure of
a map stays whole, and their notes say so. A map is stored as a grey PNG. Its entries, such as the classes that occur,
are spread evenly over the grey values: entry i of n has the value i * (255 // (n - 1)). So a page can tell them apart
even where a screen's colours shift values by one.

This module also reads cases larger than memory by lines: reduced for an overview, and in full where most is wrong.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.files.array import LazyArray
from segmeter.errors import InputError
from segmeter.files import fresh_folder, json_bytes, make_folder, remove, safe_id, write_bytes
from segmeter.report.figures import clean
from segmeter.report.pictures.maps import (
    OUTLINE,
    RGB,
    LayerMap,
    classify_errors,
    display_image,
    display_ranges,
    encode,
    error_map,
    find_range,
    find_wrong,
    label_maps,
    object_maps,
    outlines,
    reduce_by,
    reduce_ranks,
)
from segmeter.report.pictures.objects import NO_OBJECTS, Objects

FOLDER = "pictures"  # The folder of all layers in a run's folder.
NOTES = "layers.json"  # The file of notes in a case's folder.
PLANE = "plane-"  # Begins the name of the folder of a further plane.
QUALITY = 82  # WebP quality of the image.
LONGEST = 1536  # Longest side of the stored layers, pixels. Larger cases also have tiles.
TILE = 512  # Side of a tile, which has the case's own pixels.
MOST_TILES = 48  # A case gets at most this many tiles: those with the most wrong pixels.
SMALL = 320  # Longest side of the maps that a page shows where there is no room for every pixel.


@dataclass(frozen=True, kw_only=True, eq=False)
class Layers:
    """The layers of a case. `facts` are further plain values, such as the slice of a volume, or ``at`` of a tile."""

    image: RGB
    maps: Sequence[LayerMap]
    spec: ClassSpec
    facts: Mapping[str, Any]

    def reduce(self, edge: int) -> "Layers":
        """Return the layers with a longest side of at most `edge` pixels."""
        height, width = self.image.shape[:2]
        share = min(1.0, edge / max(height, width))
        shape = max(1, round(height * share)), max(1, round(width * share))
        if shape == (height, width):
            return self
        image = Image.fromarray(self.image).resize(shape[::-1], Image.Resampling.BOX)
        maps = [layer.reduce(shape, background=self.spec.has_background) for layer in self.maps]
        return replace(self, image=np.asarray(image), maps=maps)

    def cut(self, errors: NDArray[np.uint8] | None) -> "list[Layers]":
        """Cut layers larger than an overview into tiles, those with the most `errors` (see `classify_errors`) first."""
        height, width = self.image.shape[:2]
        if max(height, width) <= LONGEST:
            return []
        corners = [*itertools.product(range(0, height, TILE), range(0, width, TILE))]
        windows = {(top, left): (slice(top, top + TILE), slice(left, left + TILE)) for top, left in corners}
        if errors is not None:
            corners.sort(key=lambda corner: -int(find_wrong(errors[windows[corner]]).sum()))
        tiles = []
        for corner in corners[:MOST_TILES]:
            window = windows[corner]
            maps = [replace(layer, index=layer.index[window]) for layer in self.maps]
            tiles.append(replace(self, image=self.image[window], maps=maps, facts={"at": corner}))
        return tiles

    @property
    def notes(self) -> dict[str, Any]:
        """The plain values that a page needs in addition to the files.

        ``size`` is the (height, width) of the case, and ``shown`` that of its layers. ``range`` are the values between
        which a dim image is worth stretching. ``classes`` has the name and colour of the classes that occur, by number,
        and ``maps`` the ``role``, ``file`` and ``entries`` of each map. ``task`` and the facts follow.
        """
        occurring, maps = set[int](), []
        for layer in self.maps:
            occurring |= {entry["class"] for entry in layer.entries if "class" in entry}
            small = {"small": f"small-{layer.file}"} if max(self.image.shape) > SMALL and "at" not in self.facts else {}
            maps.append({"role": layer.role, "file": layer.file, **small, "entries": list(layer.entries)})
        classes = {str(k): {"name": self.spec.names[k], "colour": self.spec.colours[k]} for k in sorted(occurring)}
        notes: dict[str, Any] = {"shown": self.image.shape[:2], "range": find_range(self.image)}
        notes |= {"task": self.spec.task, "classes": classes, "maps": maps}
        return notes | dict(self.facts)

    @property
    def files(self) -> dict[str, bytes]:
        """Contents by file name: ``image.webp``, a grey PNG of each map, and smaller ones beside large maps."""
        files = {"image.webp": encode(self.image, "WEBP", quality=QUALITY, method=2)}
        maps = {layer.file: layer for layer in self.maps}
        if max(self.image.shape) > SMALL and "at" not in self.facts:  # tiles are only shown large
            maps |= {f"small-{layer.file}": layer for layer in self.reduce(SMALL).maps}
        for name, layer in maps.items():
            spread = layer.index * np.uint8(255 // max(1, len(layer.entries) - 1))
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
        Longest side, pixels. Larger cases are reduced; nothing is enlarged.
    errors : (H, W), uint8
        The errors of a case whose maps are reduced, as `classify_errors` finds them; None: find them in the maps.
    objects
        The objects of maps (H, W). Each gets an outline. If both sides are known, the errors are those of objects.
    notes
        Further facts of the picture, such as the slice of a volume; plain values.

    Raises
    ------
    InputError
        The shapes do not go together.
    """
    shapes = [array.shape for array in (target, labels) if array is not None]
    if image.ndim != 3 or not image.size or any(shape[-2:] != image.shape[:2] for shape in shapes):
        given = f"{image.shape} and {shapes}"
        raise InputError(expected("draw_layers", "image", "(H, W, C), of the size of its maps", given))
    maps = label_maps("prediction", labels, spec)
    if target is not None:
        maps += label_maps("target", target, spec)
    if target is not None and target.ndim == 2 and objects.matched:
        maps += object_maps(objects, target, labels, spec)
    else:
        sides = {"target": objects.target, "prediction": objects.prediction}
        maps += [outlines(role, [("object", OUTLINE, side)]) for role, side in sides.items() if side is not None]
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
    case_folder = layers_path(folder, case_id)
    if case_folder.exists():
        remove(case_folder)
    with fresh_folder(case_folder) as fresh:
        parts = {"": layers} | {f"tile-{number}": tile for number, tile in enumerate(tiles)}
        parts |= {f"{PLANE}{number:02d}": plane for number, plane in enumerate(planes)}
        for subfolder, part in parts.items():
            make_folder(fresh / subfolder)
            for name, content in part.files.items():
                write_bytes(fresh / subfolder / name, content)
            write_bytes(fresh / subfolder / NOTES, json_bytes({"case": clean(case_id)} | part.notes))
    return case_folder


Maps = tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any]]
"""Image, target and labels."""
Block = tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any], NDArray[Any] | None]
"""Reduced image (C, h, w), target, labels and errors."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnCase:
    """The maps of a case, read from the files of a finished run.

    Parameters
    ----------
    image : (H, W, C), or (D, H, W, C)
    target, labels : (H, W) or (D, H, W); (K, H, W) for multilabel; integer
        `target` is None where a run has no references.
    objects
        The objects of both sides.
    files
        The files that they come from, by "image", "target" and "prediction".
    size, errors, tiles, wrong_pixels, worst
        Only for a case larger than memory, whose maps are an overview: its height and width; the kind of error in each
        block of pixels (h, w), as `classify_errors` finds it; tiles with the case's own pixels, those with the most
        errors first; the number of wrong pixels; and the corner and the maps of the first tile.
    """

    image: NDArray[Any]
    target: NDArray[Any] | None
    labels: NDArray[Any]
    objects: Objects = NO_OBJECTS
    files: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    size: tuple[int, int] | None = None
    errors: NDArray[np.uint8] | None = None
    tiles: Sequence[Layers] = ()
    wrong_pixels: int | None = None
    worst: tuple[tuple[int, int], Maps] | None = None


def read_large(
    image: LazyArray, target: LazyArray | None, labels: LazyArray, spec: ClassSpec, files: Mapping[str, Sequence[Path]]
) -> DrawnCase:
    """Read a case larger than memory: all lines once for the overview, and the lines of the tiles again."""
    height, width = image.shape[:2]
    step = math.ceil(max(height, width) / LONGEST)
    edge = step * max(1, TILE // step)

    def read_blocks(top: int, lefts: Iterable[int]) -> Iterator[tuple[tuple[int, int], Maps]]:
        stop = min(height, top + edge)
        image_lines = image.read(top, stop)
        target_lines = None if target is None else target.read(top, stop)
        label_lines = labels.read(top, stop)
        for left in lefts:
            columns = slice(left, left + edge)
            its_target = None if target_lines is None else np.array(target_lines[..., columns])
            yield (top, left), (np.array(image_lines[:, columns]), its_target, np.array(label_lines[..., columns]))

    grid = list[list[Block]]()
    wrong = dict[tuple[int, int], int]()  # number of wrong pixels by corner
    for top in range(0, height, edge):
        grid.append([])
        for corner, maps in read_blocks(top, range(0, width, edge)):
            block, wrong[corner] = _reduce(maps, step, spec)
            grid[-1].append(block)
    joined: list[Any] = [
        None if grid[0][0][k] is None else np.block([[block[k] for block in row] for row in grid]) for k in range(4)
    ]
    overview, overview_target, overview_labels, errors = np.moveaxis(joined[0], 0, -1), *joined[1:]
    corners = sorted(wrong, key=lambda corner: (-wrong[corner], corner))[:MOST_TILES]
    blocks = dict[tuple[int, int], Maps]()
    for top in sorted({top for top, _ in corners}):
        blocks |= dict(read_blocks(top, [left for its_top, left in corners if its_top == top]))
    ranges, tiles = display_ranges(overview), []
    for corner in corners:
        pixels, its_target, its_labels = blocks[corner]
        tiles.append(draw_layers(display_image(pixels, ranges), its_target, its_labels, spec, notes={"at": corner}))
    return DrawnCase(
        image=overview,
        target=overview_target,
        labels=overview_labels,
        files=files,
        size=(height, width),
        errors=errors,
        tiles=tiles,
        wrong_pixels=sum(wrong.values()),
        worst=(corners[0], blocks[corners[0]]),
    )


def _reduce(maps: Maps, step: int, spec: ClassSpec) -> tuple[Block, int]:
    """Reduce the image of a block to means, and its target, labels and errors to the most important values.

    Also count the wrong pixels. The channels of the reduced image come first.
    """
    image, target, labels = maps
    shape = math.ceil(image.shape[0] / step), math.ceil(image.shape[1] / step)
    sums = reduce_ranks(image.astype(np.float64), shape, np.add)
    sizes = reduce_ranks(np.ones((*image.shape[:2], 1)), shape, np.add)
    mean = np.moveaxis((sums / sizes).astype(image.dtype), -1, 0)
    reduced_labels = reduce_labels(labels, shape, spec)
    if target is None:
        return (mean, None, reduced_labels, None), 0
    errors = classify_errors(target, labels, spec)
    reduced_errors = error_map(errors, spec).reduce(shape, background=False).index
    block = mean, reduce_labels(target, shape, spec), reduced_labels, reduced_errors
    return block, int(find_wrong(errors).sum())


def reduce_labels(labels: NDArray[Any], shape: tuple[int, int], spec: ClassSpec) -> NDArray[Any]:
    """Reduce a label map (H, W), or planes (K, H, W), by the most important value of each block.

    Background yields to ignored pixels, ignored pixels to any class, and a frequent class to a rare one. So a line of
    one pixel's width stays whole.

    Examples
    --------
    >>> spec = ClassSpec(task="binary", names=("wall", "crack"), colours=((0, 0, 0), (9, 9, 9)))
    >>> reduce_labels(np.eye(4, dtype=np.uint8), (2, 2), spec)
    array([[1, 0],
           [0, 1]], dtype=uint8)
    """
    background = 0 if labels.ndim == 3 or spec.has_background else None

    def importance(value: int) -> tuple[bool, ...]:
        return value != background, not spec.is_ignored(value)

    if labels.ndim == 3:
        return np.stack([reduce_by(importance, plane, shape) for plane in labels])
    return reduce_by(importance, labels, shape)
