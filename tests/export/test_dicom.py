"""DICOM segmentations as highdicom reads them, and as our own reader does."""

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.data.masks.reading import read_values
from segmeter.errors import DataError, InputError
from segmeter.export.dicom import write_segmentation
from tests.data.formats_written import EDGES, NAMES, draw_mask, library, make_series
from tests.differential.peers import quiet

SPEC = ClassSpec(task="multiclass", names=NAMES, colours=((0, 0, 0), (255, 0, 0), (0, 0, 255)), ignore_index=255)
SHAPE = (3, 8, 10)
TISSUE = ("85756007", "SCT", "Tissue")


@pytest.fixture
def source(tmp_path):
    library("highdicom")
    paths = []
    for number, image in enumerate(make_series(SHAPE)):
        paths.append(tmp_path / f"{number}.dcm")
        image.PixelData, image.SamplesPerPixel, image.PhotometricInterpretation = bytes(2 * 80), 1, "MONOCHROME2"
        image.BitsAllocated, image.BitsStored, image.HighBit, image.PixelRepresentation = 16, 16, 15, 0
        image.file_meta.MediaStorageSOPClassUID = image.SOPClassUID
        image.file_meta.MediaStorageSOPInstanceUID = image.SOPInstanceUID
        image.save_as(paths[-1], enforce_file_format=True)
    return paths


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
    ours = read_values(tmp_path / "seg.dcm", max_pixels=1000)
    assert np.array_equal(ours.values, labels)
    assert (ours.geometry.spacing, ours.geometry.unit) == (EDGES, "mm")


def test_a_segment_is_tissue_unless_its_codes_tell(source):
    codes = {NAMES[2]: (("123037004", "SCT", "Anatomical Structure"), ("10200004", "SCT", "Liver"))}
    found = written(source, codes=codes).SegmentSequence
    meant = [[getattr(one, f"segmented_property_{part}").meaning for part in ("category", "type")] for one in found]
    assert meant == [["Tissue", "Tissue"], ["Anatomical Structure", "Liver"]]


def test_names_and_meanings_keep_their_letters(source):
    names, liver = ("background", "\u809d\u81d3", "fi\u00e8vre"), ("10200004", "SCT", "\u809d\u81d3")
    spec = ClassSpec(task="multiclass", names=names, colours=SPEC.colours, ignore_index=255)
    for path in source:
        change(path, SpecificCharacterSet="ISO_IR 100", PatientName="M\u00fcller^Jo")
    found = written(source, spec=spec, codes={names[1]: (TISSUE, liver)})
    assert [segment.SegmentLabel for segment in found.SegmentSequence] == list(names[1:])
    assert found.SegmentSequence[0].SegmentedPropertyTypeCodeSequence[0].CodeMeaning == liver[2]
    assert str(found.PatientName) == "M\u00fcller^Jo"


def test_codes_of_the_greatest_length_are_kept(source):
    """Values of more than 16 characters, as SNOMED CT's extensions have, are long code values."""
    codes = (("1" * 16, "S" * 16, "m" * 64), ("123456789012345678", "SCT", "Liver"))
    found = written(source, codes={NAMES[1]: codes}).SegmentSequence[0]
    (category,), (kind,) = found.SegmentedPropertyCategoryCodeSequence, found.SegmentedPropertyTypeCodeSequence
    assert (category.CodeValue, category.CodingSchemeDesignator, category.CodeMeaning) == codes[0]
    assert (kind.LongCodeValue, kind.CodingSchemeDesignator, kind.CodeMeaning) == codes[1]


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


def test_what_is_no_image_is_given_twice_or_is_refused_by_highdicom_is_said(source):
    with pytest.raises(DataError, match=r"0\.dcm: expected `SOPInstanceUID` to differ from 0\.dcm"):
        written([source[0], source[1], source[0]])
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
