"""DICOM segmentations of the series that images were made of: from `predict`'s label maps, paired by name."""

import weakref
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.data.folder import open_images
from segmeter.data.masks.reading import read_values
from segmeter.errors import DataError, InputError
from segmeter.export import dicom
from segmeter.export.config import ExportConfig
from segmeter.export.dicom import find_series, write_series
from tests.cli.sharded import make_checkpoint, newest, run
from tests.data.formats_written import EDGES, library, make_series
from tests.differential.peers import quiet

SPEC = ClassSpec(task="multiclass", names=("rest", "liver", "spleen"), colours=((0, 0, 0), (9, 9, 9), (99, 9, 9)))
SHAPE = (3, 32, 40)
PREDICT = ["predict", "checkpoint=net", "input=images", "device=cpu", "report.html=false", "report.overlays=0"]


def write_images(root: Path, uid: str, prefix: str, *, suffix: str = ".dcm") -> None:
    """Slices of a series, and the pictures that a user made of them."""
    rng = np.random.default_rng(0)
    for folder in ("images", "series"):
        (root / folder).mkdir(exist_ok=True)
    for number, image in enumerate(make_series(SHAPE)):
        image.SeriesInstanceUID, image.SOPInstanceUID = uid, f"{uid}.{number + 1}"
        image.file_meta.MediaStorageSOPClassUID = image.SOPClassUID
        image.file_meta.MediaStorageSOPInstanceUID = image.SOPInstanceUID
        image.save_as(root / "series" / f"{prefix}{number}{suffix}", enforce_file_format=True)
        pixels = rng.integers(0, 256, (*SHAPE[1:], 3), np.uint8)
        Image.fromarray(pixels).save(root / "images" / f"{prefix}{number}.png")


@pytest.fixture
def two_series(tmp_path, monkeypatch):
    library("highdicom")
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path, "1.2.3.1", "a")
    write_images(tmp_path, "1.2.3.2", "b", suffix="")  # as archives name them


def opened(spec: ClassSpec = SPEC):
    return open_images(Path("images"), spec=spec, in_channels=3)


def export(**options) -> ExportConfig:
    return ExportConfig(dicom_series=Path("series"), **options)


@quiet()
def test_predict_writes_a_segmentation_per_series(two_series):
    make_checkpoint(Path("net"))
    arguments = [*PREDICT, "export.dicom_series=series"]
    assert run(*arguments) == 0
    folder = newest("runs/predict") / "predictions"
    found = sorted((folder / "dicom").iterdir())
    assert [path.name for path in found] == ["1.2.3.1.dcm", "1.2.3.2.dcm"]
    for path, prefix in zip(found, "ab", strict=True):
        maps = [np.asarray(Image.open(folder / "labels" / f"{prefix}{n}.png")) for n in range(3)]
        assert len(np.unique(maps)) > 1
        theirs = library("highdicom").seg.segread(path)
        assert np.array_equal(theirs.get_volume(combine_segments=True).array[::-1], maps), "theirs begins at the top"
        assert theirs.PatientName == "Doe^Jo"
        assert read_values(path, max_pixels=10_000).geometry.spacing == EDGES
    before = {path: path.read_bytes() for path in found}
    found[1].unlink()
    assert run(*arguments, f"resume={folder.parent}") == 0
    assert found[0].read_bytes() == before[found[0]], "what is there stays"
    assert found[1].exists()


@quiet()
def test_eval_writes_them_too(two_series):
    make_checkpoint(Path("net"))
    Path("masks").mkdir()
    for path in Path("images").iterdir():
        Image.fromarray(np.zeros(SHAPE[1:], np.uint8)).save(Path("masks") / path.name)
    given = ["checkpoint=net", "data.root=.", "data.split=all", "device=cpu", "metrics.bootstrap=0"]
    assert run("eval", *given, "export.dicom_series=series", "report.html=false", "report.overlays=0") == 0
    assert len(list((newest("runs/eval") / "predictions" / "dicom").iterdir())) == 2


