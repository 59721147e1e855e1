import pickle
from dataclasses import replace

import numpy as np
import pytest
import tifffile

from segmeter.data.folder import build_folder
from segmeter.data.verification.report import build_dataset
from segmeter.errors import DataError
from tests.data.crafted import encoded, folder, make_folder, noise, orientation, put


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
