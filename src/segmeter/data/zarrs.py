"""Zarr 2 or 3 folder -> array with its spacing, its kind and size known from the metadata before a chunk is read."""

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any, cast

import numpy as np

from segmeter.checks import expected
from segmeter.data.arrays import check_pixels, pick_array
from segmeter.data.formats import show
from segmeter.data.geometry import Geometry
from segmeter.data.header import damaged
from segmeter.data.listing import some
from segmeter.errors import DataError

MARKS = ("zarr.json", ".zarray", ".zgroup")  # what makes a folder a Zarr array or group
_CODECS = {  # others, pickle among them, may run what a file says
    *("blosc", "zstd", "gzip", "zlib", "lz4", "lzma", "bz2", "crc32c", "crc32", "bytes", "transpose"),
    *("sharding_indexed", "shuffle", "delta", "packbits", "fixedscaleoffset"),
}
_UNITS = {"nanometer": "nm", "micrometer": "um", "millimeter": "mm", "centimeter": "cm", "meter": "m"}


def is_zarr(path: Path) -> bool:
    """Whether a folder is a Zarr array or group."""
    return any((path / mark).is_file() for mark in MARKS)


def read_zarr(path: Path, *, key: str | None, max_pixels: int) -> tuple[np.ndarray, Geometry]:
    """Read the whole array of a folder: itself, or of a group its only array, or the one called `key`.

    A group with OME multiscales gives its first, finest array. Axes of one element before the last three are dropped.

    Returns
    -------
    (H, W) or (D, H, W), as stored; and the spacing, from ``spacing`` (and ``unit``) in the array's attributes or from
    OME multiscales.

    Raises
    ------
    DataError
        There is no such array, it is damaged, too large, or packed by a codec that is not read here.
    """
    try:
        folder, scales = _find_array(path, key)
        note = _metadata(path, folder)
        shape = _plain_shape(note["shape"])
        dtype = np.dtype(note["data_type"] if "data_type" in note else note["dtype"])
        check_pixels(path, shape, dtype, max_pixels)
        _check_chunks(path, note, max_pixels)
        return _pixels(folder, shape), _geometry(path, note, scales, len(shape))
    except DataError:
        raise
    except Exception as error:  # zarr, its codecs and JSON raise many types on hostile bytes
        raise damaged(path, error) from error


def hash_folder(path: Path) -> str:
    """Sha256 over the names and contents of all files below a folder."""
    digest = hashlib.sha256()
    for root, folders, files in os.walk(path):
        folders.sort()
        for name in sorted(files):
            file = Path(root, name)
            digest.update(repr(str(file.relative_to(path))).encode("utf-8", "surrogateescape"))
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _find_array(path: Path, key: str | None) -> tuple[Path, dict[str, Any]]:
    """The array's folder, and what OME multiscales say about it."""
    if _kind(path) == "array":
        return path, {}
    scales = _multiscales(path)
    if key is None and scales:
        key = scales["datasets"][0]["path"]
    names = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and _kind(entry) == "array")
    if not names:
        raise DataError(expected(show(path), "folder", "to hold a Zarr array", "a group without one"))
    folder = path / pick_array(path, names, key)
    found = [each for each in scales.get("datasets", []) if each["path"] == folder.name]
    return folder, {"axes": scales.get("axes", []), **found[0]} if found else {}


def _kind(folder: Path) -> str:
    if (folder / ".zarray").is_file():
        return "array"
    if not (folder / "zarr.json").is_file():
        return "group"
    return str(json.loads((folder / "zarr.json").read_bytes())["node_type"])


def _metadata(path: Path, folder: Path) -> dict[str, Any]:
    modern = (folder / "zarr.json").is_file()
    note = json.loads((folder / ("zarr.json" if modern else ".zarray")).read_bytes())
    if not modern:
        note["attributes"] = _old_attributes(folder)
    names = _codec_names(note.get("codecs", []) if modern else [note.get("compressor"), *(note.get("filters") or [])])
    if names - _CODECS:
        rule = f"to be packed by one of {', '.join(sorted(_CODECS))}"
        raise DataError(expected(show(path), "codecs", rule, some(names - _CODECS), "Save it with one of these."))
    return cast(dict[str, Any], note)


def _old_attributes(folder: Path) -> dict[str, Any]:
    file = folder / ".zattrs"
    return cast(dict[str, Any], json.loads(file.read_bytes())) if file.is_file() else {}


def _codec_names(codecs: list[Any]) -> set[str]:
    """Names of all codecs, those inside shards included."""
    names: set[str] = set()
    for codec in codecs:
        if codec is not None:
            names.add(str(codec.get("name", codec.get("id"))).removeprefix("numcodecs."))
            inner = codec.get("configuration", {})
            names |= _codec_names([*inner.get("codecs", []), *inner.get("index_codecs", [])])
    return names


def _plain_shape(shape: list[int]) -> tuple[int, ...]:
    """The last three axes; those before must have one element."""
    return tuple(shape[-3:]) if math.prod(shape[:-3]) == 1 else tuple(shape)


def _check_chunks(path: Path, note: dict[str, Any], max_pixels: int) -> None:
    chunk = note.get("chunks") or note["chunk_grid"]["configuration"]["chunk_shape"]
    if math.prod(chunk) > max_pixels:
        size = " x ".join(map(str, chunk))
        raise DataError(expected(show(path), "chunks", f"at most {max_pixels} pixels", size))


def _pixels(folder: Path, shape: tuple[int, ...]) -> np.ndarray:
    import zarr  # starts slowly, and few ask for it

    pixels = np.asarray(zarr.open_array(str(folder), mode="r")[...]).reshape(shape)
    return pixels.astype(pixels.dtype.newbyteorder("="), copy=False)


def _multiscales(path: Path) -> dict[str, Any]:
    """The first entry of OME multiscales (versions 0.4 and 0.5), empty where there is none."""
    note = _old_attributes(path)
    if (path / "zarr.json").is_file():
        note = json.loads((path / "zarr.json").read_bytes()).get("attributes", {})
    entries = note.get("ome", note).get("multiscales") or [{}]
    return cast(dict[str, Any], entries[0])


def _geometry(path: Path, note: dict[str, Any], scales: dict[str, Any], axes: int) -> Geometry:
    given = note["attributes"].get("spacing")
    if given is not None:
        if not isinstance(given, list) or len(given) not in (axes, len(note["shape"])):
            rule = f"to be {axes} numbers, one per axis"
            raise DataError(expected(show(path), "spacing in the attributes", rule, given))
        unit = note["attributes"].get("unit")
        return _sound(given[-axes:], _UNITS.get(unit, unit), "Zarr attributes")
    steps = [each["scale"] for each in scales.get("coordinateTransformations", []) if each.get("type") == "scale"]
    units = {axis.get("unit") for axis in scales.get("axes", [])[-axes:]}
    if len(steps) != 1 or len(units) != 1:
        return Geometry()
    return _sound(steps[0][-axes:], _UNITS.get(units.pop()), "OME metadata")


def _sound(edges: list[float], unit: str | None, source: str) -> Geometry:
    if unit not in (None, *_UNITS.values()) or not all(math.isfinite(edge) and edge > 0 for edge in edges):
        return Geometry()
    return Geometry(spacing=tuple(map(float, edges)), unit=unit, source=source)
