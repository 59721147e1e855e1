"""Planes of volumes: which axis counts them, what is read, and what is refused in one line."""

import numpy as np
import pytest

from segmeter.data.config import FolderConfig
from segmeter.data.files.geometry import NOWHERE, Geometry
from segmeter.data.folders.folder import build_folder
from segmeter.data.planes import find_axis
from segmeter.data.verification.report import check_splits
from segmeter.errors import ConfigError, DataError
from tests.volumes_made import CLASSES, affine_of, volume, write_cases, write_nifti


def opened(root, **options):
    config = {"root": str(root), "classes": CLASSES, "planes": "auto", "in_channels": 1} | options
    return build_folder(FolderConfig(**config), split="all")


@pytest.mark.parametrize(
    ("planes", "axis"), [("auto", 0), ("axial", 0), ("k", 0), ("j", 1), ("i", 2)], ids=lambda each: str(each)
)
def test_a_plane_is_a_cut_of_the_file_across_its_axis(planes, axis, tmp_path):
    write_cases(tmp_path, 1)
    found = opened(tmp_path, planes=planes).open_volume(0)
    image, mask = (np.transpose(each) for each in volume(0))
    assert (found.axis, len(found)) == (axis, image.shape[axis])
    plane = found[3]
    np.testing.assert_array_equal(plane.image[..., 0], np.take(image, 3, axis).astype(np.float32))
    np.testing.assert_array_equal(plane.target, np.take(mask, 3, axis))
    assert (plane.image.dtype, plane.target.dtype) == (np.float32, np.uint8)


def test_auto_is_the_coarsest_axis_and_axial_follows_the_affine(tmp_path):
    path = tmp_path / "a.nii"
    sagittal = Geometry(spacing=(1, 1, 1), affine=np.eye(4)[[2, 1, 0, 3]])  # i runs along the body
    assert find_axis("axial", sagittal, path) == find_axis("auto", sagittal, path) == 2
    assert find_axis("auto", sagittal.having(spacing=(1, 5, 1)), path) == 1
    assert find_axis("auto", NOWHERE, path) == 0
    with pytest.raises(DataError, match=r"`data.planes` to be an axis of the file for axial planes.*Set data.planes=k"):
        find_axis("axial", NOWHERE, path)


def test_neighbouring_planes_are_channels_and_the_last_one_repeats(tmp_path):
    write_cases(tmp_path, 1)
    alone, near = opened(tmp_path).open_volume(0), opened(tmp_path, context=1).open_volume(0)
    for number, planes in ((0, (0, 0, 1)), (3, (2, 3, 4)), (7, (6, 7, 7))):
        wanted = np.concatenate([alone[each].image for each in planes], axis=2)
        np.testing.assert_array_equal(near[number].image, wanted)
    np.testing.assert_array_equal(near[3].image[..., near.own_channels], alone[3].image)


def test_a_report_counts_voxels_and_planes(tmp_path):
    write_cases(tmp_path, 3)
    (report,) = check_splits([opened(tmp_path)], use_cache=False)
    masks, images = (np.stack([volume(number)[side] for number in range(3)]) for side in (1, 0))
    assert report.class_pixels.tolist() == np.bincount(masks.ravel()).tolist()
    assert (report.n_cases, report.n_planes, report.total_pixels) == (3, 24, masks.size)
    (found,) = report.intensities
    np.testing.assert_allclose([found.mean[0], found.std[0]], [images.mean(), images.std()], rtol=1e-6)


def test_splits_never_tear_a_patient(tmp_path):
    write_cases(tmp_path, 10)
    options = {"root": str(tmp_path), "classes": CLASSES, "planes": "auto", "group_until": "_", "in_channels": 1}
    for seed in range(5):
        config = FolderConfig(**options, split_seed=seed, fold="1/3")
        sets = [build_folder(config, split=split).case_ids for split in ("train", "val")]
        assert sum("p0_0" in names and "p0_1" in names for names in sets) in (0, 1)
        assert not any(("p0_0" in names) != ("p0_1" in names) for names in sets)


def spoil_4d(root):
    write_nifti(root / "images" / "p0_0.nii.gz", np.zeros((4, 4, 4, 2), np.int16), np.eye(4))


def spoil_grid(root):
    write_nifti(root / "masks" / "p0_0.nii.gz", volume(0)[1], affine_of(3))


def spoil_size(root):
    write_nifti(root / "masks" / "p0_0.nii.gz", volume(0, (24, 28, 9))[1], affine_of(0))


def spoil_planes(root):
    write_nifti(root / "images" / "p0_0.nii.gz", np.zeros((24, 28), np.int16), np.eye(4))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (spoil_4d, r"p0_0.nii.gz: expected `shape` to have 2 or 3 axes, got \(4, 4, 4, 2\). Save one file per time"),
        (spoil_grid, r"masks/p0_0.nii.gz: expected `grid` to be that of .*images/p0_0.nii.gz, 8 x 28 x 24, spacing"),
        (spoil_size, r"masks/p0_0.nii.gz: expected `grid` to be that of .*got 9 x 28 x 24"),
        (spoil_planes, r"p0_0.nii.gz: expected `file` to hold planes \(depth, height, width\), got 28 x 24 \(NIFTI\)"),
    ],
    ids=["4-D", "grid", "size", "2-D"],
)
def test_a_file_that_can_not_be_used_gets_one_line(spoil, said, tmp_path):
    write_cases(tmp_path, 2)
    spoil(tmp_path)
    with pytest.raises(DataError, match=said) as caught:
        check_splits([opened(tmp_path)], use_cache=False)
    assert len(caught.value.problems) == 1


def test_settings_that_do_not_fit_volumes_are_refused():
    with pytest.raises(ConfigError, match=r"`context` to be 0 without data.planes"):
        FolderConfig(root="r", classes=CLASSES, context=1)
    with pytest.raises(ConfigError, match=r"`planes` to be null for masks of object numbers"):
        FolderConfig(root="r", classes=CLASSES[:2], task="binary", instances=True, planes="auto")
