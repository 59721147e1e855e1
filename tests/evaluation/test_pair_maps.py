"""Pairs that are read in bands of lines, because they are larger than memory, against the same pairs read whole."""

import os

import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.data.classes_config import default_colours
from segmeter.data.files import array
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from segmeter.evaluation.pair_maps import PairReader
from segmeter.evaluation.pairing import MaskPair
from segmeter.evaluation.score import Scoring, score
from segmeter.metrics.config.measures import SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures import row
from tests.evaluation.masks import pair_masks

SPEC = ClassSpec(task="multiclass", names=("a", "b", "c"), colours=default_colours(3), ignore_index=255)


@pytest.fixture
def maps(tmp_path):
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
    pairing = pair_masks(maps / "predictions", maps / "references", spec=SPEC, missing="error")
    reading = Reading(spec=SPEC, label_map={}, max_pixels=10**6)
    return Scoring(pairing=pairing, folder=folder, reading=reading, metrics=MetricsConfig(bootstrap=20, **metrics))


def test_scores_and_tables_by_rows_are_those_in_memory(maps, tmp_path, monkeypatch):
    whole = score(job(maps, tmp_path / "whole"))
    monkeypatch.setattr("segmeter.data.files.array.STREAMED_PIXELS", 1000)
    assert score(job(maps, tmp_path / "rows")) == whole
    for name in ("cases.csv", "cases.parquet", "metrics.json", "manifest.json"):
        assert (tmp_path / "rows" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_more_pixels_than_may_be_decoded_are_scored(maps, tmp_path, monkeypatch):
    monkeypatch.setattr("segmeter.data.files.array.STREAMED_PIXELS", 1000)
    (maps / "references" / "a.tif").unlink()
    (maps / "predictions" / "a.png").unlink()
    scoring = job(maps, tmp_path / "run")
    object.__setattr__(scoring, "max_pixels", 30_000)
    assert score(scoring)["n_cases"] == 2


@pytest.mark.parametrize("side", ["references", "predictions"])
def test_a_value_that_is_no_label_is_named(maps, tmp_path, monkeypatch, side):
    monkeypatch.setattr("segmeter.data.files.array.STREAMED_PIXELS", 1000)
    labels = tifffile.imread(maps / side / "c.tif")
    labels[1400, 3] = 9
    tifffile.imwrite(maps / side / "c.tif", labels)
    with pytest.raises(DataError, match=rf"{side}/c\.tif.* 9"):
        score(job(maps, tmp_path / "run"))


def test_an_ignored_value_that_is_predicted_is_refused(maps, tmp_path, monkeypatch):
    monkeypatch.setattr("segmeter.data.files.array.STREAMED_PIXELS", 1000)
    labels = tifffile.imread(maps / "predictions" / "c.tif")
    labels[[5, 8], 3] = 255  # the target ignores the second pixel too
    tifffile.imwrite(maps / "predictions" / "c.tif", labels)
    with pytest.raises(DataError, match=r"predictions/c\.tif: .* got 1 pixels of the ignored value 255"):
        score(job(maps, tmp_path / "run"))


def test_what_needs_a_whole_map_is_refused_by_name(maps, tmp_path, monkeypatch):
    monkeypatch.setattr("segmeter.data.files.array.STREAMED_PIXELS", 1000)
    with pytest.raises(DataError, match=r"Leave out metrics\.measures: surface"):
        score(job(maps, tmp_path / "run", measures=(SurfaceConfig(),)))


@pytest.mark.parametrize("file", ["references/c.tif", "predictions/b.zarr/c/0/0"])
def test_a_file_that_changes_while_its_rows_are_counted_is_refused(maps, tmp_path, monkeypatch, file):
    """With size and time of modification put back."""
    monkeypatch.setattr("segmeter.data.files.array.STREAMED_PIXELS", 1000)
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


@pytest.mark.parametrize("large", ["references", "predictions"])
def test_a_pair_is_read_in_bands_if_either_side_is_large(tmp_path, monkeypatch, large):
    """Mutation seen to fail: only the reference decides, so that a huge prediction is read whole."""
    monkeypatch.setattr(array, "STREAMED_PIXELS", 1000)
    labels, paths = np.random.default_rng(0).integers(0, 3, (300, 300)).astype(np.uint8), {}
    for side in ("references", "predictions"):
        paths[side] = (tmp_path / f"{side}.{'tif' if side == large else 'png'}",)
        Image.fromarray(labels).save(*paths[side])
    reader = PairReader(Reading(spec=SPEC, label_map={}, max_pixels=10**6), None)
    pair = MaskPair(case_id="a", stem="a", **paths)
    assert reader.look(pair) == (True, 0)
    monkeypatch.setattr(array, "STREAMED_PIXELS", 10**6)
    assert reader.look(pair) == (False, 300 * 300)


def test_the_pixels_of_a_pair_with_drawn_objects_are_those_of_the_other_side(tmp_path):
    (tmp_path / "drawn.txt").write_text("0 0 0 1 0 1 1\n" * 2000)
    labels = np.random.default_rng(0).integers(0, 3, (300, 300)).astype(np.uint8)
    Image.fromarray(labels).save(tmp_path / "map.png")
    reader = PairReader(Reading(spec=SPEC, label_map={}, max_pixels=10**6), None)
    pair = MaskPair(case_id="a", stem="a", references=(tmp_path / "drawn.txt",), predictions=(tmp_path / "map.png",))
    assert reader.look(pair) == (False, 300 * 300)
