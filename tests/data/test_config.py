"""The configuration of data: its rules, presets of known data sets, and what the values in masks mean."""

import pytest

from segmeter.data.classes_config import CAMVID_CLASSES, CAMVID_COLOURS, CELL_CLASSES, CELL_COLOURS, default_colours
from segmeter.data.config import DATA, CamvidConfig, CellsConfig, FolderConfig
from segmeter.data.labels_config import MAX_CLASSES, LabelsConfig, read_labels
from segmeter.data.sample import Reading
from segmeter.errors import ConfigError, DataError, InputError
from tests.data import crafted
from tests.differential.peers import load


def test_registry_holds_the_kinds_under_their_names():
    assert DATA.names() == ["camvid", "cells", "folder", "instances"]
    for name in DATA.names():
        schema = DATA.schema(name)
        assert schema.model_fields["name"].default == name


def test_files_of_earlier_versions_may_hold_a_key_that_is_gone_with_its_default():
    assert CellsConfig(ignore_rim=0) == CellsConfig()
    with pytest.raises(ConfigError, match="unknown key 'ignore_rim'"):
        CellsConfig(ignore_rim=1)


def test_every_broken_rule_is_said_at_once():
    names = {"root": "", "split": "tests", "task": "binari", "masks": "images", "list_files": {"dev": "x"}}
    values = {"in_channels": 0, "std": (0.0,), "label_map": {"1,2": 0}, "colours": ((0, 0, 256),)}
    with pytest.raises(ConfigError) as refusal:
        FolderConfig(**names, **values, val_fraction=0.6, test_fraction=0.5)
    text = str(refusal.value)
    for key in ("root", "split", "task", "in_channels", "std", "list_files", "label_map", "colours[0][2]", "masks"):
        assert f"`{key}`" in text
    assert "`test_fraction` to leave a part for training beside val_fraction=0.6, got 0.5." in text
    assert "Did you mean 'test'?" in text


OBJECTS = {"task": "binary", "instances": True}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clip": (3, 98)}, r"`clip` to be one of 0, 0.5, 1, 2, 5, and one of 95, 98, 99, 99.5, 100, got \[3, 98\]"),
        ({"channels": ("a", "b")}, r"`channels` to be 3 different names.*data.in_channels is their number"),
        ({"channels": ("a", "b", "a")}, r"`channels` to be 3 different names"),
        ({"mean": (0.1,)}, "`mean` to be 3 values, one per channel"),
        ({"full_scale": 0.0}, "`full_scale` to be a number > 0"),
        ({"group_by": "pair", "group_until": "_"}, r"`group_until` to be left alone beside data\.group_by, got '_'"),
        ({"classes": ()}, r"`classes` to name at least 2, got \[\]\. Set data.classes="),
        ({"context": 1}, "`context` to be 0 without data.planes"),
        ({"core_depth": 2}, "`core_depth` to be null but for masks of object numbers of one class"),
        (OBJECTS | {"core_depth": 2, "ignore_index": 2}, "`core_depth` to be null but for masks of object numbers of"),
        (OBJECTS | {"task": "multiclass"}, "`instances` to be false but for a binary task without label map"),
        (OBJECTS | {"instance_divisor": 9, "label_map": {"7,0,0": 0}}, "`label_map` to hold values of classes, not"),
        ({"strata": "classes"}, "`strata` to be null without folds"),
        *(({"fold": fold}, "`fold` to be i/k") for fold in ("0/5", "6/5", "1/1", "1", "a/b", "1/5/6")),
        ({"sources": {"a/scans": 0}}, r"`sources\.a/scans` to be a number > 0"),
        (OBJECTS | {"planes": "auto"}, "`planes` to be null for masks of object numbers"),
        ({"label_map": {"255": 2}}, "to a label from 0 to 1 or ignore_index, not to 2"),
        *(
            ({"label_map": {key: 0}}, "label_map` from a value or 'red,green,blue', not from")
            for key in ("x", "1,2", "1,2,3,4", "1,2,256", "", "--")
        ),
    ],
    ids=str,
)
def test_values_that_can_not_be_meant_are_refused(fields, message):
    with pytest.raises(ConfigError, match=f"data: expected .*{message}"):
        FolderConfig(**{"root": "x", "classes": ("a", "b"), **fields})


