"""Where the files of a case lie: what is compared, warned of, refused or resampled, and the unit of its distances."""

import io
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr
from sklearn.metrics import confusion_matrix

from segmeter.data.files.geometry import Geometry
from segmeter.errors import DataError, InputError
from segmeter.evaluation.mask_pairs import find_pairs
from segmeter.evaluation.score import refuse_files, score
from segmeter.evaluation.spacings import NOTE, onto_grid
from segmeter.metrics.cases.stored import read_cases, read_spec
from segmeter.metrics.config.measures import InstancesConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.summarise import summarise
from segmeter.report.config import ReportConfig
from segmeter.report.html import write_report
from segmeter.report.summary import print_summary
from tests.data.volumes import EDGES, VOLUME, save_nifti, save_volume
from tests.evaluation.masks import THREE, put_sides, scoring

SURFACES = MetricsConfig(bootstrap=0, measures=(SurfaceConfig(tolerances=(1.0,)),))


def save_zarr(path, volume, **attributes):
    zarr.create_array(str(path), data=volume, attributes=attributes)


OTHER = np.where(np.arange(24).reshape(2, 3, 4) % 5 == 0, 0, VOLUME).astype(np.uint8)
ONE_SIDE = "only some files say where they lie; the axes of the others are taken as (depth, height, width) (1: a)."
REPLACED = "metrics.spacing replaces another spacing in the files of cases (1: a)."
NIFTI, PLAIN = ("a.nii.gz", {}), ("a.npy", {})


def in_zarr(*spacing_and_unit):
    return "a.zarr", dict(zip(("spacing", "unit"), spacing_and_unit, strict=False))


def save(path, volume, **place):
    (save_nifti if ".nii" in path.name else save_zarr if path.suffix == ".zarr" else save_volume)(path, volume, **place)


IN_MM, UNUSABLE = in_zarr(EDGES, "millimeter"), in_zarr((3, 0.5, -0.5), "mm")
# Reference, prediction and configured spacing; the spacing and unit that count, and warnings
PLACED = {
    "one length in two units": (IN_MM, in_zarr([3000, 500, 250], "\u00b5m"), None, EDGES, "mm", []),
    "NIfTI beside NPZ": (("a.npz", {}), NIFTI, None, EDGES, "mm", [ONE_SIDE]),
    "NIfTI beside Zarr": (in_zarr(), NIFTI, None, EDGES, "mm", [ONE_SIDE]),
    "NPY beside NIfTI": (NIFTI, PLAIN, None, EDGES, "mm", [ONE_SIDE]),
    "NIfTI on both sides": (NIFTI, ("a.nii", {}), None, EDGES, "mm", []),
    "no place": (PLAIN, PLAIN, None, None, "pixels", []),
    "unusable in the reference": (UNUSABLE, in_zarr(), EDGES, EDGES, "", [REPLACED]),
    "unusable in the prediction": (in_zarr(), UNUSABLE, EDGES, EDGES, "", [REPLACED]),
}


@pytest.mark.parametrize("sides_and_found", PLACED.values(), ids=PLACED)
def test_a_case_lies_where_its_files_say_or_the_configuration(sides_and_found, tmp_path):
    *sides, wanted, spacing, unit, warnings = sides_and_found
    for side, volume, (name, place) in zip(("references", "predictions"), (VOLUME, OTHER), sides, strict=True):
        save(tmp_path / side / name, volume, **place)
    summary = score(replace(scoring(tmp_path), metrics=SURFACES.replace(spacing=wanted)))
    assert summary["confusion_matrix"] == confusion_matrix(VOLUME.ravel(), OTHER.ravel(), labels=range(3)).tolist()
    assert (summary["spacing"]["warnings"], summary["spacing"]["units"]) == (warnings, [unit])
    (row,) = read_cases(tmp_path)
    assert (row.depth, row.height, row.width, row.spacing) == (2, 3, 4, spacing)


