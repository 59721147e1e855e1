"""Volumes through the whole of scoring: counts, sizes, spacings and where these come from."""

import json
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from segmeter.classes import ClassSpec
from segmeter.errors import DataError
from segmeter.evaluation.pairing import find_probs
from segmeter.evaluation.score import score
from segmeter.metrics.cases.stored import read_cases
from segmeter.metrics.config.measures import InstancesConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from tests.data.volumes import EDGES, VOLUME, save_nifti, save_volume
from tests.evaluation.masks import FEW, changed, scoring

OTHER = np.where(np.arange(24).reshape(2, 3, 4) % 5 == 0, 0, VOLUME).astype(np.uint8)
MEASURED = MetricsConfig(bootstrap=0, measures=(SurfaceConfig(),))


@pytest.mark.parametrize("name", ["a.nii.gz", "a.npz", "a.npy", "a.tif", "a.zarr"])
def test_a_volume_is_counted_and_its_row_says_its_shape(name: str, tmp_path: Path) -> None:
    save_volume(tmp_path / "references" / name, VOLUME)
    save_volume(tmp_path / "predictions" / "a.nii", OTHER.astype(np.float32))
    job = scoring(tmp_path)
    summary = score(job)
    assert summary["confusion_matrix"] == confusion_matrix(VOLUME.ravel(), OTHER.ravel(), labels=range(3)).tolist()
    (row,) = read_cases(tmp_path)
    assert (row.case_id, row.shape, row.spacing) == ("a", (2, 3, 4), EDGES)
    known = {key: summary["spacing"][key] for key in ("sources", "units", "overridden")}
    assert known == {"sources": {"NIfTI header": 1}, "units": ["mm"], "overridden": 0}


def test_multilabel_volumes_have_one_folder_per_class(tmp_path: Path) -> None:
    for name, value in (("x", 1), ("y", 2)):
        save_volume(tmp_path / "references" / name / "a.npy", np.equal(VOLUME, value).astype(np.uint8))
        save_volume(tmp_path / "predictions" / name / "a.nii.gz", np.equal(OTHER, value).astype(np.uint8))
    spec = ClassSpec(task="multilabel", names=("x", "y"), colours=((0, 0, 0), (9, 9, 9)))
    summary = score(scoring(tmp_path, spec=spec))
    wanted = [confusion_matrix(np.equal(VOLUME, v).ravel(), np.equal(OTHER, v).ravel()).tolist() for v in (1, 2)]
    assert summary["confusion_matrices"] == wanted
    assert read_cases(tmp_path)[0].shape == (2, 3, 4)


def test_distances_are_in_the_unit_of_the_file(tmp_path: Path) -> None:
    target = np.zeros((4, 6, 8), np.uint8)
    target[1:3, 1:4, 1:5] = 1
    save_nifti(tmp_path / "references" / "a.nii.gz", target)
    save_nifti(tmp_path / "predictions" / "a.nii.gz", np.roll(target, 1, axis=0))
    score(replace(scoring(tmp_path), metrics=MEASURED))
    assert read_cases(tmp_path)[0].scores["hd/b"] == 3.0
    score(replace(scoring(tmp_path), metrics=MEASURED.replace(spacing=(2.0, 1.0, 1.0))))
    assert read_cases(tmp_path)[0].scores["hd/b"] == 2.0


def test_the_configurations_spacing_wins_and_says_so(tmp_path: Path) -> None:
    for role in ("references", "predictions"):
        save_nifti(tmp_path / role / "a.nii.gz")
        save_volume(tmp_path / role / "b.npy")
    summary = score(replace(scoring(tmp_path), metrics=FEW.replace(spacing=(1.0, 1.0, 1.0))))
    assert summary["spacing"] == {
        "sources": {"config": 2},
        "units": [""],
        "overridden": 1,
        "warnings": ["metrics.spacing replaces another spacing in the files of cases (1: a)."],
    }
    assert {row.spacing for row in read_cases(tmp_path)} == {(1.0, 1.0, 1.0)}


