"""Label maps of every format: the same values, their labels, and one line for what is none."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr

from segmeter.classes import ClassSpec
from segmeter.data.masks.label_mapping import mark_cores, split_codes, to_labels
from segmeter.data.masks.reading import labels_of, read_map
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from tests.data.crafted import BINARY, THREE, put, write_zarr
from tests.data.volumes import EDGES, VOLUME, save_nifti, save_volume

READING = Reading(spec=THREE, label_map={}, max_pixels=1000)
FORMATS = ["a.nii", "a.nii.gz", "a.npy", "a.npz", "a.tif", "a.zarr", "a.zarr2"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_volume_comes_back_in_depth_height_width_order_and_a_larger_one_is_refused_by_its_header(name, tmp_path):
    path = save_volume(tmp_path / name)
    found = read_map(path, READING)
    assert found.values.dtype == np.uint8
    assert np.array_equal(found.values, VOLUME)
    assert found.geometry.spacing == (EDGES if ".nii" in name else None)
    assert len(found.sha256) == 64
    with pytest.raises(DataError, match=r"`size` at most 23 (pixels|voxels), got .*data\.max_pixels=24"):
        read_map(path, replace(READING, max_pixels=23))


@pytest.mark.parametrize("name", ["a.nii", "a.npy", "a.npz", "a.tif", "a.zarr"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", ">u2", "int32"])
def test_whole_numbers_of_any_dtype_are_labels(name, dtype, tmp_path):
    found = read_map(save_volume(tmp_path / name, VOLUME.astype(dtype)), READING)
    assert found.values.dtype in (np.uint8, np.uint16)
    assert np.array_equal(found.values, VOLUME)


@pytest.mark.parametrize("value", [0.5, np.nan, np.inf, 1 + 1e-6, 2.0**24 + 2])
def test_fractions_are_refused_with_one_of_them(value, tmp_path):
    wrong = VOLUME.astype(np.float32)
    wrong[0, 1, 2] = value
    with pytest.raises(DataError, match=r"a\.nii\.gz: expected `mask` to hold whole numbers, got 1 that are not"):
        read_map(save_nifti(tmp_path / "a.nii.gz", wrong), READING)


def test_two_axes_of_every_array_format_are_a_plane(tmp_path):
    plane = VOLUME[0]
    for name in ("a.npy", "b.npz", "c.tif", "d.zarr"):
        assert np.array_equal(read_map(save_volume(tmp_path / name, plane), READING).values, plane)
    np.save(tmp_path / "e.npy", plane[:, :, None])
    assert np.array_equal(read_map(tmp_path / "e.npy", READING).values, plane)


def test_values_outside_the_classes_are_named_on_checking(tmp_path):
    path = save_volume(tmp_path / "a.npz", VOLUME + 5)
    stored = read_map(path, READING).values
    with pytest.raises(DataError, match=r"a\.npz: .*to hold only 0 to 2 and 255 \(ignored\), got 5 \(8 pixels\)"):
        labels_of(path, stored, READING)


def test_one_array_of_several_is_named(tmp_path):
    np.savez(tmp_path / "a.npz", labels=VOLUME, other=VOLUME * 0)
    group = zarr.open_group(str(tmp_path / "b.zarr"), mode="w")
    group.create_array("labels", data=VOLUME)
    group.create_array("other", data=VOLUME * 0)
    for name in ("a.npz", "b.zarr"):
        assert np.array_equal(read_map(tmp_path / name, replace(READING, key="labels")).values, VOLUME)
        with pytest.raises(DataError, match=r"to hold one array, got 2: labels, other\. Name one of them: data\.key"):
            read_map(tmp_path / name, READING)
        with pytest.raises(DataError, match=r"to hold the array 'label', got 2: labels, other\. Did you mean 'labels'"):
            read_map(tmp_path / name, replace(READING, key="label"))


@pytest.mark.parametrize("part", ["filters", "compressor"])
def test_a_zarr_codec_that_may_run_code_is_refused(part, tmp_path):
    path = save_volume(tmp_path / "a.zarr2")
    note = json.loads((path / ".zarray").read_text())
    put(path / ".zarray", note | {part: [{"id": "pickle"}] if part == "filters" else {"id": "pickle"}})
    with pytest.raises(DataError, match=r"a\.zarr2: expected .*pickle"):
        read_map(path, READING)


def test_of_a_damaged_tiff_nothing_is_printed_beside_the_refusal(tmp_path):
    path = save_volume(tmp_path / "a.tif", np.tile(VOLUME, (4, 10, 10)))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    script = """
