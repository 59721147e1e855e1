"""Reads arrays of Zarr 2 and 3 folders and OME-Zarr images. Type and size are known before a chunk is read."""

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
from segmeter.data.files.refusals import check_size, file_error
from segmeter.files import sha256_file

MARKS = ("zarr.json", ".zarray", ".zgroup")  # files that make a folder a Zarr array or group
_CODECS = {  # Others are refused: some, such as pickle, may execute a file's content.
    *("blosc", "zstd", "gzip", "zlib", "lz4", "lzma", "bz2", "crc32c", "crc32", "bytes", "transpose"),
    *("sharding_indexed", "shuffle", "delta", "packbits", "fixedscaleoffset"),
}
_MOST_METADATA = 1 << 26  # A JSON file of metadata may have this many bytes.
_FEW_CHUNKS = 4096  # This many chunks are always read, whatever their size.
# More chunks must have this many pixels on average, because zarr needs 0.2 ms and 2 KB even for an absent chunk.
_MEAN_CHUNK = 4096
_BYTES_PER_PIXEL = 16  # A folder may have this many bytes per pixel.
_SPACE = ("z", "y", "x")  # names of axes in the order of arrays
_NOT_SPACE = ("time", "channel", "t", "c")
_KINDS: dict[int, Kind] = {1: "gray", 3: "rgb"}


def is_zarr(path: Path) -> bool:
    """Tell whether a folder is a Zarr array or group."""
    return any((path / mark).is_file() for mark in MARKS)


