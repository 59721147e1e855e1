"""Volumes through the whole of scoring: counts, sizes, spacings and where these come from."""

import json
from dataclasses import replace

import nibabel
import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from segmeter.classes import ClassSpec
from segmeter.errors import DataError
from segmeter.evaluation.mask_pairs import find_probs
from segmeter.evaluation.score import score
from segmeter.metrics.cases.stored import read_cases
from segmeter.metrics.config.measures import InstancesConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from tests.data.volumes import VOLUME, save_nifti
from tests.evaluation.masks import changed, put_sides, scoring

OTHER = np.where(np.arange(24).reshape(2, 3, 4) % 5 == 0, 0, VOLUME).astype(np.uint8)
MEASURED = MetricsConfig(bootstrap=0, measures=(SurfaceConfig(),))


def test_distances_are_in_the_unit_of_the_file(tmp_path):
    target = np.zeros((4, 6, 8), np.uint8)
    target[1:3, 1:4, 1:5] = 1
    put_sides(tmp_path, target, np.roll(target, 1, axis=0), "a.nii.gz")
    score(replace(scoring(tmp_path), metrics=MEASURED))
    assert read_cases(tmp_path)[0].scores["hd/b"] == 3.0
    score(replace(scoring(tmp_path), metrics=MEASURED.replace(spacing=(2.0, 1.0, 1.0))))
    assert read_cases(tmp_path)[0].scores["hd/b"] == 2.0


def test_distances_are_not_averaged_over_units_unless_a_configured_spacing_wins_and_says_so(tmp_path):
    put_sides(tmp_path, VOLUME, VOLUME, "a.nii.gz")
    put_sides(tmp_path, VOLUME, VOLUME, "b.npy")  # without a spacing
    assert score(scoring(tmp_path))["spacing"]["units"] == ["mm", "pixels"]
    with pytest.raises(DataError, match=r"one unit in all cases.*got mm \(as a\), pixels \(as b\)"):
        score(replace(scoring(tmp_path), metrics=MEASURED))
    summary = score(replace(scoring(tmp_path), metrics=MEASURED.replace(spacing=(1.0, 1.0, 1.0))))
    assert summary["spacing"] == {
        "sources": {"config": 2},
        "units": [""],
        "overridden": 1,
        "warnings": ["metrics.spacing replaces another spacing in the files of cases (1: a)."],
    }
    assert {row.spacing for row in read_cases(tmp_path)} == {(1.0, 1.0, 1.0)}


def test_units_that_differ_are_refused_beside_other_problems_and_by_a_resume_without_new_cases(tmp_path):
    """Parts of objects are counted, not measured in a unit, so nothing else would notice it."""
    put_sides(tmp_path, VOLUME, VOLUME + 7, "a.npy")
    put_sides(tmp_path, VOLUME, VOLUME, "b.npy")
    put_sides(tmp_path, VOLUME, VOLUME, "c.nii.gz")
    job = replace(scoring(tmp_path), metrics=MetricsConfig(bootstrap=0, measures=(InstancesConfig(objects="maps"),)))
    units = r"one unit in all cases.*got mm \(as c\), pixels \(as b\)"
    with pytest.raises(DataError, match=units) as caught:
        score(job)
    assert len(caught.value.problems) == 2
    assert "predictions/a.npy: expected `mask` to hold only" in caught.value.problems[0]
    put_sides(tmp_path, VOLUME, VOLUME, "a.npy")
    with pytest.raises(DataError, match=units.replace("as b", "as a")):
        score(job)
    with pytest.raises(DataError, match=units.replace("as b", "as a")):
        score(replace(job, resume=True))


def test_the_golden_spine_is_counted_from_its_files(shared_data, tmp_path):
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


def test_object_numbers_of_any_size_are_objects_of_one_class(tmp_path):
    target = np.array([[70_000, 70_000, 0, 3], [0, 255, 255, 3]], np.float64)
    labels = np.array([[5, 5, 0, 0], [0, 9, 9, 0]], np.uint8)
    put_sides(tmp_path, target, labels, "a.npy")
    spec = ClassSpec(task="binary", names=("none", "cell"), colours=((0, 0, 0), (9, 9, 9)), ignore_index=255)
    measured = MetricsConfig(bootstrap=0, measures=(InstancesConfig(objects="maps"),))
    summary = score(changed(scoring(tmp_path, spec=spec), instances=True, metrics=measured))
    assert summary["confusion_matrix"] == [[2, 0], [2, 2]]
    found = {name: summary["measures"][name]["cell"]["dataset"] for name in ("tp", "fp", "fn")}
    assert found == {"tp": 1, "fp": 0, "fn": 1}
    np.save(tmp_path / "predictions" / "a.npy", labels.astype(np.int16) - 1)
    with pytest.raises(DataError, match=r"predictions/a\.npy: expected `mask` to hold numbers of objects >= 0, got -1"):
        score(changed(scoring(tmp_path, spec=spec), instances=True, metrics=measured))


def test_slices_of_depth_one_are_images_where_that_is_said(tmp_path):
    """The same row as of the picture itself, boundary IoU included, whose width follows the diagonal."""
    rng = np.random.default_rng(0)
    target, labels = rng.integers(0, 3, (2, 20, 30)).repeat(2, 1).astype(np.uint8)
    measured = MetricsConfig(bootstrap=0, measures=("boundary", "error_types", "surface"), spacing=(1.0, 1.0))
    rows = []
    for name, flat in (("a.npy", False), ("a.nii.gz", True)):
        root = tmp_path / name
        put_sides(root, *((target[None], labels[None]) if flat else (target, labels)), name)
        score(changed(scoring(root), metrics=measured, flat=flat))
        rows.append(read_cases(root)[0])
    assert [(row.height, row.width) for row in rows[:2]] == [(40, 30)] * 2
    assert rows[0].scores == rows[1].scores


def test_the_place_of_a_flat_slice_must_still_agree(tmp_path):
    for side, height in (("references", 0), ("predictions", 5)):  # another slice
        save_nifti(tmp_path / side / "a.nii.gz", np.ones((1, 6, 8), np.uint8), origin=(0, 0, height))
    with pytest.raises(DataError, match="`origin` to be that of its reference"):
        score(changed(scoring(tmp_path), flat=True))


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_probabilities_of_volumes_are_those_of_their_voxels(name, tmp_path):
    logits = np.random.default_rng(1).standard_normal((3, *VOLUME.shape)).astype(np.float32)
    probs = np.exp(logits) / np.exp(logits).sum(axis=0)
    put_sides(tmp_path, VOLUME, OTHER, "a.nii.gz")
    (tmp_path / "probs").mkdir()
    np.save(tmp_path / "probs" / name, probs) if name == "a.npy" else np.savez(tmp_path / "probs" / name, probs)
    job = scoring(tmp_path)
    found = score(replace(job, probs=find_probs(tmp_path / "probs", job.pairs)))["calibration"]
    target = VOLUME.ravel()
    held = np.take_along_axis(probs.reshape(3, -1), target[None].astype(int), 0)
    assert found["nll"] == pytest.approx(-np.log(held.astype(np.float64)).mean())
    assert found["n"] == target.size
