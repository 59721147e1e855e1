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

from segmeter.data.files.geometry import Geometry
from segmeter.data.masks.reading import read_map
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from tests.data.crafted import THREE
from tests.data.volumes import VOLUME, save_nifti

READING = Reading(spec=THREE, label_map={}, max_pixels=1000)
Edges = tuple[Any, Any, Any]  # z, y, x
Writer = Callable[[Path, Edges, Any], Path]


def zarr_attributes(path: Path, edges: Edges, units: Any, version: int = 3) -> Path:
    attributes = {"spacing": list(edges)} | ({} if units is None else {"unit": units})
    zarr.create_array(str(path / "a.zarr"), data=VOLUME, attributes=attributes, zarr_format=version)
    return path / "a.zarr"


def zarr_2(path: Path, edges: Edges, units: Any) -> Path:
    return zarr_attributes(path, edges, units, version=2)


def ome_zarr(path: Path, edges: Edges, units: Any) -> Path:
    group = zarr.open_group(str(path / "a.ome.zarr"), mode="w")
    group.create_array("0", data=VOLUME)
    each = units if isinstance(units, list) else [units] * 3
    axes = [{"name": n, "type": "space"} | ({} if u is None else {"unit": u}) for n, u in zip("zyx", each, strict=True)]
    sets = [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": list(edges)}]}]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": sets}]}
    return path / "a.ome.zarr"


def ome_tiff(path: Path, edges: Edges, units: Any) -> Path:
    each = units if isinstance(units, list) else [units] * 3
    sizes = {f"PhysicalSize{n}": edge for n, edge in zip("ZYX", edges, strict=True)}
    named = {f"PhysicalSize{n}Unit": u for n, u in zip("ZYX", each, strict=True) if u is not None}
    said = {"axes": "ZYX", **{n: e for n, e in sizes.items() if e is not None}, **named}
    tifffile.imwrite(path / "a.ome.tif", VOLUME, ome=True, photometric="minisblack", metadata=said)
    return path / "a.ome.tif"


def imagej(path: Path, edges: Edges, units: Any) -> Path:
    depth, *plane = edges
    said = {"axes": "ZYX", "spacing": depth} | ({} if units is None else {"unit": units.replace("\u00b5", "\\u00B5")})
    options = {"imagej": True, "photometric": "minisblack", "resolution": (1 / plane[1], 1 / plane[0])}
    tifffile.imwrite(path / "a.tif", VOLUME, metadata=said, **options)
    return path / "a.tif"


CODES = {"meter": 1, "mm": 2, "micron": 3, None: 0, "furlong": 5}  # of NIfTI; 5 is none


def nifti(path: Path, edges: Edges, units: Any) -> Path:
    """With codes of 0 for both forms, so that `pixdim` alone states the edges."""
    file = save_nifti(path / "a.nii")
    content = bytearray(file.read_bytes())
    content[80:92] = np.array(edges[::-1], "<f4").tobytes()
    content[123] = CODES[units]
    content[252:256] = np.zeros(2, "<i2").tobytes()
    file.write_bytes(bytes(content))
    return file


WRITERS = [zarr_attributes, zarr_2, ome_zarr, ome_tiff, imagej, nifti]
BY_NAME = [pytest.param(writer, id=writer.__name__) for writer in WRITERS]
UNITS = {
    "mm": "mm", "millimeter": "mm", "millimetre": "mm", "meter": "m", "micron": "um", "micrometre": "um",
    "\u00b5m": "um", "\u03bcm": "um", "nm": "nm", "inch": "inch", "angstrom": "angstrom",
}  # fmt: skip
BAD = [-0.5, 0, math.nan, math.inf, -math.inf, "text", True, None, [0.5]]


def can_name(writer: Writer, unit: str) -> bool:
    """NIfTI has three codes; tifffile writes ASCII to ImageJ's description, which escapes one of both mus."""
    return unit in CODES if writer is nifti else not (writer is imagej and unit == "\u03bcm")


def can_state(writer: Writer, bad: Any) -> bool:
    """NIfTI has floats only, TIFF texts only: no true, null or list."""
    return isinstance(bad, float) or bad == 0 or (writer is not nifti and isinstance(bad, str)) or "zarr" in str(writer)


def geometry(path: Path) -> Geometry:
    return read_map(path, READING).geometry


