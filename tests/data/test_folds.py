"""Which cases are trained on, validated and tested: by lists, by shares, and by folds."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from segmeter.data.config import CellsConfig, FolderConfig
from segmeter.data.folds import (
    check_dealing,
    count_left_right,
    deal_folds,
    describe_dealing,
    group_of,
    read_list,
    split_names,
    split_place,
)
from segmeter.data.verification.splits import build_dataset
from segmeter.errors import ConfigError, DataError
from tests.data.crafted import folder, make_folder, put

PATIENTS = tuple(f"p{patient:02d}_{view}" for patient in range(11) for view in range(1 + patient % 3))


def opened(root, split, **values):
    return set(build_dataset(folder(root, **values), split=split).case_ids)


@pytest.mark.parametrize("values", [{}, {"val_fraction": 0, "test_fraction": 0}], ids=["shares", "none of their own"])
def test_folds_share_out_training_and_validation_and_leave_testing_alone(values, tmp_path):
    names = tuple(f"case{i:02d}" for i in range(30))
    make_folder(tmp_path, names, height=2, width=2)
    test = set() if values else opened(tmp_path, "test")
    folds = [opened(tmp_path, "val", fold=f"{i}/4", **values) for i in (1, 2, 3, 4)]
    assert sorted(name for fold in folds for name in fold) == sorted(set(names) - test)
    assert max(map(len, folds)) - min(map(len, folds)) <= 1
    for i, fold in enumerate(folds, 1):
        assert opened(tmp_path, "train", fold=f"{i}/4", **values) == set(names) - test - fold
        if test:
            assert opened(tmp_path, "test", fold=f"{i}/4") == test


def test_lists_still_decide_what_is_for_testing_and_groups_stay_whole(tmp_path):
    make_folder(tmp_path, PATIENTS, height=2, width=2)
    for split, names in {"train": PATIENTS[:9], "val": PATIENTS[9:17], "test": PATIENTS[17:]}.items():
        put(tmp_path / f"{split}.txt", "\n".join(names))
    values = {"lists": ".", "group_until": "_"}
    folds = [opened(tmp_path, "val", fold=f"{i}/3", **values) for i in (1, 2, 3)]
    assert set().union(*folds) == set(PATIENTS[:17])
    patients = [{name.split("_")[0] for name in fold} for fold in folds]
    assert sum(map(len, patients)) == len(set().union(*patients))
    assert max(map(len, folds)) - min(map(len, folds)) <= 1
    assert opened(tmp_path, "test", fold="1/3", **values) == set(PATIENTS[17:])


def test_the_seed_decides_and_the_order_of_names_does_not_and_too_few_groups_are_refused():
    names = [f"c{i}" for i in range(20)]
    assert deal_folds(names, 4, seed=0) == deal_folds(reversed(names), 4, seed=0)
    assert deal_folds(names, 4, seed=0) != deal_folds(names, 4, seed=1)
    with pytest.raises(DataError, match="at most as many folds as groups of cases, got 2 groups"):
        deal_folds(["a_1", "a_2", "b_1"], 3, seed=0, group_until="_")


def spread_of(folds, kinds, count):
    """For each kind, the largest difference between two folds in the cases that have it."""
    every = [[name for name in kinds if folds[name] == k] for k in range(1, count + 1)]
    found = [Counter(kind for name in fold for kind in ("", *kinds[name])) for fold in every]
    return {kind: max(each[kind] for each in found) - min(each[kind] for each in found) for kind in set().union(*found)}


def draw_kinds(rng, names, rarities):
    return {name: tuple(kind for kind, rate in rarities.items() if rng.random() < rate) for name in names}


RARITIES = {"road": 1.0, "car": 0.5, "tree": 0.3, "sign": 0.12, "train": 0.05}


@pytest.mark.parametrize("seed", range(5))
def test_cases_with_several_classes_are_shared_out_by_each(seed):
    """Far better than folds of equal size, and near what is possible."""
    rng = np.random.default_rng(seed)
    names = [f"c{i:03d}" for i in range(200)]
    kinds = draw_kinds(rng, names, RARITIES)
    dealt = spread_of(deal_folds(names, 5, seed=seed, strata=kinds), kinds, 5)
    plain = spread_of(deal_folds(names, 5, seed=seed), kinds, 5)
    assert dealt["train"] <= 1
    assert dealt["sign"] <= 1
    assert max(dealt.values()) <= 3
    assert sum(dealt.values()) < sum(plain.values()) / 3


@pytest.mark.parametrize("seed", range(5))
def test_groups_stay_whole_and_the_classes_of_their_cases_are_still_shared_out(seed):
    """Patients with 1 to 9 cases."""
    rng = np.random.default_rng(seed)
    names, kinds = [], {}
    for patient in range(60):
        cases = [f"p{patient:02d}_{i}" for i in range(rng.integers(1, 10))]
        names += cases
        own = {kind: rate if rate == 1 else float(rng.random() < 2 * rate) * 0.5 for kind, rate in RARITIES.items()}
        kinds |= draw_kinds(rng, cases, own)
    folds = deal_folds(names, 5, seed=seed, group_until="_", strata=kinds)
    assert all(len({folds[name] for name in names if name.startswith(f"p{k:02d}_")}) == 1 for k in range(60))
    dealt, plain = spread_of(folds, kinds, 5), spread_of(deal_folds(names, 5, seed=seed, group_until="_"), kinds, 5)
    rare = ("sign", "train", "tree", "car")
    assert sum(dealt[kind] for kind in rare) < sum(plain[kind] for kind in rare) / 2
    assert dealt[""] <= 0.1 * len(names) / 5 + 9


def test_few_cases_are_dealt_as_evenly_as_any_way_of_dealing_them_allows():
    """Against all 3^8 ways."""
    kinds = {"a": "xy", "b": "xy", "c": "xz", "d": "x", "e": "x", "f": "xz", "g": "xy", "h": "xz"}
    dealt = spread_of(deal_folds(kinds, 3, seed=0, strata=kinds), kinds, 3)
    ways = (dict(zip(kinds, way, strict=True)) for way in product((1, 2, 3), repeat=len(kinds)))
    best = min(max(spread_of(way, kinds, 3).values()) for way in ways)
    assert max(dealt.values()) == best == 1


def test_the_classes_in_masks_decide_where_that_is_asked_for(tmp_path):
    """Twelve cases, three of which have the second class; with it each of three folds has one."""
    names = tuple(f"case{i:02d}" for i in range(12))
    make_folder(tmp_path, names, height=4, width=4)
    rare = {"case01", "case02", "case03"}
    for name in names:
        mask = np.zeros((4, 4), np.uint8)
        mask[1, 1] = name in rare
        put(tmp_path / "masks" / f"{name}.png", mask)
    values = {"strata": "classes", "test_fraction": 0, "val_fraction": 0}
    folds = [opened(tmp_path, "val", fold=f"{i}/3", **values) for i in (1, 2, 3)]
    assert [len(fold) for fold in folds] == [4, 4, 4]
    assert [len(fold & rare) for fold in folds] == [1, 1, 1]
    put(tmp_path / "masks" / "case05.png", np.full((4, 4), 9, np.uint8))
    with pytest.raises(DataError, match=r"case05\.png"):
        opened(tmp_path, "val", fold="1/3", **values)


OWN = FolderConfig(root="x", classes=("background", "cell"), fold="1/5", group_until="_")
DEALT = {"name": "folder", "fold": "1/5", "group_until": "_"}
PLAIN = {"name": "folder"}


def test_what_deals_the_cases_is_described_by_value_and_without_a_place():
    shares = {"val_fraction": 0.15, "test_fraction": 0.15, "lists": None, "list_files": {}}
    assert describe_dealing(OWN) == DEALT | {"strata": None, "split_seed": 0, "group_by": None} | shares
    assert describe_dealing(CellsConfig()) == {}, "its splits are drawn apart"


def test_the_line_says_what_differs_and_what_to_do():
    with pytest.raises(ConfigError) as error:
        check_dealing(PLAIN | {"split_seed": 7}, PLAIN, split="test", model="the model")
    assert error.value.problems == (
        "eval: expected `data.split_seed` to be 0 with data.split=test, which else may hold cases that the model was "
        "trained on, got 7. Leave it out, or take the checkpoint of that fold; other data needs no split "
        "(data.split=all).",
    )


SHARES = {"split_seed": 3, "group_until": "-", "val_fraction": 0.3, "test_fraction": 0.3}
OTHERWISE = [
    *((PLAIN | {key: SHARES[key]}, PLAIN, split, key) for key in SHARES for split in ("train", "val", "test")),
    *((PLAIN, PLAIN | {key: SHARES[key]}, split, key) for key in SHARES for split in ("train", "val", "test")),
    *((DEALT | {"fold": "2/5"}, DEALT, split, "fold") for split in ("train", "val")),
    *((DEALT | {"strata": "classes"}, DEALT, split, "strata") for split in ("train", "val")),
    (PLAIN | {"list_files": {"test": "t.txt"}, "split_seed": 7}, PLAIN, "val", "split_seed"),
    (DEALT | {"lists": "mine"}, DEALT, "val", "lists"),
]
ALIKE = [
    (describe_dealing(OWN), DEALT, "val"),
    *((PLAIN | SHARES, PLAIN | SHARES, split) for split in ("train", "val", "test")),
    (PLAIN | SHARES, PLAIN, "all"),
    (DEALT | {"fold": "2/5", "strata": "classes"}, DEALT, "test"),  # folds decide on training and validation alone
    (PLAIN | {"lists": "mine", "split_seed": 7}, PLAIN, "val"),  # lists name the cases
    (PLAIN | {"list_files": {"val": "v.txt"}, "split_seed": 7}, PLAIN, "val"),
    ({"name": "cells"}, {"name": "cells", "size": 3}, "val"),  # not dealt
    *((PLAIN | {"split_seed": 7}, trained, "val") for trained in ({"name": "camvid"}, {})),  # another kind, or unknown
    ({}, PLAIN, "val"),
    ({"name": "gone"}, {"name": "gone", "fold": "1/5"}, "val"),
]


@pytest.mark.parametrize(("given", "trained", "split", "key"), OTHERWISE, ids=str)
def test_a_split_that_was_dealt_otherwise_is_refused(given, trained, split, key):
    wanted = trained.get(key, FolderConfig.model_fields[key].default)
    with pytest.raises(ConfigError, match=rf"`data\.{key}` to be {wanted!r} "):
        check_dealing(given, trained, split=split, model="the model")


@pytest.mark.parametrize(("given", "trained", "split"), ALIKE, ids=str)
def test_a_split_that_was_dealt_alike_or_can_not_be_compared_is_taken(given, trained, split):
    check_dealing(given, trained, split=split, model="the model")


def test_96_a_list_keeps_its_order_and_loses_marks_blanks_and_image_suffixes(tmp_path):
    path = put(tmp_path / "x.txt", b"\xef\xbb\xbfb.v2\r\n\r\n  a.png \r\n#c\nd e.TIF")
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
    names = [f"case{i}" for i in range(2000)]
    splits = list(split_names(names, seed=1, val_fraction=0.2, test_fraction=0.3).values())
    assert splits.count("test") / 2000 == pytest.approx(0.3, abs=0.031)
    assert splits.count("val") / 2000 == pytest.approx(0.2, abs=0.027)


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
