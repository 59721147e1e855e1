"""Zarr 2 or 3 folder -> array with its spacing, its kind and size known from the metadata before a chunk is read."""

import hashlib
import json
import math
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from segmeter.checks import expected, some
from segmeter.data.files.geometry import SET_SPACING, Geometry, same_spacing, stated_geometry, write_spacing
from segmeter.data.files.npy import check_pixels, pick_array
from segmeter.data.files.sniff import damaged, show
from segmeter.data.files.zarr_chunks import check_chunks, codec_name
from segmeter.data.units import MILLIMETRES, find_unit
from segmeter.errors import DataError
from segmeter.files import sha256_file

MARKS = ("zarr.json", ".zarray", ".zgroup")  # what makes a folder a Zarr array or group
_CODECS = {  # others, pickle among them, may run what a file says
    *("blosc", "zstd", "gzip", "zlib", "lz4", "lzma", "bz2", "crc32c", "crc32", "bytes", "transpose"),
    *("sharding_indexed", "shuffle", "delta", "packbits", "fixedscaleoffset"),
}
_MOST_METADATA = 1 << 26  # bytes of one JSON file
_SPACE = ("z", "y", "x")  # names of axes in the order of arrays
_NOT_SPACE = ("time", "channel", "t", "c")


def is_zarr(path: Path) -> bool:
    """Whether a folder is a Zarr array or group."""
    return any((path / mark).is_file() for mark in MARKS)


def read_zarr(path: Path, *, key: str | None, max_pixels: int) -> tuple[np.ndarray, Geometry]:
    """Read the whole array of a folder: itself, or of a group its only array, or the one called `key`.

    A group with OME multiscales gives its first, finest array. Axes of one element before the last three are dropped.

    Returns
    -------
    (H, W) or (D, H, W), as stored; and the spacing, from ``spacing`` (and ``unit``, one or a list) in the array's
    attributes or from OME multiscales (0.4 and 0.5): the scales of the array and of all arrays multiplied, and the
    place by their translations.

    Raises
    ------
    DataError
        There is no such array, it is damaged, too large, packed by a codec that is not read here, or its axes are named
        and are no (depth, height, width). Or its chunks are too many, too large, or unpack to more than their pixels.
    """
    import zarr  # starts slowly, and few ask for it

    try:
        folder, scales = _find_array(path, key)
        note = _metadata(path, folder)
        shape = _plain_shape(note["shape"])
        dtype = np.dtype(note["data_type"] if "data_type" in note else note["dtype"])
        check_pixels(path, shape, dtype, max_pixels)
        _check_axes(path, note, scales, shape)
        array = zarr.open_array(str(folder), mode="r")
        check_chunks(path, array, note, folder=folder, max_pixels=max_pixels)
        pixels = np.asarray(array[...]).reshape(shape)
        return pixels.astype(pixels.dtype.newbyteorder("="), copy=False), _geometry(path, note, scales, len(shape))
    except DataError:
        raise
    except Exception as error:  # zarr, its codecs and JSON raise many types on hostile bytes
        raise damaged(path, error) from error


@dataclass(frozen=True, kw_only=True, eq=False)
class ZarrPicture:
    """An opened array whose chunks are not read yet.

    `axes` are its names in lower case, [] where it has none; `geometry` is that of its last two axes.
    """

    array: Any
    note: dict[str, Any]
    folder: Path
    axes: list[str]
    levels: int
    geometry: Geometry


def open_picture(path: Path, *, level: int = 0) -> ZarrPicture:
    """Open the array of a folder: itself, of a group the only one, or a level of its OME multiscales.

    Raises
    ------
    DataError
        There is no such array or level, or it is packed by a codec that is not read here. Other errors come from
        damaged metadata.
    """
    import zarr  # starts slowly, and few ask for it

    levels = [] if _kind(path) == "array" else [each["path"] for each in _multiscales(path).get("datasets", [])]
    if level and level >= len(levels):
        rule = f"to be 0 .. {max(len(levels) - 1, 0)}"
        raise DataError(expected(show(path), "data.level", rule, level))
    folder, scales = _find_array(path, levels[level] if level else None)
    note = _metadata(path, folder)
    array = zarr.open_array(str(folder), mode="r")
    axes = _axis_names(note, scales)
    return ZarrPicture(
        array=array,
        note=note,
        folder=folder,
        axes=axes,
        levels=max(1, len(levels)),
        geometry=_geometry(path, *_without_channels(note, scales, axes), axes=2),
    )


