import pytest

from segmeter.data.folds import count_left_right, group_of, read_list, split_names, split_place
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


def test_the_splits_hit_the_fractions():
    """2000 draws: three standard deviations of the test share are 3 * sqrt(0.3 * 0.7 / 2000) = 0.031."""
    splits = list(split_names([f"case{i}" for i in range(2000)], seed=1, **FRACTIONS).values())
    assert splits.count("test") / 2000 == pytest.approx(0.3, abs=0.031)
    assert splits.count("val") / 2000 == pytest.approx(0.2, abs=0.027)


def test_a_case_falls_by_its_name_and_the_seed_alone():
    names = [f"p{i}" for i in range(200)]
    first, second = (split_names(names, seed=seed, **FRACTIONS) for seed in (0, 1))
    assert first != second
    fewer = split_names(names[50:], seed=0, **FRACTIONS)
    assert {name: first[name] for name in fewer} == fewer


@pytest.mark.parametrize(("val", "test", "split"), [(0, 0, "train"), (0, 1, "test"), (1, 0, "val")])
def test_everything_may_be_in_one_split(val, test, split):
    splits = split_names(map(str, range(50)), seed=0, val_fraction=val, test_fraction=test)
    assert set(splits.values()) == {split}


@pytest.mark.parametrize("seed", range(20))
def test_of_seven_cases_each_split_has_one_and_the_nearest_ones_move(seed):
    names = [f"field{i}" for i in range(7)]
    splits = split_names(names, seed=seed, val_fraction=0.15, test_fraction=0.15)
    assert set(splits.values()) == {"train", "val", "test"}
    by_place = sorted(names, key=lambda name: split_place(name, seed=seed))
    alone = split_names(by_place[2:], seed=seed, val_fraction=0, test_fraction=0)
    last = max(alone, key=lambda name: split_place(name, seed=seed))
    assert [name for name in by_place if splits[name] == "train"][-1] == last


def test_one_group_alone_stays_in_training():
    splits = split_names(["p1_a", "p1_b"], seed=3, val_fraction=0.1, test_fraction=0, group_until="_")
    assert set(splits.values()) == {"train"}


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("prefix:8", ["Image_01", "Image_01", "Image_02"]),
        ("pair", ["Image_01", "Image_01", "Image_02"]),
        ("prefix:_", ["Image", "Image", "Image"]),
        (None, ["Image_01L", "Image_01R", "Image_02L"]),
    ],
)
def test_groups_follow_from_names(by, groups):
    names = ["Image_01L", "Image_01R", "Image_02L"]
    assert [group_of(name, by=by) for name in names] == groups
    splits = split_names(names, seed=0, val_fraction=0.5, test_fraction=0, group_by=by)
    for one, first in zip(names, groups, strict=True):
        assert {splits[one]} == {splits[other] for other, second in zip(names, groups, strict=True) if second == first}


def test_left_and_right_sides_of_one_name_are_pairs():
    assert count_left_right(["Image_01L", "Image_01R", "Image_02L", "eye-3_left", "eye-3_right", "model", "mode"]) == 2
    assert count_left_right(["0001_l", "cell", "cellr"]) == 0