def test_label_map_takes_numbers_as_keys_and_colours_with_spaces():
    config = FolderConfig(root="x", classes=("a", "b"), label_map={0: 0, 255: 2, "1, 2, 3": 1, "-1": 0}, ignore_index=2)
    assert Reading.of(config, config.spec()).label_map == {"0": 0, "255": 2, "1,2,3": 1, "-1": 0}


MULTICLASS = [("multiclass", "background", True), ("multiclass", "Void", True), ("multiclass", "sky", False)]


@pytest.mark.parametrize(
    ("task", "first", "black"), [*MULTICLASS, ("binary", "sky", True), ("multilabel", "background", False)]
)
def test_by_default_only_a_background_is_black(task, first, black):
    spec = FolderConfig(root="x", task=task, classes=(first, "road")).spec()
    assert (spec.colours[0] == (0, 0, 0)) == black == spec.has_background
    assert (0, 0, 0) not in spec.colours[1:]


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


def test_ade20k_ignores_0_and_voc_has_its_palette():
    """Their classes and palettes are compared with those of mmsegmentation."""
    found = LabelsConfig(preset="ade20k")
    assert (len(found.classes), found.ignore_index) == (150, 255)
    assert found.label_map == {"0": 255} | {str(value): value - 1 for value in range(1, 151)}
    found, colours = (LabelsConfig(preset=name) for name in ("voc", "voc-colours"))
    assert (len(found.classes), found.ignore_index, found.label_map) == (21, 255, {})
    assert (colours.label_map["192,128,128"], colours.label_map["224,224,192"], len(colours.label_map)) == (15, 255, 22)


def test_a_preset_is_of_training_too():
    found = FolderConfig(root="x", preset="voc")
    assert (found.classes[1], found.ignore_index) == ("aeroplane", 255)
    assert FolderConfig(root="x", preset="voc", classes=("a", "b")).spec().names == ("a", "b")


def test_what_is_given_goes_before_the_preset():
    found = LabelsConfig(preset="cityscapes", ignore_index=300, label_map={"0": 300})
    assert (found.ignore_index, found.label_map, len(found.classes)) == (300, {"0": 300}, 19)


def test_camvid_is_eleven_classes_in_the_order_of_its_labels():
    """As SegNet's masks have them: the label is the place in the list."""
    assert len(CAMVID_CLASSES) == len(CAMVID_COLOURS) == len(set(CAMVID_COLOURS)) == 11
    assert {name: CAMVID_CLASSES.index(name) for name in ("Sky", "Road", "Car")} == {"Sky": 0, "Road": 3, "Car": 8}
    assert CAMVID_COLOURS[3] == (128, 64, 128)
    spec = CamvidConfig(root="x").spec()
    assert (spec.names, spec.colours, spec.ignore_index) == (CAMVID_CLASSES, CAMVID_COLOURS, 11)


def test_every_class_has_a_colour_of_its_own_that_stays_when_classes_are_added():
    """Hues a golden angle apart: 0, 222 and 85 degrees."""
    assert len(CELL_CLASSES) == len(CELL_COLOURS) == len(set(CELL_COLOURS))
    colours = default_colours(40)
    assert colours[:4] == ((0, 0, 0), (230, 57, 57), (57, 108, 230), (158, 230, 57))
    assert len(set(colours)) == 40
    assert all(0 <= part <= 255 for colour in colours for part in colour)
    assert [default_colours(count) for count in (0, 1)] == [(), colours[:1]]


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


NO_OBJECTS = "`instances` to be false but for a binary task without label map, got true. Set data.task=binary, or"
INVALID = "`invalid` to be error for multilabel, with a label map, or for numbers of objects"
MAPPED, SEVERAL = TWO | {"label_map": {"7": 1}}, {"classes": ("a", "b", "c")}


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (MAPPED | {"instances": True}, NO_OBJECTS),
        ({"num_classes": 2, "instances": True}, NO_OBJECTS),
        (TWO | {"task": "multilabel", "instances": True}, NO_OBJECTS),
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
