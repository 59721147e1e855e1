import pytest

from segmeter.data.folders.split_lists import read_list, split_of
from segmeter.errors import DataError
from tests.data.crafted import put

FRACTIONS = {"val_fraction": 0.2, "test_fraction": 0.3}


def test_read_list_keeps_the_order_and_drops_only_image_suffixes(tmp_path):
    path = put(tmp_path / "x.txt", b"b.v2\na.png\n#c\nd e.TIF\n")
    assert read_list(path) == ["b.v2", "a", "#c", "d e"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "to name at least one case, got no names"),
        (b"\n \r\n", "to name at least one case, got no names"),
        (b"a\nb\na.png\n", r"repeated names \(1: a\)"),
        (b"\xff\xfe", "to be UTF-8 text, got other bytes at 0"),
    ],
    ids=["empty", "blank", "twice", "utf-16"],
)
def test_read_list_refuses(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        read_list(put(tmp_path / "x.txt", content))


def test_read_list_names_a_list_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"one name per line, got no file .*val.txt"):
        read_list(tmp_path / "val.txt")


def test_split_of_hits_the_fractions():
    """2000 draws: three standard deviations of the test share are 3 * sqrt(0.3 * 0.7 / 2000) = 0.031."""
    splits = [split_of(f"case{i}", seed=1, **FRACTIONS) for i in range(2000)]
    assert splits.count("test") / 2000 == pytest.approx(0.3, abs=0.031)
    assert splits.count("val") / 2000 == pytest.approx(0.2, abs=0.027)


def test_split_of_depends_on_the_seed_and_keeps_groups_together():
    names = [f"p{i}" for i in range(100)]
    first, second = ([split_of(name, seed=seed, **FRACTIONS) for name in names] for seed in (0, 1))
    assert first != second
    for name in names[:20]:
        scans = {split_of(f"{name}_{i}", seed=0, group_until="_", **FRACTIONS) for i in range(9)}
        assert len(scans) == 1


@pytest.mark.parametrize(("val", "test", "split"), [(0, 0, "train"), (0, 1, "test"), (1, 0, "val")])
def test_split_of_with_everything_in_one(val, test, split):
    assert {split_of(str(i), seed=0, val_fraction=val, test_fraction=test) for i in range(50)} == {split}
