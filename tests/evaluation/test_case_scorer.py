"""A pair of files becomes maps and a row, read whole or in bands of lines if it is larger than memory, and in time."""

import os
import pickle
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image

from segmeter.cli.commands.score import draw_cases
from segmeter.data.files import array
from segmeter.data.sample import Reading
from segmeter.errors import DataError, LateError
from segmeter.evaluation.case_scorer import CaseScorer
from segmeter.evaluation.manifest import Entry
from segmeter.evaluation.mask_pairs import MaskPair, hash_pair
from segmeter.evaluation.pair_maps import PairLoader
from segmeter.evaluation.score import measure_probs, score
from segmeter.metrics.config.measures import BoundaryConfig, ErrorTypesConfig, InstancesConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures import row
from segmeter.report.config import ReportConfig
from tests.data.crafted import THREE, noise, put
from tests.data.formats_written import NAMES, draw_mask, write_geojson
from tests.data.volumes import save_volume
from tests.evaluation.masks import LABELS, TARGETS, changed, pair_masks, put_sides, scoring, two_cases

READING = Reading(spec=THREE, max_pixels=10**6)


def scorer(flag_missing=False, **metrics):
    return CaseScorer(READING, MetricsConfig(bootstrap=0, **metrics), flag_missing=flag_missing)


def pairs_of(root):
    return pair_masks(root / "predictions", root / "references", spec=THREE).pairs


def test_the_maps_are_those_of_the_files(tmp_path):
    maps = scorer().read(pairs_of(two_cases(tmp_path))[0])
    assert (maps.case_id, maps.shape, maps.spacing, maps.spec) == ("a", (2, 3), (1.0, 1.0), THREE)
    np.testing.assert_array_equal(maps.target, TARGETS["a"])
    np.testing.assert_array_equal(maps.labels, LABELS["a"])
    assert maps.instances is maps.target_instances is None


def test_a_row_has_the_counts_the_spacing_that_was_given_and_measures(tmp_path):
    measured = scorer(flag_missing=True, spacing=(0.5, 2.0), measures=(BoundaryConfig(width=1),))
    found = pickle.loads(pickle.dumps(measured))(pairs_of(two_cases(tmp_path))[0])
    assert isinstance(found, Entry)
    row = found.row
    assert row.counts.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 1]]  # 255 is in none
    assert (row.height, row.width, row.depth, row.spacing, row.loss) == (2, 3, None, (0.5, 2.0), None)
    assert row.extra["missing"] == 0
    assert {name.partition("/")[0] for name in row.scores if "boundary_iou" in name} == {"boundary_iou"}


def test_a_measure_that_can_not_be_taken_is_said_as_such_and_not_as_a_wrong_label(tmp_path):
    put_sides(tmp_path, *np.zeros((2, 3, 4, 5), np.uint8), "v.npy")
    problems = scorer(measures=(ErrorTypesConfig(),))(pairs_of(tmp_path)[0])
    assert problems == (
        "v: error_types: expected `target` to have two spatial axes for error types, got (3, 4, 5). Leave out this "
        "measure.",
    )


@pytest.mark.parametrize(
    ("side", "place"),
    [("references", (0, 0)), ("predictions", (0, 0)), ("predictions", (1, 2))],
    ids=["reference", "prediction", "hidden by an ignored pixel"],
)
def test_the_file_with_a_value_that_is_no_label_is_named(tmp_path, side, place):
    mask = np.array({"references": TARGETS, "predictions": LABELS}[side]["a"], np.uint8)
    mask[place] = 7
    pair = pairs_of(two_cases(tmp_path))[0]
    put(tmp_path / side / "a.png", mask)
    (problem,) = scorer()(pair)
    assert f"{side}/a.png" in problem
    assert "7 (1 pixels)" in problem
    with pytest.raises(DataError, match=r"7 \(1 pixels\)"):
        scorer().read(pair)


@pytest.mark.parametrize("side", [True, "predictions"])
def test_a_missing_prediction_is_class_0_whatever_the_label_map_makes_of_0(side, tmp_path):
    path, label_map = put(tmp_path / "a.png", np.uint16([[1, 1, 0], [0, 1, 1]])), {"0": 1, "1": 0, "255": 255}
    reading = Reading(spec=THREE, label_map=label_map, instances=side, divisor=1000)
    metrics = MetricsConfig(bootstrap=0, measures=(InstancesConfig(objects="maps"),))
    found = CaseScorer(reading, metrics)(MaskPair(case_id="a", stem="a", references=(path,), predictions=()))
    assert found.row.counts.tolist() == [[4, 0, 0], [2, 0, 0], [0, 0, 0]]