# Reference, prediction and its volume, configured spacing, and the refusal
DISPLACED = {
    "two units": (IN_MM, in_zarr(EDGES, "um"), VOLUME, None, r"0\.25\) mm, got \(3, 0\.5, 0\.25\) um"),
    "unusable in the reference": (UNUSABLE, in_zarr(), VOLUME, None, r"references/a\.zarr: .*`spacing` to be a finite"),
    "unusable in the prediction": (in_zarr(), UNUSABLE, VOLUME, None, r"ictions/a\.zarr: .*`spacing` to be a finite"),
    "another spacing": (NIFTI, ("a.nii", {"edges": (3, 0.5, 0.3)}), VOLUME, None, r"`spacing` .*, 0\.3\) mm"),
    "another origin": (NIFTI, ("a.nii", {"origin": (0, 5, 0)}), VOLUME, None, "`origin` to be that of its reference"),
    "another size": (NIFTI, PLAIN, VOLUME[:, :2], None, r"4, got 2 x 2 x 4 \(depth x height x width\)"),
    "a plane": (PLAIN, PLAIN, VOLUME[0], None, r"2 x 3 x 4, got 3 x 4 \(height x width\)"),
    "reversed axes": (NIFTI, PLAIN, VOLUME.T, None, r"got 4 x 3 x 2 .*\. Its axes are reversed: save array\.T\."),
    "a spacing of other axes": (PLAIN, PLAIN, VOLUME, (1, 1), "to have 3 values, one per axis of 2 x 3 x 4, got 2"),
}


@pytest.mark.parametrize("sides_and_line", DISPLACED.values(), ids=DISPLACED)
def test_files_that_lie_elsewhere_are_refused(sides_and_line, tmp_path):
    *sides, volume, wanted, line = sides_and_line
    for side, each, (name, place) in zip(("references", "predictions"), (VOLUME, volume), sides, strict=True):
        save(tmp_path / side / name, np.ascontiguousarray(each), **place)
    with pytest.raises(DataError, match=line) as caught:
        score(replace(scoring(tmp_path), metrics=SURFACES.replace(spacing=wanted)))
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("save", "unit", "note"),
    [
        ({"spacing": [3, 0.5, 0.25], "unit": "inch"}, "inch", "distances and tolerances in inch"),
        ({"spacing": [3, 0.5, 0.25]}, None, "distances and tolerances in the unnamed unit of the spacing"),
        ({}, "pixels", "distances and tolerances in pixels"),
    ],
    ids=["named", "unnamed", "none"],
)
def test_distances_carry_their_unit_everywhere(save, unit, note, tmp_path):
    put_sides(tmp_path, VOLUME, VOLUME, "a.zarr", write=partial(save_zarr, **save))
    objects = InstancesConfig(distances=True)
    metrics = SURFACES.replace(measures=(*SURFACES.measures, objects), convention="all")
    summary = score(replace(scoring(tmp_path), metrics=metrics))
    assert json.loads((tmp_path / "metrics.json").read_text())["units"] == summary["units"]
    distances, ends = ("hd", "hd95", "hd95_pooled", "assd", "masd"), ("", "_marching_cubes")
    assert set(summary["units"]) == {f"{name}{end}" for name in distances for end in ends} | {"object_masd"}
    assert set(summary["units"].values()) == {unit}
    assert pq.read_table(tmp_path / "cases.parquet")["unit"].to_pylist() == [unit]
    printed = io.StringIO()
    print_summary(summary, file=printed)
    for text in (printed.getvalue(), write_report(tmp_path, ReportConfig()).read_text()):
        assert (f"HD95 ({unit})" if unit else "HD95") in text
        assert note in " ".join(text.split())


def test_rows_of_two_units_are_not_averaged_even_after_merging(tmp_path):
    rows = []
    for case, unit in (("a", "mm"), ("b", "um")):
        write = partial(save_zarr, spacing=[3, 0.5, 0.25], unit=unit)
        put_sides(tmp_path / case, VOLUME, VOLUME, f"{case}.zarr", write=write)
        score(replace(scoring(tmp_path / case), metrics=SURFACES))
        rows += read_cases(tmp_path / case)
    with pytest.raises(InputError, match=r"to have distances in one unit, got mm \(as a\), um \(as b\)"):
        summarise(rows, read_spec(tmp_path / "a"), SURFACES)
    summarise(rows, read_spec(tmp_path / "a"), MetricsConfig(bootstrap=0))  # overlaps have no unit


def test_warnings_survive_an_interruption(tmp_path):
    for case in "ab":
        save_nifti(tmp_path / "references" / f"{case}.nii.gz")
    save_volume(tmp_path / "predictions" / "a.npy")
    save_volume(tmp_path / "predictions" / "b.npy", VOLUME + 7)
    with pytest.raises(DataError, match=r"b\.npy"):
        score(scoring(tmp_path))
    save_volume(tmp_path / "predictions" / "b.npy", VOLUME)
    summary = score(replace(scoring(tmp_path), resume=True))
    assert summary["spacing"]["warnings"] == [ONE_SIDE.replace("1: a", "2: a, b")]