def hash_folder(path: Path) -> str:
    """Sha256 over the names and contents of all files below a folder."""
    digest = hashlib.sha256()
    for root, folders, files in os.walk(path):
        folders.sort()
        for name in sorted(files):
            file = Path(root, name)
            if not stat.S_ISREG(file.stat().st_mode):
                raise DataError(expected(show(file), "file", "to be a regular file", "a FIFO, socket or device"))
            digest.update(repr(str(file.relative_to(path))).encode("utf-8", "surrogateescape"))
            digest.update(bytes.fromhex(sha256_file(file)))
    return digest.hexdigest()


def label_names(path: Path) -> list[str]:
    """What `key` calls the label maps of an OME-Zarr picture: "labels/cells" and so on; none of another folder."""
    folder = path / "labels"
    if not folder.is_dir() or _kind(path) == "array":
        return []
    return sorted(f"labels/{each.name}" for each in folder.iterdir() if each.is_dir() and is_zarr(each))


def _find_array(path: Path, key: str | None) -> tuple[Path, dict[str, Any]]:
    """The array's folder, and the axes and steps of OME multiscales: its own, then those of the whole picture."""
    if _kind(path) == "array":
        return path, {}
    if key in label_names(path):
        return _find_array(path / str(key), None)
    scales = _multiscales(path)
    if key is None and scales:
        key = scales["datasets"][0]["path"]
    names = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and _kind(entry) == "array")
    if not names:
        raise DataError(expected(show(path), "folder", "to hold a Zarr array", "a group without one"))
    folder = path / pick_array(path, names, key)
    found = [each for each in scales.get("datasets", []) if each["path"] == folder.name]
    if not found:
        return folder, {}
    steps = [step for level in (found[0], scales) for step in level.get("coordinateTransformations") or []]
    return folder, {"axes": scales.get("axes", []), "steps": steps}


def _kind(folder: Path) -> str:
    if (folder / ".zarray").is_file():
        return "array"
    if not (folder / "zarr.json").is_file():
        return "group"
    return str(_json(folder / "zarr.json")["node_type"])


def _json(file: Path) -> dict[str, Any]:
    """The object in a file of metadata."""
    if file.stat().st_size > _MOST_METADATA:
        raise DataError(expected(show(file), "metadata", f"of at most {_MOST_METADATA} bytes", file.stat().st_size))
    content = json.loads(file.read_bytes())
    if not isinstance(content, dict):
        raise ValueError(f"{file.name} holds no object")
    return content


def _metadata(path: Path, folder: Path) -> dict[str, Any]:
    modern = (folder / "zarr.json").is_file()
    note = _json(folder / ("zarr.json" if modern else ".zarray"))
    note["attributes"] = (note.get("attributes") if modern else _old_attributes(folder)) or {}
    names = _codec_names(note.get("codecs", []) if modern else [note.get("compressor"), *(note.get("filters") or [])])
    if names - _CODECS:
        rule = f"to be packed by one of {', '.join(sorted(_CODECS))}"
        raise DataError(expected(show(path), "codecs", rule, some(names - _CODECS), "Save it with one of these."))
    return note


def _old_attributes(folder: Path) -> dict[str, Any]:
    file = folder / ".zattrs"
    return _json(file) if file.is_file() else {}


def _codec_names(codecs: list[Any]) -> set[str]:
    """Names of all codecs, those inside shards included."""
    names: set[str] = set()
    for codec in codecs:
        if codec is not None:
            names.add(codec_name(codec))
            inner = codec.get("configuration", {})
            names |= _codec_names([*inner.get("codecs", []), *inner.get("index_codecs", [])])
    return names


def _plain_shape(shape: list[int]) -> tuple[int, ...]:
    """The last three axes; those before must have one element."""
    return tuple(shape[-3:]) if math.prod(shape[:-3]) == 1 else tuple(shape)


