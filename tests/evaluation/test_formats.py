"""One pair of masks through every reader gives the same counts; other grids are refused, or resampled where asked."""

import json
from functools import partial

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import confusion_matrix

from segmeter.classes import ClassSpec
from segmeter.data.masks.reading import read_map
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from segmeter.evaluation.score import Scoring, score
from segmeter.evaluation.spacings import NOTE
from segmeter.export.objects import encode_geojson
from segmeter.metrics.cases.stored import read_cases
from tests.data import formats_written
from tests.data.crafted import put
from tests.data.formats_written import EDGES, ORIGIN, draw_mask, library, write_geojson, write_geotiff, write_itk
from tests.data.masks.exported import blocks, write_yolo
from tests.data.volumes import save_nifti
from tests.evaluation.masks import FEW, changed, pair_masks, put_sides, scoring, write_mask

SPEC = ClassSpec(
    task="multiclass", names=formats_written.NAMES, colours=((0, 0, 0), (255, 0, 0), (0, 0, 255)), ignore_index=255
)
CITYSCAPES = {"0": 0, "24": 1, "26": 2}


# suffix, axes of the mask, writer
FILES = {
    "MHA": (".mha", 3, write_itk),
    "MHA 2-D": (".mha", 2, write_itk),
    "NRRD": (".nrrd", 3, write_itk),
    "Slicer's NRRD": (".seg.nrrd", 3, write_itk),
    "DICOM-SEG": (".dcm", 3, formats_written.write_dicom),
    "GeoTIFF": (".tif", 2, write_geotiff),
    "COG": (".tif", 2, lambda path, mask: write_geotiff(path, mask, tiled=True, blockxsize=16, blockysize=16)),
    "OME-Zarr": (".zarr", 3, formats_written.write_ome_zarr),
    "OME-Zarr 0.4, 2-D": (".zarr", 2, lambda path, mask: formats_written.write_ome_zarr(path, mask, version="0.4")),
    "NIfTI": (".nii.gz", 3, lambda path, mask: save_nifti(path, mask)),
    "Cityscapes ids": (".png", 2, lambda path, mask: put(path, np.uint8([0, 24, 26])[mask])),
}


def masks(axes):
    shape = (6, 24, 30)[-axes:]
    return draw_mask(0, shape), draw_mask(1, shape)


def job_of(pairing, folder):
    return Scoring(pairing=pairing, reading=Reading(spec=SPEC, max_pixels=10_000), metrics=FEW, folder=folder)


def wanted(target, labels):
    return confusion_matrix(target.ravel(), labels.ravel(), labels=range(3)).tolist()


@pytest.mark.parametrize("name", FILES)
def test_files_of_every_format_give_equal_counts(name, tmp_path):
    suffix, axes, write = FILES[name]
    put_sides(tmp_path, *masks(axes), f"a{suffix}", write=write)
    job = changed(
        scoring(tmp_path, spec=SPEC),
        key="labels/cells" if "Zarr" in name else None,
        label_map=CITYSCAPES if "Cityscapes" in name else {},
    )
    assert score(job)["confusion_matrix"] == wanted(*masks(axes))
    (row,) = read_cases(tmp_path)
    known = {"Cityscapes ids": None, "GeoTIFF": (0.5, 0.75), "COG": (0.5, 0.75), "NIfTI": (3.0, 0.5, 0.25)}
    assert row.case_id == "a"
    assert row.spacing == known.get(name, EDGES[-axes:])


