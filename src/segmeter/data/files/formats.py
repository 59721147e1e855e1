"""Recognises file formats by content, never by name alone."""

import re
from dataclasses import dataclass
from pathlib import Path

from segmeter.data.files.refusals import file_error


@dataclass(frozen=True)
class Format:
    """The signs by which files of a format are recognised.

    A file begins with one of `magic`. A format that has none is recognised by its suffix alone. Either may hold
    volumes: TIFF and NPY begin with magic bytes.
    """

    suffixes: tuple[str, ...]
    magic: tuple[bytes, ...] = ()


FORMATS = {
    "png": Format((".png",), (b"\x89PNG\r\n\x1a\n",)),
    "jpeg": Format((".jpg", ".jpeg"), (b"\xff\xd8\xff",)),
    "bmp": Format((".bmp",), (b"BM",)),
    "tiff": Format((".tif", ".tiff"), (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")),
    "npy": Format((".npy",), (b"\x93NUMPY",)),
    "npz": Format((".npz",)),
    "nifti": Format((".nii", ".nii.gz")),
    "zarr": Format((".zarr",)),
    "itk": Format((".mha", ".nrrd")),
    "dicom": Format((".dcm",)),
    "geojson": Format((".geojson",)),
    "yolo": Format((".txt",)),
}
SUFFIXES = {suffix: name for name, form in FORMATS.items() if form.magic for suffix in form.suffixes}
VOLUME_SUFFIXES = {suffix: name for name, form in FORMATS.items() if not form.magic for suffix in form.suffixes}
VOLUME_NAMES = ", ".join(sorted({**SUFFIXES, **VOLUME_SUFFIXES}.keys() - {".txt"}))  # .txt is for masks alone

_MAGIC = tuple((magic, name) for name, form in FORMATS.items() for magic in form.magic)
_FOREIGN = (
    (b"GIF8", "a GIF", "Save the one frame that counts as PNG."),
    (b"PK\x03\x04", "a ZIP or NPZ archive", "Save each array as its own .npy file."),
    (b"version https://git-lfs", "a git-lfs pointer", "Run `git lfs pull`."),
    (b"%PDF", "a PDF", "Export the picture as PNG."),
    (b"\x89HDF", "an HDF5 file", "Save each image as .npy or TIFF."),
    (b"<!doctype html", "an HTML page", "Download the file itself."),
    (b"<html", "an HTML page", "Download the file itself."),
)
_DOUBLE = (".nii.gz", ".ome.tif", ".ome.tiff", ".ome.zarr", ".seg.nrrd")
_SUFFIX = re.compile(
    rf"({'|'.join(map(re.escape, (*_DOUBLE, *SUFFIXES, *VOLUME_SUFFIXES)))})\Z", re.ASCII | re.IGNORECASE
)
HIDDEN = (".", "__MACOSX")  # Names that begin with one of these are not data.
_SIDECARS = {".txt", ".json", ".csv", ".tsv", ".md", ".xml", ".yaml", ".yml", ".html", ".log", ".ini", ".db"}
_WITH_MAGIC = tuple(SUFFIXES)


def volume_format(path: Path) -> str | None:
    """Return the format of a file that is recognised by its suffix alone; "zarr" for a folder; otherwise None.

    So it is None for volumes in TIFF and NPY. A path with the suffix of a format that has magic bytes is not checked
    for being a folder, which saves a system call for every file.
    """
    name = path.name.lower()
    if name.endswith(_WITH_MAGIC):
        return None
    if path.is_dir():
        return "zarr"
    return next((form for suffix, form in VOLUME_SUFFIXES.items() if name.endswith(suffix)), None)


def stem_of(path: Path | str) -> str:
    """Return the name of a case: its file's name without suffix. ``.nii.gz``, ``.ome.tif`` and so on are one suffix.

    Examples
    --------
    >>> stem_of(Path("a.nii.gz")), stem_of(Path("a.b.png")), stem_of(Path("a"))
    ('a', 'a.b', 'a')
    """
    return _SUFFIX.sub("", path if isinstance(path, str) else path.name)


def is_junk(path: Path) -> bool:
    """Tell whether a file beside images is not data: hidden, the system's own, or a note about the images."""
    return path.name.startswith(HIDDEN) or path.suffix.lower() in _SIDECARS


def name_format(path: Path, head: bytes) -> str:
    """Return the format of a file by its first bytes, and check that its suffix agrees.

    Raises
    ------
    DataError
        The content is foreign, or the suffix is wrong.
    """
    form = next((name for magic, name in _MAGIC if head.startswith(magic)), None)
    if form is None:
        what, remedy = "unknown bytes", "Save the picture as PNG, or as TIFF for 16 bits and floats."
        if b"\0" not in head and head.isascii():
            what, remedy = "text", "Replace it by the image."
        start = head.lstrip().lower()
        foreign = ((name, advice) for magic, name, advice in _FOREIGN if start.startswith(magic.lower()))
        what, remedy = next(foreign, (what, remedy))
        raise file_error(path, "content", "to be PNG, JPEG, BMP, TIFF or NPY", what, remedy)
    if path.suffix.lower() not in FORMATS[form].suffixes:
        rule, remedy = f"to fit the content, {form.upper()}", f"Rename the file to {FORMATS[form].suffixes[0]}."
        raise file_error(path, "suffix", rule, repr(path.suffix), remedy)
    return form
