"""What a user finds in predictions/ after an evaluation, and what the writer refuses."""

import errno
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError, InputError, RunError
from segmeter.export import writer as writer_module
from segmeter.export.config import ExportConfig
from segmeter.export.writer import Writer, labels_dtype


def read(path):
    with Image.open(path) as image:
        image.load()
        return np.asarray(image)


def many(count, ignore_index=None):
    return ClassSpec(
        task="multiclass",
        names=tuple(f"c{i}" for i in range(count)),
        colours=((1, 2, 3),) * count,
        ignore_index=ignore_index,
    )


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_each_kind_of_array_has_its_place_and_comes_back(tmp_path, rng, spec):
    labels = rng.integers(0, 3, (20, 30))
    probs = rng.random((3, 20, 30), dtype=np.float32)
    instances = rng.integers(0, 500, (20, 30), dtype=np.int32)
    with Writer(tmp_path, ExportConfig(), spec) as writer:
        writer.write_labels("a.b", labels)
        writer.write_probs("a.b", probs)
        writer.write_instances("a.b", instances)
    assert writer.close() == 3
    assert files(tmp_path) == ["instances/a.b.png", "labels/a.b.png", "probs/a.b.npy"]
    found = read(tmp_path / "labels" / "a.b.png")
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, labels)
    np.testing.assert_array_equal(np.load(tmp_path / "probs" / "a.b.npy"), probs)
    assert read(tmp_path / "instances" / "a.b.png").dtype == np.uint16
    np.testing.assert_array_equal(read(tmp_path / "instances" / "a.b.png"), instances)


def test_multilabel_planes_are_one_mask_per_class_folder(tmp_path, rng, planes_spec):
    planes = rng.integers(0, 2, (2, 8, 9)).astype(np.uint8)
    with Writer(tmp_path, ExportConfig(), planes_spec) as writer:
        writer.write_labels("x", planes)
    assert files(tmp_path) == ["labels/left lung/x.png", "labels/liver/x.png"]
    np.testing.assert_array_equal(read(tmp_path / "labels" / "liver" / "x.png"), planes[0])
    np.testing.assert_array_equal(read(tmp_path / "labels" / "left lung" / "x.png"), planes[1])


def test_a_class_name_that_is_no_folder_name_stays_inside(tmp_path):
    spec = ClassSpec(task="multilabel", names=("../up", ".."), colours=((0, 0, 0),) * 2)
    with Writer(tmp_path / "p", ExportConfig(), spec) as writer:
        writer.write_labels("x", np.zeros((2, 3, 3), np.uint8))
    assert len(files(tmp_path / "p" / "labels")) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["p"]


@pytest.mark.parametrize("case_id", ["../x", "a\nb", "<script>", "=cmd()", "/etc/passwd", "\udcff"])
def test_case_ids_never_leave_the_folder(tmp_path, spec, case_id):
    with Writer(tmp_path / "p", ExportConfig(), spec) as writer:
        writer.write_labels(case_id, np.zeros((2, 2), np.uint8))
    assert len(list((tmp_path / "p" / "labels").iterdir())) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["p"]


def test_a_link_at_the_output_name_is_replaced_not_followed(tmp_path, spec):
    outside = tmp_path / "outside.png"
    outside.write_bytes(b"precious")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "x.png").symlink_to(outside)
    with Writer(tmp_path, ExportConfig(), spec) as writer:
        writer.write_labels("x", np.ones((2, 2), np.uint8))
    assert outside.read_bytes() == b"precious"
    assert not (tmp_path / "labels" / "x.png").is_symlink()


def test_more_than_65535_instances_become_an_int32_tiff(tmp_path, spec):
    instances = np.array([[0, 65535, 65536]])
    with Writer(tmp_path, ExportConfig(), spec) as writer:
        writer.write_instances("few", instances[:, :2])
        writer.write_instances("many", instances)
    assert files(tmp_path) == ["instances/few.png", "instances/many.tif"]
    found = tifffile.imread(tmp_path / "instances" / "many.tif")
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, instances)


