"""The values in masks: numbers instead of names, what goes together, and nnU-Net's dataset.json."""

import pytest

from segmeter.data.labels_config import MAX_CLASSES, LabelsConfig, read_labels
from segmeter.errors import ConfigError, DataError, InputError
from tests.data import crafted
from tests.differential.peers import load

TWO = {"task": "binary", "classes": ("none", "cell")}


def problems_of(**values):
    with pytest.raises(ConfigError) as error:
        LabelsConfig(**values)
    return list(error.value.problems)


def test_a_number_names_the_classes():
    assert LabelsConfig(num_classes=3).classes == ("class_0", "class_1", "class_2")
    assert LabelsConfig(num_classes=2, classes=("a", "b")).classes == ("a", "b")
    assert problems_of(num_classes=3, classes=("a", "b")) == [
        "data: expected `num_classes` to be 2, as many as data.classes, got 3."
    ]
    assert "Set data.classes=[background,cell], or data.num_classes=2." in " ".join(problems_of())


def test_an_unknown_preset_is_the_only_problem():
    assert len(problems_of(preset="cityscape")) == 1


@pytest.mark.parametrize("count", [0, MAX_CLASSES + 1, True, 2.5])
def test_a_number_that_is_none_of_classes_names_none(count):
    assert any("`num_classes` to be " in line for line in problems_of(num_classes=count))


OBJECTS = "`instances` to be false but for a binary task without label map, got true. Set data.task=binary, or"
INVALID = "`invalid` to be error for multilabel, with a label map, or for numbers of objects"
MAPPED, SEVERAL = TWO | {"label_map": {"7": 1}}, {"classes": ("a", "b", "c")}


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (MAPPED | {"instances": True}, OBJECTS),
        ({"num_classes": 2, "instances": True}, OBJECTS),
        (TWO | {"task": "multilabel", "instances": True}, OBJECTS),
        (SEVERAL | {"instance_divisor": 1000}, "to say which side holds objects where data.instance_divisor is given"),
        (SEVERAL | {"instances": True, "instance_divisor": 10, "task": "multilabel"}, "is given, not multilabel"),
        (TWO | {"task": "multilabel", "invalid": "count"}, INVALID),
        (MAPPED | {"invalid": "count"}, INVALID),
        (TWO | {"instances": True, "invalid": "count"}, INVALID),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_one_line(values, line):
    (problem,) = problems_of(**values)
    assert problem.startswith("data: expected ")
    assert line in problem


def test_what_goes_together_is_taken():
    assert LabelsConfig(**TWO, instances=True).instances is True
    assert LabelsConfig(**MAPPED, instances="predictions").instances == "predictions"  # the map is for the other side
    assert LabelsConfig(num_classes=3, invalid="count").spec().count_invalid
    assert not LabelsConfig(num_classes=3).spec().count_invalid


REGIONS = {"background": 0, "whole tumour": [1, 2, 3], "core": [2, 3], "enhancing": [3], "ignore": 4}


def put(folder, labels, **others):
    content = {"labels": labels, "file_ending": ".nii.gz", "channel_names": {"0": "CT"}} | others
    return crafted.put(folder / "dataset.json", content)


def test_labels_are_classes(tmp_path):
    found = read_labels(put(tmp_path, {"background": 0, "liver": 1, "tumour": 2, "ignore": 3}))
    assert (found.spec.names, found.spec.ignore_index) == (("background", "liver", "tumour"), 3)
    assert (found.groups, found.regions, found.file_ending) == ({}, (1, 2), ".nii.gz")
    assert read_labels(tmp_path) == found


def test_regions_are_groups_and_those_of_nnunets_own_manager(tmp_path):
    found = read_labels(put(tmp_path, REGIONS))
    assert (found.spec.names, found.spec.ignore_index) == (("background", "label 1", "label 2", "label 3"), 4)
    assert found.groups["core"] == ("label 2", "label 3")
    assert found.regions == ((1, 2, 3), (2, 3), (3,))
    manager = load("nnunetv2.utilities.label_handling.label_handling", "nnunetv2").LabelManager
    theirs = manager(REGIONS, regions_class_order=[1, 2, 3])
    assert [tuple(region) for region in theirs.foreground_regions] == list(found.regions)
    assert theirs.ignore_label == found.spec.ignore_index


TWICE, EMPTY = "to name each label or region once", "where a region has one or more labels, each once"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        *((labels, "") for labels in (None, [0], {"a": 0, "b": 1}, {"background": 1}, {"background": 0, "a": 2})),
        ({"background": 0, "a": 1, "ignore": 7}, ""),
        ({"background": 0, "a": 1, "b": 1}, TWICE),
        ({"background": 0, "a": 1, "b": 2, "whole": [1, 2], "all": [2, 1]}, TWICE),
        ({"background": 0, "a": 1.7}, "got ValueError: 1.7, which is no whole number"),
        ({"background": 0, "a": True}, "True, which is no whole number"),
        ({"background": 0, "a": 1, "b": 2, "c": [1.9, 2.2]}, "1.9, which is no whole number"),
        ({"background": 0, "a": 1, "ignore": True}, "True, which is no whole number"),
        ({"background": 0, "a": 1, "x": []}, EMPTY),
        ({"background": 0, "a": 1, "x": [1, 1]}, EMPTY),
    ],
    ids=str,
)
def test_labels_are_refused_before_they_are_rounded_or_lost(labels, message, tmp_path):
    with pytest.raises(DataError, match=rf"dataset.json: expected `labels`.*{message}"):
        read_labels(put(tmp_path, labels))


def test_an_ending_may_be_left_open(tmp_path):
    assert read_labels(put(tmp_path, {"background": 0, "a": 1.0}, file_ending=None)).file_ending == ""


@pytest.mark.parametrize("given", [["background", "b", "a"], ["background", "a"], ["background", "a", "b", "c"]])
def test_classes_that_contradict_a_dataset_json_are_refused(given, tmp_path):
    path = put(tmp_path, {"background": 0, "a": 1, "b": 2})
    rule = r"`data.classes` to name the labels of .*, \['background', 'a', 'b'\], in their order, got \['background'"
    with pytest.raises(ConfigError, match=rule):
        LabelsConfig(nnunet=path, classes=given)
    assert LabelsConfig(nnunet=path).classes == ("background", "a", "b")
    assert LabelsConfig(nnunet=path, classes=["none", "x", "y"]).classes == ("none", "x", "y")


def test_what_is_no_path_or_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="read_labels: expected `path` to be a path, got 3"):
        read_labels(3)
    with pytest.raises(DataError, match=r"nothing.json: expected `labels` .*, got No such file"):
        read_labels(tmp_path / "nothing.json")
