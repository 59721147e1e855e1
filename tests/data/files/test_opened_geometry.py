"""Where pixels lie, from files that tifffile and zarr wrote."""

import numpy as np
import pytest
import tifffile
import zarr

from segmeter.data.files.opened import read_geometry

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


def write_pyramid(path, **options):
    with tifffile.TiffWriter(path) as writer:
        writer.write(IMAGE, photometric="rgb", tile=(16, 16), subifds=1, metadata=None, **options)
        writer.write(IMAGE[::2, ::2], photometric="rgb", tile=(16, 16), subfiletype=1, metadata=None)


def test_geotiff_tags_are_taken_as_they_stand(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", IMAGE, photometric="rgb", extratags=geotags(), metadata=None)
    found = read_geometry(tmp_path / "a.tif")
    tags = dict(found.geotiff)
    assert found.known
    assert found.spacing is None
    assert tags[33550] == (1.0, 2.0, 0.0)
    assert tags[33922] == (0.0, 0.0, 0.0, 500000.0, 5000000.0, 0.0)
    assert tags[34735][-4:] == (3072, 0, 1, 32633)
    assert tags[34737] == UTM


def test_pixels_of_a_coarser_level_are_larger(tmp_path):
    """Every second one: 2 metres wide and 4 high; the tie point at column 8, row 2 becomes 4, 1."""
    tags = geotags()
    tags[1] = (33922, "d", 6, (8.0, 2.0, 0.0, 500000.0, 5000000.0, 0.0), True)
    write_pyramid(tmp_path / "a.tif", extratags=tags)
    found = dict(read_geometry(tmp_path / "a.tif", level=1).geotiff)
    assert found[33550] == (2.0, 4.0, 0.0)
    assert found[33922] == (4.0, 1.0, 0.0, 500000.0, 5000000.0, 0.0)
    assert dict(read_geometry(tmp_path / "a.tif").geotiff)[33550] == (1.0, 2.0, 0.0)


def test_a_matrix_of_a_coarser_level_has_larger_columns(tmp_path):
    """It takes (column, row, 0, 1); column 1 of level 1 is column 2 of level 0."""
    matrix = np.array([[3.0, 0.5, 0, 100], [0.25, -2.0, 0, 200], [0, 0, 0, 0], [0, 0, 0, 1]])
    write_pyramid(tmp_path / "a.tif", extratags=[(34264, "d", 16, tuple(matrix.ravel()), True), *geotags()[2:]])
    found = np.reshape(dict(read_geometry(tmp_path / "a.tif", level=1).geotiff)[34264], (4, 4))
    np.testing.assert_array_equal(found @ [5, 7, 0, 1], matrix @ [10, 14, 0, 1])


def test_centres_of_a_coarser_level_are_not_guessed(tmp_path):
    write_pyramid(tmp_path / "a.tif", extratags=geotags(raster_type=2))
    assert read_geometry(tmp_path / "a.tif").known
    found = read_geometry(tmp_path / "a.tif", level=1)
    assert not found.known
    assert "pixels' centres" in found.spacing_problem


def test_a_turned_picture_is_not_placed(tmp_path):
    turned = [(274, "H", 1, 6, True), *geotags()]
    tifffile.imwrite(tmp_path / "a.tif", IMAGE, photometric="rgb", extratags=turned, metadata=None)
    assert "turned as its orientation says" in read_geometry(tmp_path / "a.tif").spacing_problem


@pytest.mark.parametrize("level", [0, 1])
def test_spacing_of_ome_and_imagej_metadata(tmp_path, level):
    ome = {"axes": "YXS", "PhysicalSizeX": 0.25, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 0.5}
    with tifffile.TiffWriter(tmp_path / "a.ome.tif", ome=True) as writer:
        writer.write(IMAGE, photometric="rgb", tile=(16, 16), subifds=1, metadata={**ome, "PhysicalSizeYUnit": "µm"})
        writer.write(IMAGE[::2, ::2], photometric="rgb", tile=(16, 16), subfiletype=1)
    found = read_geometry(tmp_path / "a.ome.tif", level=level)
    assert (found.spacing, found.unit) == ((0.5 * 2**level, 0.25 * 2**level), "um")
    tifffile.imwrite(tmp_path / "b.tif", IMAGE, imagej=True, resolution=(4, 2), metadata={"unit": "mm"})
    assert read_geometry(tmp_path / "b.tif").spacing == (0.5, 0.25)


def test_spacing_of_a_zarr_whose_channels_come_last_is_that_of_its_rows_and_columns(tmp_path):
    """Mutation seen to fail: the last two of all axes."""
    for name, attributes in {
        "three": {"spacing": [3.0, 2.0, 1.0], "unit": ["mm", "mm", "mm"]},
        "two": {"spacing": [3.0, 2.0], "unit": "mm"},
    }.items():
        array = zarr.create_array(str(tmp_path / f"{name}.zarr"), data=IMAGE, dimension_names=("y", "x", "c"))
        array.attrs.update(attributes)
        found = read_geometry(tmp_path / f"{name}.zarr")
        assert (found.spacing, found.unit) == ((3.0, 2.0), "mm")


@pytest.mark.parametrize("axes", ["cyx", "yxc"])
@pytest.mark.parametrize("level", [0, 1])
def test_spacing_of_the_level_of_ome_zarr(tmp_path, axes, level):
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w")
    image = IMAGE if axes == "yxc" else np.moveaxis(IMAGE, -1, 0)
    scales = []
    for number in range(2):
        step = (slice(None, None, 2**number),) * 2
        part = image[step] if axes == "yxc" else image[:, *step]
        group.create_array(str(number), data=part)
        edges = {"y": 0.5 * 2**number, "x": 0.25 * 2**number, "c": 1.0}
        transformation = {"type": "scale", "scale": [edges[axis] for axis in axes]}
        scales.append({"path": str(number), "coordinateTransformations": [transformation]})
    kinds = {"c": {"type": "channel"}, "y": {"type": "space", "unit": "micrometer"}}
    kinds["x"] = kinds["y"]
    entry = {"axes": [{"name": axis, **kinds[axis]} for axis in axes], "datasets": scales}
    group.attrs["ome"] = {"version": "0.5", "multiscales": [entry]}
    found = read_geometry(tmp_path / "a.zarr", level=level)
    assert (found.spacing, found.unit) == ((0.5 * 2**level, 0.25 * 2**level), "um")
