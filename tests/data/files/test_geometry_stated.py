"""Every reader, and every way in which a file can state the edges of its pixels: taken, or refused by name."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import zarr

from segmeter.data.masks.reading import read_map
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from tests.data.crafted import THREE, patch, write_multiscales, write_zarr
from tests.data.volumes import VOLUME, save_nifti

READING = Reading(spec=THREE, label_map={}, max_pixels=1000)
Edges = tuple[Any, Any, Any]  # z, y, x
Writer = Callable[[Path, Edges, Any], Path]


def zarr_attributes(path, edges, units, version=3):
    attributes = {"spacing": list(edges)} | ({} if units is None else {"unit": units})
    zarr.create_array(str(path / "a.zarr"), data=VOLUME, attributes=attributes, zarr_format=version)
    return path / "a.zarr"


def zarr_2(path, edges, units):
    return zarr_attributes(path, edges, units, version=2)


def ome_zarr(path, edges, units):
    group = zarr.open_group(str(path / "a.ome.zarr"), mode="w")
    write_multiscales(group, VOLUME, units=units, steps=[[{"type": "scale", "scale": list(edges)}]])
    return path / "a.ome.zarr"


def ome_tiff(path, edges, units):
    each = units if isinstance(units, list) else [units] * 3
    sizes = {f"PhysicalSize{n}": edge for n, edge in zip("ZYX", edges, strict=True)}
    named = {f"PhysicalSize{n}Unit": u for n, u in zip("ZYX", each, strict=True) if u is not None}
    said = {"axes": "ZYX", **{n: e for n, e in sizes.items() if e is not None}, **named}
    tifffile.imwrite(path / "a.ome.tif", VOLUME, ome=True, photometric="minisblack", metadata=said)
    return path / "a.ome.tif"


def imagej(path, edges, units):
    depth, *plane = edges
    said = {"axes": "ZYX", "spacing": depth} | ({} if units is None else {"unit": units.replace("\u00b5", "\\u00B5")})
    options = {"imagej": True, "photometric": "minisblack", "resolution": (1 / plane[1], 1 / plane[0])}
    tifffile.imwrite(path / "a.tif", VOLUME, metadata=said, **options)
    return path / "a.tif"


CODES = {"meter": 1, "mm": 2, "micron": 3, None: 0, "furlong": 5}  # of NIfTI; 5 is none


def nifti(path, edges, units):
    """With codes of 0 for both forms, so that `pixdim` alone states the edges."""
    file = save_nifti(path / "a.nii")
    patch(patch(file, 80, np.array(edges[::-1], "<f4").tobytes()), 123, bytes([CODES[units]]))
    return patch(file, 252, bytes(4))


WRITERS = [zarr_attributes, zarr_2, ome_zarr, ome_tiff, imagej, nifti]
BY_NAME = [pytest.param(writer, id=writer.__name__) for writer in WRITERS]
UNITS = {
    "mm": "mm", "millimeter": "mm", "millimetre": "mm", "meter": "m", "micron": "um", "micrometre": "um",
    "\u00b5m": "um", "\u03bcm": "um", "nm": "nm", "inch": "inch", "angstrom": "angstrom",
}  # fmt: skip
BAD = [-0.5, 0, math.nan, math.inf, -math.inf, "text", True, None, [0.5]]


def can_name(writer, unit):
    """NIfTI has three codes; tifffile writes ASCII to ImageJ's description, which escapes one of both mus."""
    return unit in CODES if writer is nifti else not (writer is imagej and unit == "\u03bcm")


def can_state(writer, bad):
    """NIfTI has floats only, TIFF texts only: no true, null or list."""
    return isinstance(bad, float) or bad == 0 or (writer is not nifti and isinstance(bad, str)) or "zarr" in str(writer)


def geometry(path):
    return read_map(path, READING).geometry


@pytest.mark.parametrize(
    ("writer", "unit"), [pytest.param(w, u, id=f"{w.__name__}-{u}") for w in WRITERS for u in UNITS if can_name(w, u)]
)
def test_a_unit_is_understood_in_every_format(writer, unit, tmp_path):
    found = geometry(writer(tmp_path, (3.0, 0.5, 0.25), unit))
    assert (found.spacing, found.unit, found.spacing_problem) == ((3.0, 0.5, 0.25), UNITS[unit], "")