def test_slices_that_are_not_predicted_are_passed_over(two_series):
    Path("images/b1.png").unlink()
    first, second = find_series(Path("series"), opened(), export())
    assert (first.uid, first.case_ids) == ("1.2.3.1", ("a0", "a1", "a2"))
    assert second.paths == (Path("series/b0"), Path("series/b2"))


def test_an_image_without_its_file_is_refused_before_any_work(two_series, capsys):
    make_checkpoint(Path("net"))
    Path("series/a1.dcm").unlink()
    assert run(*PREDICT, "export.dicom_series=series") == 2
    assert "`a DICOM image` for every name, got none for 1: a1. Images and their DICOM" in capsys.readouterr().err
    assert run(*PREDICT, "export.dicom_series=nowhere") == 2
    assert "`dicom_series` to be a folder, got " in capsys.readouterr().err
    assert run(*PREDICT, "export.dicom_series=series", "shard=1/2") == 2
    assert "to be null with a shard" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_what_does_not_fit_is_refused(two_series):
    Image.fromarray(np.zeros((32, 41, 3), np.uint8)).save("images/a1.png")
    rule = r"a1\.dcm: expected `DICOM image` to have the size of the image a1, 32 x 41, got 32 x 40"
    with pytest.raises(DataError, match=rule):
        find_series(Path("series"), opened(), export())
    Path("series/a2").write_bytes(b"twice")
    with pytest.raises(DataError, match="to have one file per name, as for 'a2'"):
        find_series(Path("series"), opened(), export())


@pytest.mark.parametrize(
    ("options", "task", "message"),
    [
        ({"labels": False}, "multiclass", "`labels_format` to be png or tiff where dicom_series is given"),
        ({"labels_format": "nrrd"}, "multiclass", "`labels_format` to be png or tiff where dicom_series is given"),
        ({}, "multilabel", "to be null for multilabel"),
    ],
)
def test_what_gives_no_segmentation_is_refused(options, task, message, two_series):
    with pytest.raises(InputError, match=message):
        find_series(Path("series"), opened(SPEC.replace(task=task)), export(**options))


def test_label_maps_may_be_tiff_and_ignored_pixels_are_refused(two_series, tmp_path):
    """Large maps are TIFF whatever is asked for."""
    series = find_series(Path("series"), opened(), export())
    (tmp_path / "labels").mkdir()
    for number, name in enumerate(path.stem for path in sorted(Path("images").iterdir())):
        content = np.full(SHAPE[1:], number % 3, np.uint8)
        Image.fromarray(content).save(tmp_path / "labels" / f"{name}.{'tif' if number % 2 else 'png'}")
    with quiet():
        write_series(tmp_path, series, SPEC)
    found = read_values(tmp_path / "dicom" / "1.2.3.2.dcm", max_pixels=10_000).values
    assert [np.unique(plane).tolist() for plane in found] == [[0], [1], [2]]
    (tmp_path / "dicom" / "1.2.3.1.dcm").unlink()
    Image.fromarray(np.full(SHAPE[1:], 255, np.uint8)).save(tmp_path / "labels" / "a0.png")
    with pytest.raises(InputError, match="A segmentation has no ignored pixels"):
        write_series(tmp_path, series, SPEC.replace(ignore_index=255))
    assert [path.name for path in (tmp_path / "dicom").iterdir()] == ["1.2.3.2.dcm"]


@quiet()
def test_the_images_of_one_series_are_in_memory_at_a_time(two_series, monkeypatch):
    write_images(Path(), "1.2.3.3", "c")
    read, seen, alive = dicom._read, [], []

    def counted(path):
        image = read(path)
        seen.append(weakref.ref(image))
        alive.append(sum(one() is not None for one in seen))
        return image

    monkeypatch.setattr(dicom, "_read", counted)
    assert len(find_series(Path("series"), opened(), export())) == 3
    assert max(alive) <= SHAPE[0] + 1
