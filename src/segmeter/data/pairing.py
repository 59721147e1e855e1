"""folders -> pairs: each image with its mask, by name."""

import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from segmeter.checks import expected
from segmeter.data.formats import SUFFIX_NAMES, SUFFIXES, VOLUME_NAMES, is_junk, show, stem_of, volume_format
from segmeter.data.listing import some
from segmeter.data.zarrs import is_zarr
from segmeter.errors import DataError

Files = dict[str, list[Path]]
NO_ENTRY = ("to be a folder whose files may be opened", "one without the x permission", "Run chmod u+x on it.")


def list_files(folder: Path, *, role: str, remedy: str = "", volumes: bool = False) -> Files:
    """Find the image files of a folder by name without suffix.

    Hidden files, a system's own and notes (.txt, .json, ...) are passed over; other files and folders are refused.

    Parameters
    ----------
    folder
        Where to look; its sub-folders are not searched.
    role
        "images" or "masks", for messages.
    remedy
        What to do when it is not there or empty, for example the expected layout.
    volumes
        Whether NPZ, NIfTI and Zarr are taken too; names are then those of `stem_of`.

    Raises
    ------
    DataError
        The folder is missing or empty, or holds something else.
    """
    try:
        entries = sorted(Path(entry.path) for entry in os.scandir(folder))
    except OSError as error:
        tried = f"{error.strerror} at {show(folder.absolute())} (working folder {show(Path.cwd())})"
        raise DataError(expected("data", role, "to be a folder", tried, remedy)) from error
    if not os.access(folder, os.X_OK):
        raise DataError(expected(show(folder), role, *NO_ENTRY))
    entries = [entry for entry in entries if not is_junk(entry)]
    foreign = [entry.name for entry in entries if not _is_taken(entry, volumes)]
    names = VOLUME_NAMES if volumes else SUFFIX_NAMES
    if foreign:
        rule = f"to hold {names} files"
        raise DataError(expected(show(folder), role, rule, some(foreign), f"Convert or move these. {remedy}".strip()))
    if not entries:
        raise DataError(expected(show(folder), role, f"to hold {names} files", "none", remedy))
    files: Files = defaultdict(list)
    for entry in entries:
        files[stem_of(entry) if volumes else entry.stem].append(entry)
    return dict(files)


def _is_taken(entry: Path, volumes: bool) -> bool:
    if entry.suffix.lower() in SUFFIXES:
        return True
    form = volume_format(entry) if volumes else None
    return is_zarr(entry) if form == "zarr" else form is not None


def check_inside(root: Path, paths: Iterable[Path]) -> list[str]:
    """Name the files that links lead out of the root."""
    home = os.path.realpath(root)
    outside = [path for path in paths if os.path.commonpath([home, os.path.realpath(path)]) != home]
    if not outside:
        return []
    remedy = "Set data.allow_links=true if these links are yours."
    return [
        expected("data", "files", f"to lie under {show(root)}", f"links out of it ({some(map(str, outside))})", remedy)
    ]


def twice_problems(files: Files, role: str) -> list[str]:
    """Name what has two files, and names that differ only in case."""
    found = [
        expected("data", role, f"to have one file per name, as for {stem!r}", some(path.name for path in paths))
        for stem, paths in files.items()
        if len(paths) > 1
    ]
    alike: dict[str, list[str]] = defaultdict(list)
    for stem in files:
        alike[_fold(stem)].append(stem)
    found += [
        expected(
            "data", role, "to differ in more than upper and lower case or Unicode form", some(stems), "Rename one."
        )
        for stems in alike.values()
        if len(stems) > 1
    ]
    return found


def missing_problem(wanted: Iterable[str], present: Mapping[str, object], *, what: str, remedy: str) -> list[str]:
    """Name what is wanted and not there, with names that differ only in case as a hint."""
    missing = [name for name in wanted if name not in present]
    if not missing:
        return []
    by_fold = {_fold(name): name for name in present}
    close = next(((name, by_fold[_fold(name)]) for name in missing if _fold(name) in by_fold), None)
    if close:
        one, other = (ascii(name) for name in close)  # of two Unicode forms a terminal shows one
        remedy = f"{one} and {other} differ only in upper and lower case or Unicode form. Rename one."
    return [expected("data", what, "for every name", f"none for {some(missing)}", remedy)]


def only_alike(wanted: Iterable[str], present: Iterable[str]) -> list[str]:
    """Those wanted names that are present in another case or Unicode form only."""
    names = set(present)
    folded = {_fold(name) for name in names}
    return [name for name in wanted if name not in names and _fold(name) in folded]


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