@pytest.mark.parametrize(
    ("writer", "bad", "axis"),
    [
        pytest.param(w, bad, axis, id=f"{w.__name__}-{bad}-{'zyx'[axis]}")
        for w in WRITERS
        for bad in BAD
        for axis in (0, 2)
        if can_state(w, bad) and not (w is imagej and axis)  # of whose plane there are resolutions, see below
    ],
)
def test_an_edge_that_is_no_length_is_refused_by_name(writer, bad, axis, tmp_path):
    edges = [3.0, 0.5, 0.25]
    edges[axis] = bad
    path = writer(tmp_path, tuple(edges), "mm")
    found = geometry(path)
    assert found.spacing is None
    assert found.spacing_problem.startswith(f"{path}")
    assert found.spacing_problem.endswith("set metrics.spacing to the one that is right.")


@pytest.mark.parametrize("writer", BY_NAME)
def test_a_unit_that_is_no_length_is_refused_by_name(writer, tmp_path):
    found = geometry(writer(tmp_path, (3.0, 0.5, 0.25), "furlong"))
    assert found.spacing is None
    assert "expected `unit` of the spacing to be a length such as nm, um, mm or inch" in found.spacing_problem
    assert "'furlong'" in found.spacing_problem or "'code 5'" in found.spacing_problem


@pytest.mark.parametrize("writer", [zarr_attributes, zarr_2, ome_zarr, ome_tiff])
@pytest.mark.parametrize("units", [["mm", "um", "um"], ["millimeter", "micrometer", "micrometre"]], ids=str)
def test_mixed_units_are_those_of_the_last_axis(writer, units, tmp_path):
    found = geometry(writer(tmp_path, (0.003, 0.5, 0.25), units))
    assert found.unit == "um"
    assert found.spacing == pytest.approx((3.0, 0.5, 0.25), rel=1e-12)


@pytest.mark.parametrize("writer", [zarr_attributes, zarr_2, ome_zarr])
def test_a_unit_for_some_axes_only_is_refused(writer, tmp_path):
    found = geometry(writer(tmp_path, (3.0, 0.5, 0.25), [None, "um", "um"]))
    assert "`unit` of the spacing to be named for every axis or for none, got none, um, um" in found.spacing_problem


@pytest.mark.parametrize("writer", BY_NAME)
def test_without_a_unit_there_is_a_spacing_by_the_formats_own_rule(writer, tmp_path):
    found = geometry(writer(tmp_path, (3.0, 0.5, 0.25), None))
    rule = {ome_tiff: "um", nifti: "mm"}  # defaults of their specifications
    assert (found.spacing, found.unit) == ((3.0, 0.5, 0.25), rule.get(writer))


TWO_UNITS = "'um' in the description and cm in the resolution tags"


@pytest.mark.parametrize(
    ("said", "resolution", "per", "wanted", "problem"),
    [
        pytest.param({"unit": "um"}, (4, 2), None, ((1.0, 0.5, 0.25), "um"), "", id="no depth is a depth of 1"),
        pytest.param({}, (72, 72), "INCH", (None, None), "", id="72 dpi is no scale"),
        pytest.param({"spacing": 2}, (4, 2), "CENTIMETER", ((2.0, 0.5, 0.25), "cm"), "", id="per cm"),
        pytest.param({}, None, None, (None, None), "", id="nothing"),
        pytest.param({"unit": "pixel", "spacing": 3}, None, None, ((3.0, 1.0, 1.0), None), "", id="pixels"),
        pytest.param({"unit": "um"}, (4, 0), None, (None, None), "(1, inf, 0.25)", id="zero"),
        pytest.param({"unit": "um"}, (4, 2), "CENTIMETER", (None, None), TWO_UNITS, id="two units"),
    ],
)
def test_imagejs_own_rules(said, resolution, per, wanted, problem, tmp_path):
    options: dict[str, Any] = {"imagej": True, "photometric": "minisblack", "resolutionunit": per}
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, VOLUME, metadata={"axes": "ZYX", **said}, resolution=resolution, **options)
    found = geometry(path)
    assert (found.spacing, found.unit) == wanted
    assert problem in found.spacing_problem
    assert problem or not found.spacing_problem


