import numpy as np
import pytest

from segmeter.data.build import build_dataset
from segmeter.data.folders.folder import open_images
from segmeter.errors import DataError
from tests.data.crafted import BINARY, folder, make_folder, noise, put


def test_fractions_share_out_every_case_once_and_other_cases_move_none(tmp_path):
    names = tuple(f"case{i:02d}" for i in range(30))
    make_folder(tmp_path, names, height=2, width=2)
    config = folder(tmp_path, val_fraction=0.3, test_fraction=0.3)
    before = {split: build_dataset(config, split=split).case_ids for split in ("train", "val", "test")}
    assert sorted(sum(before.values(), ())) == sorted(names)
    make_folder(tmp_path, ("new1", "new2", "new3"), height=2, width=2)
    for split, case_ids in before.items():
        assert set(case_ids) <= set(build_dataset(config, split=split).case_ids)


def test_empty_split_says_what_to_raise(tmp_path):
    make_folder(tmp_path)
    with pytest.raises(DataError, match=r"'val' to hold a case, got none of 3 images. Raise data.val_fraction"):
        build_dataset(folder(tmp_path, val_fraction=0), split="val")
    with pytest.raises(DataError, match=r"'train' to hold a case.*Lower data.val_fraction"):
        build_dataset(folder(tmp_path, val_fraction=0, test_fraction=0.9999), split="train")


def test_list_files_replace_the_names_of_lists(tmp_path):
    make_folder(tmp_path)
    put(tmp_path / "held-out.txt", b"c\n")
    put(tmp_path / "train.txt", b"a\nb\n")
    config = folder(tmp_path, lists=".", list_files={"test": "held-out.txt"})
    assert build_dataset(config, split="test").case_ids == ("c",)
    assert build_dataset(config, split="train").case_ids == ("a", "b")


@pytest.mark.parametrize("together", [False, True], ids=["two-folders", "one-folder"])
def test_mask_suffix_pairs_names(tmp_path, together):
    for seed, name in enumerate(("a", "b")):
        put(tmp_path / "x" / f"{name}.png", noise(seed=seed))
        put(tmp_path / ("x" if together else "y") / f"{name}_mask.png", noise(channels=None, seed=seed) % 2)
    config = folder(tmp_path, images="x", masks="x" if together else "y", mask_suffix="_mask")
    dataset = build_dataset(config)
    assert dataset.case_ids == ("a", "b")
    assert dataset.pairs[1].masks[0].name == "b_mask.png"
    np.testing.assert_array_equal(dataset[1].target, noise(channels=None, seed=1) % 2)


def test_open_images_has_no_targets(tmp_path):
    make_folder(tmp_path)
    dataset = open_images(tmp_path / "images", spec=BINARY, in_channels=3)
    assert dataset.case_ids == ("a", "b", "c")
    assert dataset[0].target is None
    assert dataset.pairs[0].masks == ()
    single = open_images(tmp_path / "images" / "b.png", spec=BINARY, in_channels=3)
    assert single.case_ids == ("b",)


def test_open_images_refuses_what_is_not_there_or_does_not_fit(tmp_path):
    make_folder(tmp_path)
    with pytest.raises(DataError, match=r"`input` to be a folder or an image, got nothing at .*nowhere"):
        open_images(tmp_path / "nowhere", spec=BINARY, in_channels=3)
    with pytest.raises(DataError, match=r"to have 1 channels"):
        open_images(tmp_path / "images", spec=BINARY, in_channels=1)
    put(tmp_path / "images" / "a.bmp", noise())
    with pytest.raises(DataError, match=r"one file per name, as for 'a', got 2: a.bmp, a.png"):
        open_images(tmp_path / "images", spec=BINARY, in_channels=3)