@pytest.mark.parametrize("form", ["runs as text", "runs as lists", "panoptic"])
def test_coco_files_give_equal_counts(form, tmp_path):
    """References in one JSON of two images, predictions as PNG and as JSON."""
    pairs = {name: (draw_mask(seed), draw_mask(seed + 10)) for seed, name in enumerate("ab")}
    for number, side in enumerate(("references", "predictions")):
        path, drawn = tmp_path / f"coco_{side}.json", {name: pair[number] for name, pair in pairs.items()}
        if form == "panoptic":
            formats_written.write_panoptic(path, drawn)
        else:
            path.write_text(json.dumps(formats_written.coco_content(drawn, compressed="text" in form)))
        (tmp_path / side).mkdir(exist_ok=True)
        for name, mask in drawn.items():
            Image.fromarray(mask).save(tmp_path / side / f"{name}.png")
    both = [wanted(*pair) for pair in pairs.values()]
    for predictions in ("coco_predictions.json", "predictions"):
        (tmp_path / f"run {predictions}").mkdir()
        pairing = pair_masks(tmp_path / predictions, tmp_path / "coco_references.json", spec=SPEC)
        job = job_of(pairing, tmp_path / f"run {predictions}")
        assert score(job)["confusion_matrix"] == np.sum(both, axis=0).tolist()
        assert [row.counts.tolist() for row in read_cases(job.folder)] == both


DRAWN = {
    "YOLO": (".txt", write_yolo, (blocks(), blocks())),
    "polygons": (".geojson", write_geojson, masks(2)),
    "our export": (".geojson", lambda path, mask: path.write_bytes(encode_geojson("a", mask, None, SPEC)), masks(2)),
}


@pytest.mark.parametrize("side", [0, 1], ids=["references", "predictions"])
@pytest.mark.parametrize("form", DRAWN)
def test_drawn_objects_take_the_size_of_the_other_side(form, side, tmp_path):
    suffix, write, pair = DRAWN[form]
    for number, (each, mask) in enumerate(zip(("references", "predictions"), pair, strict=True)):
        (tmp_path / each).mkdir()
        (write if number == side else write_mask)(tmp_path / each / f"a{suffix if number == side else '.png'}", mask)
    assert score(scoring(tmp_path, spec=SPEC))["confusion_matrix"] == wanted(*pair)


def test_polygons_on_both_sides_have_no_size(tmp_path):
    put_sides(tmp_path, draw_mask(), draw_mask(), "a.geojson", write=write_geojson)
    with pytest.raises(DataError, match="to be scored against a map"):
        score(scoring(tmp_path, spec=SPEC))


def test_resampling_equals_itk(tmp_path):
    """On another lattice, which is turned."""
    sitk = library("SimpleITK")
    target, labels = masks(3)
    put_sides(tmp_path, target, labels, "a.mha", write=write_itk)
    image = sitk.GetImageFromArray(labels)
    image.SetSpacing((0.8, 0.6, 2.1))
    image.SetOrigin((ORIGIN[0] + 1.13, ORIGIN[1] - 0.77, ORIGIN[2] + 0.31))
    cosine, sine = np.cos(0.3), np.sin(0.3)
    image.SetDirection((cosine, -sine, 0, sine, cosine, 0, 0, 0, 1))
    sitk.WriteImage(image, str(tmp_path / "predictions" / "a.mha"))
    reference = sitk.ReadImage(str(tmp_path / "references" / "a.mha"))
    moved = sitk.GetArrayFromImage(sitk.Resample(image, reference, sitk.Transform(), sitk.sitkNearestNeighbor, 0))
    found = score(changed(scoring(tmp_path, spec=SPEC), resample="nearest"))
    assert found["confusion_matrix"] == wanted(target, moved)
    assert read_cases(tmp_path)[0].extra == {"resampled": 1.0}
    assert found["spacing"]["warnings"] == [f"{NOTE} (1: a)."]


def test_endings_tell_masks_from_other_files(tmp_path):
    target, labels = masks(2)
    for name in ("a_gt_ids", "a_gt_colour"):
        put(tmp_path / "references" / f"{name}.png", target)
    put(tmp_path / "predictions" / "a_out.png", labels)
    pairing = pair_masks(tmp_path / "predictions", tmp_path / "references", spec=SPEC, endings=("_out", "_gt_ids"))
    found = score(job_of(pairing, tmp_path))
    assert found["confusion_matrix"] == wanted(target, labels)
    assert [row.case_id for row in read_cases(tmp_path)] == ["a"]
    with pytest.raises(DataError, match="to have names that end in '_x'"):
        pair_masks(tmp_path / "predictions", tmp_path / "references", spec=SPEC, endings=("_x", ""))


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