def test_a_spacing_of_other_axes_is_refused(tmp_path: Path) -> None:
    for role in ("references", "predictions"):
        save_volume(tmp_path / role / "a.npy")
    with pytest.raises(DataError, match=r"`metrics\.spacing` to have 3 values, one per axis of 2 x 3 x 4, got 2"):
        score(replace(scoring(tmp_path), metrics=FEW.replace(spacing=(1.0, 1.0))))


def test_what_lies_elsewhere_or_has_another_size_is_named(tmp_path: Path) -> None:
    save_nifti(tmp_path / "references" / "a.nii.gz")
    save_nifti(tmp_path / "predictions" / "a.nii.gz", edges=(3.0, 0.5, 0.3))
    save_nifti(tmp_path / "references" / "b.nii.gz")
    save_nifti(tmp_path / "predictions" / "b.nii.gz", origin=(0, 5, 0))
    save_nifti(tmp_path / "references" / "c.nii.gz")
    save_volume(tmp_path / "predictions" / "c.npy", VOLUME[:, :2])
    save_volume(tmp_path / "references" / "d.npy", VOLUME[0])
    save_volume(tmp_path / "predictions" / "d.npy", VOLUME[:1])
    with pytest.raises(DataError) as caught:
        score(scoring(tmp_path))
    lines = caught.value.problems
    assert len(lines) == 4
    assert "a.nii.gz: expected `spacing`" in lines[0]
    assert "(3, 0.5, 0.25) mm, got (3, 0.5, 0.3) mm" in lines[0]
    assert "b.nii.gz: expected `origin`" in lines[1]
    assert "2 x 3 x 4, got 2 x 2 x 4 (depth x height x width)" in lines[2]
    assert "3 x 4, got 1 x 3 x 4" in lines[3]


def test_a_header_in_conflict_needs_a_decision(tmp_path: Path) -> None:
    for role in ("references", "predictions"):
        path = save_nifti(tmp_path / role / "a.nii")
        content = bytearray(path.read_bytes())
        content[80:84] = np.array([0.3], "<f4").tobytes()  # pixdim of x
        path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"`NIfTI header` to say one spacing, got pixdim .* set metrics\.spacing"):
        score(scoring(tmp_path))
    score(replace(scoring(tmp_path), metrics=FEW.replace(spacing=EDGES)))


def test_the_golden_spine_is_counted_from_its_files(shared_data: Path, tmp_path: Path) -> None:
    """Both maps of real NIfTI files, turned in space, whose affines differ in the seventh digit."""
    folder = shared_data / "golden" / "spine" / "semantic"
    for role, name in (("references", "ref"), ("predictions", "pred")):
        (tmp_path / role).mkdir()
        (tmp_path / role / "a.nii.gz").symlink_to(folder / f"{name}.nii.gz")
    values = [0, 26, *range(41, 50), 60, 61, 62, 100]
    names = tuple(f"v{value}" for value in values)
    spec = ClassSpec(task="multiclass", names=names, colours=((0, 0, 0),) * len(names))
    job = scoring(tmp_path, spec=spec, label_map={str(value): k for k, value in enumerate(values)})
    summary = score(changed(job, max_pixels=10**7))
    target, labels = (np.asarray(nibabel.load(folder / f"{name}.nii.gz").dataobj) for name in ("ref", "pred"))
    wanted = confusion_matrix(target.ravel(), labels.ravel(), labels=values)
    assert summary["confusion_matrix"] == wanted.tolist()
    assert json.loads((tmp_path / "metrics.json").read_text())["spacing"]["sources"] == {"NIfTI header": 1}
    assert read_cases(tmp_path)[0].spacing == pytest.approx((3.3, 0.58594, 0.58594), rel=1e-6)


