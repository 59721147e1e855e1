"""Polygons in GeoJSON, as QuPath and `export.objects` write them -> label map. Needs no library of its own."""

import json
import os
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.files.formats.drawn import (
    Drawn,
    Overlap,
    check_corners,
    check_object_classes,
    draw_objects,
    fill_outline,
    find_labels,
)
from segmeter.data.files.sniff import check_json, damaged, show
from segmeter.errors import DataError

_KINDS = {"Polygon": 1, "MultiPolygon": 2}


def decode_geojson(
    path: Path, file: IO[bytes], *, shape: tuple[int, int], spec: ClassSpec, numbered: bool, overlap: Overlap
) -> NDArray[Any]:
    """Draw the polygons of an open file.

    A pixel belongs to a polygon that covers its centre; pixel (row, column) reaches from column to column + 1 in x and
    from row to row + 1 in y. Without polygons all is background.

    Parameters
    ----------
    path
        Only named in messages.
    file
        A FeatureCollection, a list of features, or a feature.
    shape
        (H, W) of the map; the file does not say it.
    spec
        The classes, whose names the features have in ``classification`` (QuPath) or ``class``.
    numbered, overlap
        As for `draw_objects`.

    Raises
    ------
    DataError
        The file is damaged, holds other shapes than polygons, names an unknown class, or its objects overlap.
    """
    check_json(path, file.seek(0, os.SEEK_END))
    file.seek(0)
    try:
        features = _features(json.load(file))
        names = [_class_name(feature) for feature in features]
        if not numbered and None in names:
            rule, remedy = "to have a class", "Classify it in QuPath, or score objects: data.instances."
            raise DataError(expected(show(path), "every feature", rule, f"{names.count(None)} without", remedy))
        labels = find_labels(path, [name for name in names if name is not None], spec)
        if numbered:
            check_object_classes(path, labels, spec)
        drawn = (
            Drawn(mask=_fill(path, feature["geometry"], shape), label=labels.get(str(name), 1))
            for feature, name in zip(features, names, strict=True)
        )
        return draw_objects(path, drawn, shape, spec=spec, numbered=numbered, overlap=overlap)
    except DataError:
        raise
    except Exception as error:  # JSON of other tools holds anything
        raise damaged(path, error) from error


def _features(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, list):
        return content
    found: list[dict[str, Any]] = [content] if content["type"] == "Feature" else content["features"]
    return found


def _class_name(feature: dict[str, Any]) -> str | None:
    properties = feature.get("properties") or {}
    name = (properties.get("classification") or {}).get("name") or properties.get("class")
    return None if name is None else str(name)


def _fill(path: Path, geometry: dict[str, Any], shape: tuple[int, int]) -> NDArray[np.bool_]:
    if geometry["type"] not in _KINDS:
        remedy = "Convert it to a polygon."
        raise DataError(expected(show(path), "every shape", "to be a polygon", geometry["type"], remedy))
    parts = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
    if not parts:
        raise ValueError("a shape without parts")
    mask = np.zeros(shape, bool)
    for rings in parts:
        mask |= _fill_part(path, rings, shape)
    return mask


def _fill_part(path: Path, rings: list[Any], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """One outline with its holes, which are cut from no other part."""
    if not rings:
        raise ValueError("a part without rings")
    mask = np.zeros(shape, bool)
    for number, ring in enumerate(rings):
        corners = np.array(ring, np.float64)[:, :2]
        if len(corners) < 3:
            raise ValueError("a ring of fewer than three corners")
        check_corners(path, corners, shape)
        mask[fill_outline(corners - 0.5, shape)] = number == 0  # the first ring is the outline, the others are holes
    return mask
