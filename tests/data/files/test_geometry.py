"""Spacing from each kind of file, and when two maps are of different places."""

from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import zarr

from segmeter.data.files.geometry import Geometry, geometry_problem
from segmeter.data.masks.reading import read_map
from segmeter.data.sample import Reading
from tests.data.crafted import THREE
from tests.data.volumes import EDGES, VOLUME, save_nifti

READING = Reading(spec=THREE, label_map={}, max_pixels=1000)


def geometry_of(path: Path) -> Geometry:
    return read_map(path, READING).geometry


@pytest.mark.parametrize(("unit", "name", "factor"), [("mm", "mm", 1), (None, "mm", 1), ("micron", "um", 1e-3)])
def test_a_nifti_header_has_spacing_and_place(unit: str | None, name: str, factor: float, tmp_path: Path) -> None:
    found = geometry_of(save_nifti(tmp_path / "a.nii.gz", origin=(1, 2, 3), unit=unit))
    assert (found.spacing, found.unit, found.source) == (EDGES, name, "NIfTI header")
    assert found.affine is not None
    assert np.diag(found.affine).tolist() == pytest.approx([0.25 * factor, 0.5 * factor, 3 * factor, 1], rel=1e-12)
    assert found.affine[:3, 3].tolist() == pytest.approx([factor, 2 * factor, 3 * factor], rel=1e-12)


def test_a_header_that_says_two_things_is_in_conflict(tmp_path: Path) -> None:
    path = save_nifti(tmp_path / "a.nii")
    content = bytearray(path.read_bytes())
    content[80:84] = np.array([0.3], "<f4").tobytes()  # pixdim of x
    path.write_bytes(bytes(content))
    found = geometry_of(path)
    assert found.spacing is None
    assert "to say one spacing, got pixdim (0.3, 0.5, 3) and an affine of (0.25, 0.5, 3)" in found.spacing_problem


@pytest.mark.parametrize("given", [[0.5, 0.25], [1, 3, 0.5, 0.25], 2.0])
def test_a_zarr_spacing_of_other_axes_is_refused(given: object, tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "a.zarr"), data=VOLUME, attributes={"spacing": given})
    found = geometry_of(tmp_path / "a.zarr")
    assert found.spacing is None
    assert "expected `spacing` to be 3 numbers, one per axis, got" in found.spacing_problem


def affine(*edges: float, origin: tuple[float, float, float] = (0, 0, 0)) -> np.ndarray:
    found = np.diag([*edges, 1.0])
    found[:3, 3] = origin
    return found


BASE = Geometry(spacing=(3.0, 0.5, 0.25), unit="mm", affine=affine(0.25, 0.5, 3.0, origin=(10, 20, 30)))
SHAPE = (17, 512, 512)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({}, id="the same"),
        pytest.param({"spacing": None, "affine": None}, id="says nothing"),
        pytest.param({"spacing": (3.0001, 0.5, 0.25)}, id="rounded spacing"),
        pytest.param({"spacing": (3000.0, 500.0, 250.0), "unit": "um"}, id="another unit"),
        pytest.param({"spacing": (3 / 25.4, 0.5 / 25.4, 0.25 / 25.4), "unit": "inch"}, id="inches"),
        pytest.param({"affine": affine(1, 1, 1), "source": "OME metadata"}, id="another world"),
        pytest.param({"affine": affine(0.25, 0.5, 3.0, origin=(10.01, 20, 30))}, id="rounded origin"),
        pytest.param({"affine": affine(0.2500001, 0.5, 3.0, origin=(10, 20, 30))}, id="float32 direction"),
    ],
)
def test_rounding_is_no_difference(other: dict[str, object]) -> None:
    given = replace(BASE, **other)  # type: ignore[arg-type]
    assert geometry_problem(Path("p"), given, Path("r"), BASE, SHAPE) == []


PLACE = affine(0.25, 0.5, 3.0, origin=(10.125, 20, 30))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        pytest.param(
            {"spacing": (3.0, 0.5, 0.26)},
            "p: expected `spacing` to be that of its reference r, (3, 0.5, 0.25) mm, got (3, 0.5, 0.26) mm.",
            id="spacing",
        ),
        pytest.param({"unit": "um"}, "got (3, 0.5, 0.25) um.", id="unit"),
        pytest.param({"affine": PLACE}, "[10., 20., 30.], got [10.125, 20.   , 30.   ]", id="half a pixel"),
        pytest.param({"affine": affine(-0.25, 0.5, 3.0)}, "`affine (columns: file axes)`", id="mirrored"),
        pytest.param({"affine": affine(0.2505, 0.5, 3.0, origin=(10, 20, 30))}, "`affine (", id="drifting"),
    ],
)
def test_another_place_is_refused_with_both(other: dict[str, object], message: str) -> None:
    given = replace(BASE, **other)  # type: ignore[arg-type]
    (problem,) = geometry_problem(Path("p"), given, Path("r"), BASE, SHAPE)
    assert message in problem
    assert problem.endswith("or data.resample=nearest brings the prediction onto the reference's grid.")


def test_what_nibabel_writes_as_a_quaternion_is_the_same_place(tmp_path: Path) -> None:
    """Turned by almost half a turn, where float32 quaternions are at their worst."""
    angle = np.pi - 0.01
    turn = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    full = np.eye(4)
    full[:3, :3] = turn @ np.diag([0.25, 0.5, 3.0])
    shape = (17, 200, 200)
    for name, codes in (("a.nii", (0, 1)), ("b.nii", (1, 0))):
        image = nibabel.Nifti1Image(np.zeros(shape[::-1], np.uint8), None)
        image.set_sform(full, codes[0])
        image.set_qform(full, codes[1])
        nibabel.save(image, tmp_path / name)
    reading = replace(READING, max_pixels=10**6)
    one, two = (read_map(tmp_path / name, reading).geometry for name in ("a.nii", "b.nii"))
    assert not np.array_equal(one.affine, two.affine)
    assert geometry_problem(Path("a"), one, Path("b"), two, shape) == []
