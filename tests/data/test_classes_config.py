"""Presets of known data sets: their classes, numbers and colours."""

import numpy as np
import pytest

from segmeter.cli.main import main
from segmeter.data.config import FolderConfig
from segmeter.data.labels_config import LabelsConfig
from tests.data.crafted import put
from tests.differential.peers import load


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


def test_a_command_takes_the_classes_of_a_preset(tmp_path, capsys):
    for folder in ("images", "masks"):
        put(tmp_path / folder / "a.png", np.zeros((8, 8, 3) if folder == "images" else (8, 8), np.uint8))
    given = ["check", "data=folder", f"data.root={tmp_path}", "data.split=all", "data.val_fraction=0.5"]
    with pytest.raises(SystemExit):
        main(given)
    assert "expected `data.classes` to name at least 2" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*given, "data.preset=voc"])
    assert "data.classes" not in capsys.readouterr().err
