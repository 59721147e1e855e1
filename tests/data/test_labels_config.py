"""What `segmeter score` is told of the values in masks: numbers instead of names, and what goes together."""

import pytest

from segmeter.data.labels_config import MAX_CLASSES, LabelsConfig
from segmeter.errors import ConfigError

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


@pytest.mark.parametrize(
    "values",
    [TWO | {"label_map": {"7": 1}}, {"num_classes": 2}, TWO | {"task": "multilabel"}],
    ids=["label map", "multiclass", "multilabel"],
)
def test_numbers_of_objects_are_of_one_class(values):
    assert LabelsConfig(**TWO, instances=True).instances is True
    rule = "data: expected `instances` to be false but for a binary task without label map, got true."
    assert problems_of(**values, instances=True) == [
        f"{rule} Set data.task=binary, or data.instance_divisor where each value has its class."
    ]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"instance_divisor": 1000}, "to say which side holds objects where data.instance_divisor is given"),
        ({"instances": True}, "data.instance_divisor where each value has its class"),
        ({"instances": True, "instance_divisor": 10, "task": "multilabel"}, "not multilabel"),
    ],
)
def test_objects_of_several_classes_need_their_classes(options, line):
    assert any(line in problem for problem in problems_of(**({"classes": ("a", "b", "c")} | options)))


def test_where_one_side_holds_numbers_the_map_is_for_the_other():
    found = LabelsConfig(**TWO, label_map={"7": 1}, instances="predictions")
    assert found.instances == "predictions"


@pytest.mark.parametrize(
    "values",
    [TWO | {"task": "multilabel"}, TWO | {"label_map": {"7": 1}}, TWO | {"instances": True}],
    ids=["multilabel", "label map", "objects"],
)
def test_only_stored_values_can_be_counted_as_invalid(values):
    (line,) = problems_of(**values, invalid="count")
    assert line.startswith("data: expected `invalid` to be error for multilabel, with a label map, or for numbers of")


def test_the_classes_know_whether_invalid_values_are_counted():
    assert LabelsConfig(num_classes=3, invalid="count").spec().count_invalid
    assert not LabelsConfig(num_classes=3).spec().count_invalid
