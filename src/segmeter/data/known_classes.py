"""Classes of data sets that segmeter knows by name, with colours or the ids in their files; colours of all others."""

import colorsys

from segmeter.classes import Colour

CAMVID_CLASSES = (
    "Sky", "Building", "Pole", "Road", "Pavement", "Tree", "SignSymbol", "Fence", "Car", "Pedestrian", "Bicyclist",
)  # fmt: skip
CAMVID_COLOURS: tuple[Colour, ...] = (
    (128, 128, 128), (128, 0, 0), (192, 192, 128), (128, 64, 128), (60, 40, 222), (128, 128, 0),
    (192, 128, 128), (64, 64, 128), (64, 0, 128), (64, 64, 0), (0, 128, 192),
)  # fmt: skip
CITYSCAPES_IDS = {
    "road": 7, "sidewalk": 8, "building": 11, "wall": 12, "fence": 13, "pole": 17, "traffic light": 19,
    "traffic sign": 20, "vegetation": 21, "terrain": 22, "sky": 23, "person": 24, "rider": 25, "car": 26, "truck": 27,
    "bus": 28, "train": 31, "motorcycle": 32, "bicycle": 33,
}  # fmt: skip
CELL_CLASSES = ("background", "round", "spindle", "mitotic")
CELL_COLOURS: tuple[Colour, ...] = ((0, 0, 0), (86, 180, 233), (0, 158, 115), (230, 97, 1))


def default_colours(count: int) -> tuple[Colour, ...]:
    """Black for the first class, then hues that stay apart: each golden-angle step is far from all before it.

    Examples
    --------
    >>> default_colours(2)
    ((0, 0, 0), (230, 57, 57))
    """
    colours: list[Colour] = [(0, 0, 0)]
    for index in range(count - 1):
        saturation, value = ((0.75, 0.9), (0.9, 0.6), (0.45, 1.0))[index // 8 % 3]
        red, green, blue = colorsys.hsv_to_rgb(index * 0.61803398875 % 1, saturation, value)
        colours.append((round(red * 255), round(green * 255), round(blue * 255)))
    return tuple(colours[:count])
