"""The bad-input corpus: one refusal per number of a folder, a list or its classes."""

from pathlib import Path

import numpy as np
import pytest

from segmeter.data.config import FolderConfig
from segmeter.data.verification.report import build_dataset, check_splits, open_splits
from segmeter.errors import ConfigError, DataError
from tests.data.crafted import folder, make_folder, noise, put


def test_10_missing_root_names_the_absolute_path_and_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=rf"no folder {tmp_path}/nowhere \(working folder {tmp_path}\). Set data.root"):
        build_dataset(folder(Path("nowhere")))


def test_21_more_than_255_classes_are_read_as_uint16(tmp_path):
    make_folder(tmp_path)
    many = tuple(map(str, range(300)))
    assert build_dataset(folder(tmp_path, task="multiclass", classes=many))[0].target.dtype == np.uint16


@pytest.mark.parametrize("junk", [(), (".x.png", "._a.png", "Thumbs.db", ".ipynb_checkpoints/a.png")], ids=["91", "92"])
def test_folder_without_images_shows_the_expected_layout(tmp_path, junk):
    (tmp_path / "images").mkdir()
    for name in junk:
        put(tmp_path / "images" / name, b"x")
    with pytest.raises(DataError, match=r"to hold .*\.png.* files, got none. The expected layout .*images/<name>.png"):
        build_dataset(folder(tmp_path))


def test_93_wrong_layout_shows_the_expected_one(tmp_path):
    put(tmp_path / "a.png", noise())
    expected = r"`images` to be a folder.* under .* is images/<name>.png and masks/<name>.png"
    with pytest.raises(DataError, match=expected):
        build_dataset(folder(tmp_path))
    put(tmp_path / "images" / "train" / "a.png", noise())
    with pytest.raises(DataError, match=r"to hold .* files, got 1: train. Convert or move these. The expected layout"):
        build_dataset(folder(tmp_path))


def _listed(root, **lists):
    make_folder(root)
    for split, text in lists.items():
        put(root / f"{split}.txt", text if isinstance(text, bytes) else text.encode())
    return folder(root, lists=".")


@pytest.mark.parametrize(
    ("train", "same", "message"),
    [
        ("a\nb\n", False, r"`train and val` to share no case, got 1: b. Keep each in one split"),
        ("a\n", True, r"`train and val` to share no image, got 1: a = c. The images are equal"),
    ],
    ids=["94-by-name", "95-by-content"],
)
def test_overlap_of_splits(train, same, message, tmp_path):
    config = _listed(tmp_path, train=train, val="b\nc\n")
    if same:
        put(tmp_path / "images" / "c.png", (tmp_path / "images" / "a.png").read_bytes())
    splits = [build_dataset(config, split=split) for split in ("train", "val")]
    with pytest.raises(DataError, match=message):
        check_splits(splits)


def test_96_list_with_bom_crlf_and_blank_lines(tmp_path):
    config = _listed(tmp_path, test=b"\xef\xbb\xbfb.png\r\n\r\n  a \r\n")
    assert build_dataset(config, split="test").case_ids == ("a", "b")


def test_97_list_names_that_do_not_exist(tmp_path):
    config = _listed(tmp_path, test="a\n" + "".join(f"no{i:02d}\n" for i in range(13)))
    with pytest.raises(DataError, match=r"none for 13: no00, no01, .*no09 and 3 more. Correct the list"):
        build_dataset(config, split="test")


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "sub/a", r"..\a", ".."])
def test_98_list_names_that_lead_elsewhere(tmp_path, name):
    with pytest.raises(DataError, match=r"to hold names without a folder, got 1: "):
        build_dataset(_listed(tmp_path, test=f"a\n{name}\n"), split="test")


def test_99_links_out_of_the_root_only_where_allowed(tmp_path):
    make_folder(tmp_path / "other")
    make_folder(tmp_path / "here", ("a", "b"))
    (tmp_path / "here" / "images" / "a.png").unlink()
    (tmp_path / "here" / "images" / "a.png").symlink_to(tmp_path / "other" / "images" / "a.png")
    with pytest.raises(DataError, match=r"links out of it \(1: .*images/a.png\). Set data.allow_links=true"):
        build_dataset(folder(tmp_path / "here"))
    assert len(build_dataset(folder(tmp_path / "here", allow_links=True))) == 2


def test_100_names_that_differ_in_case(tmp_path):
    make_folder(tmp_path, ("a", "A", "b"))
    with pytest.raises(DataError, match=r"`images` to differ in more than upper and lower case or Unicode form"):
        build_dataset(folder(tmp_path))
    make_folder(tmp_path / "two", ("a",))
    (tmp_path / "two" / "masks" / "a.png").rename(tmp_path / "two" / "masks" / "A.png")
    with pytest.raises(DataError, match=r"'a' and 'A' differ only in upper and lower case"):
        build_dataset(folder(tmp_path / "two"))


def test_images_of_several_channel_counts_get_one_advice_that_ends(tmp_path):
    """Following the advice for one file would only move the refusal to the others."""
    make_folder(tmp_path)
    put(tmp_path / "images" / "b.png", noise(channels=None))
    for channels, odd in ((3, 1), (1, 2)):
        with pytest.raises(DataError, match=rf"got another one in {odd} of 3. Convert all images to one number"):
            open_splits(folder(tmp_path, in_channels=channels), ["all"])
    for name in "ac":
        put(tmp_path / "images" / f"{name}.png", noise(channels=None, seed=ord(name)))
    with pytest.raises(DataError, match=r"or train with data.in_channels=1") as refusal:
        open_splits(folder(tmp_path), ["all"])
    assert "one number of channels" not in str(refusal.value)
    open_splits(folder(tmp_path, in_channels=1), ["all"])


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


def test_where_lists_are_looked_for_is_said(tmp_path, monkeypatch):
    make_folder(tmp_path / "set")
    put(tmp_path / "lists" / "train.txt", b"a\n")
    monkeypatch.chdir(tmp_path)
    config = folder(tmp_path / "set", lists="lists")
    with pytest.raises(DataError) as refusal:
        build_dataset(config, split="train")
    text = str(refusal.value)
    assert f"no file {tmp_path}/set/lists/train.txt. Relative paths of data.lists and data.list_files start at" in text
    assert f"There is {tmp_path}/lists/train.txt: give absolute paths" in text
    absolute = folder(tmp_path / "set", lists=str(tmp_path / "lists"))
    assert build_dataset(absolute, split="train").source == f"{tmp_path}/lists/train.txt"
    assert build_dataset(folder(tmp_path / "set", val_fraction=0), split="train").source == "seed 0"
