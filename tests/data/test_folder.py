"""Folders, lists and classes: how cases are found and paired, and one refusal per number of the bad-input corpus."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from segmeter.data.config import FolderConfig
from segmeter.data.folder import open_images
from segmeter.data.pairing import list_files, scan_folder
from segmeter.data.verification.splits import build_dataset, check_dataset, check_splits
from segmeter.errors import ConfigError, DataError
from tests.data.crafted import BINARY, folder, listed, make_folder, noise, put
from tests.volumes_made import CLASSES, write_cases


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
    put(tmp_path / "held-out.txt", "c")
    config = listed(tmp_path, train="a b").replace(list_files={"test": "held-out.txt"})
    assert build_dataset(config, split="test").case_ids == ("c",)
    assert build_dataset(config, split="train").case_ids == ("a", "b")


@pytest.mark.parametrize("together", [False, True], ids=["two-folders", "one-folder"])
def test_mask_suffix_pairs_names(tmp_path, together):
    for seed, name in enumerate(("a", "b")):
        put(tmp_path / "x" / f"{name}.png", noise(seed=seed))
        put(tmp_path / ("x" if together else "y") / f"{name}_mask.png", noise(channels=None, seed=seed) % 2)
    dataset = build_dataset(folder(tmp_path, images="x", masks="x" if together else "y", mask_suffix="_mask"))
    assert dataset.case_ids == ("a", "b")
    assert dataset.pairs[1].masks[0].name == "b_mask.png"
    np.testing.assert_array_equal(dataset[1].target, noise(channels=None, seed=1) % 2)


def test_open_images_has_no_targets_and_refuses_what_is_not_there_or_does_not_fit(tmp_path):
    make_folder(tmp_path)
    dataset = open_images(tmp_path / "images", spec=BINARY, in_channels=3)
    assert dataset.case_ids == ("a", "b", "c")
    assert (dataset[0].target, dataset.pairs[0].masks) == (None, ())
    assert open_images(tmp_path / "images" / "b.png", spec=BINARY, in_channels=3).case_ids == ("b",)
    with pytest.raises(DataError, match=r"`input` to be a folder or an image, got nothing at .*nowhere"):
        open_images(tmp_path / "nowhere", spec=BINARY, in_channels=3)
    with pytest.raises(DataError, match=r"to have 1 channels"):
        open_images(tmp_path / "images", spec=BINARY, in_channels=1)
    put(tmp_path / "images" / "a.bmp", noise())
    with pytest.raises(DataError, match=r"one file per name, as for 'a', got 2: a.bmp, a.png"):
        open_images(tmp_path / "images", spec=BINARY, in_channels=3)


def test_several_sources_are_one_data_set_with_ids_and_files_of_their_own(tmp_path):
    for name in ("day", "far/night"):
        make_folder(tmp_path / name)
    put(tmp_path / "far/night/images/a.png", noise(seed=9))
    config = folder(tmp_path, sources={"day": 1.0, "far/night": 3.0})
    dataset = build_dataset(config)
    assert dataset.case_ids == tuple(f"{source}-{name}" for source in ("day", "night") for name in "abc")
    assert [pair.source for pair in dataset.pairs] == ["day"] * 3 + ["night"] * 3
    assert dataset.weights == {"day": 1.0, "night": 3.0}
    np.testing.assert_array_equal(dataset[3].image, noise(seed=9))
    assert len(dataset.contents()) == 12  # though files of both are called images/a.png
    report = check_dataset(dataset, use_cache=False)
    assert dataset.with_contents(report.file_sha256).pairs[4].source == "night"


def test_cases_of_two_sources_with_one_id_are_refused_by_name(tmp_path):
    make_folder(tmp_path / "a", ("b-c", "d"))
    make_folder(tmp_path / "a-b", ("c", "e"))
    with pytest.raises(DataError) as caught:
        build_dataset(folder(tmp_path, sources={"a": 1, "a-b": 1}))
    (line,) = caught.value.problems
    rule, _, found = line.partition(" got 2: ")
    assert rule == "data: expected `sources` to have one case 'a-b-c',"
    assert [f"{tmp_path}/{name}" in found for name in ("a/images/b-c.png", "a-b/images/c.png")] == [True, True]


def test_what_is_wrong_with_any_source_is_said(tmp_path):
    for name in ("a/scans", "b/scans", "c"):
        make_folder(tmp_path / name)
    (tmp_path / "c" / "masks" / "b.png").unlink()
    with pytest.raises(DataError) as caught:
        build_dataset(folder(tmp_path, sources={"a/scans": 1, "b/scans": 1, "gone": 2}))
    assert [line.split(",")[0] for line in caught.value.problems] == [
        "data: expected `sources` to have folders of different names",
        "data: expected `root` to be a folder",
    ]
    with pytest.raises(DataError, match=r"a mask"):
        build_dataset(folder(tmp_path, sources={"a/scans": 1, "c": 1}))


def test_files_are_found_by_name_and_notes_passed_over(tmp_path):
    for name in ("b.png", "a.TIF", "a.b.npy", ".hidden.png", "notes.txt", "NOTES.TXT", "__MACOSX"):
        put(tmp_path / name, b"x")
    found = list_files(tmp_path, role="images")
    assert found == {"a": [tmp_path / "a.TIF"], "a.b": [tmp_path / "a.b.npy"], "b": [tmp_path / "b.png"]}


def test_text_files_are_masks_in_a_folder_of_nothing_else_and_a_double_suffix_is_one_where_that_is_asked_for(tmp_path):
    for name in ("a.txt", "b.txt", "classes.txt"):
        put(tmp_path / name, b"x")
    assert sorted(list_files(tmp_path, role="masks")) == ["a", "b"]
    with pytest.raises(DataError, match="files, got none"):
        list_files(tmp_path, role="images")
    for name in ("a.nii.gz", "c.ome.tif"):
        put(tmp_path / name, b"x")
    assert sorted(list_files(tmp_path, role="masks")) == ["a", "c"]
    assert sorted(scan_folder(tmp_path, role="masks").names) == ["a", "c.ome"]


def test_10_missing_root_names_the_absolute_path_and_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=rf"no folder {tmp_path}/nowhere \(working folder {tmp_path}\). Set data.root"):
        build_dataset(folder(Path("nowhere")))


@pytest.mark.parametrize("junk", [(), (".x.png", "._a.png", "Thumbs.db", ".ipynb_checkpoints/a.png")], ids=["91", "92"])
def test_folder_without_images_shows_the_expected_layout(tmp_path, junk):
    (tmp_path / "images").mkdir()
    for name in junk:
        put(tmp_path / "images" / name, b"x")
    with pytest.raises(DataError, match=r"to hold .*\.png.* files, got none. The expected layout .*images/<name>.png"):
        build_dataset(folder(tmp_path))


@pytest.mark.parametrize(
    ("train", "same", "message"),
    [
        ("a b", False, r"`train and val` to share no case, got 1: b. Keep each in one split"),
        ("a", True, r"`train and val` to share no image, got 1: a = c. The images are equal"),
    ],
    ids=["94-by-name", "95-by-content"],
)
def test_overlap_of_splits(train, same, message, tmp_path):
    config = listed(tmp_path, train=train, val="b c")
    if same:
        put(tmp_path / "images" / "c.png", (tmp_path / "images" / "a.png").read_bytes())
    splits = [build_dataset(config, split=split) for split in ("train", "val")]
    with pytest.raises(DataError, match=message):
        check_splits(splits)


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "sub/a", r"..\a", ".."])
def test_98_list_names_that_lead_elsewhere(tmp_path, name):
    with pytest.raises(DataError, match=r"to hold names without a folder, got 1: "):
        build_dataset(listed(tmp_path, test=f"a {name}"), split="test")


def test_99_links_of_images_masks_and_further_channels_lead_out_of_the_root_only_where_allowed(tmp_path):
    here, (name,) = tmp_path / "here", write_cases(tmp_path / "here", 1)
    image, mask = (here / kind / f"{name}.nii.gz" for kind in ("images", "masks"))
    for number in (0, 1):
        shutil.copy(image, image.with_name(f"{name}_{number}.nii.gz"))
    image.unlink()
    linked = [image.with_name(f"{name}_0.nii.gz"), image.with_name(f"{name}_1.nii.gz"), mask]
    for path in linked:
        path.symlink_to(path.rename(tmp_path / path.name))
    given = {"classes": CLASSES, "planes": "auto", "channel_files": ("_0", "_1"), "in_channels": 2}
    config = folder(here, task="multiclass", **given)
    found = rf"links out of it \(3: {', '.join(map(str, linked))}\). Set data.allow_links=true"
    with pytest.raises(DataError, match=found):
        build_dataset(config)
    assert len(build_dataset(config.replace(allow_links=True))) == 1


def test_100_names_that_differ_in_case(tmp_path):
    make_folder(tmp_path, ("a", "A", "b"))
    with pytest.raises(DataError, match=r"`images` to differ in more than upper and lower case or Unicode form"):
        build_dataset(folder(tmp_path))
    make_folder(tmp_path / "two", ("a",))
    (tmp_path / "two" / "masks" / "a.png").rename(tmp_path / "two" / "masks" / "A.png")
    with pytest.raises(DataError, match=r"'a' and 'A' differ only in upper and lower case"):
        build_dataset(folder(tmp_path / "two"))


@pytest.mark.parametrize(
    "fields", [{"group_until": "_"}, {"val_fraction": 0.3}, {"test_fraction": 0.0}, {"split_seed": 4}], ids=str
)
def test_what_shares_out_cases_is_refused_beside_lists(fields):
    (name,) = fields
    with pytest.raises(ConfigError, match=rf"`{name}` to be left alone beside lists, got .* set data.lists=null"):
        FolderConfig(root="x", classes=("a", "b"), lists=".", **fields)
    every = {split: f"{split}.txt" for split in ("train", "val", "test")}
    with pytest.raises(ConfigError, match=f"`{name}` to be left alone beside lists"):
        FolderConfig(root="x", classes=("a", "b"), list_files=every, **fields)
    FolderConfig(root="x", classes=("a", "b"), list_files={"test": "test.txt"}, **fields)  # the rest is shared out
