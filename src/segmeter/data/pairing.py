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
_HIDDEN = (".", "__MACOSX")


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
    files, problems = scan_files(folder, role=role, remedy=remedy, volumes=volumes)
    if problems:
        raise DataError(problems)
    return files


def scan_files(folder: Path, *, role: str, remedy: str = "", volumes: bool = False) -> tuple[Files, list[str]]:
    """Find the image files of a folder as `list_files` does, and give back what is wrong instead of raising it."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
    except OSError as error:
        tried = f"{error.strerror} at {show(folder.absolute())} (working folder {show(Path.cwd())})"
        return {}, [expected("data", role, "to be a folder", tried, remedy)]
    problems, files, foreign = list[str](), defaultdict[str, list[Path]](list), list[str]()
    suffixes = VOLUME_NAMES if volumes else SUFFIX_NAMES
    for name in names:
        stem, _, suffix = name.rpartition(".")
        if f".{suffix.lower()}" in SUFFIXES and not name.startswith(_HIDDEN):
            files[stem_of(Path(name)) if volumes else stem].append(folder / name)
        elif not is_junk(folder / name):
            if volumes and _is_volume(folder / name):
                files[stem_of(Path(name))].append(folder / name)
            else:
                foreign.append(name)
    rule = f"to hold {suffixes} files"
    if foreign:
        problems.append(expected(show(folder), role, rule, some(foreign), f"Convert or move these. {remedy}".strip()))
    elif not files:
        problems.append(expected(show(folder), role, rule, "none", remedy))
    return dict(files), problems


def _is_volume(entry: Path) -> bool:
    form = volume_format(entry)
    return is_zarr(entry) if form == "zarr" else form is not None


def check_inside(root: Path, paths: Iterable[Path]) -> list[str]:
    """Name the files that links lead out of the root."""
    home = os.path.realpath(root)
    inside: dict[Path, bool] = {}  # folders are followed once: following every file takes longer than reading it
    outside = []
    for path in paths:
        if path.parent not in inside:
            inside[path.parent] = _is_under(home, path.parent)
        if not inside[path.parent] or (path.is_symlink() and not _is_under(home, path)):
            outside.append(path)
    if not outside:
        return []
    remedy = "Set data.allow_links=true if these links are yours."
    return [
        expected("data", "files", f"to lie under {show(root)}", f"links out of it ({some(map(str, outside))})", remedy)
    ]


def _is_under(home: str, path: Path) -> bool:
    return os.path.commonpath([home, os.path.realpath(path)]) == home


def twice_problems(files: Files, role: str) -> list[str]:
    """Name what has two files, and names that differ only in case."""
    twice = {stem: paths for stem, paths in files.items() if len(paths) > 1}
    alike: dict[str, list[str]] = defaultdict(list)
    for stem in files:
        alike[_fold(stem)].append(stem)
    found = [
        expected("data", role, f"to have one file per name, as for {stem!r}", some(path.name for path in paths))
        for stem, paths in twice.items()
    ]
    rule = "to differ in more than upper and lower case or Unicode form"
    return found + [
        expected("data", role, rule, some(stems), "Rename one.") for stems in alike.values() if len(stems) > 1
    ]


def missing_problem(wanted: Iterable[str], present: Mapping[str, object], *, what: str, remedy: str) -> list[str]:
    """Name what is wanted and not there, with names that differ only in case as a hint."""
    missing = [name for name in wanted if name not in present]
    if not missing:
        return []
    by_fold = {_fold(name): name for name in present}
    close = next(((name, by_fold[_fold(name)]) for name in missing if _fold(name) in by_fold), None)
    if close:
        remedy = f"{close[0]!r} and {close[1]!r} differ only in upper and lower case or Unicode form. Rename one."
    return [expected("data", what, "for every name", f"none for {some(missing)}", remedy)]


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