def test_resolution_tags_alone_are_for_printing_and_say_so(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", VOLUME[0], resolution=(300, 300), resolutionunit="INCH")
    found = geometry(tmp_path / "a.tif")
    assert (found.spacing, found.source) == (None, "none (resolution tags are for printing)")


def multiscales(path, own, of_all, version="0.5"):
    """An OME-Zarr picture whose array and whole have these transformations."""
    group = zarr.open_group(str(path / "a.zarr"), mode="w", zarr_format=2 if version == "0.4" else 3)
    write_multiscales(group, VOLUME[None], axes="czyx", steps=[own], of_all=of_all, version=version)
    return geometry(path / "a.zarr")


SCALE = {"type": "scale", "scale": [1, 3, 0.5, 0.25]}
SHIFT = {"type": "translation", "translation": [0, 10, 20, 30]}


@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.parametrize(
    ("own", "of_all", "spacing", "origin"),
    [
        ([SCALE], [], (3, 0.5, 0.25), (0, 0, 0)),
        ([SCALE], [{"type": "scale", "scale": [1, 2, 4, 8]}], (6, 2, 2), (0, 0, 0)),
        ([SCALE, SHIFT], [], (3, 0.5, 0.25), (10, 20, 30)),
        ([SCALE, SHIFT], [{"type": "scale", "scale": [1, 2, 4, 8]}], (6, 2, 2), (20, 80, 240)),
        ([SCALE, SHIFT], [{"type": "scale", "scale": [1, 2, 4, 8]}, SHIFT], (6, 2, 2), (30, 100, 270)),
        ([{"type": "identity"}, SCALE], [SHIFT], (3, 0.5, 0.25), (10, 20, 30)),
    ],
)
def test_transformations_of_the_whole_picture_follow_the_arrays_own(own, of_all, spacing, origin, version, tmp_path):
    found = multiscales(tmp_path, own, of_all, version)
    assert (found.spacing, found.unit, found.spacing_problem) == (spacing, "um", "")
    mm = [e / 1000 for e in (*spacing[::-1], *origin[::-1])]
    assert [*np.diag(found.affine)[:3], *found.affine[:3, 3]] == pytest.approx(mm, rel=1e-12)


@pytest.mark.parametrize(
    "step",
    [
        {"type": "affine", "affine": [[1, 0, 0, 0]]},
        {"type": "scale", "path": "scales"},
        {"type": "scale", "scale": [1, "a", 2, 3]},
        {"type": "scale", "scale": [1, 2]},
        {"type": "rotation"},
        {},
    ],
    ids=json.dumps,
)
@pytest.mark.parametrize("level", ["own", "of all"])
def test_other_transformations_are_refused_by_name(step, level, tmp_path):
    found = multiscales(tmp_path, [step] if level == "own" else [SCALE], [] if level == "own" else [step])
    assert found.spacing is None
    assert "expected `coordinateTransformations` to be scales and translations" in found.spacing_problem


@pytest.mark.parametrize(
    ("spacing", "unit", "problem"),
    [
        ([3000, 500, 250], "nm", ""),
        ([3, 0.5, 0.3], "um", "to be that of OME metadata, got (3, 0.5, 0.3) um and (3, 0.5, 0.25) um"),
    ],
)
def test_attributes_and_ome_metadata_must_say_one_spacing(spacing, unit, problem, tmp_path):
    path = ome_zarr(tmp_path, (3.0, 0.5, 0.25), "um")
    zarr.open_array(str(path / "0")).attrs.update({"spacing": spacing, "unit": unit})
    found = geometry(path).spacing_problem
    assert problem in found
    assert problem or not found


@pytest.mark.parametrize("names", [("c", "y", "x"), ("t", "y", "x"), ("x", "y", "z"), ("channel", "y", "x")])
def test_axes_that_are_named_and_are_not_depth_height_width_are_refused(names, tmp_path):
    write_zarr(tmp_path / "a.zarr", VOLUME, names)
    write_multiscales(zarr.open_group(str(tmp_path / "b.zarr"), mode="w"), VOLUME, axes=names)
    write_zarr(tmp_path / "c.zarr", VOLUME, names, zarr_format=2)
    for name in "abc":
        given = ", ".join("channel" if (name, each) == ("b", "c") else each for each in names)  # OME metadata tells
        with pytest.raises(DataError, match=rf"expected `axes` to be \(depth, height, width\).*, got {given}"):
            read_map(tmp_path / f"{name}.zarr", READING)