def test_names_that_can_not_be_paired_are_refused_without_problems_that_the_spacing_solves(tmp_path):
    for role, unit in (("references", "mm"), ("predictions", "bogus")):
        save_zarr(tmp_path / role / "a.zarr", VOLUME, spacing=[3, 0.5, -0.5], unit=unit)
    save_zarr(tmp_path / "references" / "b.zarr", VOLUME, spacing=[3, 0.5, 0.5], unit="mm")
    pairing = find_pairs(tmp_path / "predictions", tmp_path / "references", spec=THREE)
    assert [pair.case_id for pair in pairing.pairs] == ["a"]
    job = replace(scoring(tmp_path, missing="as_background"), pairing=pairing, metrics=SURFACES.replace(spacing=EDGES))
    with pytest.raises(DataError) as caught:
        refuse_files(job)
    assert caught.value.problems == pairing.problems


PATHS = {"path": Path("p.mha"), "reference": Path("r.mha")}


def place(*edges, origin=(0.0, 0.0, 0.0), angle=0.0, **more):
    """The place of a map with these edges along x, y and z in mm, turned about z."""
    cosine, sine = np.cos(angle), np.sin(angle)
    affine = np.eye(4)
    affine[:3, :3] = np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]]) * edges
    affine[:3, 3] = origin
    return Geometry(spacing=tuple(edges[::-1]), unit="mm", source="ITK header", affine=affine, **more)


def by_loop(values, geometry, wanted, shape):
    """The value whose centre is nearest to each new centre, one after the other; 0 outside."""
    found = np.zeros(shape, values.dtype)
    for index in np.ndindex(shape):
        backwards = np.array([*index[::-1], *[0] * (3 - len(shape)), 1.0])
        there = np.linalg.solve(geometry.affine, wanted.affine @ backwards)[: len(shape)][::-1]
        nearest = [int(np.floor(each + 0.5)) for each in there]
        if all(0 <= each < size for each, size in zip(nearest, values.shape, strict=True)):
            found[index] = values[tuple(nearest)]
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("axes", [2, 3])
def test_each_pixel_has_the_value_at_the_nearest_centre(seed, axes):
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 9, (5, 9, 11)[-axes:]).astype(np.uint8)
    origin = (*rng.uniform(-1, 1, 2), 0.0)
    geometry = place(0.8, 0.6, 2.1, origin=origin, angle=rng.uniform(-1, 1))
    wanted = place(0.5, 0.7, 1.9, origin=(0.3, -0.4, 0.1), note="The header says so" if seed else "")
    shape = (6, 8, 10)[-axes:]
    found, now = onto_grid(**PATHS, values=values, geometry=geometry, wanted=wanted, shape=shape)
    expected = by_loop(values, geometry, wanted, shape)
    assert found.dtype == values.dtype
    assert 0 < np.count_nonzero(expected) < expected.size or seed > 1
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(now.affine, wanted.affine)
    assert now.note == (f"The header says so; {NOTE}" if seed else NOTE)


MAP, HERE = np.ones((4, 5), np.uint8), place(1, 1, 1)


@pytest.mark.parametrize(
    ("geometry", "wanted", "shape"),
    [
        pytest.param(HERE, HERE, (4, 5), id="one grid"),
        pytest.param(HERE.having(affine=None), place(2, 2, 1), (2, 2), id="no place"),
        pytest.param(HERE, place(2, 2, 1).having(affine=None), (2, 2), id="no place of the reference"),
        pytest.param(HERE, place(2, 2, 1).having(source="OME metadata"), (2, 2), id="another world"),
        pytest.param(HERE.having(crs="EPSG:1"), place(2, 2, 1).having(crs="EPSG:2"), (2, 2), id="another system"),
        pytest.param(HERE, place(2, 2, 1), (2, 2, 2), id="another number of axes"),
    ],
)
def test_what_need_not_or_can_not_be_brought_there_is_left(geometry, wanted, shape):
    assert onto_grid(**PATHS, values=MAP, geometry=geometry, wanted=wanted, shape=shape) is None


@pytest.mark.parametrize("origin", [(100.0, 0.0, 0.0), (0.0, 0.0, 0.6)], ids=["far away", "in another slice"])
def test_grids_without_a_common_pixel_are_refused(origin):
    wanted = place(1, 1, 1, origin=origin)
    with pytest.raises(DataError) as error:
        onto_grid(**PATHS, values=MAP, geometry=HERE, wanted=wanted, shape=(4, 5))
    (line,) = error.value.problems
    assert line.startswith("p.mha: expected `grid` to overlap that of its reference r.mha, got 4 x 5, ")