import pathlib, sys, pytest
from segmeter.data import read_values
with pytest.raises(ValueError, match="truncated or damaged"):
    read_values(pathlib.Path(sys.argv[1]), max_pixels=100_000)
"""
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_opaque_colours_with_an_alpha_channel_are_read_as_colours(tmp_path):
    """As Cityscapes stores its colour files."""
    reading = Reading(spec=THREE, label_map={"0,0,0": 0, "1,2,3": 1}, max_pixels=1000)
    put(tmp_path / "a.png", np.array([[[0, 0, 0, 255], [1, 2, 3, 255]]], np.uint8))
    assert read_map(tmp_path / "a.png", reading).values.tolist() == [[0, 1]]
    put(tmp_path / "b.png", np.array([[[0, 0, 0, 255], [1, 2, 3, 9]]], np.uint8))
    with pytest.raises(DataError, match="to be opaque"):
        read_map(tmp_path / "b.png", reading)


def test_a_label_map_of_colours_is_one_unless_objects_are_numbered():
    colours = {"0,0,0": 0, "255,0,0": 1}
    assert Reading(spec=THREE, label_map=colours, max_pixels=9).has_colours
    assert not Reading(spec=THREE, label_map=colours, max_pixels=9, instances=True).has_colours
    assert not Reading(spec=THREE, label_map={"7": 1}, max_pixels=9).has_colours


def test_the_label_map_of_a_picture_with_several_has_to_be_named(tmp_path):
    path = tmp_path / "a.zarr"
    zarr.create_group(str(path))
    write_zarr(path / "0", np.zeros((4, 4), np.uint8), "yx")
    write_zarr(path / "labels" / "cells", np.zeros((4, 4), np.uint8), "yx")
    with pytest.raises(DataError, match=r"a picture with 1: labels/cells\. Name one: data\.key=labels/cells"):
        Reading(spec=THREE, label_map={}, max_pixels=9).options(path)
    named = Reading(spec=THREE, label_map={}, max_pixels=9, key="labels/cells").options(path)
    assert named == {"key": "labels/cells", "level": 0, "max_pixels": 9, "axes": "map"}


PATH = Path("x.png")


def _spec(task, classes, ignore_index=None):
    names = tuple(map(str, range(classes)))
    return ClassSpec(task=task, names=names, colours=((0, 0, 0),) * classes, ignore_index=ignore_index)


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        (BINARY, [0, 1]),
        (THREE, [0, 1, 2, 255]),
        (_spec("multilabel", 7, 9), [0, 1, 9]),
        (_spec("multiclass", 257), list(range(257))),
        (_spec("multiclass", 2, 256), [0, 1, 256]),
    ],
    ids=["binary", "ignore", "multilabel", "257", "wide-ignore"],
)
def test_labels_that_are_allowed(spec, allowed):
    assert list(spec.values) == allowed


@pytest.mark.parametrize(
    ("values", "spec", "label_map", "message"),
    [
        ([-1, 4], THREE, {"4": 1}, r"names: 4, got -1 \(1 pixels\). Add the missing values to data.label_map"),
        ([0, 1, 1], THREE, {"0": 0, "255": 1}, r"0; 255, got 1 \(2 pixels\). The values are labels already: leave"),
        ([*range(3, 40)] * 2, THREE, {}, r"got 3 \(2 pixels\), 4 .*12 \(2 pixels\) and 27 more values"),
        ([0, 2], _spec("multilabel", 5), {}, r"only 0 to 1, got 2 \(1 pixels\)"),
        ([[9, 9, 9], [0, 0, 0]], THREE, {"8,4,0": 2, "0,0,0": 0}, r"names: 8,4,0; 0,0,0, got 9,9,9 \(1 pixels\)"),
    ],
    ids=["negative", "labels already", "many", "a class in a plane", "a colour"],
)
def test_other_values_are_refused_with_their_pixels_and_advice(values, spec, label_map, message):
    stored = np.array([values], np.int32 if -1 in values else np.uint8)
    with pytest.raises(DataError, match=message):
        to_labels(PATH, stored, spec=spec, label_map=label_map)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "int64", "uint32"])
@pytest.mark.parametrize("seed", [0, 1])
def test_label_map_is_what_a_loop_over_pixels_gives(dtype, seed):
    rng = np.random.default_rng(seed)
    least = 3 if dtype.startswith("u") else -3
    values = rng.choice(np.array([least, 17, 120, 90], dtype), (9, 11))
    label_map = {str(least): 2, "17": 0, "120": 255, "90": 1, "5": 1}
    expected = [[label_map[str(int(value))] for value in row] for row in values]
    labels = to_labels(PATH, values, spec=THREE, label_map=label_map)
    assert labels.dtype == np.uint8
    np.testing.assert_array_equal(labels, expected)


def test_colours_that_share_two_channels_are_told_apart():
    values = np.uint8([[[1, 2, 3], [3, 2, 1], [1, 2, 4], [1, 3, 3]]])
    label_map = {"1,2,3": 0, "3,2,1": 1, "1,2,4": 2, "1,3,3": 255}
    np.testing.assert_array_equal(to_labels(PATH, values, spec=THREE, label_map=label_map), [[0, 1, 2, 255]])


@pytest.mark.parametrize(
    ("dtype", "divisor", "codes", "labels", "objects"),
    [
        ("uint8", 1000, [2, 0, 255], [2, 0, 255], [0, 0, 0]),
        ("int8", 1000, [2, 0, 1], [2, 0, 1], [0, 0, 0]),
        ("uint16", 70_000, [2, 0, 255], [2, 0, 255], [0, 0, 0]),
        ("uint8", 100, [2, 101, 203], [2, 1, 2], [0, 101, 203]),
        ("uint16", 1000, [2, 1001, 2065], [2, 1, 2], [0, 1001, 2065]),
    ],
)
def test_codes_of_any_width_are_split(dtype, divisor, codes, labels, objects):
    stored = np.array([codes], dtype)
    found, numbers = split_codes(PATH, stored, spec=THREE, label_map={}, divisor=divisor)
    assert (found.tolist(), numbers.tolist(), numbers.dtype) == ([labels], [objects], stored.dtype)


def test_cores_lie_deep_in_their_own_object():
    """Against distances to all pixels that touch another number."""
    rng = np.random.default_rng(0)
    instances = np.kron(rng.integers(0, 4, (5, 6)), np.ones((5, 7), int)).astype(np.uint16)
    instances[12:14, 20:22] = 9
    labels = (instances > 0).astype(np.uint8)
    labels[0, :9] = 255
    around = np.pad(instances, 1, mode="edge")
    sides = (around[:-2, 1:-1], around[2:, 1:-1], around[1:-1, :-2], around[1:-1, 2:])
    outermost = np.argwhere(np.any([side != instances for side in sides], axis=0))
    depth = np.hypot(*(np.argwhere(labels < 9)[:, None] - outermost).transpose(2, 0, 1)).min(1)
    for core_depth in (1, 2.5):
        found = mark_cores(labels, instances, depth=core_depth)
        for (row, column), own in zip(np.argwhere(labels < 9), depth, strict=True):
            number, known = instances[row, column], labels[row, column]
            deepest = depth[instances[labels < 9] == number].max()
            assert found[row, column] == (2 if known == 1 and own >= min(core_depth, deepest) else known)
    assert (mark_cores(labels, np.ones_like(instances), depth=2) == np.where(labels == 1, 2, labels)).all()
