"""DICOM segmentations of arrays and of the series of predicted images, as highdicom and we read them."""

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
from segmeter.export.dicom import find_series, write_segmentation, write_series
from tests.cli.sharded import make_checkpoint, newest, run
from tests.data.formats_written import EDGES, NAMES, draw_mask, library
from tests.differential.peers import quiet

from .conftest import SHAPE, save_series

SPEC = ClassSpec(task="multiclass", names=NAMES, colours=((0, 0, 0), (255, 0, 0), (0, 0, 255)), ignore_index=255)
TISSUE = ("85756007", "SCT", "Tissue")
PREDICT = ["predict", "checkpoint=net", "input=images", "device=cpu", "report.html=false", "report.overlays=0"]


@quiet()
def written(source, labels=None, spec=SPEC, **options):
    """A segmentation, as highdicom reads it."""
    path = source[0].with_name("seg.dcm")
    write_segmentation(path, MASK if labels is None else labels, spec, source=source, **options)
    return library("highdicom").seg.segread(path)


def test_segments_are_read_by_highdicom_and_by_us(source, tmp_path):
    labels = np.random.default_rng(0).integers(0, 3, SHAPE)  # each slice another one
    found = written(source, labels)
    assert found.PatientName == "Doe^Jo"
    assert [segment.SegmentLabel for segment in found.SegmentSequence] == list(NAMES[1:])
    with quiet():
        theirs = found.get_volume(combine_segments=True).array
    assert np.array_equal(theirs[::-1], labels), "theirs begins at the top"
    ours = read_values(tmp_path / "seg.dcm", max_pixels=10_000)
    assert np.array_equal(ours.values, labels)
    assert (ours.geometry.spacing, ours.geometry.unit) == (EDGES, "mm")


def test_a_segment_is_tissue_unless_its_codes_tell(source):
    """Values of more than 16 characters, as SNOMED CT's extensions have, are long code values."""
    codes = (("1" * 16, "S" * 16, "m" * 64), ("123456789012345678", "SCT", "Liver"))
    usual, given = written(source, codes={NAMES[2]: codes}).SegmentSequence
    assert {getattr(usual, f"segmented_property_{part}").meaning for part in ("category", "type")} == {"Tissue"}
    (category,), (kind,) = given.SegmentedPropertyCategoryCodeSequence, given.SegmentedPropertyTypeCodeSequence
    assert (category.CodeValue, category.CodingSchemeDesignator, category.CodeMeaning) == codes[0]
    assert (kind.LongCodeValue, kind.CodingSchemeDesignator, kind.CodeMeaning) == codes[1]


def test_names_and_meanings_keep_their_letters(source):
    names, liver = ("background", "\u809d\u81d3", "fi\u00e8vre"), ("10200004", "SCT", "\u809d\u81d3")
    spec = ClassSpec(task="multiclass", names=names, colours=SPEC.colours, ignore_index=255)
    for path in source:
        change(path, SpecificCharacterSet="ISO_IR 100", PatientName="M\u00fcller^Jo")
    found = written(source, spec=spec, codes={names[1]: (TISSUE, liver)})
    assert [segment.SegmentLabel for segment in found.SegmentSequence] == list(names[1:])
    assert found.SegmentSequence[0].SegmentedPropertyTypeCodeSequence[0].CodeMeaning == liver[2]
    assert str(found.PatientName) == "M\u00fcller^Jo"


MASK = draw_mask(shape=SHAPE)
CODES = [  # none of them is one
    *(("85756007", "SCT", meaning) for meaning in ("a" * 65, "a\\b", "a\nb")),
    *(("85756007", scheme, "Tissue") for scheme in ("S" * 17, " ")),
    *((value, "SCT", "Tissue") for value in ("8575\\6007", "", 85756007)),
]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": [[0, 1], [1, 0]]}, r"`labels` to be a ndarray, got \[\[0, 1\]"),
        ({"labels": MASK[:2]}, "a slice for each of the 3 images"),
        ({"labels": MASK.astype(np.float32)}, "to be integers"),
        ({"labels": np.where(MASK == 1, 255, MASK)}, r"to be 0 to 2, got \[255\]. A segmentation has no ignored"),
        ({"labels": MASK[:, :, 1:]}, "to have the size of the images"),
        ({"spec": ["background", "cell"]}, "`spec` to be a ClassSpec"),
        ({"source": "0.dcm"}, r"`source` to be a list of the images' paths, got '0.dcm'. Of one image give \[path\]"),
        ({"source": []}, "`source` to be a list"),
        ({"source": [3, 4, 5]}, "`source` to be a path, got 3"),
        ({"path": 7}, "`path` to be a path, got 7"),
        ({"series_number": "first"}, "`series_number` to be a whole number"),
        ({"series_number": 0}, "`series_number` between 1 and"),
        ({"codes": ["Tissue"]}, "`codes` to be a Mapping"),
        ({"codes": {NAMES[0]: (("1", "SCT", "a"),) * 2}}, "`codes` to be of classes that are segments, "),
        ({"path": "nowhere/seg.dcm"}, "`path` to lie in an existing folder"),
        ({"codes": {NAMES[1]: ("85756007", "SCT", "Tissue")}}, "`codes` to be two codes for "),
        *(
            ({"codes": {NAMES[1]: (TISSUE, code)}}, "`codes` to be two codes for .* A scheme has at most 16")
            for code in CODES
        ),
    ],
)
def test_arguments_that_can_not_be_written_are_refused(given, message, source, tmp_path):
    usual = {"path": tmp_path / "seg.dcm", "labels": MASK, "spec": SPEC, "source": source}
    with pytest.raises(InputError, match=message):
        write_segmentation(**(usual | given))
    assert not (tmp_path / "seg.dcm").exists()