class ZarrArray(FileArray):
    """An array in a Zarr folder.

    It is the folder's own array, a group's only array or the one called `key`, or a level of OME multiscales. An image
    is (height, width), and its axes say whether channels come before or behind. A map has the last three axes. All
    earlier axes must have one element.

    The spacing comes from ``spacing`` (and ``unit``, one or a list) in the array's attributes, or from OME multiscales
    (0.4 and 0.5). In multiscales, the scale of the array is multiplied by the scale of all arrays.
    """

    def __init__(self, path: Path, opening: Opening) -> None:
        super().__init__(path, None)
        self._array, self._scales, levels = _find_array(path, path, opening.key, opening.level)
        self._attributes = self._array.attrs.asdict()
        shape = tuple(self._array.shape)
        dtype = np.dtype(self._array.dtype)
        metadata = self._array.metadata
        foreign = {name for name, _ in _codecs(metadata.to_dict())} - _CODECS
        if foreign:
            rule = f"to be packed by one of {', '.join(sorted(_CODECS))}"
            raise file_error(path, "codecs", rule, some(foreign), "Save it with one of these.")
        # The axes are named by OME, by Zarr 3 or by xarray. Channels and time are called by their type.
        axes = [axis for axis in self._scales.get("axes", []) if isinstance(axis, dict)]
        stated = [axis["type"] if axis.get("type") in _NOT_SPACE else axis.get("name") for axis in axes]
        stated = stated or getattr(metadata, "dimension_names", None) or self._attributes.get("_ARRAY_DIMENSIONS") or []
        names = [str(name).lower() for name in stated]
        if opening.axes == "image":
            self._axes = _plane_axes(path, names, shape)
            sizes = dict(zip(self._axes, shape[-len(self._axes) :], strict=True))
            channels = sizes.get("c", 1)
            self.header = Header(
                format="zarr",
                height=sizes["y"],
                width=sizes["x"],
                channels=channels,
                kind=_KINDS.get(channels, "array"),
                bits=dtype.itemsize * 8,
                dtype=dtype.newbyteorder("="),
                levels=levels,
            )
            check_pixel_count(path, (sizes["y"], sizes["x"]), opening, streamed=True)
        else:
            shape = shape[-3:] if math.prod(shape[:-3]) == 1 else shape
            self.header = array_header(path, "zarr", shape, dtype, opening, levels=levels)
            self._axes = "zyx"[-len(shape) :]
            names = names[-len(shape) :]
            sizes = dict(zip(names[::-1], shape[::-1], strict=False))
            space = [name for name in names if name in _SPACE]
            if space != sorted(space, key=_SPACE.index) or any(sizes.get(name, 1) > 1 for name in _NOT_SPACE):
                rule = "to be (depth, height, width), z before y before x"
                raise file_error(path, "axes", rule, ", ".join(names), "Save one such array per channel or time.")
        self._lead = (0,) * (self._array.ndim - len(self._axes))
        self._opening = opening
        self._folder = Path(self._array.store.root, self._array.path)

    @cached_property
    def geometry(self) -> Geometry:  # type: ignore[override]
        ome = self._ome_geometry()
        source = "Zarr attributes"
        axes = len(self._axes.replace("c", ""))
        spacing = self._spatial(self._attributes.get("spacing"))
        units = self._spatial(self._attributes.get("unit"))
        if spacing is None:
            return ome
        units = units if isinstance(units, list) else [units] * axes
        for name, values, content in (("spacing", spacing, "numbers"), ("unit", units, "names")):
            if not isinstance(values, list) or len(values) not in (axes, self._array.ndim - (self._axes[-1] == "c")):
                rule = f"to be {axes} {content}, one per axis"
                return unusable_spacing(self.path, source, name, rule, repr(values)[:60])
        own = stated_geometry(self.path, spacing[-axes:], units[-axes:], source=source)
        if own.spacing_problem or (ome.spacing is None and not ome.spacing_problem):
            return own
        if ome.spacing_problem or own.spacing is None or same_spacing(own, ome):
            return ome
        both = " and ".join(write_spacing(stated.spacing or (), stated.unit) for stated in (own, ome))
        unusable = unusable_spacing(self.path, source, "spacing", "to be that of OME metadata", both)
        return unusable.having(source=ome.source)

    def _spatial(self, values: Any) -> Any:
        """Return the values of the axes, without that of channels if they are the last axis."""
        has_last = self._axes[-1] == "c" and isinstance(values, list) and len(values) == self._array.ndim
        return values[:-1] if has_last else values

    def _ome_geometry(self) -> Geometry:
        """Apply the transformations in their order. Each is a scale or a translation."""
        if not self._scales.get("steps"):
            return NOWHERE
        source = "OME metadata"
        axes = len(self._axes.replace("c", ""))
        scale, shift = [1.0] * axes, [0.0] * axes
        for step in self._scales["steps"]:
            kind = step.get("type")
            values = [1.0] * axes if kind == "identity" else self._spatial(step.get(kind))
            are_numbers = isinstance(values, list) and all(type(value) in (int, float) for value in values)
            if kind not in ("identity", "scale", "translation") or not are_numbers or len(values) < axes:
                rule, text = f"to be scales and translations, of {axes} or more numbers", json.dumps(step)[:80]
                return unusable_spacing(self.path, source, "coordinateTransformations", rule, text)
            if kind == "translation":
                shift = [a + b for a, b in zip(shift, values[-axes:], strict=True)]
            else:
                scale, shift = ([a * b for a, b in zip(old, values[-axes:], strict=True)] for old in (scale, shift))
        units = ([None] * axes + [axis.get("unit") for axis in self._spatial(self._scales["axes"])])[-axes:]
        geometry = stated_geometry(self.path, scale, units, source=source)
        if not geometry.unit:
            return geometry
        affine = np.eye(4)  # from indices, last array axis first, to millimetres
        for i, (edge, start, unit) in enumerate(zip(reversed(scale), reversed(shift), reversed(units), strict=True)):
            factor = MILLIMETRES[find_unit(unit) or "mm"]
            affine[i, i], affine[i, 3] = edge * factor, start * factor
        return geometry.having(affine=affine)

    @cached_property
    def sha256(self) -> str:
        return hash_folder(self.path)

    def parts(self, rows: slice, columns: slice) -> list[Path]:
        window = {"y": rows, "x": columns}
        steps = (self._array.shards or self._array.chunks)[len(self._lead) :]
        spans = [
            range(span.start // step, (span.stop - 1) // step + 1)
            for axis, step, size in zip(self._axes, steps, self._array.shape[len(self._lead) :], strict=True)
            for span in [window.get(axis, slice(0, size))]
        ]
        keys = (self._array.metadata.encode_chunk_key((*self._lead, *chunk)) for chunk in product(*spans))
        return [self._folder / key for key in keys]

    def _blocks(self) -> Iterator[NDArray[Any]]:
        step = (self._array.shards or self._array.chunks)[len(self._lead)]
        for start in range(0, self.header.shape[0], step):
            yield self._read(slice(start, start + step))

    def _lines(self, start: int, stop: int, columns: slice) -> NDArray[Any]:
        window = {"y": slice(start, stop), "x": columns}
        pixels = self._read(*(window.get(axis, slice(None)) for axis in self._axes))
        if "c" not in self._axes:
            return pixels
        channels_last = np.moveaxis(pixels, self._axes.index("c"), -1)
        return channels_last[..., 0] if self.header.channels == 1 else channels_last

    def _read(self, *slices: slice) -> NDArray[Any]:
        return np.asarray(self._checked[(*self._lead, *slices)])

    @cached_property
    def _checked(self) -> Any:
        """The array, unless it has too many, too large or truncated chunks, or more bytes than its pixels can need."""
        array = self._array
        opening = self._opening
        pixels = math.prod(array.shape)
        shape = " x ".join(map(str, array.shards or array.chunks))
        if math.prod(array.shards or array.chunks) > opening.max_pixels:
            raise file_error(self.path, "chunks", f"at most {opening.max_pixels} pixels", shape)
        count = math.prod(math.ceil(a / b) for a, b in zip(array.shape, array.chunks, strict=True))
        most_chunks = max(_FEW_CHUNKS, max(opening.max_pixels, pixels if opening.streams else 0) // _MEAN_CHUNK)
        if count > most_chunks:
            chunks = f"{count} of {' x '.join(map(str, array.chunks))} pixels"
            remedy = "Save it again in larger chunks."
            raise file_error(self.path, "chunks", f"to be at most {most_chunks}", chunks, remedy)
        files = list(_files_below(self._folder))
        size = sum(file.stat().st_size for file in files)
        most_bytes = _BYTES_PER_PIXEL * max(opening.max_pixels, pixels)
        check_size(self.path, size, most_bytes, "Its pixels need less: save it again.")
        codecs = {name for name, _ in _codecs(array.metadata.to_dict())}
        if "blosc" in codecs and not {"crc32", "crc32c", "sharding_indexed"} & codecs:
            # Blosc's decoder reads memory beyond a truncated chunk, which only a checksum notices. Shards have one.
            for file in (file for file in files if file.name[0] not in ".z"):
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


def _codecs(metadata: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and settings of each codec of an array, including those inside shards."""
    version_2 = [metadata.get("compressor"), *(metadata.get("filters") or [])]
    for codec in filter(None, metadata.get("codecs", version_2)):
        settings = codec.get("configuration", {})
        yield str(codec.get("name", codec.get("id"))).removeprefix("numcodecs."), settings
        if "codecs" in settings:
            yield from _codecs({"codecs": settings["codecs"]})


def label_names(path: Path) -> list[str]:
    """Return the `key` of each label map of an OME-Zarr image, such as "labels/cells"."""
    folder = path / "labels"
    if not folder.is_dir():
        return []
    return sorted(f"labels/{entry.name}" for entry in folder.iterdir() if entry.is_dir() and is_zarr(entry))


def _find_array(path: Path, folder: Path, key: str | None, level: int) -> tuple[Any, dict[str, Any], int]:
    """Return the array, its OME axes and transformations (its own, then the image's), and the number of levels."""
    zarr: Any = need("zarr", "zarr", "Zarr folders")
    patterns = [prefix + mark for mark in (*MARKS, ".zattrs") for prefix in ("", "*/")]
    for file in (file for pattern in patterns for file in folder.glob(pattern)):
        if file.stat().st_size > _MOST_METADATA:
            raise file_error(file, "metadata", f"of at most {_MOST_METADATA} bytes", file.stat().st_size)
    try:
        node: Any = zarr.open(str(folder), mode="r", use_consolidated=False)
    except FileNotFoundError:
        raise file_error(path, "folder", "to hold a Zarr array", "a folder without one") from None
    attributes: dict[str, Any] = {} if isinstance(node, zarr.Array) else node.attrs.asdict()
    scales = (attributes.get("ome", attributes).get("multiscales") or [{}])[0]  # OME-Zarr 0.5 and 0.4
    levels = scales.get("datasets", [])
    if level and level >= len(levels):
        raise file_error(path, "data.level", f"to be 0 .. {max(len(levels) - 1, 0)}", level)
    if isinstance(node, zarr.Array):
        return node, {}, 1
    if key in label_names(folder):
        return _find_array(path, folder / str(key), None, level)
    names = sorted(node.array_keys())
    if not names:
        raise file_error(path, "folder", "to hold a Zarr array", "a group without one")
    name = pick_array(path, names, levels[level]["path"] if key is None and levels else key)
    own_level = [entry for entry in levels if entry["path"] == name][:1]
    steps = [step for entry in (*own_level, scales) for step in entry.get("coordinateTransformations") or []]
    return node[name], {"axes": scales.get("axes", []), "steps": steps} if own_level else {}, max(1, len(levels))


def _plane_axes(path: Path, names: list[str], shape: tuple[int, ...]) -> str:
    """Return the letters of the last axes, "yx", "cyx" or "yxc"; earlier axes must have one element."""
    if not names and sum(size > 1 for size in shape[:-2]) == 0:
        return "yx"
    letters = "".join("c" if name == "channel" else name for name in names)
    axes = next((axes for axes in ("cyx", "yxc", "yx") if letters.endswith(axes)), "")
    if len(letters) == len(shape) and axes and all(size == 1 for size in shape[: len(shape) - len(axes)]):
        return axes
    rule = "to be named (c, y, x), (y, x, c) or (y, x)"
    remedy = "Name them in OME multiscales or dimension_names."
    raise file_error(path, "axes", rule, f"{names or 'no names'} of {shape}", remedy)
