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


def test_one_class_may_have_objects_and_where_one_side_has_them_the_map_is_for_the_other():
    assert LabelsConfig(**TWO, instances=True).instances is True
    assert LabelsConfig(**MAPPED, instances="predictions").instances == "predictions"


def test_the_classes_know_whether_invalid_values_are_counted():
    assert LabelsConfig(num_classes=3, invalid="count").spec().count_invalid
    assert not LabelsConfig(num_classes=3).spec().count_invalid


REGIONS = {"background": 0, "whole tumour": [1, 2, 3], "core": [2, 3], "enhancing": [3], "ignore": 4}


def put(path, labels):
    return crafted.put(path, {"labels": labels, "file_ending": ".nii.gz", "channel_names": {"0": "CT"}})


def test_labels_are_classes(tmp_path):
    found = read_labels(put(tmp_path / "dataset.json", {"background": 0, "liver": 1, "tumour": 2, "ignore": 3}))
    assert (found.spec.names, found.spec.ignore_index) == (("background", "liver", "tumour"), 3)
    assert (found.groups, found.regions, found.file_ending) == ({}, (1, 2), ".nii.gz")
    assert read_labels(tmp_path) == found


def test_regions_are_groups(tmp_path):
    found = read_labels(put(tmp_path / "dataset.json", REGIONS))
    assert (found.spec.names, found.spec.ignore_index) == (("background", "label 1", "label 2", "label 3"), 4)
    assert found.groups["core"] == ("label 2", "label 3")
    assert found.regions == ((1, 2, 3), (2, 3), (3,))


def test_labels_are_those_of_nnunets_own_manager(tmp_path):
    manager = load("nnunetv2.utilities.label_handling.label_handling", "nnunetv2").LabelManager
    theirs = manager(REGIONS, regions_class_order=[1, 2, 3])
    found = read_labels(put(tmp_path / "dataset.json", REGIONS))
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
        read_labels(put(tmp_path / "dataset.json", labels))
    with pytest.raises(DataError, match=r"nothing.json: expected `labels` .*, got No such file"):
        read_labels(tmp_path / "nothing.json")


@pytest.mark.parametrize(("ending", "found"), [(None, ""), (".png", ".png")])
def test_an_ending_is_a_text(ending, found, tmp_path):
    content = {"labels": {"background": 0, "a": 1.0}, "file_ending": ending}
    path = crafted.put(tmp_path / "dataset.json", content)
    assert read_labels(path).file_ending == found


@pytest.mark.parametrize("given", [["background", "b", "a"], ["background", "a"], ["background", "a", "b", "c"]])
def test_classes_that_contradict_a_dataset_json_are_refused(given, tmp_path):
    path = put(tmp_path / "dataset.json", {"background": 0, "a": 1, "b": 2})
    rule = r"`data.classes` to name the labels of .*, \['background', 'a', 'b'\], in their order, got \['background'"
    with pytest.raises(ConfigError, match=rule):
        LabelsConfig(nnunet=path, classes=given)
    assert LabelsConfig(nnunet=path).classes == ("background", "a", "b")
    assert LabelsConfig(nnunet=path, classes=["none", "x", "y"]).classes == ("none", "x", "y")


def test_what_is_no_path_is_refused():
    with pytest.raises(InputError, match="read_labels: expected `path` to be a path, got 3"):
        read_labels(3)
