"""Makes the layers of a case: its image, and index maps over it, which a page colours and `flatten` merges into a
picture.

They have the pixels of the case up to a longest side of `LONGEST`. Larger cases are reduced, so that every structure of
a map stays whole, and say so. A map is stored as a grey PNG. Its entries, such as the classes that occur, are spread
evenly over the grey values: entry i of n has the value i * (255 // (n - 1)). So a page tells them apart even where a
screen's colours shift values by one.

The maps of a case are read here too. One larger than memory is read by lines: reduced, and whole where most is wrong.
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

FOLDER = "pictures"  # of a run's folder
NOTES = "layers.json"  # of a case's folder
PLANE = "plane-"  # begins the name of a folder of a further plane
QUALITY = 82  # of the image, WebP
LONGEST = 1536  # side of the stored layers, pixels; larger cases also have tiles
TILE = 512  # side of a tile, which has the case's own pixels
MOST_TILES = 48  # of a case: those with the most wrong pixels
SMALL = 320  # side of the maps that a page shows where there is no room for every pixel


@dataclass(frozen=True, kw_only=True, eq=False)
class Layers:
    """The layers of a case. `facts` are further plain values, such as the slice of a volume, or ``at`` of a tile."""

    image: RGB
    maps: Sequence[LayerMap]
    spec: ClassSpec
    facts: Mapping[str, Any]

    def reduce(self, edge: int) -> "Layers":
        """Return the same with a longest side of at most `edge` pixels."""
        height, width = self.image.shape[:2]
        share = min(1.0, edge / max(height, width))
        shape = max(1, round(height * share)), max(1, round(width * share))
        if shape == (height, width):
            return self
        image = Image.fromarray(self.image).resize(shape[::-1], Image.Resampling.BOX)
        maps = [each.reduce(shape, background=self.spec.has_background) for each in self.maps]
        return replace(self, image=np.asarray(image), maps=maps)

    def cut(self, errors: NDArray[np.uint8] | None) -> "list[Layers]":
        """Cut layers larger than an overview into tiles, those with the most `errors` first, see `classify_errors`."""
        height, width = self.image.shape[:2]
        if max(height, width) <= LONGEST:
            return []
        corners = [*itertools.product(range(0, height, TILE), range(0, width, TILE))]
        windows = {at: (slice(at[0], at[0] + TILE), slice(at[1], at[1] + TILE)) for at in corners}
        if errors is not None:
            corners.sort(key=lambda at: -int(find_wrong(errors[windows[at]]).sum()))
        tiles = []
        for at in corners[:MOST_TILES]:
            maps = [replace(each, index=each.index[windows[at]]) for each in self.maps]
            tiles.append(replace(self, image=self.image[windows[at]], maps=maps, facts={"at": at}))
        return tiles

    @property
    def notes(self) -> dict[str, Any]:
        """The plain values that a page needs in addition to the files.

        ``size`` (rows, columns) of the case and ``shown`` of its layers; ``range``, between which a dim image is worth
        stretching; ``task``; ``classes``: name and colour of those that occur, by number; ``maps``: ``role``, ``file``
        and ``entries`` of each; and the facts.
        """
        found, maps = set[int](), []
        for each in self.maps:
            found |= {entry["class"] for entry in each.entries if "class" in entry}
            small = {"small": f"small-{each.file}"} if max(self.image.shape) > SMALL and "at" not in self.facts else {}
            maps.append({"role": each.role, "file": each.file, **small, "entries": list(each.entries)})
        classes = {str(k): {"name": self.spec.names[k], "colour": self.spec.colours[k]} for k in sorted(found)}
        shown: dict[str, Any] = {"shown": self.image.shape[:2], "range": find_range(self.image)}
        shown |= {"task": self.spec.task, "classes": classes, "maps": maps}
        return shown | dict(self.facts)

    @property
    def files(self) -> dict[str, bytes]:
        """Contents by file name: ``image.webp``, a grey PNG of each map, and smaller ones beside large maps."""
        files = {"image.webp": encode(self.image, "WEBP", quality=QUALITY, method=2)}
        maps = {each.file: each for each in self.maps}
        if max(self.image.shape) > SMALL and "at" not in self.facts:  # a tile is shown large alone
            maps |= {f"small-{each.file}": each for each in self.reduce(SMALL).maps}
        for name, each in maps.items():
            spread = each.index * np.uint8(255 // max(1, len(each.entries) - 1))
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
    shapes = [each.shape for each in (target, labels) if each is not None]
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
        maps += [outlines(role, [("object", OUTLINE, each)]) for role, each in sides.items() if each is not None]
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


Maps = tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any]]
Block = tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any], NDArray[Any] | None]


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
        The files that they come from: by "image", "target" and "prediction".
    size, errors, tiles, wrong_pixels, worst
        Only of a case larger than memory, whose maps are its overview: its rows and columns, the kind of error in each
        block of pixels (h, w), as `classify_errors` finds it, real pixels, the places with the most errors first, the
        number of wrong pixels, and the corner and the maps of the first place.
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
    """Read a case larger than memory: all lines once for the overview, and those of the tiles again."""
    height, width = image.shape[:2]
    step = math.ceil(max(height, width) / LONGEST)
    edge = step * max(1, TILE // step)

    def read_blocks(top: int, lefts: Iterable[int]) -> Iterator[tuple[tuple[int, int], Maps]]:
        stop = min(height, top + edge)
        pixels, ours = image.read(top, stop), None if target is None else target.read(top, stop)
        theirs = labels.read(top, stop)
        for left in lefts:
            part = slice(left, left + edge)
            own = None if ours is None else np.array(ours[..., part])
            yield (top, left), (np.array(pixels[:, part]), own, np.array(theirs[..., part]))

    grid, wrong = list[list[Block]](), dict[tuple[int, int], int]()
    for top in range(0, height, edge):
        grid.append([])
        for place, block in read_blocks(top, range(0, width, edge)):
            reduced, wrong[place] = _reduce(block, step, spec)
            grid[-1].append(reduced)
    joined: list[Any] = [
        None if grid[0][0][k] is None else np.block([[block[k] for block in row] for row in grid]) for k in range(4)
    ]
    overview, whole_target, whole_labels, errors = np.moveaxis(joined[0], 0, -1), *joined[1:]
    places = sorted(wrong, key=lambda place: (-wrong[place], place))[:MOST_TILES]
    found = dict[tuple[int, int], Maps]()
    for top in sorted({top for top, _ in places}):
        found |= dict(read_blocks(top, [left for first, left in places if first == top]))
    ranges, tiles = display_ranges(overview), []
    for place in places:
        real, its_target, its_labels = found[place]
        tiles.append(draw_layers(display_image(real, ranges), its_target, its_labels, spec, notes={"at": place}))
    own: dict[str, Any] = {"size": (height, width), "errors": errors, "tiles": tiles}
    own |= {"wrong_pixels": sum(wrong.values()), "worst": (places[0], found[places[0]])}
    return DrawnCase(image=overview, target=whole_target, labels=whole_labels, files=files, **own)


def _reduce(maps: Maps, step: int, spec: ClassSpec) -> tuple[Block, int]:
    """Reduce a block: the mean of its image, whose channels come first, the most important values of its target, labels
    and errors; also count its wrong pixels.
    """
    image, target, labels = maps
    shape = math.ceil(image.shape[0] / step), math.ceil(image.shape[1] / step)
    sums = reduce_ranks(image.astype(np.float64), shape, np.add)
    sizes = reduce_ranks(np.ones((*image.shape[:2], 1)), shape, np.add)
    mean, reduced = np.moveaxis((sums / sizes).astype(image.dtype), -1, 0), reduce_labels(labels, shape, spec)
    if target is None:
        return (mean, None, reduced, None), 0
    kinds = classify_errors(target, labels, spec)
    errors = error_map(kinds, spec).reduce(shape, background=False).index
    return (mean, reduce_labels(target, shape, spec), reduced, errors), int(find_wrong(kinds).sum())


def reduce_labels(labels: NDArray[Any], shape: tuple[int, int], spec: ClassSpec) -> NDArray[Any]:
    """Reduce a label map (H, W), or planes (K, H, W), by the most important value of each block.

    The background yields to ignored pixels, these to any class, and a frequent class to a rare one, so that a line of
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
