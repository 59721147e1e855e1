"""Reads arrays of Zarr 2 and 3 folders and OME-Zarr images; their type and size are known before a chunk is read."""

import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import some
from segmeter.data.files.array import FileArray, Header, Kind, Opening, array_header, check_pixel_count, pick_array
from segmeter.data.files.geometry import (
    MILLIMETRES,
    NOWHERE,
    Geometry,
    find_unit,
    same_spacing,
    stated_geometry,
    unusable_spacing,
    write_spacing,
)
from segmeter.data.files.reader_process import need
from segmeter.data.files.sniff import check_size, file_error
from segmeter.files import sha256_file

MARKS = ("zarr.json", ".zarray", ".zgroup")  # files that make a folder a Zarr array or group
_CODECS = {  # others, such as pickle, may execute a file's content
    *("blosc", "zstd", "gzip", "zlib", "lz4", "lzma", "bz2", "crc32c", "crc32", "bytes", "transpose"),
    *("sharding_indexed", "shuffle", "delta", "packbits", "fixedscaleoffset"),
}
_MOST_METADATA = 1 << 26  # bytes of one JSON file
_FEW_CHUNKS = 4096  # chunks are read, whatever their size
_MEAN_CHUNK = 4096  # pixels per chunk of the largest array: zarr takes 0.2 ms and 2 KB even for an absent chunk
_BYTES_PER_PIXEL = 16  # at most, of a folder
_SPACE = ("z", "y", "x")  # names of axes in the order of arrays
_NOT_SPACE = ("time", "channel", "t", "c")
_KINDS: dict[int, Kind] = {1: "gray", 3: "rgb"}


def is_zarr(path: Path) -> bool:
    """Tell whether a folder is a Zarr array or group."""
    return any((path / mark).is_file() for mark in MARKS)