@pytest.fixture
def pairs_are_large(monkeypatch):
    monkeypatch.setattr(array, "STREAMED_PIXELS", 1000)


@pytest.fixture
def maps(tmp_path, pairs_are_large):
    rng = np.random.default_rng(0)
    for role in ("references", "predictions"):
        (tmp_path / role).mkdir()
    for name in "abc":
        target, labels = rng.integers(0, 3, (2, 1500, 40)).astype(np.uint8)
        target[7:90] = 255
        tifffile.imwrite(tmp_path / "references" / f"{name}.tif", target, tile=(64, 64), compression="zlib")
        if name == "a":
            Image.fromarray(labels).save(tmp_path / "predictions" / "a.png")
        elif name == "b":
            zarr.create_array(str(tmp_path / "predictions" / "b.zarr"), data=labels, chunks=(64, 64))
        else:
            tifffile.imwrite(tmp_path / "predictions" / "c.tif", labels, rowsperstrip=11)
    return tmp_path


def job(maps, folder, **metrics):
    wanted = MetricsConfig(bootstrap=20, **metrics)
    return changed(scoring(maps), max_pixels=10**6, metrics=wanted, folder=folder)


def test_scores_and_tables_by_rows_are_those_in_memory(maps, tmp_path, monkeypatch):
    rows = score(job(maps, tmp_path / "rows"))
    monkeypatch.setattr(array, "STREAMED_PIXELS", 10**6)
    assert score(job(maps, tmp_path / "whole")) == rows
    for name in ("cases.csv", "cases.parquet", "metrics.json", "manifest.json"):
        assert (tmp_path / "rows" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize(
    ("side", "lines", "value", "rule"),
    [
        ("references", [1400], 9, "9"),
        ("predictions", [1400], 9, "9"),
        ("predictions", [5, 8], 255, "got 1 pixels of the ignored value 255"),  # the target ignores the second one too
    ],
)
def test_a_value_that_is_no_label_is_named(maps, tmp_path, side, lines, value, rule):
    labels = tifffile.imread(maps / side / "c.tif")
    labels[lines, 3] = value
    tifffile.imwrite(maps / side / "c.tif", labels)
    with pytest.raises(DataError, match=rf"{side}/c\.tif.* {rule}"):
        score(job(maps, tmp_path / "run"))


def test_what_needs_a_whole_map_is_refused_by_name(maps, tmp_path):
    with pytest.raises(DataError, match=r"Leave out metrics\.measures: surface"):
        score(job(maps, tmp_path / "run", measures=(SurfaceConfig(),)))


@pytest.mark.parametrize("file", ["references/c.tif", "predictions/b.zarr/c/0/0"])
def test_a_file_that_changes_while_its_rows_are_counted_is_refused(maps, tmp_path, monkeypatch, file):
    """With size and time of modification put back."""
    monkeypatch.setattr("segmeter.evaluation.score.count_cores", lambda: 1)  # no other thread reads meanwhile
    path, counted = maps / file, row.count_case_and_hidden
    content, times = path.read_bytes(), path.stat()

    def change_and_count(*given):
        path.write_bytes(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        return counted(*given)

    monkeypatch.setattr(row, "count_case_and_hidden", change_and_count)
    with pytest.raises(DataError, match="to stay as it is, got a change while it was read"):
        score(job(maps, tmp_path / "run"))


@pytest.mark.usefixtures("pairs_are_large")
@pytest.mark.parametrize("large", ["references", "predictions"])
def test_a_pair_is_read_in_bands_if_either_side_is_large(tmp_path, monkeypatch, large):
    labels, paths = np.random.default_rng(0).integers(0, 3, (300, 300)).astype(np.uint8), {}
    for side in ("references", "predictions"):
        paths[side] = (tmp_path / f"{side}.{'tif' if side == large else 'png'}",)
        Image.fromarray(labels).save(*paths[side])
    loader, pair = PairLoader(READING, None), MaskPair(case_id="a", stem="a", **paths)
    assert loader.find_size(pair) == (300 * 300, True)
    monkeypatch.setattr(array, "STREAMED_PIXELS", 10**6)
    assert loader.find_size(pair) == (300 * 300, False)


@pytest.mark.usefixtures("pairs_are_large")
@pytest.mark.parametrize("drawn", ["references", "predictions"])
def test_outlines_take_the_size_of_a_map_that_is_read_in_bands(tmp_path, drawn):
    mask = draw_mask(shape=(60, 80))
    paths = {side: (tmp_path / f"{side}.tif",) for side in ("references", "predictions")}
    for (path,) in paths.values():
        tifffile.imwrite(path, mask, tile=(16, 16))
    spec = THREE.replace(names=NAMES)
    reading, whole = replace(READING, spec=spec), MaskPair(case_id="a", stem="a", **paths)
    paths[drawn] = (tmp_path / "drawn.geojson",)
    write_geojson(paths[drawn][0], mask)
    pair = MaskPair(case_id="a", stem="a", **paths)
    rows = [CaseScorer(reading, MetricsConfig(bootstrap=0))(each).row for each in (whole, pair)]
    np.testing.assert_array_equal(rows[0].counts, rows[1].counts)
    small = CaseScorer(replace(reading, max_pixels=mask.size - 1), MetricsConfig(bootstrap=0))(pair)
    assert "drawn.geojson: expected `size` at most" in small[0]


@pytest.mark.parametrize("suffix", ["nii.gz", "npy", "npz", "mha", "nrrd", "tif"])
def test_a_volume_has_the_pixels_of_its_header_however_well_it_is_packed(tmp_path, suffix):
    volume = noise(60, 50 * 40, None).reshape(60, 50, 40) % 3
    path = save_volume(tmp_path / f"a.{suffix}", volume)
    pair = MaskPair(case_id="a", stem="a", references=(path,), predictions=(path,))
    assert PairLoader(READING, None).find_size(pair) == (60 * 50 * 40, False)


def test_a_dicom_file_may_hold_eight_pixels_in_each_byte_but_no_more_than_are_allowed(tmp_path):
    path = tmp_path / "a.dcm"
    for size, pixels in ((20_000, 160_000), (200_000, READING.max_pixels)):
        path.write_bytes(bytes(size))
        pair = MaskPair(case_id="a", stem="a", references=(path,), predictions=())
        assert PairLoader(READING, None).find_size(pair) == (pixels, False)


def test_a_named_array_of_a_zarr_folder_has_the_pixels_of_its_header(tmp_path):
    zarr.create_array(str(tmp_path / "a.zarr"), name="labels", data=np.zeros((60, 50), np.uint8))
    pair = MaskPair(case_id="a", stem="a", references=(tmp_path / "a.zarr",), predictions=())
    assert PairLoader(replace(READING, key="labels"), None).find_size(pair) == (60 * 50, False)


@pytest.fixture
def hanging(monkeypatch):
    """A list for the name of a folder whose files of case b are waited for until the test ends."""
    folders, released = [], threading.Event()

    def waiting(then):
        def wait_then(path, *more, **options):
            if isinstance(path, Path) and path.stem == "b" and path.parent.name in folders:
                released.wait(9)
            return then(path, *more, **options)

        return wait_then

    monkeypatch.setattr(os, "open", waiting(os.open))
    monkeypatch.setattr(Path, "read_bytes", waiting(Path.read_bytes))
    yield folders
    released.set()


def read_in_bands(job):
    for name in "ab":
        put_sides(job.folder / "large", *[noise(50, 40, None) % 3] * 2, f"{name}.tif")
    return partial(score, changed(scoring(job.folder / "large"), timeout_s=0.3))


def read_probs(job):
    files = {name: put(job.folder / f"probs/{name}.npy", np.full((3, 2, 3), 1 / 3, np.float32)) for name in "ab"}
    measured = {pair.case_id: hash_pair(pair) for pair in job.pairs}
    return partial(measure_probs, job.scorer(), job.pairs, files, measured=measured)


def read_pictures(job):
    images = {name: put(job.folder / f"images/{name}.png", noise(2, 3)) for name in "ab"}
    score(job)
    return partial(draw_cases, job, images, ReportConfig(panel=128, overlays=2))


@pytest.mark.usefixtures("pairs_are_large")
@pytest.mark.parametrize(
    ("way", "folder"),
    [
        pytest.param(lambda job: partial(score, job), "predictions", id="whole"),
        pytest.param(read_in_bands, "predictions", id="in bands"),
        *(pytest.param(read_probs, name, id=f"probabilities, {name}") for name in ("references", "probs")),
        *(pytest.param(read_pictures, name, id=f"pictures, {name}") for name in ("references", "images")),
    ],
)
def test_a_case_that_is_not_read_in_time_is_named_with_its_files(way, folder, hanging, tmp_path):
    read = way(changed(scoring(two_cases(tmp_path)), timeout_s=0.3))
    read()
    hanging.append(folder)
    with pytest.raises(LateError, match=rf"^data: case 'b' was not read within 0\.3 seconds: .*{folder}/b\."):
        read()
