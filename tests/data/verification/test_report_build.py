"""From a configuration to data sets that refuse what is wrong, all of it at once."""

import pytest

from segmeter.data.verification.report import build_dataset, open_splits
from segmeter.errors import ConfigError, DataError
from tests.data.crafted import folder, make_folder, put


def test_the_configured_split_is_opened_unless_another_is_asked_for(tmp_path):
    make_folder(tmp_path)
    config = folder(tmp_path)
    assert build_dataset(config).split == config.split
    assert build_dataset(config, split="all").case_ids == ("a", "b", "c")
    with pytest.raises(ConfigError, match="to be one of train, val, test, all, got 'valid'"):
        build_dataset(config, split="valid")


def test_open_splits_reads_every_pixel_where_build_reads_headers_alone(tmp_path):
    make_folder(tmp_path)
    path = tmp_path / "masks" / "b.png"
    path.write_bytes(path.read_bytes()[:-20])
    assert len(build_dataset(folder(tmp_path), split="all")) == 3
    with pytest.raises(DataError, match=r"masks/b.png: .*truncated or damaged"):
        open_splits(folder(tmp_path), ["all"])


def test_cases_of_a_split_that_is_not_read_are_in_no_other(tmp_path):
    root = make_folder(tmp_path)
    for split, names in {"train": "a\nb\n", "val": "c\n", "test": "b\n"}.items():
        put(root / f"{split}.txt", names.encode())
    put(root / "masks" / "c.png", b"no mask")  # what else is wrong is still said
    with pytest.raises(DataError) as refusal:
        open_splits(folder(root, lists="."), ["train", "val"], unread=["test"])
    assert "`train and test` to share no case, got 1: b. Keep each in one split." in str(refusal.value)
    assert "masks/c.png" in str(refusal.value)


@pytest.mark.parametrize("absent", ["list", "mask"])
def test_a_split_that_is_not_read_may_be_missing(tmp_path, absent):
    root = make_folder(tmp_path)
    for split, names in {"train": "a\n", "val": "b\n", "test": "c\n"}.items():
        put(root / f"{split}.txt", names.encode())
    (root / "test.txt" if absent == "list" else root / "masks" / "c.png").unlink()
    (root / "images" / "c.png").write_bytes(b"no image")
    assert [len(each) for each in open_splits(folder(root, lists="."), ["train", "val"], unread=["test"])[0]] == [1, 1]
