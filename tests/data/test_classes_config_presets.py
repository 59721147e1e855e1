"""Classes of known data sets against their own tools, and colours for all others."""

from segmeter.data.classes_config import CAMVID_CLASSES, CAMVID_COLOURS, CELL_CLASSES, CELL_COLOURS, default_colours


def test_camvid_is_eleven_classes_in_the_order_of_its_labels():
    """As SegNet's masks have them: the label is the place in the list."""
    assert len(CAMVID_CLASSES) == len(CAMVID_COLOURS) == len(set(CAMVID_COLOURS)) == 11
    assert {name: CAMVID_CLASSES.index(name) for name in ("Sky", "Road", "Car")} == {"Sky": 0, "Road": 3, "Car": 8}
    assert CAMVID_COLOURS[3] == (128, 64, 128)


def test_every_class_has_a_colour_of_its_own():
    assert len(CELL_CLASSES) == len(CELL_COLOURS) == len(set(CELL_COLOURS))
    colours = default_colours(40)
    assert colours[0] == (0, 0, 0)
    assert len(set(colours)) == 40
    assert all(0 <= part <= 255 for colour in colours for part in colour)


def test_a_colour_stays_when_classes_are_added():
    """Hues a golden angle apart: 0, 222 and 85 degrees."""
    assert default_colours(4) == ((0, 0, 0), (230, 57, 57), (57, 108, 230), (158, 230, 57))
    assert default_colours(30)[:4] == default_colours(4)
    assert default_colours(0) == ()
    assert default_colours(1) == ((0, 0, 0),)
