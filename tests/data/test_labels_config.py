"""What `segmeter score` is told of the values in masks: presets, numbers instead of names, and what goes together."""

import pytest

from segmeter.data.config import FolderConfig
from segmeter.data.labels_config import MAX_CLASSES, LabelsConfig
from segmeter.errors import ConfigError
from tests.differential.peers import load

TWO = {"task": "binary", "classes": ("none", "cell")}


def problems_of(**values):
    with pytest.raises(ConfigError) as error:
        LabelsConfig(**values)
    return list(error.value.problems)


def test_the_preset_maps_every_id_as_cityscapes_scripts_do():
    labels = load("cityscapesscripts.helpers.labels", "cityscapesscripts").labels
    found = LabelsConfig(preset="cityscapes")
    assert {int(key) for key in found.label_map} == {one.id for one in labels} | {255}
    assert all(found.label_map[str(one.id)] == (255 if one.ignoreInEval else one.trainId) for one in labels)
    assert (len(found.classes), found.ignore_index) == (19, 255)


def test_the_colours_are_those_of_cityscapes_scripts():
    labels = load("cityscapesscripts.helpers.labels", "cityscapesscripts").labels
    found = LabelsConfig(preset="cityscapes-colours")
    by_colour = {",".join(map(str, one.color)): one.trainId for one in reversed(labels) if not one.ignoreInEval}
    assert {key: label for key, label in found.label_map.items() if label != 255} == by_colour
    assert set(found.label_map) == {",".join(map(str, one.color)) for one in labels}
    assert found.colours == LabelsConfig(preset="cityscapes").colours


def test_ade20k_ignores_0_and_starts_at_1():
    found = LabelsConfig(preset="ade20k")
    assert (len(found.classes), len(set(found.classes)), found.ignore_index) == (150, 150, 255)
    assert found.classes[:3] + found.classes[149:] == ("wall", "building", "sky", "flag")
    assert found.label_map == {"0": 255} | {str(value): value - 1 for value in range(1, 151)}


def test_voc_has_its_palette():
    """A few colours of VOC's development kit."""
    found = LabelsConfig(preset="voc")
    assert (len(found.classes), found.ignore_index, found.label_map) == (21, 255, {})
    named = dict(zip(found.classes, found.colours, strict=True))
    assert named["aeroplane"] == (128, 0, 0)
    assert named["person"] == (192, 128, 128)
    assert named["tvmonitor"] == (0, 64, 128)
    colours = LabelsConfig(preset="voc-colours").label_map
    assert (colours["192,128,128"], colours["224,224,192"], len(colours)) == (15, 255, 22)


def test_a_preset_is_of_training_too():
    found = FolderConfig(root="x", preset="voc")
    assert (found.classes[1], found.ignore_index) == ("aeroplane", 255)
    assert FolderConfig(root="x", preset="voc", classes=("a", "b")).spec().names == ("a", "b")


def test_what_is_given_goes_before_the_preset():
    found = LabelsConfig(preset="cityscapes", ignore_index=300, label_map={"0": 300})
    assert (found.ignore_index, found.label_map, len(found.classes)) == (300, {"0": 300}, 19)


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
    ("values", "taken"),
    [
        (TWO, True),
        (TWO | {"label_map": {"7": 1}}, False),
        ({"num_classes": 2}, False),
        (TWO | {"task": "multilabel"}, False),
    ],
    ids=["binary", "label map", "multiclass", "multilabel"],
)
def test_numbers_of_objects_are_of_one_class(values, taken):
    if taken:
        assert LabelsConfig(**values, instances=True).instances is True
    else:
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
