"""Presets of known data sets: their classes, numbers and colours."""

from segmeter.data.classes_config import CAMVID_CLASSES, CAMVID_COLOURS, CELL_CLASSES, CELL_COLOURS, default_colours
from segmeter.data.config import CamvidConfig, FolderConfig
from segmeter.data.labels_config import LabelsConfig
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