def test_object_numbers_of_any_size_are_objects_of_one_class(tmp_path: Path) -> None:
    target = np.array([[70_000, 70_000, 0, 3], [0, 255, 255, 3]], np.float64)
    labels = np.array([[5, 5, 0, 0], [0, 9, 9, 0]], np.uint8)
    (tmp_path / "references").mkdir()
    (tmp_path / "predictions").mkdir()
    np.save(tmp_path / "references" / "a.npy", target)
    np.save(tmp_path / "predictions" / "a.npy", labels)
    spec = ClassSpec(task="binary", names=("none", "cell"), colours=((0, 0, 0), (9, 9, 9)), ignore_index=255)
    measured = MetricsConfig(bootstrap=0, measures=(InstancesConfig(objects="maps"),))
    summary = score(changed(scoring(tmp_path, spec=spec), instances=True, metrics=measured))
    assert summary["confusion_matrix"] == [[2, 0], [2, 2]]
    found = {name: summary["measures"][name]["cell"]["dataset"] for name in ("tp", "fp", "fn")}
    assert found == {"tp": 1, "fp": 0, "fn": 1}
    np.save(tmp_path / "predictions" / "a.npy", labels.astype(np.int16) - 1)
    with pytest.raises(DataError, match=r"predictions/a\.npy: expected `mask` to hold numbers of objects >= 0, got -1"):
        score(changed(scoring(tmp_path, spec=spec), instances=True, metrics=measured))


def test_slices_of_depth_one_are_images_where_that_is_said(tmp_path: Path) -> None:
    """The same row as of the picture itself, boundary IoU included, whose width follows the diagonal."""
    rng = np.random.default_rng(0)
    target, labels = rng.integers(0, 3, (2, 20, 30)).repeat(2, 1).astype(np.uint8)
    measured = MetricsConfig(bootstrap=0, measures=("boundary", "error_types", "surface"), spacing=(1.0, 1.0))
    rows = []
    for name, flat in (("a.npy", False), ("a.nii.gz", True)):
        root = tmp_path / name
        for side, one in (("references", target), ("predictions", labels)):
            save_volume(root / side / name, one[None] if flat else one)
        score(changed(scoring(root), metrics=measured, flat=flat))
        rows.append(read_cases(root)[0])
    assert rows[0].shape == rows[1].shape == (40, 30)
    assert rows[0].scores == rows[1].scores
    with pytest.raises(DataError, match=r"metrics.spacing` to have 3 values"):
        score(replace(scoring(root), metrics=measured))


def test_the_place_of_a_flat_slice_must_still_agree(tmp_path: Path) -> None:
    plane = np.ones((1, 6, 8), np.uint8)
    save_nifti(tmp_path / "references" / "a.nii.gz", plane)
    image = nibabel.load(tmp_path / "references" / "a.nii.gz")
    moved = image.affine.copy()
    moved[2, 3] += 5  # another slice
    (tmp_path / "predictions").mkdir()
    nibabel.save(nibabel.Nifti1Image(np.asarray(image.dataobj), moved), tmp_path / "predictions" / "a.nii.gz")
    with pytest.raises(DataError, match="`origin` to be that of its reference"):
        score(changed(scoring(tmp_path), flat=True))


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_probabilities_of_volumes_are_those_of_their_voxels(name: str, tmp_path: Path) -> None:
    logits = np.random.default_rng(1).standard_normal((3, *VOLUME.shape)).astype(np.float32)
    probs = np.exp(logits) / np.exp(logits).sum(axis=0)
    save_volume(tmp_path / "references" / "a.nii.gz", VOLUME)
    save_volume(tmp_path / "predictions" / "a.nii.gz", OTHER)
    (tmp_path / "probs").mkdir()
    np.save(tmp_path / "probs" / name, probs) if name == "a.npy" else np.savez(tmp_path / "probs" / name, probs)
    job = scoring(tmp_path)
    found = score(replace(job, probs=find_probs(tmp_path / "probs", job.pairs)))["calibration"]
    target = VOLUME.ravel()
    held = np.take_along_axis(probs.reshape(3, -1), target[None].astype(int), 0)
    assert found["nll"] == pytest.approx(-np.log(held.astype(np.float64)).mean())
    assert found["n"] == target.size


def test_distances_are_not_averaged_over_units(tmp_path: Path) -> None:
    for role in ("references", "predictions"):
        save_nifti(tmp_path / role / "a.nii.gz")
        save_volume(tmp_path / role / "b.npy")
    assert score(scoring(tmp_path))["spacing"]["units"] == ["mm", "pixels"]
    with pytest.raises(DataError, match=r"one unit in all cases.*got mm \(as a\), pixels \(as b\)"):
        score(replace(scoring(tmp_path), metrics=MEASURED))
