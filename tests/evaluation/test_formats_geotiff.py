"""GeoTIFFs: tags, places and pixels without data."""

from functools import partial

import numpy as np
import pytest

from segmeter.data.masks.reading import read_map
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from segmeter.evaluation.score import score
from tests.data.formats_written import library, write_geotiff
from tests.evaluation.masks import changed, put_sides, scoring
from tests.evaluation.test_formats import SPEC, masks, wanted


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"west": 5e5 + 3}, "`origin` to be that of its reference"),
        ({"crs": "EPSG:32634"}, "`coordinate reference system` to be .* EPSG:32633, got EPSG:32634"),
        ({"nodata": 7}, "`nodata` to be that of its reference .* 255, got 7"),
    ],
    ids=str,
)
def test_tags_of_geotiffs_must_agree(given, line, tmp_path):
    put_sides(tmp_path, *masks(2), "a.tif", write=partial(write_geotiff, nodata=255))
    write_geotiff(tmp_path / "predictions" / "a.tif", masks(2)[1], **({"nodata": 255} | given))
    with pytest.raises(DataError, match=line) as error:
        score(scoring(tmp_path, spec=SPEC))
    assert ("resample" in str(error.value)) == ("west" in given)


def test_a_turned_geotiff_is_laid_onto_its_reference(tmp_path):
    """Turned by a quarter about its own corner: row r and column c of the one are column r and row -c of the other."""
    target, labels = masks(2)
    rasterio = library("rasterio")
    quarter = rasterio.Affine(0, 0.75, 5e5, -0.5, 0, 5.8e6)  # columns run south and rows run east
    put_sides(tmp_path, target, labels, "a.tif", write=write_geotiff)
    write_geotiff(tmp_path / "predictions" / "a.tif", labels.T, transform=quarter)
    with pytest.raises(DataError, match=r"or data.resample=nearest"):
        score(scoring(tmp_path, spec=SPEC))
    found = score(changed(scoring(tmp_path, spec=SPEC), resample="nearest"))
    assert found["confusion_matrix"] == wanted(target, labels)


def test_pixels_without_data_are_no_class(tmp_path):
    """nodata=0 says that the background is not known; a label map says what it is meant to be."""
    target, labels = masks(2)
    put_sides(tmp_path, target, labels, "a.tif", write=partial(write_geotiff, nodata=0))
    with pytest.raises(DataError, match=r"`nodata` to be no class, as \d+ pixels have it, got 0. .*data.label_map"):
        score(scoring(tmp_path, spec=SPEC))
    found = score(changed(scoring(tmp_path, spec=SPEC), label_map={"0": 0, "1": 1, "2": 2}))
    assert found["confusion_matrix"] == wanted(target, labels)


@pytest.mark.parametrize("nodata", [0, 9999])
def test_pixels_without_data_are_no_object_and_no_background(nodata, tmp_path):
    numbers = np.zeros((8, 9), np.uint16)
    numbers[:2], numbers[4:6, 4:6] = 9999, 1
    write_geotiff(tmp_path / "a.tif", numbers, nodata=nodata)
    for label_map in ({}, {"0": 0, "255": 1}):  # a label map is for the other side
        reading = Reading(spec=SPEC, label_map=label_map, max_pixels=1000, instances="references")
        with pytest.raises(DataError, match=rf"`nodata` to be data.ignore_index, as \d+ pixels .*, got {nodata}"):
            read_map(tmp_path / "a.tif", reading)
