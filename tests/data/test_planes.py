"""Planes of volumes: which axis counts them, what is read, and what is refused in one line."""

import numpy as np
import pytest

from segmeter.data.config import FolderConfig
from segmeter.data.files.geometry import NOWHERE, Geometry
from segmeter.data.folder import build_folder
from segmeter.data.planes import find_axis
from segmeter.data.verification.report import check_splits
from segmeter.errors import DataError
from tests.data.crafted import put
from tests.data.volumes import save_volume
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


IMAGE, MASK = "images/p0_0.nii.gz", "masks/p0_0.nii.gz"


@pytest.mark.parametrize(
    ("name", "pixels", "affine", "said"),
    [
        (IMAGE, np.zeros((4, 4, 4, 2), np.int16), np.eye(4), r"2 or 3 axes, got \(4, 4, 4, 2\). Save one"),
        (MASK, volume(0)[1], affine_of(3), r"`grid` to be that of .*images/p0_0.nii.gz, 8 x 28 x 24, spacing"),
        (MASK, volume(0, (24, 28, 9))[1], affine_of(0), r"`grid` to be that of .*got 9 x 28 x 24"),
        (IMAGE, np.zeros((24, 28), np.int16), np.eye(4), r"to hold planes .*, got 28 x 24 \(NIFTI\)"),
    ],
    ids=["4-D", "grid", "size", "2-D"],
)
def test_a_file_that_can_not_be_used_gets_one_line(name, pixels, affine, said, tmp_path):
    write_cases(tmp_path, 2)
    write_nifti(tmp_path / name, pixels, affine)
    with pytest.raises(DataError, match=f"{name}: expected .*{said}") as caught:
        check_splits([opened(tmp_path)], use_cache=False)
    assert len(caught.value.problems) == 1


def write_nnunet(root, count=3):
    names = write_cases(root, count, images="imagesTr", masks="labelsTr")
    for number, name in enumerate(names):
        first = root / "imagesTr" / f"{name}.nii.gz"
        first.rename(root / "imagesTr" / f"{name}_0000.nii.gz")
        write_nifti(root / "imagesTr" / f"{name}_0001.nii.gz", volume(number)[0] // 2, affine_of(number))
    labels = {name: number for number, name in enumerate(CLASSES)}
    named = {"channel_names": {"0": "T1", "1": "T2"}, "file_ending": ".nii.gz"}
    put(root / "dataset.json", {"labels": labels, **named})


def test_an_nnunet_data_set_says_classes_channels_and_folders(tmp_path):
    write_nnunet(tmp_path)
    config = FolderConfig(root="???", nnunet=tmp_path, planes="auto", context=1)
    data = build_folder(config, split="all")
    assert (data.spec.names, data.in_channels, len(data)) == (CLASSES, 2, 3)
    plane, image = data.open_volume(1)[4].image, volume(1)[0].T
    assert plane.shape == (28, 24, 6)
    np.testing.assert_array_equal(plane[..., 2], image[4])
    np.testing.assert_array_equal(plane[..., 5], image[5] // 2)
    assert not check_splits([data], use_cache=False)[0].warnings


def test_channels_on_two_grids_are_refused_in_one_line(tmp_path):
    write_nnunet(tmp_path)
    write_nifti(tmp_path / "imagesTr" / "p0_0_0001.nii.gz", volume(0)[0], affine_of(2))
    data = build_folder(FolderConfig(root="???", nnunet=tmp_path, planes="auto"), split="all")
    with pytest.raises(DataError, match=r"p0_0_0001.nii.gz: expected `grid` to be that of .*p0_0_0000") as caught:
        check_splits([data], use_cache=False)
    assert len(caught.value.problems) == 1
    (tmp_path / "imagesTr" / "p0_1_0001.nii.gz").unlink()
    found = build_folder(FolderConfig(root="???", nnunet=tmp_path, planes="auto"), split="all").problems
    assert len(found) == 1
    assert "expected `channel _0001` for every name, got none for 1: p0_1" in found[0]


@pytest.mark.parametrize("form", ["nii", "mha", "nrrd", "npy", "tif", "zarr"])
def test_volumes_of_every_format_are_read_by_planes(form, tmp_path):
    wanted = [each.T for each in volume(0)]
    for folder, pixels in zip(("images", "masks"), wanted, strict=True):
        save_volume(tmp_path / folder / f"a.{form}", pixels)
    data = opened(tmp_path, planes="j")
    assert check_splits([data], use_cache=False)[0].n_planes == 28
    plane = data.open_volume(0)[5]
    np.testing.assert_array_equal(plane.image[..., 0], wanted[0][:, 5])
    np.testing.assert_array_equal(plane.target, wanted[1][:, 5])
