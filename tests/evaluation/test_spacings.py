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

from segmeter.data.files.geometry import Geometry
from segmeter.errors import DataError, InputError
from segmeter.evaluation.pairing import find_pairs
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
ONE_SIDE = "only some files say where they lie; the axes of the others are taken as (depth, height, width) (1: a)."


def save_zarr(path, volume, **attributes):
    zarr.create_array(str(path), data=volume, attributes=attributes)


def shown(summary):
    text = io.StringIO()
    print_summary(summary, file=text)
    return text.getvalue()


def test_two_units_of_one_length_are_one_place_and_the_references_is_taken(tmp_path):
    save_zarr(tmp_path / "references" / "a.zarr", VOLUME, spacing=[3, 0.5, 0.5], unit="millimeter")
    save_zarr(tmp_path / "predictions" / "a.zarr", VOLUME, spacing=[3000, 500, 500], unit="\u00b5m")
    summary = score(replace(scoring(tmp_path), metrics=SURFACES))
    (row,) = read_cases(tmp_path)
    assert (row.spacing, row.unit) == ((3.0, 0.5, 0.5), "mm")
    assert summary["spacing"]["warnings"] == []
    save_zarr(tmp_path / "two" / "predictions" / "a.zarr", VOLUME, spacing=[3, 0.5, 0.5], unit="um")
    save_zarr(tmp_path / "two" / "references" / "a.zarr", VOLUME, spacing=[3, 0.5, 0.5], unit="mm")
    with pytest.raises(DataError, match=r"\(3, 0\.5, 0\.5\) mm, got \(3, 0\.5, 0\.5\) um"):
        score(scoring(tmp_path / "two"))


@pytest.mark.parametrize("role", ["references", "predictions"])
def test_a_spacing_that_cannot_be_used_is_refused_unless_the_configuration_has_one(role, tmp_path):
    other = {"references": "predictions", "predictions": "references"}[role]
    save_zarr(tmp_path / role / "a.zarr", VOLUME, spacing=[3, 0.5, -0.5], unit="mm")
    save_zarr(tmp_path / other / "a.zarr", VOLUME)
    with pytest.raises(DataError, match=rf"{role}/a\.zarr: Zarr attributes: expected `spacing` to be a finite number"):
        score(scoring(tmp_path))
    summary = score(replace(scoring(tmp_path), metrics=SURFACES.replace(spacing=EDGES)))
    assert (summary["spacing"]["overridden"], read_cases(tmp_path)[0].spacing) == (1, EDGES)


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
    page = write_report(tmp_path, ReportConfig()).read_text()
    for text in (shown(summary), page):
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


def saved_pair(root, target, labels, name="a.npy"):
    save_nifti(root / "references" / "a.nii.gz", target)
    save_volume(root / "predictions" / name, labels)


CUBE = np.random.default_rng(5).integers(0, 3, (4, 6, 4)).astype(np.uint8)  # reversed it has the same size


def test_a_prediction_without_a_place_is_warned_of_and_a_reversed_one_refused(tmp_path):
    """nibabel gives (i, j, k)."""
    saved_pair(tmp_path / "ours", CUBE, CUBE)
    assert score(scoring(tmp_path / "ours"))["spacing"]["warnings"] == [ONE_SIDE]
    saved_pair(tmp_path / "size", VOLUME, np.ascontiguousarray(VOLUME.T))
    with pytest.raises(DataError, match=r"2 x 3 x 4, got 4 x 3 x 2 .*\. Its axes are reversed: save array\.T\."):
        score(scoring(tmp_path / "size"))


def test_places_on_both_sides_or_on_none_warn_of_nothing(tmp_path):
    saved_pair(tmp_path / "both", CUBE, CUBE, "a.nii")
    put_sides(tmp_path / "none", CUBE, CUBE, "a.npy")
    for name in ("both", "none"):
        assert score(scoring(tmp_path / name))["spacing"]["warnings"] == []


def test_warnings_survive_an_interruption(tmp_path):
    saved_pair(tmp_path, VOLUME, VOLUME)
    save_nifti(tmp_path / "references" / "b.nii.gz")
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