def test_instances_are_tiff_where_label_maps_are_no_png(tmp_path, spec):
    instances = np.array([[0, 1, 65535]])
    with Writer(tmp_path, ExportConfig(labels_format="tiff"), spec) as writer:
        writer.write_instances("few", instances)
    assert files(tmp_path) == ["instances/few.tif"]
    found = tifffile.imread(tmp_path / "instances" / "few.tif")
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found, instances)


def test_the_caller_may_reuse_his_array(tmp_path, spec, monkeypatch):
    go, real = threading.Event(), writer_module.encode_labels_png

    def late(labels, colours, **options):
        assert go.wait(10)
        return real(labels, colours, **options)

    monkeypatch.setattr(writer_module, "encode_labels_png", late)
    labels = np.ones((3, 3), np.uint8)
    with Writer(tmp_path, ExportConfig(), spec) as writer:
        writer.write_labels("x", labels)
        labels[:] = 2
        go.set()
    assert (read(tmp_path / "labels" / "x.png") == 1).all()


@pytest.mark.parametrize(
    ("count", "ignore_index", "expected"),
    [(2, None, np.uint8), (256, None, np.uint8), (257, None, np.uint16), (3, 255, np.uint8), (3, 256, np.uint16)],
)
def test_auto_dtype_is_the_smallest_that_holds_every_label(count, ignore_index, expected):
    assert labels_dtype(ExportConfig(), many(count, ignore_index)) == expected


def test_300_classes_are_written_as_uint16_and_not_wrapped(tmp_path):
    with Writer(tmp_path, ExportConfig(), many(300)) as writer:
        writer.write_labels("x", np.array([[44, 299, 300 - 44]]))
    np.testing.assert_array_equal(read(tmp_path / "labels" / "x.png"), [[44, 299, 256]])


def test_uint8_for_300_classes_is_refused_before_the_first_case(tmp_path):
    with pytest.raises(ConfigError, match=r"`dtype` to hold every label, got 'uint8' for labels up to 299"):
        Writer(tmp_path, ExportConfig(dtype="uint8"), many(300))


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (np.array([[3]]), r"0 \.\. 2, got \[3\] in case 'x'"),
        (np.array([[-1, 256]]), r"\[-1, 256\]"),
        (np.array([[3, 255]]), r"\[3, 255\]"),
        (np.zeros((2, 2), np.float32), r"\(H, W\), integer, got float32"),
        (np.zeros((1, 2, 2), np.uint8), r"\(1, 2, 2\)"),
        (np.zeros((0, 2), np.uint8), r"\(0, 2\)"),
    ],
)
def test_labels_that_are_no_classes_are_refused(tmp_path, spec, labels, said):
    with Writer(tmp_path, ExportConfig(), spec) as writer, pytest.raises(InputError, match=said):
        writer.write_labels("x", labels)
    assert files(tmp_path) == []


def test_the_ignored_value_may_be_written(tmp_path, spec):
    with Writer(tmp_path, ExportConfig(), spec) as writer:
        writer.write_labels("x", np.array([[0, 255]]))
    np.testing.assert_array_equal(read(tmp_path / "labels" / "x.png"), [[0, 255]])


def test_multilabel_labels_of_another_shape_or_value_are_refused(tmp_path, planes_spec):
    with Writer(tmp_path, ExportConfig(), planes_spec) as writer:
        with pytest.raises(InputError, match=r"\(2, H, W\), integer, got uint8 \(3, 4, 4\)"):
            writer.write_labels("x", np.zeros((3, 4, 4), np.uint8))
        with pytest.raises(InputError, match=r"0 \.\. 1, got \[2\]"):
            writer.write_labels("x", np.full((2, 4, 4), 2))


