"""Cases read by index, and volumes by their planes: every pixel, which axis counts planes, and what is refused."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import tifffile

from segmeter.data.config import FolderConfig
from segmeter.data.files.geometry import NOWHERE, Geometry
from segmeter.data.folder import build_folder
from segmeter.data.planes import find_axis
from segmeter.data.verification.splits import build_dataset, check_splits
from segmeter.errors import DataError
from tests.data.crafted import encoded, folder, make_folder, noise, orientation, put
from tests.data.volumes import save_volume
from tests.volumes_made import CLASSES, affine_of, volume, write_cases, write_nifti


def test_cases_are_ordered_read_exactly_and_survive_pickling_for_workers(tmp_path):
    make_folder(tmp_path, ("b", "a"))
    dataset = build_dataset(folder(tmp_path))
    for each in (dataset, pickle.loads(pickle.dumps(dataset))):
        assert (each.case_ids, len(each), each[1].case_id) == (("a", "b"), 2, "b")
        np.testing.assert_array_equal(each[1].image, noise(seed=0))
        np.testing.assert_array_equal(each[1].target, noise(channels=None, seed=100) % 2)


def test_pixels_without_data_are_no_class_whole_and_by_rows(tmp_path, monkeypatch):
    put(tmp_path / "images" / "a.tif", noise())
    mask, path = noise(channels=None) % 2, put(tmp_path / "masks" / "a.tif", b"")
    tifffile.imwrite(path, mask, extratags=[(42113, "s", 2, "0", True)])
    dataset = build_folder(folder(tmp_path), split="all")
    with pytest.raises(DataError, match=f"`nodata` to be no class, as {(mask == 0).sum()} pixels have it, got 0"):
        _ = dataset[0]
    monkeypatch.setattr("segmeter.data.files.array.STREAMED_PIXELS", 10)
    rows = replace(dataset, streams=True).open_rows(0)
    with rows as (_, target), pytest.raises(DataError, match="`nodata` to be no class"):
        target.read(0, 12)


def test_multilabel_stacks_one_mask_per_class_in_class_order(tmp_path):
    put(tmp_path / "images" / "a.png", noise())
    masks = {name: noise(channels=None, seed=seed) % 2 for seed, name in enumerate(("zebra", "ant"))}
    for name, mask in masks.items():
        put(tmp_path / "masks" / name / "a.png", mask)
    dataset = build_dataset(folder(tmp_path, task="multilabel", classes=("zebra", "ant")))
    np.testing.assert_array_equal(dataset[0].target, np.stack([masks["zebra"], masks["ant"]]), strict=True)


def test_multilabel_names_the_class_whose_mask_is_missing(tmp_path):
    for name in ("a", "b"):
        put(tmp_path / "images" / f"{name}.png", noise())
        put(tmp_path / "masks" / "one" / f"{name}.png", noise(channels=None) % 2)
    put(tmp_path / "masks" / "two" / "a.png", noise(channels=None) % 2)
    config = folder(tmp_path, task="multilabel", classes=("one", "two"))
    with pytest.raises(DataError, match=r"none for 1: b. The expected layout .*masks/<class>/<name>.png"):
        build_dataset(config)
    with pytest.raises(DataError, match=r"`masks of three` to be a folder"):
        build_dataset(folder(tmp_path, task="multilabel", classes=("one", "three")))
    with pytest.raises(DataError, match=r"to be usable as folder names, got 1: ../x"):
        build_dataset(folder(tmp_path, task="multilabel", classes=("one", "../x")))


def test_file_that_vanishes_or_changes_after_the_headers_were_read_is_named(tmp_path):
    dataset = build_dataset(folder(make_folder(tmp_path)))
    (tmp_path / "images" / "a.png").unlink()
    put(tmp_path / "masks" / "b.png", np.zeros((3, 3), np.uint8))
    with pytest.raises(DataError, match=r"images/a.png: expected `file` to be readable, got No such file"):
        dataset[0]
    with pytest.raises(DataError, match=r"masks/b.png: .*images/b.png, 12 x 10, got 3 x 3"):
        dataset[1]


def test_fingerprint_follows_files_and_classes(tmp_path):
    make_folder(tmp_path)
    first = build_dataset(folder(tmp_path)).fingerprint()
    assert build_dataset(folder(tmp_path)).fingerprint() == first
    assert build_dataset(folder(tmp_path, classes=("x", "y"))).fingerprint() != first
    put(tmp_path / "images" / "a.png", np.zeros((12, 10, 3), np.uint8))
    assert build_dataset(folder(tmp_path)).fingerprint() != first


def test_orientation_apply_compares_the_mask_with_the_turned_image(tmp_path):
    make_folder(tmp_path, ("a",))
    put(tmp_path / "images" / "a.png", encoded(noise(10, 12), exif=orientation(6)))
    dataset = build_dataset(folder(tmp_path, orientation="apply"))
    assert dataset[0].image.shape == (12, 10, 3)
    with pytest.raises(DataError, match=r"got 12 x 10 .*swapped"):
        build_dataset(folder(tmp_path, orientation="ignore"))


def test_masks_of_object_numbers_give_their_foreground_and_the_objects(tmp_path):
    put(tmp_path / "images" / "a.png", noise())
    numbers = np.zeros((12, 10), np.uint16)
    numbers[1:4, 1:4], numbers[1:4, 4:7], numbers[9:, :3], numbers[0, 0] = 1, 70, 40000, 255
    put(tmp_path / "masks" / "a.png", numbers)
    sample = build_dataset(folder(tmp_path, instances=True, ignore_index=255))[0]
    wanted = np.where(numbers == 255, 255, numbers > 0)
    np.testing.assert_array_equal(sample.target, wanted)
    assert sample.target.dtype == np.uint8
    np.testing.assert_array_equal(sample.instances, np.where(numbers == 255, 0, numbers))
    with pytest.raises(DataError, match=r"look like numbers of objects|to hold only 0 to 1"):
        build_dataset(folder(tmp_path, ignore_index=255))[0]


def test_codes_of_objects_give_their_classes_and_the_objects(tmp_path):
    """Of Cityscapes' kind: class * 1000 + number, and the class alone where there is no object."""
    put(tmp_path / "images" / "a.png", noise())
    codes = np.full((12, 10), 7, np.uint16)
    codes[1:4, 1:4], codes[1:4, 4:7], codes[9:, :3], codes[5:7] = 24000, 24001, 26003, 255
    put(tmp_path / "masks" / "a.png", codes)
    options = {"classes": ["road", "person", "car"], "task": "multiclass", "ignore_index": 255}
    options |= {"label_map": {"7": 0, "24": 1, "26": 2, "255": 255}, "instances": True, "instance_divisor": 1000}
    dataset = build_dataset(folder(tmp_path, **options))
    sample = dataset[0]
    wanted = np.select([codes == 7, codes == 255, codes < 26000], [0, 255, 1], 2)
    np.testing.assert_array_equal(sample.target, wanted)
    np.testing.assert_array_equal(sample.instances, np.where(codes >= 1000, codes, 0))
    other = replace(dataset, reading=replace(dataset.reading, divisor=100))
    assert other.fingerprint() != dataset.fingerprint()
    with pytest.raises(DataError, match=r"to hold only what data\.label_map names"):
        other[0]


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
    for kind, pixels in zip(("images", "masks"), wanted, strict=True):
        save_volume(tmp_path / kind / f"a.{form}", pixels)
    data = opened(tmp_path, planes="j")
    assert check_splits([data], use_cache=False)[0].n_planes == 28
    plane = data.open_volume(0)[5]
    np.testing.assert_array_equal(plane.image[..., 0], wanted[0][:, 5])
    np.testing.assert_array_equal(plane.target, wanted[1][:, 5])
