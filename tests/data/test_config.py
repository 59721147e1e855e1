import pytest

from segmeter.data.config import DATA, CellsConfig, FolderConfig
from segmeter.data.sample import Reading
from segmeter.errors import ConfigError


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