class ZarrArray(FileArray):
    """An array of a folder: the folder itself, a group's only array or the one called `key`, or a level of OME
    multiscales.

    An image is (height, width), with channels before or behind as the axes say. A map has the last three axes. All
    earlier axes must have one element.

    The spacing comes from ``spacing`` (and ``unit``, one or a list) in the array's attributes, or from OME multiscales
    (0.4 and 0.5). In multiscales, the scale of the array is multiplied by the scale of all arrays.
    """

    def __init__(self, path: Path, opening: Opening) -> None:
        super().__init__(path, None)
        self._array, self._scales, levels = _find_array(path, path, opening.key, opening.level)
        self._attributes, shape = self._array.attrs.asdict(), tuple(self._array.shape)
        dtype, metadata = np.dtype(self._array.dtype), self._array.metadata
        foreign = {name for name, _ in _codecs(metadata.to_dict())} - _CODECS
        if foreign:
            rule = f"to be packed by one of {', '.join(sorted(_CODECS))}"
            raise file_error(path, "codecs", rule, some(foreign), "Save it with one of these.")
        # The names of all axes by OME, Zarr 3 or xarray, with their type for channel and time
        axes = [axis for axis in self._scales.get("axes", []) if isinstance(axis, dict)]
        given = [axis["type"] if axis.get("type") in _NOT_SPACE else axis.get("name") for axis in axes]
        given = given or getattr(metadata, "dimension_names", None) or self._attributes.get("_ARRAY_DIMENSIONS") or []
        names = [str(name).lower() for name in given]
        if opening.axes == "image":
            self._axes = _plane_axes(path, names, shape)
            sizes = dict(zip(self._axes, shape[-len(self._axes) :], strict=True))
            channels = sizes.get("c", 1)
            plain: dict[str, Any] = {"bits": dtype.itemsize * 8, "dtype": dtype.newbyteorder("="), "levels": levels}
            plain |= {"channels": channels, "kind": _KINDS.get(channels, "array")}
            self.header = Header(format="zarr", height=sizes["y"], width=sizes["x"], **plain)
            check_pixel_count(path, (sizes["y"], sizes["x"]), opening, streamed=True)
        else:
            shape = shape[-3:] if math.prod(shape[:-3]) == 1 else shape
            self.header = array_header(path, "zarr", shape, dtype, opening, levels=levels)
            self._axes, kept = "zyx"[-len(shape) :], names[-len(shape) :]
            sizes, space = dict(zip(kept[::-1], shape[::-1], strict=False)), [name for name in kept if name in _SPACE]
            if space != sorted(space, key=_SPACE.index) or any(sizes.get(name, 1) > 1 for name in _NOT_SPACE):
                rule = "to be (depth, height, width), z before y before x"
                raise file_error(path, "axes", rule, ", ".join(kept), "Save one such array per channel or time.")
        self._lead = (0,) * (self._array.ndim - len(self._axes))
        self._opening, self._folder = opening, Path(self._array.store.root, self._array.path)

    @cached_property
    def geometry(self) -> Geometry:  # type: ignore[override]
        ome, source, axes = self._ome_geometry(), "Zarr attributes", len(self._axes.replace("c", ""))
        given, units = self._spatial(self._attributes.get("spacing")), self._spatial(self._attributes.get("unit"))
        if given is None:
            return ome
        units = units if isinstance(units, list) else [units] * axes
        for name, values, rule in (("spacing", given, "numbers"), ("unit", units, "names")):
            if not isinstance(values, list) or len(values) not in (axes, self._array.ndim - (self._axes[-1] == "c")):
                rule = f"to be {axes} {rule}, one per axis"
                return unusable_spacing(self.path, source, name, rule, repr(values)[:60])
        own = stated_geometry(self.path, given[-axes:], units[-axes:], source=source)
        if own.spacing_problem or (ome.spacing is None and not ome.spacing_problem):
            return own
        if ome.spacing_problem or own.spacing is None or same_spacing(own, ome):
            return ome
        both = " and ".join(write_spacing(each.spacing or (), each.unit) for each in (own, ome))
        found = unusable_spacing(self.path, source, "spacing", "to be that of OME metadata", both)
        return found.having(source=ome.source)

    def _spatial(self, values: Any) -> Any:
        """Return the values of axes without that of channels, if these are the last axis."""
        has_last = self._axes[-1] == "c" and isinstance(values, list) and len(values) == self._array.ndim
        return values[:-1] if has_last else values

    def _ome_geometry(self) -> Geometry:
        """Apply the transformations in their order, each of which is a scale or a translation."""
        if not self._scales.get("steps"):
            return NOWHERE
        source, axes = "OME metadata", len(self._axes.replace("c", ""))
        scale, shift = [1.0] * axes, [0.0] * axes
        for step in self._scales["steps"]:
            kind = step.get("type")
            values = [1.0] * axes if kind == "identity" else self._spatial(step.get(kind))
            numbers = isinstance(values, list) and all(type(value) in (int, float) for value in values)
            if kind not in ("identity", "scale", "translation") or not numbers or len(values) < axes:
                rule, text = f"to be scales and translations, of {axes} or more numbers", json.dumps(step)[:80]
                return unusable_spacing(self.path, source, "coordinateTransformations", rule, text)
            if kind == "translation":
                shift = [a + b for a, b in zip(shift, values[-axes:], strict=True)]
            else:
                scale, shift = ([a * b for a, b in zip(old, values[-axes:], strict=True)] for old in (scale, shift))
        units = ([None] * axes + [axis.get("unit") for axis in self._spatial(self._scales["axes"])])[-axes:]
        found = stated_geometry(self.path, scale, units, source=source)
        if not found.unit:
            return found
        affine = np.eye(4)  # from indices, last array axis first, to millimetres
        for i, (edge, start, unit) in enumerate(zip(reversed(scale), reversed(shift), reversed(units), strict=True)):
            factor = MILLIMETRES[find_unit(unit) or "mm"]
            affine[i, i], affine[i, 3] = edge * factor, start * factor
        return found.having(affine=affine)

    @cached_property
    def sha256(self) -> str:
        return hash_folder(self.path)

    def parts(self, rows: slice, columns: slice) -> list[Path]:
        where = {"y": rows, "x": columns}
        steps = (self._array.shards or self._array.chunks)[len(self._lead) :]
        spans = [
            range(span.start // step, (span.stop - 1) // step + 1)
            for axis, step, size in zip(self._axes, steps, self._array.shape[len(self._lead) :], strict=True)
            for span in [where.get(axis, slice(0, size))]
        ]
        keys = (self._array.metadata.encode_chunk_key((*self._lead, *place)) for place in product(*spans))
        return [self._folder / key for key in keys]

    def _blocks(self) -> Iterator[NDArray[Any]]:
        step = (self._array.shards or self._array.chunks)[len(self._lead)]
        for start in range(0, self.header.shape[0], step):
            yield self._read(slice(start, start + step))

    def _lines(self, start: int, stop: int, columns: slice) -> NDArray[Any]:
        where = {"y": slice(start, stop), "x": columns}
        pixels = self._read(*(where.get(axis, slice(None)) for axis in self._axes))
        if "c" not in self._axes:
            return pixels
        last = np.moveaxis(pixels, self._axes.index("c"), -1)
        return last[..., 0] if self.header.channels == 1 else last

    def _read(self, *places: slice) -> NDArray[Any]:
        return np.asarray(self._checked[(*self._lead, *places)])

    @cached_property
    def _checked(self) -> Any:
        """The array, unless it has too many, too large or truncated chunks, or more bytes than pixels can need."""
        array, opening, pixels = self._array, self._opening, math.prod(self._array.shape)
        stored = array.shards or array.chunks
        if math.prod(stored) > opening.max_pixels:
            raise file_error(self.path, "chunks", f"at most {opening.max_pixels} pixels", " x ".join(map(str, stored)))
        count = math.prod(math.ceil(a / b) for a, b in zip(array.shape, array.chunks, strict=True))
        most = max(_FEW_CHUNKS, max(opening.max_pixels, pixels if opening.streams else 0) // _MEAN_CHUNK)
        if count > most:
            found = f"{count} of {' x '.join(map(str, array.chunks))} pixels"
            raise file_error(self.path, "chunks", f"to be at most {most}", found, "Save it again in larger chunks.")
        files = list(_files_below(self._folder))
        size = sum(file.stat().st_size for file in files)
        most = _BYTES_PER_PIXEL * max(opening.max_pixels, pixels)
        check_size(self.path, size, most, "Its pixels need less: save it again.")
        names = {name for name, _ in _codecs(array.metadata.to_dict())}
        if "blosc" in names and not {"crc32", "crc32c", "sharding_indexed"} & names:
            # Blosc's decoder reads memory beyond a truncated chunk, and no checksum notices; a shard has one at its end
            for file in (each for each in files if each.name[0] not in ".z"):
                with file.open("rb") as opened:
                    if int.from_bytes(opened.read(16)[12:], "little") != file.stat().st_size:  # the end of its head
                        raise ValueError("a Blosc chunk of another length than its header says")
        return array


def hash_folder(path: Path) -> str:
    """Return the sha256 over the names and contents of all files below a folder."""
    digest = hashlib.sha256()
    for file in _files_below(path):
        digest.update(repr(file.relative_to(path).as_posix()).encode("utf-8", "surrogateescape"))
        digest.update(bytes.fromhex(sha256_file(file)))
    return digest.hexdigest()


def _files_below(path: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(path):
        folders.sort()
        for name in sorted(files):
            file = Path(root, name)
            if not stat.S_ISREG(file.stat().st_mode):
                raise file_error(file, "file", "to be a regular file", "a FIFO, socket or device")
            yield file


def _codecs(note: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names and settings of the codecs of an array, including those inside shards."""
    given = note["codecs"] if "codecs" in note else [note.get("compressor"), *(note.get("filters") or [])]
    for codec in filter(None, given):
        settings = codec.get("configuration", {})
        yield str(codec.get("name", codec.get("id"))).removeprefix("numcodecs."), settings
        if "codecs" in settings:
            yield from _codecs({"codecs": settings["codecs"]})


def label_names(path: Path) -> list[str]:
    """Return the `key` of each label map of an OME-Zarr image, such as "labels/cells"."""
    folder = path / "labels"
    if not folder.is_dir():
        return []
    return sorted(f"labels/{each.name}" for each in folder.iterdir() if each.is_dir() and is_zarr(each))


def _find_array(path: Path, here: Path, key: str | None, level: int) -> tuple[Any, dict[str, Any], int]:
    """Return the array, its OME axes and transformations (its own, then the image's), and the number of levels."""
    zarr: Any = need("zarr", "zarr", "Zarr folders")
    for file in (each for mark in (*MARKS, ".zattrs") for place in ("", "*/") for each in here.glob(place + mark)):
        if file.stat().st_size > _MOST_METADATA:
            raise file_error(file, "metadata", f"of at most {_MOST_METADATA} bytes", file.stat().st_size)
    try:
        node: Any = zarr.open(str(here), mode="r", use_consolidated=False)
    except FileNotFoundError:
        raise file_error(path, "folder", "to hold a Zarr array", "a folder without one") from None
    notes: dict[str, Any] = {} if isinstance(node, zarr.Array) else node.attrs.asdict()
    scales = (notes.get("ome", notes).get("multiscales") or [{}])[0]  # versions 0.5 and 0.4
    levels = scales.get("datasets", [])
    if level and level >= len(levels):
        raise file_error(path, "data.level", f"to be 0 .. {max(len(levels) - 1, 0)}", level)
    if isinstance(node, zarr.Array):
        return node, {}, 1
    if key in label_names(here):
        return _find_array(path, here / str(key), None, level)
    names = sorted(node.array_keys())
    if not names:
        raise file_error(path, "folder", "to hold a Zarr array", "a group without one")
    name = pick_array(path, names, levels[level]["path"] if key is None and levels else key)
    found = [each for each in levels if each["path"] == name]
    steps = [step for each in (*found[:1], scales) for step in each.get("coordinateTransformations") or []]
    return node[name], {"axes": scales.get("axes", []), "steps": steps} if found else {}, max(1, len(levels))


def _plane_axes(path: Path, names: list[str], shape: tuple[int, ...]) -> str:
    """Return the letters of the last axes, "yx", "cyx" or "yxc"; earlier axes must have one element."""
    if not names and sum(size > 1 for size in shape[:-2]) == 0:
        return "yx"
    kept = "".join("c" if name == "channel" else name for name in names)
    found = next((axes for axes in ("cyx", "yxc", "yx") if kept.endswith(axes)), "")
    if len(kept) == len(shape) and found and all(size == 1 for size in shape[: len(shape) - len(found)]):
        return found
    rule, given = "to be named (c, y, x), (y, x, c) or (y, x)", f"{names or 'no names'} of {shape}"
    raise file_error(path, "axes", rule, given, "Name them in OME multiscales or dimension_names.")