@pytest.mark.parametrize(
    ("writer", "unit"), [pytest.param(w, u, id=f"{w.__name__}-{u}") for w in WRITERS for u in UNITS if can_name(w, u)]
)
def test_a_unit_is_understood_in_every_format(writer: Writer, unit: str, tmp_path: Path) -> None:
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
def test_an_edge_that_is_no_length_is_refused_by_name(writer: Writer, bad: Any, axis: int, tmp_path: Path) -> None:
    edges = [3.0, 0.5, 0.25]
    edges[axis] = bad
    path = writer(tmp_path, tuple(edges), "mm")  # type: ignore[arg-type]
    found = geometry(path)
    assert found.spacing is None
    assert found.spacing_problem.startswith(f"{path}")
    assert "expected" in found.spacing_problem
    assert found.spacing_problem.endswith("set metrics.spacing to the one that is right.")


@pytest.mark.parametrize("writer", BY_NAME)
def test_a_unit_that_is_no_length_is_refused_by_name(writer: Writer, tmp_path: Path) -> None:
    found = geometry(writer(tmp_path, (3.0, 0.5, 0.25), "furlong"))
    assert found.spacing is None
    assert "expected `unit` of the spacing to be a length such as nm, um, mm or inch" in found.spacing_problem
    assert "'furlong'" in found.spacing_problem or "'code 5'" in found.spacing_problem


@pytest.mark.parametrize("writer", [zarr_attributes, zarr_2, ome_zarr, ome_tiff])
@pytest.mark.parametrize("units", [["mm", "um", "um"], ["millimeter", "micrometer", "micrometre"]], ids=str)
def test_mixed_units_are_those_of_the_last_axis(writer: Writer, units: list[str], tmp_path: Path) -> None:
    found = geometry(writer(tmp_path, (0.003, 0.5, 0.25), units))
    assert found.unit == "um"
    assert found.spacing == pytest.approx((3.0, 0.5, 0.25), rel=1e-12)


@pytest.mark.parametrize("writer", [zarr_attributes, zarr_2, ome_zarr])
def test_a_unit_for_some_axes_only_is_refused(writer: Writer, tmp_path: Path) -> None:
    found = geometry(writer(tmp_path, (3.0, 0.5, 0.25), [None, "um", "um"]))
    assert "`unit` of the spacing to be named for every axis or for none, got none, um, um" in found.spacing_problem


@pytest.mark.parametrize("writer", BY_NAME)
def test_without_a_unit_there_is_a_spacing_by_the_formats_own_rule(writer: Writer, tmp_path: Path) -> None:
    found = geometry(writer(tmp_path, (3.0, 0.5, 0.25), None))
    rule = {ome_tiff: "um", nifti: "mm"}  # defaults of their specifications
    assert (found.spacing, found.unit) == ((3.0, 0.5, 0.25), rule.get(writer))  # type: ignore[call-overload]


def test_imagejs_own_rules(tmp_path: Path) -> None:
    """No depth is a depth of 1; 72 per inch is a picture without a scale; two units are none."""
    options: dict[str, Any] = {"imagej": True, "photometric": "minisblack"}
    files = {
        "no depth": ({"unit": "um"}, (4, 2), None, ((1.0, 0.5, 0.25), "um")),
        "72 dpi": ({}, (72, 72), "INCH", (None, None)),
        "per cm": ({"spacing": 2}, (4, 2), "CENTIMETER", ((2.0, 0.5, 0.25), "cm")),
        "nothing": ({}, None, None, (None, None)),
        "pixels": ({"unit": "pixel", "spacing": 3}, None, None, ((3.0, 1.0, 1.0), None)),
    }
    for name, (said, resolution, per, wanted) in files.items():
        path = tmp_path / f"{name}.tif"
        tifffile.imwrite(
            path, VOLUME, metadata={"axes": "ZYX", **said}, resolution=resolution, resolutionunit=per, **options
        )
        found = geometry(path)
        assert ((found.spacing, found.unit), found.spacing_problem) == (wanted, ""), name
    tifffile.imwrite(
        tmp_path / "zero.tif", VOLUME, metadata={"axes": "ZYX", "unit": "um"}, resolution=(4, 0), **options
    )
    assert "(1, inf, 0.25)" in geometry(tmp_path / "zero.tif").spacing_problem
    both = {"metadata": {"axes": "ZYX", "unit": "um"}, "resolution": (4, 2), "resolutionunit": "CENTIMETER"}
    tifffile.imwrite(tmp_path / "both.tif", VOLUME, **both, **options)
    assert "'um' in the description and cm in the resolution tags" in geometry(tmp_path / "both.tif").spacing_problem