def change(path, **values):
    """Rewrite attributes of an image; None takes one away."""
    image = library("pydicom").dcmread(path)
    for name, value in values.items():
        if value is None:
            del image[name]
        else:
            setattr(image, name, value)
    image.save_as(path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"PixelSpacing": [9, 9]}, r"`PixelSpacing` to be that of 0\.dcm, \[.*\], got \[9.*\]. A segmentation is made"),
        ({"ImageOrientationPatient": [0, 1, 0, 1, 0, 0]}, r"`ImageOrientationPatient` to be that of 0\.dcm"),
        ({"SliceThickness": 9}, "`SliceThickness` to be that of"),
        ({"Rows": 9}, "`Rows` to be that of"),
        ({"NumberOfFrames": 3}, "`NumberOfFrames` to be 1, got 3. Give one file per slice"),
        ({"SeriesInstanceUID": "1.2.3"}, "`SeriesInstanceUID` to be that of"),
        ({"StudyInstanceUID": "1.2.3"}, "`StudyInstanceUID` to be that of"),
        ({"SOPInstanceUID": "1.2.826.0.1.3680043.8.498.1.1"}, r"`SOPInstanceUID` to differ from 0\.dcm"),
        *(
            ({name: None}, rf"`{name}` to be given, got nothing\. Give the images as")
            for name in ("FrameOfReferenceUID", "ImagePositionPatient", "Rows", "Modality", "SliceThickness")
        ),
        ({"FrameOfReferenceUID": "", "SliceThickness": ""}, "`FrameOfReferenceUID, SliceThickness` to be given"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_an_image_that_is_no_slice_of_the_series_is_refused(values, message, source, tmp_path):
    change(source[1], **values)
    with pytest.raises(DataError, match=rf"1\.dcm: expected {message}"):
        written(source)
    assert not (tmp_path / "seg.dcm").exists()


def test_what_is_no_image_or_is_refused_by_highdicom_is_said(source):
    for path in source:
        change(path, SOPClassUID="1.2.3")
    with pytest.raises(DataError, match=r"0\.dcm: expected `source` to be images .* got KeyError: '.*1\.2\.3"):
        written(source)
    source[1].write_bytes(b"no DICOM at all")
    with pytest.raises(DataError, match=r"1\.dcm: expected `file` to be a DICOM image"):
        written(source)
    source[1].unlink()
    with pytest.raises(DataError, match="No such file"):
        written(source)


def test_what_an_anonymiser_took_away_stays_empty(source):
    for path in source:
        change(path, PatientID=None, PatientBirthDate=None, StudyID=None, AccessionNumber=None)
    found = written(source)
    assert (found.PatientID, found.PatientBirthDate, found.StudyID) == ("", "", "")
    assert found.PatientName == "Doe^Jo"


@pytest.fixture
def two_series(tmp_path, monkeypatch):
    library("highdicom")
    monkeypatch.chdir(tmp_path)
    write_images("a", "1.2.3.1")
    write_images("b", "1.2.3.2", suffix="")  # as archives name them


def write_images(prefix, uid, **options):
    """Slices of a series, and the pictures that a user made of them."""
    for folder in (Path("images"), Path("series")):
        folder.mkdir(exist_ok=True)
    save_series(Path("series"), prefix, uid, **options)
    for number, pixels in enumerate(np.random.default_rng(0).integers(0, 256, (*SHAPE, 3), np.uint8)):
        Image.fromarray(pixels).save(f"images/{prefix}{number}.png")


def find(spec=SPEC, **options):
    images = open_images(Path("images"), spec=spec, in_channels=3)
    return find_series(Path("series"), images, ExportConfig(dicom_series=Path("series"), **options))


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
    first, second = find()
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
        find()
    Path("series/a2").write_bytes(b"twice")
    with pytest.raises(DataError, match="to have one file per name, as for 'a2'"):
        find()


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
        find(SPEC.replace(task=task), **options)


def test_label_maps_may_be_tiff_and_ignored_pixels_are_refused(two_series, tmp_path):
    """Large maps are TIFF whatever is asked for."""
    series = find()
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
        write_series(tmp_path, series, SPEC)
    assert [path.name for path in (tmp_path / "dicom").iterdir()] == ["1.2.3.2.dcm"]


@quiet()
def test_the_images_of_one_series_are_in_memory_at_a_time(two_series, monkeypatch):
    write_images("c", "1.2.3.3")
    read, seen, alive = dicom._read, [], []

    def counted(path):
        image = read(path)
        seen.append(weakref.ref(image))
        alive.append(sum(one() is not None for one in seen))
        return image

    monkeypatch.setattr(dicom, "_read", counted)
    assert len(find()) == 3
    assert max(alive) <= SHAPE[0] + 1
