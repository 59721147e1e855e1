"""Two configurations of a data set: whether they deal the same cases into a split."""

import pytest

from segmeter.data.config import CellsConfig, FolderConfig
from segmeter.data.folders.dealing import check_dealing, describe_dealing
from segmeter.errors import ConfigError

OWN = FolderConfig(root="x", classes=("background", "cell"), fold="1/5", group_until="_")
DEALT = {"name": "folder", "fold": "1/5", "group_until": "_"}
PLAIN = {"name": "folder"}


def check(given, trained, split="val"):
    check_dealing(given, trained, split=split, model="the model")


def refused(given, trained, split="val"):
    with pytest.raises(ConfigError) as error:
        check(given, trained, split)
    (line,) = error.value.problems
    return line


def test_what_deals_the_cases_is_described_by_value_and_without_a_place():
    found = describe_dealing(OWN)
    shares = {"val_fraction": 0.15, "test_fraction": 0.15, "lists": None, "list_files": {}}
    assert found == DEALT | {"strata": None, "split_seed": 0} | shares
    assert describe_dealing(CellsConfig()) == {}, "its splits are drawn apart"
    check(found, DEALT)


def test_the_line_says_what_differs_and_what_to_do():
    assert refused(PLAIN | {"split_seed": 7}, PLAIN, "test") == (
        "eval: expected `data.split_seed` to be 0 with data.split=test, which else may hold cases that the model was "
        "trained on, got 7. Leave it out, or take the checkpoint of that fold; other data needs no split "
        "(data.split=all)."
    )


@pytest.mark.parametrize("key", ["split_seed", "group_until", "val_fraction", "test_fraction"])
@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_what_decides_a_drawn_split_must_be_the_same(key, split):
    other = {"split_seed": 3, "group_until": "-", "val_fraction": 0.3, "test_fraction": 0.3}[key]
    assert f"`data.{key}` to be " in refused(PLAIN | {key: other}, PLAIN, split)
    assert f"`data.{key}` to be {other!r} " in refused(PLAIN, PLAIN | {key: other}, split)
    check(PLAIN | {key: other}, PLAIN | {key: other}, split)
    check(PLAIN | {key: other}, PLAIN, "all")


@pytest.mark.parametrize("split", ["train", "val"])
def test_folds_decide_on_training_and_validation_alone(split):
    assert "`data.fold` to be '1/5'" in refused(DEALT | {"fold": "2/5"}, DEALT, split)
    assert "`data.strata` to be None" in refused(DEALT | {"strata": "classes"}, DEALT, split)
    check(DEALT | {"fold": "2/5", "strata": "classes"}, DEALT, "test")


def test_lists_name_the_cases_but_for_the_validation_of_folds():
    """Mutation seen to fail: a list for another split counted."""
    check(PLAIN | {"lists": "mine", "split_seed": 7}, PLAIN)
    check(PLAIN | {"list_files": {"val": "v.txt"}, "split_seed": 7}, PLAIN)
    assert "`data.split_seed`" in refused(PLAIN | {"list_files": {"test": "t.txt"}, "split_seed": 7}, PLAIN)
    assert "`data.lists` to be None" in refused(DEALT | {"lists": "mine"}, DEALT)


@pytest.mark.parametrize(
    ("given", "trained"),
    [
        ({"name": "cells"}, {"name": "cells", "size": 3}),
        (PLAIN | {"split_seed": 7}, {"name": "camvid"}),
        (PLAIN | {"split_seed": 7}, {}),
        ({}, PLAIN),
        ({"name": "gone"}, {"name": "gone", "fold": "1/5"}),
    ],
    ids=["not dealt", "another kind", "unknown in training", "none", "no kind of ours"],
)
def test_what_can_not_be_compared_is_taken(given, trained):
    check(given, trained)
