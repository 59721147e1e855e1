"""GeoTIFFs: tags, places and pixels without data."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from segmeter.data.masks.reading import read_map
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from segmeter.evaluation.score import score
from tests.data.formats_written import library, write_geotiff
from tests.evaluation.masks import changed, scoring
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
def test_tags_of_geotiffs_must_agree(given: dict[str, object], line: str, tmp_path: Path) -> None:
    target, labels = masks(2)
    for side, mask, options in (("references", target, {}), ("predictions", labels, given)):
        (tmp_path / side).mkdir()
        write_geotiff(tmp_path / side / "a.tif", mask, **({"nodata": 255} | options))
    with pytest.raises(DataError, match=line) as error:
        score(scoring(tmp_path, spec=SPEC))
    assert ("resample" in str(error.value)) == ("west" in given)


def test_a_turned_geotiff_is_laid_onto_its_reference(tmp_path: Path) -> None:
    """Turned by a quarter about its own corner: row r and column c of the one are column r and row -c of the other."""
    target, labels = masks(2)
    rasterio = library("rasterio")
    quarter = rasterio.Affine(0, 0.75, 5e5, -0.5, 0, 5.8e6)  # columns run south and rows run east
    for side, mask, options in (("references", target, {}), ("predictions", labels.T, {"transform": quarter})):
        (tmp_path / side).mkdir()
        write_geotiff(tmp_path / side / "a.tif", mask, **options)
    with pytest.raises(DataError, match=r"or data.resample=nearest"):
        score(scoring(tmp_path, spec=SPEC))
    found = score(changed(scoring(tmp_path, spec=SPEC), resample="nearest"))
    assert found["confusion_matrix"] == wanted(target, labels)


def test_geotiffs_of_other_pixel_sizes_are_laid_onto_each_other_by_centres(tmp_path: Path) -> None:
    """Twelve pixels of 10 m and four of 30 m cover the same ground."""
    fine, coarse = np.zeros((12, 12), np.uint8), np.zeros((4, 4), np.uint8)
    fine[3:6, 3:6] = 1
    coarse[1, 1] = 1
    rasterio = library("rasterio")
    for side, mask, edge in (("references", fine, 10.0), ("predictions", coarse, 30.0)):
        (tmp_path / side).mkdir()
        profile = {"driver": "GTiff", "height": len(mask), "width": len(mask), "count": 1, "dtype": "uint8"}
        transform = rasterio.Affine(edge, 0, 5e5, 0, -edge, 5.8e6)
        with rasterio.open(
            tmp_path / side / "a.tif", "w", **profile, crs="EPSG:32633", transform=transform, nodata=255
        ) as file:
            file.write(mask, 1)
    found = score(changed(scoring(tmp_path, spec=SPEC), resample="nearest"))
    assert found["confusion_matrix"] == wanted(fine, fine)


def test_pixels_without_data_are_no_class(tmp_path: Path) -> None:
    """nodata=0 says that the background is not known; a label map says what it is meant to be."""
    target, labels = masks(2)
    for side, mask in (("references", target), ("predictions", labels)):
        (tmp_path / side).mkdir()
        write_geotiff(tmp_path / side / "a.tif", mask, nodata=0)
    with pytest.raises(DataError, match=r"`nodata` to be no class, as \d+ pixels have it, got 0. .*data.label_map"):
        score(scoring(tmp_path, spec=SPEC))
    found = score(changed(scoring(tmp_path, spec=SPEC), label_map={"0": 0, "1": 1, "2": 2}))
    assert found["confusion_matrix"] == wanted(target, labels)


@pytest.mark.parametrize("nodata", [0, 9999])
def test_pixels_without_data_are_no_object_and_no_background(nodata: int, tmp_path: Path) -> None:
    numbers = np.zeros((8, 9), np.uint16)
    numbers[:2] = 9999
    numbers[4:6, 4:6] = 1
    path = tmp_path / "a.tif"
    write_geotiff(path, numbers, nodata=nodata)
    count = int((numbers == nodata).sum())
    for label_map in ({}, {"0": 0, "255": 1}):  # a label map is for the other side
        reading = Reading(spec=SPEC, label_map=label_map, max_pixels=1000, instances="references")
        with pytest.raises(DataError, match=rf"`nodata` to be data.ignore_index, as {count} pixels .*, got {nodata}"):
            read_map(path, reading)
    kept = replace(reading, spec=SPEC.replace(ignore_index=9999))
    if nodata:
        assert np.array_equal(read_map(path, kept).values, numbers)


@pytest.mark.parametrize("nodata", [0, 2])
def test_a_large_map_with_pixels_of_a_class_without_data_is_refused(
    nodata: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segmeter.data.files.array.STREAMED_PIXELS", 100)
    target, labels = (np.minimum(mask, 1) for mask in masks(2))
    for side, mask in (("references", target), ("predictions", labels)):
        (tmp_path / side).mkdir()
        write_geotiff(tmp_path / side / "a.tif", mask, nodata=nodata)
    job = scoring(tmp_path, spec=SPEC)
    if not nodata:
        with pytest.raises(DataError, match=r"`nodata` to be no class, as \d+ pixels have it, got 0\."):
            score(job)
        job = changed(job, label_map={"0": 0, "1": 1})
    assert score(job)["confusion_matrix"] == wanted(target, labels)