@pytest.mark.parametrize(
    ("probs", "said"),
    [
        (np.zeros((2, 2, 2), np.float64), "float64"),
        (np.zeros((2, 2), np.float32), r"\(2, 2\)"),
        (np.full((1, 2, 2), np.nan, np.float32), "nan to nan"),
        (np.full((1, 2, 2), 1.5, np.float32), r"1\.5 for case 'x'\. Apply softmax or sigmoid"),
        (np.full((1, 2, 2), -0.5, np.float32), r"-0\.5"),
    ],
)
def test_probs_that_are_none_are_refused(tmp_path, spec, probs, said):
    with Writer(tmp_path, ExportConfig(), spec) as writer, pytest.raises(InputError, match=said):
        writer.write_probs("x", probs)


@pytest.mark.parametrize(
    ("instances", "said"),
    [(np.array([[-1]]), "-1 to -1"), (np.array([[2**31]]), "2147483648"), (np.zeros((2, 2)), "float64")],
)
def test_instances_out_of_range_are_refused(tmp_path, spec, instances, said):
    with Writer(tmp_path, ExportConfig(), spec) as writer, pytest.raises(InputError, match=said):
        writer.write_instances("x", instances)


def test_a_case_is_written_once(tmp_path, spec):
    with Writer(tmp_path, ExportConfig(), spec) as writer:
        writer.write_labels("x", np.zeros((2, 2), np.uint8))
        writer.write_probs("x", np.zeros((1, 2, 2), np.float32))
        with pytest.raises(InputError, match=r"to be new under labels, got 'x'"):
            writer.write_labels("x", np.zeros((2, 2), np.uint8))


@pytest.mark.parametrize("failing", range(1, 4))
def test_full_disk_names_the_case_counts_and_leaves_no_half_file(tmp_path, spec, monkeypatch, failing):
    calls, real = [], os.fsync

    def fsync(handle):
        if not Path(f"/proc/self/fd/{handle}").is_dir():
            calls.append(handle)
        if len(calls) == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle)

    def write_three():
        with Writer(tmp_path, ExportConfig(workers=1), spec) as writer:
            for index in range(1, 4):
                writer.write_labels(f"c{index}", np.zeros((4, 4), np.uint8))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(RunError, match=rf"case 'c{failing}' .*No space left.* {failing - 1} files are complete"):
        write_three()
    assert files(tmp_path) == [f"labels/c{index}.png" for index in range(1, failing)]


def test_a_file_size_limit_of_the_system_stops_with_the_case(tmp_path):
    code = f"""
        import resource, signal
        import numpy as np
        from pathlib import Path
        from segmeter.errors import RunError
        from segmeter.export.config import ExportConfig
        from segmeter.export.writer import Writer
        from segmeter.classes import ClassSpec
        spec = ClassSpec(task="binary", names=("a", "b"), colours=((0, 0, 0), (1, 1, 1)))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
        noise = np.random.default_rng(0).integers(0, 2, (200, 200)).astype(np.uint8)
        try:
            with Writer(Path({str(tmp_path)!r}), ExportConfig(), spec) as writer:
                writer.write_labels("small", noise[:5])
                writer.close()
            with Writer(Path({str(tmp_path)!r}), ExportConfig(), spec) as writer:
                writer.write_labels("large", noise)
        except RunError as error:
            print(error)
    """
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1024
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, timeout=120
    )
    assert "case 'large' could not be written" in done.stdout
    assert "File too large" in done.stdout
    assert files(tmp_path) == ["labels/small.png"]


def test_control_c_in_the_block_ends_the_threads_and_leaves_whole_files(tmp_path, spec, rng):
    def interrupted():
        with Writer(tmp_path, ExportConfig(workers=1), spec) as writer:
            for index in range(50):
                writer.write_labels(f"c{index}", rng.integers(0, 3, (200, 200)))
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    written = list((tmp_path / "labels").iterdir())
    assert all(read(path).shape == (200, 200) for path in written)
    assert not any(path.name.startswith(".") for path in written)


