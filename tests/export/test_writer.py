"""The files that a user finds in predictions/ after an evaluation."""

import os
import signal
import tracemalloc

import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.data.files.array import ArrayRows
from segmeter.errors import ConfigError, RunError
from segmeter.export.config import ExportConfig
from segmeter.export.writer import Writer
from segmeter.files import describe_file

FLAT = np.zeros((4, 4), np.uint8)


def read(path):
    if path.suffix == ".zarr":
        return zarr.open_array(str(path), mode="r")[:]
    if path.suffix in (".npy", ".npz"):
        found = np.load(path)
        return found if path.suffix == ".npy" else found["probs"]
    if path.suffix == ".tif":
        return tifffile.imread(path)
    with Image.open(path) as image:
        image.load()
        return np.asarray(image)


def many(count, ignore_index=None, task="multiclass"):
    names = tuple(f"c{i}" for i in range(count))
    return ClassSpec(task=task, names=names, colours=((1, 2, 3),) * count, ignore_index=ignore_index)


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def writer(folder, spec, **config):
    return Writer(folder, ExportConfig(**config), spec)


@pytest.mark.parametrize(
    ("labels_format", "probs_format", "suffixes"),
    [
        ("png", "npy", ["png", "png", "npy"]),
        ("png", "npz", ["png", "png", "npz"]),
        ("tiff", "tiff", ["tif", "tif", "tif"]),
        ("zarr", "zarr", ["tif", "zarr", "zarr"]),
    ],
)
def test_each_kind_of_array_has_its_place_and_comes_back(tmp_path, rng, spec, labels_format, probs_format, suffixes):
    arrays = {
        "instances": rng.integers(0, 500, (20, 30)).astype(np.uint16),
        "labels": rng.integers(0, 3, (20, 30)).astype(np.uint8),
        "probs": rng.random((3, 20, 30), dtype=np.float32),
    }
    given = {"probs": arrays["probs"], "instances": arrays["instances"].astype(np.int32)}
    made = writer(tmp_path, spec, probs=True, labels_format=labels_format, probs_format=probs_format)
    written = made.write("a.b", arrays["labels"].astype(np.int64), **given)
    names = [f"{kind}/a.b.{suffix}" for kind, suffix in zip(arrays, suffixes, strict=True)]
    assert sorted(written) == names
    for name, array in zip(names, arrays.values(), strict=True):
        assert written[name] == describe_file(tmp_path / name)
        np.testing.assert_array_equal(read(tmp_path / name), array, strict=True)


@pytest.mark.parametrize(
    ("config", "probs", "instances", "written"),
    [
        ({}, True, True, {"labels", "instances"}),
        ({"labels": False, "instances": False}, True, True, set()),
        ({"probs": True, "confidence": True}, True, False, {"labels", "probs", "confidence"}),
        ({"probs": True, "confidence": True}, False, False, {"labels"}),
        ({"instances": False}, False, True, {"labels"}),
        ({"objects": ("geojson",)}, False, False, {"labels", "objects"}),
    ],
    ids=str,
)
def test_the_files_that_the_configuration_asks_for_are_written(tmp_path, spec, config, probs, instances, written):
    arrays = {"probs": np.full((3, 4, 4), 1 / 3, np.float32), "predicted": FLAT} if probs else {}
    arrays |= {"instances": FLAT.astype(np.int32)} if instances else {}
    writer(tmp_path, spec, **config).write("x", FLAT, **arrays)
    assert {name.partition("/")[0] for name in files(tmp_path)} == written


def test_multilabel_planes_are_one_mask_per_class_folder_in_its_colour(tmp_path, rng, planes_spec):
    planes = rng.integers(0, 2, (2, 8, 9)).astype(np.uint8)
    writer(tmp_path, planes_spec).write("x", planes)
    assert files(tmp_path) == ["labels/left lung/x.png", "labels/liver/x.png"]
    for name, colour, plane in zip(planes_spec.names, planes_spec.colours, planes, strict=True):
        with Image.open(tmp_path / "labels" / name / "x.png") as image:
            np.testing.assert_array_equal(np.asarray(image), plane)
            assert tuple(image.getpalette()[3:6]) == colour


def test_planes_that_are_read_by_lines_have_the_dtype_that_is_asked_for(tmp_path, rng, planes_spec):
    planes = rng.integers(0, 2, (2, 300, 70)).astype(np.uint8)
    writer(tmp_path, planes_spec, dtype="uint16").write("x", ArrayRows(planes, axis=1))
    for name, plane in zip(planes_spec.names, planes, strict=True):
        found = read(tmp_path / "labels" / name / "x.tif")
        np.testing.assert_array_equal(found, plane.astype(np.uint16), strict=True)


@pytest.mark.parametrize("system", ["POSIX", "Windows"])
def test_names_of_cases_and_classes_never_leave_the_folder(tmp_path, monkeypatch, system):
    spec = ClassSpec(task="multilabel", names=("../up", "..", "con", "a:b"), colours=((0, 0, 0),) * 4)
    ids = ("../x", "a\nb", "<script>", "=cmd()", "/etc/passwd", "\udcff")
    if system == "Windows":
        monkeypatch.delattr(os, "O_DIRECTORY")
    for case_id in ids:
        writer(tmp_path / "p", spec).write(case_id, np.zeros((4, 3, 3), np.uint8))
    assert len(files(tmp_path / "p" / "labels")) == 4 * len(ids)
    assert [entry.name for entry in tmp_path.iterdir()] == ["p"]
    kept = {"con", "a:b"} & {entry.name for entry in (tmp_path / "p" / "labels").iterdir()}
    assert kept == (set() if system == "Windows" else {"con", "a:b"})


