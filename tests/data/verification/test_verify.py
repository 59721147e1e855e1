"""What a start takes over from an earlier one, and what makes it read a file again."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tifffile

from segmeter.checks import condense
from segmeter.data import dataset
from segmeter.data.config import FolderConfig
from segmeter.data.folder import build_folder
from segmeter.data.sample import count_classes, count_decided
from segmeter.data.verification import verify
from segmeter.data.verification.intensity import measure_image
from segmeter.data.verification.splits import build_dataset, check_dataset, describe_report, open_splits
from segmeter.data.verification.verify import header_problems, load_rows, save_rows
from segmeter.errors import DataError
from segmeter.records import cache_folder
from tests.data.crafted import encoded, folder, listed, make_folder, noise, put


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """A cache of its own, which trusts files however young they are."""
    monkeypatch.setenv("SEGMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(verify, "SETTLED_SECONDS", -60.0)


@pytest.fixture
def read(monkeypatch):
    """The names of the cases that are decoded."""
    names: list[str] = []
    work = verify._verify_case

    def noted(dataset, dtype, streamed, index):
        names.append(dataset.pairs[index].case_id)
        return work(dataset, dtype, streamed, index)

    monkeypatch.setattr(verify, "_verify_case", noted)
    return names


def test_a_second_start_decodes_nothing_and_reports_the_same(tmp_path, read):
    config = folder(make_folder(tmp_path / "data"))
    first = check_dataset(build_dataset(config))
    assert sorted(read) == ["a", "b", "c"]
    read.clear()
    second = check_dataset(build_dataset(config))
    assert describe_report(second, config) == describe_report(first, config)
    assert (second.file_sha256, second.presence.tolist()) == (first.file_sha256, first.presence.tolist())
    assert (first.n_known, second.n_known) == (0, 3)
    assert read == []
    check_dataset(build_dataset(config), use_cache=False)
    assert sorted(read) == ["a", "b", "c"]


def test_a_file_that_changes_while_it_is_checked_is_named(tmp_path, monkeypatch):
    images, read = build_dataset(folder(make_folder(tmp_path / "data"))), dataset.Dataset.read_image

    def read_and_touch(own, index, **options):
        found = read(own, index, **options)
        os.utime(tmp_path / "data" / "images" / "b.png", ns=(1, 1))
        return found

    monkeypatch.setattr(dataset.Dataset, "read_image", read_and_touch)
    with pytest.raises(DataError, match=r"b\.png: expected `files` to stay as they are while they are checked"):
        check_dataset(images, use_cache=False)


def test_a_changed_file_is_read_again_even_where_size_and_time_are_put_back(tmp_path, read):
    config = folder(make_folder(tmp_path / "data"))
    path, mask = tmp_path / "data" / "masks" / "b.npy", noise(12, 10, None) % 2
    path.with_suffix(".png").unlink()
    np.save(path, mask)  # no compression, so that other values take as many bytes
    first = check_dataset(build_dataset(config))
    before = path.stat()
    np.save(path, 1 - mask)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    for name in ("st_size", "st_ino", "st_mtime_ns"):
        assert getattr(path.stat(), name) == getattr(before, name), name
    read.clear()
    second = check_dataset(build_dataset(config))
    assert read == ["b"]
    assert second.content_sha256 != first.content_sha256
    assert second.file_sha256[0] == first.file_sha256[0]


def test_other_settings_have_other_findings(tmp_path, read):
    make_folder(tmp_path / "data")
    check_dataset(build_dataset(folder(tmp_path / "data")))
    read.clear()
    report = check_dataset(build_dataset(folder(tmp_path / "data", ignore_index=9)))
    assert len(read) == 3
    assert report.ignored_pixels == 0
    read.clear()
    put(tmp_path / "data" / "masks" / "a.png", np.full((12, 10), 9, np.uint8))
    with pytest.raises(DataError, match="to hold only 0 to 1"):
        check_dataset(build_dataset(folder(tmp_path / "data")))
    assert read == ["a"]


def test_polygons_are_counted_anew_where_their_corners_lie_elsewhere(tmp_path):
    put(tmp_path / "images" / "a.png", noise(10, 12))
    put(tmp_path / "masks" / "a.txt", f"0 {2 / 12} .2 {6 / 12} .2 {6 / 12} .6 {2 / 12} .6".encode())
    counted = [
        check_dataset(build_dataset(folder(tmp_path, corners=corners))).class_pixels[1]
        for corners in ("edges", "centres", "edges")
    ]
    assert counted == [4 * 4, 5 * 5, 4 * 4]


def test_files_that_were_just_written_are_not_recognised_by_their_times(tmp_path, read, monkeypatch):
    monkeypatch.setattr(verify, "SETTLED_SECONDS", 2.0)
    config = folder(make_folder(tmp_path / "data"))
    for _ in range(2):
        check_dataset(build_dataset(config))
    assert len(read) == 6
    assert not (tmp_path / "cache").exists()


def test_the_cache_lies_in_the_users_cache_folder_never_beside_the_data(tmp_path, monkeypatch):
    monkeypatch.delenv("SEGMETER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    root = make_folder(tmp_path / "data")
    before = sorted(root.rglob("*"))
    check_dataset(build_dataset(folder(root)))
    assert sorted(root.rglob("*")) == before
    assert [path.suffix for path in (tmp_path / "xdg" / "segmeter").iterdir()] == [".verified"]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_folder() == Path("/home/somebody/.cache/segmeter")


def test_many_starts_at_once_agree(tmp_path):
    config = folder(make_folder(tmp_path / "data", tuple(map(str, range(40)))))
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: check_dataset(build_dataset(config)).content_sha256, range(6)))
    assert len(set(found)) == 1
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".verified"]


def test_hashes_are_those_of_the_bytes(tmp_path):
    root = make_folder(tmp_path / "data")
    (dataset,), (report,) = open_splits(folder(root), ["all"])
    names = [f"{kind}/{name}.png" for name in "abc" for kind in ("images", "masks")]
    wanted = {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in names}
    assert dataset.contents() == wanted
    assert [value for case in report.file_sha256 for value in case] == list(wanted.values())
    assert build_dataset(folder(root)).contents() == wanted  # without a check before
    assert build_dataset(folder(root)).fingerprint() == dataset.fingerprint()


def _with_eight_faults(root):
    """Eight kinds of fault (and an overlap) over three splits; every other case is good."""
    make_folder(root, tuple(f"c{i:02d}" for i in range(20)))
    images, masks = root / "images", root / "masks"
    (masks / "c00.png").unlink()  # 1, train: no mask
    put(masks / "stray.png", noise(12, 10, None) % 2)  # 2: no image
    put(masks / "c01.png", np.zeros((5, 5), np.uint8))  # 3, train: another size
    put(masks / "c08.png", noise())  # 4, val: colours
    (masks / "c09.png").unlink()
    put(masks / "c09.jpg", encoded(noise(12, 10, None) % 2, "JPEG"))  # 5, val: lossy
    put(images / "c14.png", b"<html>login</html>")  # 6, test: not an image
    put(masks / "c15.png", np.full((12, 10), 7, np.uint8))  # 7, test: not a label
    put(images / "c16.png", (images / "c17.png").read_bytes()[:-40])  # 8, test: cut off
    (images / "folder").mkdir()  # 9: not a file
    lists = {"train": range(7), "val": range(6, 13), "test": [*range(13, 20), 99]}  # 10: c06 twice; 11: no c99
    for split, numbers in lists.items():
        put(root / f"{split}.txt", "".join(f"c{i:02d}\n" for i in numbers).encode())
    return folder(root, lists=".")


def test_eight_kinds_of_fault_in_three_splits_are_listed_in_the_first_run(tmp_path):
    with pytest.raises(DataError) as refusal:
        open_splits(_with_eight_faults(tmp_path), ["train", "val", "test"])
    lines = condense(refusal.value.problems)
    wanted = [
        r"`a mask` for every name, got none for 1: c00.",
        r"`an image` for every name, got none for 1: stray.",
        r"masks/c01.png: expected `mask` to have the size",
        r"masks/c08.png: expected `mask` to have one channel, got rgb",
        r"masks/c09.jpg: expected `mask` to be stored exactly",
        r"images/c14.png: expected `content` to be PNG, JPEG, BMP, TIFF or NPY, got an HTML page",
        r"masks/c15.png: expected `mask` to hold only 0 to 1, got 7",
        r"images/c16.png: expected `file` to be complete",
        r".npz, .nrrd, .png, .tif, .tiff, .zarr files, got 1: folder",
        r"`train and val` to share no case, got 1: c06",
        r"`an image` for every name, got none for 1: c99",
    ]
    assert [text for text in wanted if not any(text in line for line in lines)] == []
    assert len(lines) <= len(wanted) + 2, lines  # c09 has a mask, but an unusable one


def test_a_missing_list_does_not_hide_bad_files_of_other_splits(tmp_path):
    config = listed(tmp_path, train="a b")
    put(tmp_path / "images" / "a.png", b"")
    with pytest.raises(DataError) as refusal:
        open_splits(config, ["train", "val"])
    text = str(refusal.value)
    assert "val.txt" in text
    assert "images/a.png: expected `file` to hold an image, got an empty file" in text


def test_each_bad_file_is_named_once_and_none_is_decoded(tmp_path, monkeypatch):
    make_folder(tmp_path)
    paths = [
        put(tmp_path / "masks" / "a.png", np.zeros((12, 11), np.uint8)),
        put(tmp_path / "masks" / "b.png", b"no picture"),
        put(tmp_path / "images" / "c.png", noise(channels=None)),
    ]
    monkeypatch.setattr(dataset, "image_of", None)
    monkeypatch.setattr(dataset, "read_target", None)
    found = header_problems(build_folder(folder(tmp_path), split="all"))
    assert [line.partition(": ")[0] for line in found] == list(map(str, paths))
    assert "12 x 11 (height x width)" in found[0]
    assert "to have 3 channels" in found[2]


def test_blocks_of_rows_find_what_the_whole_case_holds(tmp_path, monkeypatch):
    image, mask = noise(70, 50), np.random.default_rng(3).choice([0, 1, 2, 255], (70, 50)).astype(np.uint8)
    files = [put(tmp_path / name / "a.tif", b"") for name in ("images", "masks")]
    for path, values, kind in zip(files, (image, mask), ("rgb", "minisblack"), strict=True):
        tifffile.imwrite(path, values, tile=(16, 16), photometric=kind)
    monkeypatch.setattr(verify, "_LINES", 16)  # the last block is shorter
    dataset = build_dataset(FolderConfig(root=str(tmp_path), classes=("a", "b", "c"), ignore_index=255), split="all")
    row, problems = verify._verify_case(dataset, verify.row_dtype(dataset), frozenset([0]), 0)
    assert problems == []
    assert (row["size"].tolist(), verify.DTYPES[row["dtype"]]) == ([70, 50], "uint8")
    np.testing.assert_array_equal(row["classes"], count_classes(mask, dataset.spec))
    np.testing.assert_array_equal(row["counted"], count_decided(mask, dataset.spec))
    for name, expected in zip(("mean", "variance", "levels"), measure_image(image), strict=True):
        np.testing.assert_allclose(row[name], expected, rtol=1e-12)
    assert [bytes(each) for each in row["sha256"]] == [hashlib.sha256(path.read_bytes()).digest() for path in files]


DTYPE = np.dtype([("pixels", np.int64), ("sum", np.uint8, (3,))])


def rows(*pixels):
    found = np.zeros(len(pixels), DTYPE)
    found["pixels"] = pixels
    return found


def loaded(path, dtype=DTYPE):
    places, found = load_rows(path, dtype)
    return {name: int(found[place]["pixels"]) for name, place in places.items()}


def test_rows_are_found_again_and_newer_ones_replace_older(tmp_path):
    path = tmp_path / "a.verified"
    assert loaded(path) == {}
    save_rows(path, ["a", "b"], rows(1, 2))
    save_rows(path, ["b", "c"], rows(20, 3))
    assert loaded(path) == {"a": 1, "b": 20, "c": 3}
    assert loaded(path, np.dtype([("pixels", np.int32)])) == {}


def test_a_damaged_cache_never_gives_other_rows(tmp_path):
    path, outcomes = tmp_path / "a.verified", []
    save_rows(path, ["a", "b"], rows(1, 2))
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        outcomes.append(loaded(path))
    assert {} in outcomes
    assert all(found in ({}, {"a": 1, "b": 2}) for found in outcomes)
    for size in (0, 40, len(content) - 1):
        path.write_bytes(content[:size])
        assert loaded(path) == {}


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("a file where the folder should be")
    save_rows(tmp_path / "file" / "a.verified", ["a"], rows(1))
    assert loaded(tmp_path / "file" / "a.verified") == {}


def test_what_was_used_least_recently_goes_first(tmp_path, monkeypatch):
    monkeypatch.setattr(verify, "MAX_FILES", 2)
    paths = [tmp_path / f"{number}.verified" for number in range(3)]
    for age, path in ((300, paths[0]), (100, paths[1])):
        save_rows(path, ["a"], rows(1))
        then = path.stat().st_mtime - age
        os.utime(path, (then, then))
    save_rows(paths[2], ["a"], rows(1))
    assert [path.exists() for path in paths] == [False, True, True]
