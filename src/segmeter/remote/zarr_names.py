"""Metadata of a Zarr folder -> the names of all objects that it may have, for a server that lists nothing."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, product
from typing import Any

from segmeter.checks import expected
from segmeter.errors import DataError
from segmeter.parallel import map_in_threads

MOST_NAMES = 100_000  # a request each
THREADS = 16  # that ask a web server for what is there: most of the time they wait

Read = Callable[[str], bytes | None]


def zarr_names(url: str, read: Read) -> list[str]:
    """Name the metadata and chunks of an array, or of the arrays that a group names.

    A group does so by consolidated metadata, or as OME-Zarr by its multiscales and labels. The chunks are those of each
    array's own metadata; what is all zeros may have no object.

    Parameters
    ----------
    url
        Of the folder, for messages.
    read
        The content of an object below it; None where there is none. Called from several threads at once.

    Raises
    ------
    DataError
        There is no Zarr of versions 2 or 3, a group does not name its arrays, or there are too many names.

    References
    ----------
    Zarr specifications 2 and 3, https://zarr-specs.readthedocs.io: chunk keys; OME-Zarr 0.4 and 0.5: multiscales.
    """
    names = list[str]()
    try:
        for name in _names(url, read):
            names.append(name)
            if len(names) > MOST_NAMES:
                raise _too_many(url)
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DataError(expected(url, "metadata", "to be those of Zarr 2 or 3", reason)) from error
    return names


def _too_many(url: str) -> DataError:
    rule = f"to have at most {MOST_NAMES} chunks, as a web server is asked for each"
    return DataError(expected(url, "Zarr folder", rule, "more", "Give an archive: zip://FOLDER::URL."))


def _names(url: str, read: Read) -> Iterator[str]:
    level, seen = [("", False)], {""}
    while level:
        found = map_in_threads(lambda each: _folder(url, *each, read), level, threads=THREADS, name="metadata")
        level = []
        for names, below in found:
            yield from names
            fresh = {place: listed for place, listed in below if place not in seen}
            seen.update(fresh)
            level += fresh.items()


def _folder(url: str, place: str, listed: bool, read: Read) -> tuple[Iterable[str], list[tuple[str, bool]]]:
    """Names of the files of an array or group, and the folders below it.

    Each folder comes with whether a group above it has consolidated metadata, which list all that is below that group.
    """
    files, array, group = _metadata(place, read)
    if array is not None:
        return (place + name for name in chain(files, _chunks(url, array))), []
    if group is None:
        where = f"{url}/{place}".rstrip("/")
        remedy = "If it was deleted, take its name out of the metadata of the group above it." if place else ""
        raise DataError(expected(where, "Zarr folder", "to have zarr.json, .zarray or .zgroup", "none of them", remedy))
    below = _consolidated(group)
    listed = listed or below is not None
    if not listed:
        below = _of_ome(place, group, read)
    return [place + name for name in files], [(f"{place}{name.strip('/')}/", listed) for name in below or ()]


def _metadata(place: str, read: Read) -> tuple[list[str], dict[str, Any] | None, dict[str, Any] | None]:
    """Names of the files of metadata that may be in a folder, and what they say of an array or of a group."""
    modern = read(f"{place}zarr.json")
    if modern is not None:
        note = json.loads(modern)
        kind = note["node_type"]
        if kind not in ("array", "group"):
            raise ValueError(f"node_type {kind!r}")
        return ["zarr.json"], note if kind == "array" else None, note if kind == "group" else None
    old = read(f"{place}.zarray")
    if old is not None:
        return [".zarray", ".zattrs"], json.loads(old), None
    if read(f"{place}.zgroup") is None:
        return [], None, None
    whole, attributes = (json.loads(read(place + name) or b"{}") for name in (".zmetadata", ".zattrs"))
    return [".zgroup", ".zattrs", ".zmetadata"], None, {"metadata": whole.get("metadata"), "attributes": attributes}


def _consolidated(group: dict[str, Any]) -> list[str] | None:
    """The folders of all that is below a group, where its metadata hold those of all; None where they do not."""
    if group.get("metadata") is not None:  # of version 2: name of a file -> content
        return [name.rpartition("/")[0] for name in group["metadata"] if "/" in name]
    held = group.get("consolidated_metadata")
    return None if held is None else list(held["metadata"])


def _of_ome(place: str, group: dict[str, Any], read: Read) -> list[str]:
    """The levels and label maps of an OME-Zarr picture."""
    attributes = group.get("attributes") or {}
    attributes = attributes.get("ome", attributes)
    levels = [str(each["path"]) for entry in attributes.get("multiscales", []) for each in entry["datasets"]]
    labels = [str(name) for name in attributes.get("labels", [])]
    if not levels and not labels:
        rule = "to name its arrays, as a web server lists nothing"
        remedy = "Consolidate its metadata, or give an archive: zip://FOLDER::URL."
        raise DataError(expected(place.rstrip("/") or "Zarr folder", "group", rule, "none", remedy))
    has_labels = levels and any(read(f"{place}labels/{name}") is not None for name in ("zarr.json", ".zgroup"))
    return [*levels, *labels, *(["labels"] if has_labels else [])]


def _chunks(url: str, note: dict[str, Any]) -> Iterator[str]:
    """The key of each chunk of an array; of each shard, where several chunks are in one."""
    shape = note["shape"]
    if "node_type" in note:
        grid, coding = note["chunk_grid"], note["chunk_key_encoding"]
        if grid["name"] != "regular" or coding["name"] not in ("default", "v2"):
            raise ValueError(f"chunks of {grid['name']!r}, named by {coding['name']!r}")
        modern, edges = coding["name"] == "default", grid["configuration"]["chunk_shape"]
        separator = coding.get("configuration", {}).get("separator", "/" if modern else ".")
    else:
        modern, edges, separator = False, note["chunks"], note.get("dimension_separator", ".")
    if separator not in ("/", "."):
        raise ValueError(f"separator {separator!r}")
    if not all(type(size) is int and size >= 0 for size in shape) or not all(type(e) is int and e > 0 for e in edges):
        raise ValueError(f"shape {shape}, chunks {edges}")
    counts = [-(-size // edge) for size, edge in zip(shape, edges, strict=True)]
    if math.prod(counts) > MOST_NAMES:
        raise _too_many(url)
    for index in product(*map(range, counts)) if math.prod(counts) else ():
        parts = [*(["c"] if modern else []), *map(str, index)]
        yield separator.join(parts) or "0"