@pytest.mark.parametrize(
    ("highest", "form", "suffix", "dtype"),
    [(65535, "png", "png", np.uint16), (65536, "png", "tif", np.int32), (65535, "tiff", "tif", np.uint16)],
)
def test_instances_are_png_where_label_maps_are_and_65535_suffice(tmp_path, spec, highest, form, suffix, dtype):
    instances = np.array([[0, 1, highest]])
    writer(tmp_path, spec, labels=False, labels_format=form).write("x", instances, instances=instances)
    assert files(tmp_path) == [f"instances/x.{suffix}"]
    np.testing.assert_array_equal(read(tmp_path / "instances" / f"x.{suffix}"), instances.astype(dtype), strict=True)


def test_every_label_is_written_as_it_is_or_refused_before_the_first_case(tmp_path, spec):
    writer(tmp_path, many(300)).write("x", np.array([[44, 299, 300 - 44]]))
    np.testing.assert_array_equal(read(tmp_path / "labels" / "x.png"), [[44, 299, 256]])
    writer(tmp_path, spec).write("ignored", np.array([[0, 255]]))
    np.testing.assert_array_equal(read(tmp_path / "labels" / "ignored.png"), [[0, 255]])
    with pytest.raises(ConfigError, match=r"`dtype` to hold every label, got 'uint8' for labels up to 299"):
        writer(tmp_path, many(300), dtype="uint8")


def test_a_file_size_limit_of_the_system_stops_with_the_case(tmp_path, rng, spec):
    resource = pytest.importorskip("resource", reason="Windows limits no process so")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    noise, export = rng.integers(0, 2, (200, 200)).astype(np.uint8), writer(tmp_path, spec)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
        export.write("small", noise[:5])
        with pytest.raises(RunError, match=r"case 'large' could not be written .*\(File too large\)"):
            export.write("large", noise)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert files(tmp_path) == ["labels/small.png"]


@pytest.mark.parametrize(("compression", "code"), [("deflate", 8), ("zstd", 50000)])
def test_labels_as_tiff_carry_the_colours(tmp_path, rng, spec, compression, code):
    labels = rng.integers(0, 3, (300, 270)).astype(np.uint8)
    labels[:9] = 255
    writer(tmp_path, spec, labels_format="tiff", compression=compression).write("a", labels)
    with tifffile.TiffFile(tmp_path / "labels/a.tif") as file:
        (page,) = file.pages
        np.testing.assert_array_equal(page.asarray(), labels)
        assert (int(page.photometric), int(page.compression)) == (3, code)
        colours = page.colormap.T // 257
    np.testing.assert_array_equal(colours[:3], spec.colours)
    assert tuple(colours[255]) == (224, 224, 224)
    if compression == "deflate":  # Pillow reads the palette too
        with Image.open(tmp_path / "labels/a.tif") as image:
            assert image.mode == "P"
            np.testing.assert_array_equal(np.asarray(image), labels)


@pytest.mark.parametrize(("dtype", "scale", "error"), [("float16", 1, 2.5e-4), ("uint8", 255, 0.5 / 255 + 1e-7)])
@pytest.mark.parametrize("form", ["npy", "tiff"])
def test_rounded_probabilities_say_so_in_their_names(tmp_path, rng, spec, dtype, scale, error, form):
    probs = rng.dirichlet((1, 1, 1), (20, 30)).transpose(2, 0, 1).astype(np.float32)
    writer(tmp_path, spec, probs=True, probs_dtype=dtype, probs_format=form).write("a", FLAT, probs=probs)
    (path,) = (tmp_path / "probs").iterdir()
    assert path.name == f"a.{dtype}.{'npy' if form == 'npy' else 'tif'}"
    stored = read(path)
    assert stored.dtype == dtype
    assert np.abs(stored.astype(np.float64) / scale - probs).max() <= error


def test_confidence_is_the_probability_of_what_was_predicted(tmp_path, spec, planes_spec):
    probs = np.array([[[0.5, 0.1]], [[0.3, 0.2]], [[0.2, 0.7]]], np.float32)
    labels = np.array([[0, 2]], np.uint8)
    writer(tmp_path, spec, confidence=True).write("a", labels, probs=probs, predicted=labels)
    np.testing.assert_array_equal(read(tmp_path / "confidence/a.tif"), np.float32([[0.5, 0.7]]))
    planes = np.array([[[0.9, 0.2]], [[0.4, 0.6]]], np.float32)
    present = (planes > 0.5).astype(np.uint8)
    writer(tmp_path, planes_spec, confidence=True).write("b", present, probs=planes, predicted=present)
    np.testing.assert_allclose(read(tmp_path / "confidence/b.tif"), [[[0.9, 0.8]], [[0.6, 0.6]]], rtol=1e-6)


def test_the_planes_of_a_case_are_converted_one_after_the_other(tmp_path):
    export, peaks = writer(tmp_path, many(16, task="multilabel"), dtype="uint16"), []
    labels = np.zeros((16, 512, 512), np.uint8)
    for case_id in ("first", "second"):  # the first loads what writes
        tracemalloc.start()
        export.write(case_id, labels)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 8 * 512 * 512 * 2


def test_every_broken_rule_is_said_at_once():
    for workers, allowed in ((0, 1), (65, 64)):
        assert ExportConfig(workers=allowed).workers == allowed
        broken = {"labels_format": "gif", "dtype": "int8", "probs_format": "h5", "workers": workers, "queue_mb": 0}
        with pytest.raises(ConfigError) as caught:
            ExportConfig(**broken)
        assert [line.split("`")[1] for line in caught.value.problems] == list(broken)
