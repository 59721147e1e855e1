"""Where pixels lie, from files that tifffile and zarr wrote."""

import numpy as np
import pytest
import tifffile
import zarr

from segmeter.data.files.opened import read_geometry
from tests.data.crafted import write_multiscales, write_pyramid, write_zarr

IMAGE = np.zeros((64, 48, 3), np.uint8)
UTM = "WGS 84 / UTM zone 33N|"


def geotags(raster_type=1):
    """1 metre by 2, its top left corner at (500000, 5000000) of UTM zone 33N."""
    keys = (1, 1, 0, 4, 1024, 0, 1, 1, 1025, 0, 1, raster_type, 1026, 34737, len(UTM), 0, 3072, 0, 1, 32633)
    return [
        (33550, "d", 3, (1.0, 2.0, 0.0), True),
        (33922, "d", 6, (0.0, 0.0, 0.0, 500000.0, 5000000.0, 0.0), True),
        (34735, "H", len(keys), keys, True),
        (34737, "s", 0, UTM, True),
    ]


def test_geotiff_tags_are_taken_as_they_stand_but_that_pixels_of_a_coarser_level_are_larger(tmp_path):
    """Every second one: 2 metres wide and 4 high; the tie point at column 8, row 2 becomes 4, 1."""
    tags = geotags()
    tags[1] = (33922, "d", 6, (8.0, 2.0, 0.0, 500000.0, 5000000.0, 0.0), True)
    write_pyramid(tmp_path / "a.tif", IMAGE, IMAGE[::2, ::2], extratags=tags)
    found = dict(read_geometry(tmp_path / "a.tif", level=1).geotiff)
    assert found[33550] == (2.0, 4.0, 0.0)
    assert found[33922] == (4.0, 1.0, 0.0, 500000.0, 5000000.0, 0.0)
    finest = read_geometry(tmp_path / "a.tif")
    assert (finest.known, finest.spacing) == (True, None)
    assert dict(finest.geotiff) == {tag: value for tag, _, _, value, _ in tags}


@pytest.mark.parametrize("step", [2, 3])
def test_a_matrix_of_a_coarser_level_has_larger_columns(step, tmp_path):
    """It takes (column, row, 0, 1); a pixel of level 1 covers as many of level 0 as the sizes say, such as 64 / 22."""
    matrix = np.array([[3.0, 0.5, 0, 100], [0.25, -2.0, 0, 200], [0, 0, 0, 0], [0, 0, 0, 1]])
    tags = [(34264, "d", 16, tuple(matrix.ravel()), True), *geotags()[2:]]
    coarser = IMAGE[::step, ::step]
    write_pyramid(tmp_path / "a.tif", IMAGE, coarser, extratags=tags)
    found = np.reshape(dict(read_geometry(tmp_path / "a.tif", level=1).geotiff)[34264], (4, 4))
    down, across = (whole / part for whole, part in zip(IMAGE.shape[:2], coarser.shape[:2], strict=True))
    np.testing.assert_allclose(found @ [5, 7, 0, 1], matrix @ [5 * across, 7 * down, 0, 1], rtol=1e-15)


@pytest.mark.parametrize(
    ("tags", "level", "problem"),
    [
        ([(274, "H", 1, 6, True), *geotags()], 0, "turned as its orientation says"),
        (geotags(raster_type=2), 1, "pixels' centres"),
    ],
)
def test_a_turned_picture_and_centres_of_a_coarser_level_are_not_placed(tags, level, problem, tmp_path):
    write_pyramid(tmp_path / "a.tif", IMAGE, IMAGE[::2, ::2], extratags=tags)
    found = read_geometry(tmp_path / "a.tif", level=level)
    assert not found.known
    assert problem in found.spacing_problem
    assert read_geometry(tmp_path / "a.tif").known == bool(level)


@pytest.mark.parametrize("level", [0, 1])
def test_spacing_of_ome_and_imagej_metadata(tmp_path, level):
    ome = {"axes": "YXS", "PhysicalSizeX": 0.25, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 0.5}
    write_pyramid(tmp_path / "a.ome.tif", IMAGE, IMAGE[::2, ::2], metadata={**ome, "PhysicalSizeYUnit": "µm"})
    found = read_geometry(tmp_path / "a.ome.tif", level=level)
    assert (found.spacing, found.unit) == ((0.5 * 2**level, 0.25 * 2**level), "um")
    tifffile.imwrite(tmp_path / "b.tif", IMAGE, imagej=True, resolution=(4, 2), metadata={"unit": "mm"})
    assert read_geometry(tmp_path / "b.tif").spacing == (0.5, 0.25)


def test_spacing_of_a_zarr_whose_channels_come_last_is_that_of_its_rows_and_columns(tmp_path):
    for name, attributes in {
        "three": {"spacing": [3.0, 2.0, 1.0], "unit": ["mm", "mm", "mm"]},
        "two": {"spacing": [3.0, 2.0], "unit": "mm"},
    }.items():
        write_zarr(tmp_path / f"{name}.zarr", IMAGE, "yxc", attributes=attributes)
        found = read_geometry(tmp_path / f"{name}.zarr")
        assert (found.spacing, found.unit) == ((3.0, 2.0), "mm")


@pytest.mark.parametrize("axes", ["cyx", "yxc"])
@pytest.mark.parametrize("level", [0, 1])
def test_spacing_of_the_level_of_ome_zarr(tmp_path, axes, level):
    levels = (
        [IMAGE, IMAGE[::2, ::2]] if axes == "yxc" else [np.moveaxis(each, -1, 0) for each in (IMAGE, IMAGE[::2, ::2])]
    )
    edges = {"y": 0.5, "x": 0.25, "c": 1.0}
    steps = [[{"type": "scale", "scale": [edges[axis] * 2**n for axis in axes]}] for n in range(2)]
    write_multiscales(zarr.open_group(str(tmp_path / "a.zarr"), mode="w"), *levels, axes=axes, steps=steps)
    found = read_geometry(tmp_path / "a.zarr", level=level)
    assert (found.spacing, found.unit) == ((0.5 * 2**level, 0.25 * 2**level), "um")