def test_resolution_tags_alone_are_for_printing_and_say_so(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", VOLUME[0], resolution=(300, 300), resolutionunit="INCH")
    found = geometry(tmp_path / "a.tif")
    assert (found.spacing, found.source) == (None, "none (resolution tags are for printing)")


def affine_of(found: Geometry) -> list[float]:
    assert found.affine is not None
    return [*np.diag(found.affine)[:3].tolist(), *found.affine[:3, 3].tolist()]


def multiscales(path: Path, own: list[Any], of_all: list[Any], *, version: int = 3, **more: Any) -> Geometry:
    """An OME-Zarr picture whose array and whole have these transformations."""
    group = zarr.open_group(str(path / "a.zarr"), mode="w", zarr_format=version)
    group.create_array("0", data=VOLUME[None])
    axes = [{"name": "c", "type": "channel"}, *({"name": n, "type": "space", "unit": "micrometer"} for n in "zyx")]
    entry = {"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": own}]} | more
    entry |= {"coordinateTransformations": of_all} if of_all else {}
    attributes = {"multiscales": [{"version": "0.4", **entry}]}
    group.attrs.update(attributes if version == 2 else {"ome": {"version": "0.5", "multiscales": [entry]}})
    return geometry(path / "a.zarr")


SCALE = {"type": "scale", "scale": [1, 3, 0.5, 0.25]}
SHIFT = {"type": "translation", "translation": [0, 10, 20, 30]}


@pytest.mark.parametrize("version", [2, 3], ids=["0.4", "0.5"])
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
def test_transformations_of_the_whole_picture_follow_the_arrays_own(
    own: list[Any],
    of_all: list[Any],
    spacing: tuple[float, ...],
    origin: tuple[float, ...],
    version: int,
    tmp_path: Path,
) -> None:
    found = multiscales(tmp_path, own, of_all, version=version)
    assert (found.spacing, found.unit, found.spacing_problem) == (spacing, "um", "")
    assert affine_of(found) == pytest.approx([e / 1000 for e in (*spacing[::-1], *origin[::-1])], rel=1e-12)


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
def test_other_transformations_are_refused_by_name(step: dict[str, Any], level: str, tmp_path: Path) -> None:
    found = multiscales(tmp_path, [step] if level == "own" else [SCALE], [] if level == "own" else [step])
    assert found.spacing is None
    assert "expected `coordinateTransformations` to be scales and translations" in found.spacing_problem


def test_attributes_and_ome_metadata_must_say_one_spacing(tmp_path: Path) -> None:
    for name, spacing, problem in (("a", [3000, 500, 250], False), ("b", [3, 0.5, 0.3], True)):
        path = ome_zarr(tmp_path / name, (3.0, 0.5, 0.25), "um")
        zarr.open_array(str(path / "0")).attrs.update({"spacing": spacing, "unit": "nm" if name == "a" else "um"})
        found = geometry(path)
        assert bool(found.spacing_problem) is problem
        if problem:
            assert "(3, 0.5, 0.3) um there and (3, 0.5, 0.25) um in OME metadata" in found.spacing_problem


@pytest.mark.parametrize("names", [("c", "y", "x"), ("t", "y", "x"), ("x", "y", "z"), ("channel", "y", "x")])
def test_axes_that_are_named_and_are_not_depth_height_width_are_refused(names: tuple[str, ...], tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "a.zarr"), data=VOLUME, dimension_names=names)
    axes = [{"name": name, "type": "space"} for name in names]
    group = zarr.open_group(str(tmp_path / "b.zarr"), mode="w")
    group.create_array("0", data=VOLUME)
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": [{"path": "0"}]}]}
    zarr.create_array(
        str(tmp_path / "c.zarr"), data=VOLUME, zarr_format=2, attributes={"_ARRAY_DIMENSIONS": list(names)}
    )
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(DataError, match=rf"expected `axes` to be \(depth, height, width\).*got {', '.join(names)}"):
            read_map(path, READING)