def test_an_error_in_the_block_is_not_hidden_by_the_writers_own(tmp_path, spec, monkeypatch):
    monkeypatch.setattr(writer_module, "encode_labels_png", lambda *a, **k: 1 / 0)

    def broken():
        with Writer(tmp_path, ExportConfig(), spec) as writer:
            writer.write_labels("x", np.zeros((2, 2), np.uint8))
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        broken()


@pytest.mark.parametrize("suffix", ["npy", "npz", "tiff", "zarr"])
def test_every_format_of_probs_is_reached(tmp_path, spec, suffix):
    with Writer(tmp_path, ExportConfig(probs_format=suffix, labels_format="tiff"), spec) as writer:
        writer.write_probs("x", np.full((2, 4, 4), 0.25, np.float32))
        writer.write_labels("x", np.eye(4, dtype=np.uint8))
    name = {"tiff": "x.tif"}.get(suffix, f"x.{suffix}")
    assert (tmp_path / "probs" / name).exists()
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "labels" / "x.tif"), np.eye(4))


@pytest.mark.parametrize("writeable", [True, False])
def test_probs_are_copied_where_their_owner_may_still_change_them(tmp_path, spec, monkeypatch, writeable):
    queued = []
    monkeypatch.setattr(
        "segmeter.export.queue.WriteQueue.put", lambda self, case_id, path, array, write: queued.append(array)
    )
    probs = np.full((2, 4, 4), 0.25, np.float32)
    probs.flags.writeable = writeable
    with Writer(tmp_path, ExportConfig(), spec) as writer:
        writer.write_probs("x", probs)
    assert np.shares_memory(queued[0], probs) != writeable


def test_labels_as_zarr_are_read_by_zarr(tmp_path, rng, spec):
    labels = rng.integers(0, 3, (300, 270)).astype(np.uint8)
    with Writer(tmp_path, ExportConfig(labels_format="zarr"), spec) as writer:
        writer.write_labels("a", labels)
    stored = zarr.open_array(str(tmp_path / "labels/a.zarr"), mode="r")
    assert (stored.dtype, stored.chunks) == (np.uint8, (256, 256))
    np.testing.assert_array_equal(stored[:], labels)


@pytest.mark.parametrize(("compression", "code"), [("deflate", 8), ("zstd", 50000)])
def test_labels_as_tiff_carry_the_colours(tmp_path, rng, spec, compression, code):
    labels = rng.integers(0, 3, (300, 270)).astype(np.uint8)
    labels[:9] = 255
    config = ExportConfig(labels_format="tiff", compression=compression)
    with Writer(tmp_path, config, spec) as writer:
        writer.write_labels("a", labels)
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
    with Writer(tmp_path, ExportConfig(probs_dtype=dtype, probs_format=form), spec) as writer:
        writer.write_probs("a", probs)
    (path,) = (tmp_path / "probs").iterdir()
    assert path.name == f"a.{dtype}.{'npy' if form == 'npy' else 'tif'}"
    stored = np.load(path) if form == "npy" else tifffile.imread(path)
    assert stored.dtype == dtype
    assert np.abs(stored.astype(np.float64) / scale - probs).max() <= error


def test_confidence_is_the_probability_of_what_was_predicted(tmp_path, spec, planes_spec):
    probs = np.array([[[0.5, 0.1]], [[0.3, 0.2]], [[0.2, 0.7]]], np.float32)
    with Writer(tmp_path, ExportConfig(), spec) as writer:
        writer.write_confidence("a", probs, np.array([[0, 2]], np.uint8))
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "confidence/a.tif"), np.float32([[0.5, 0.7]]))
    planes = np.array([[[0.9, 0.2]], [[0.4, 0.6]]], np.float32)
    with Writer(tmp_path, ExportConfig(), planes_spec) as writer:
        writer.write_confidence("b", planes, (planes > 0.5).astype(np.uint8))
    found = tifffile.imread(tmp_path / "confidence/b.tif")
    np.testing.assert_allclose(found, [[[0.9, 0.8]], [[0.6, 0.6]]], rtol=1e-6)