def _without_channels(
    note: dict[str, Any], scales: dict[str, Any], axes: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Metadata without what they say of a last axis of channels, so that the last two are height and width."""
    if axes[-1:] not in (["c"], ["channel"]):
        return note, scales
    count = len(note["shape"])

    def cut(value: Any) -> Any:
        return value[:-1] if isinstance(value, list) and len(value) == count else value

    steps = [{key: cut(value) for key, value in step.items()} for step in scales.get("steps", [])]
    plain = {
        **note,
        "shape": cut(note["shape"]),
        "attributes": {key: cut(value) for key, value in note["attributes"].items()},
    }
    return plain, {**scales, "axes": cut(scales.get("axes")), "steps": steps} if scales else scales


def _check_axes(path: Path, note: dict[str, Any], scales: dict[str, Any], shape: tuple[int, ...]) -> None:
    """Refuse time and channels for depth, and x, y, z for z, y, x, where OME, Zarr 3 or xarray name the axes."""
    kept = _axis_names(note, scales)[-len(shape) :]
    sizes = dict(zip(reversed(kept), reversed(shape), strict=False))
    known = [name for name in kept if name in _SPACE]
    if known != sorted(known, key=_SPACE.index) or any(sizes[name] > 1 for name in kept if name in _NOT_SPACE):
        rule, remedy = "to be (depth, height, width), z before y before x", "Save one such array per channel or time."
        raise DataError(expected(show(path), "axes", rule, ", ".join(kept), remedy))


def _axis_names(note: dict[str, Any], scales: dict[str, Any]) -> list[str]:
    """Names of all axes in lower case, from OME, Zarr 3 or xarray, but "channel" and "time" for axes of these kinds."""
    axes = [axis for axis in scales.get("axes", []) if isinstance(axis, dict)]
    names = [axis["type"] if axis.get("type") in _NOT_SPACE else axis.get("name") for axis in axes]
    names = names or note.get("dimension_names") or note["attributes"].get("_ARRAY_DIMENSIONS") or []
    return [str(name).lower() for name in names]


def _multiscales(path: Path) -> dict[str, Any]:
    """The first entry of OME multiscales (versions 0.4 and 0.5), empty where there is none."""
    note = _old_attributes(path)
    if (path / "zarr.json").is_file():
        note = _json(path / "zarr.json").get("attributes") or {}
    entries = note.get("ome", note).get("multiscales") or [{}]
    return cast(dict[str, Any], entries[0])


def _geometry(path: Path, note: dict[str, Any], scales: dict[str, Any], axes: int) -> Geometry:
    """From the attributes and from OME metadata; where both say a spacing, it must be one."""
    own, ome = _attributes(path, note, axes), _ome(path, scales, axes)
    for each in (own, ome):
        if each.spacing_problem:
            return each
    if own.spacing is None:
        return ome
    if ome.spacing is None:
        return own
    if same_spacing(own, ome):
        return ome
    both = f"{write_spacing(own.spacing, own.unit)} there and {write_spacing(ome.spacing, ome.unit)} in OME metadata"
    problem = expected(f"{show(path)}: {own.source}", "spacing", "to be that of OME metadata", both, SET_SPACING)
    return Geometry(source=ome.source, spacing_problem=problem)


def _attributes(path: Path, note: dict[str, Any], axes: int) -> Geometry:
    given, units = note["attributes"].get("spacing"), note["attributes"].get("unit")
    if given is None:
        return Geometry()
    source, sizes = "Zarr attributes", (axes, len(note["shape"]))
    units = units if isinstance(units, list) else [units] * axes
    for name, values, rule in (("spacing", given, "numbers"), ("unit", units, "names")):
        if not isinstance(values, list) or len(values) not in sizes:
            rule = f"to be {axes} {rule}, one per axis"
            problem = expected(f"{show(path)}: {source}", name, rule, repr(values)[:60], SET_SPACING)
            return Geometry(source=source, spacing_problem=problem)
    return stated_geometry(path, given[-axes:], units[-axes:], source=source)


def _ome(path: Path, scales: dict[str, Any], axes: int) -> Geometry:
    """Go through the transformations in their order, each of which is a scale or a translation."""
    if not scales.get("steps"):
        return Geometry()
    source, scale, shift = "OME metadata", [1.0] * axes, [0.0] * axes
    for step in scales["steps"]:
        kind = step.get("type")
        values = [1.0] * axes if kind == "identity" else step.get(kind)
        if kind not in ("identity", "scale", "translation") or not _are_numbers(values, axes):
            rule = f"to be scales and translations, of {axes} or more numbers"
            text = json.dumps(step)[:80]
            problem = expected(f"{show(path)}: {source}", "coordinateTransformations", rule, text, SET_SPACING)
            return Geometry(source=source, spacing_problem=problem)
        if kind == "translation":
            shift = [a + b for a, b in zip(shift, values[-axes:], strict=True)]
        else:
            scale, shift = ([a * b for a, b in zip(old, values[-axes:], strict=True)] for old in (scale, shift))
    units = ([None] * axes + [axis.get("unit") for axis in scales["axes"]])[-axes:]
    found = stated_geometry(path, scale, units, source=source)
    return replace(found, affine=_affine(scale, shift, units)) if found.unit else found


def _are_numbers(values: object, axes: int) -> bool:
    return isinstance(values, list) and len(values) >= axes and all(type(value) in (int, float) for value in values)


def _affine(scale: Sequence[float], shift: Sequence[float], units: Sequence[Any]) -> np.ndarray:
    """From indices, last array axis first, to millimetres."""
    affine = np.eye(4)
    for i, (edge, start, unit) in enumerate(zip(reversed(scale), reversed(shift), reversed(units), strict=True)):
        factor = MILLIMETRES[find_unit(unit) or "mm"]
        affine[i, i], affine[i, 3] = edge * factor, start * factor
    return affine
