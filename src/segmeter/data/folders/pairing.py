"""Lists folders, here or behind a URL, and finds what pairs of their files lack, by name."""

import gc
import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from segmeter.checks import expected, some
from segmeter.data.files.sniff import SUFFIX_NAMES, SUFFIXES, VOLUME_NAMES, is_junk, show, stem_of, volume_format
from segmeter.data.files.zarr import MARKS, is_zarr
from segmeter.errors import DataError
from segmeter.remote import Listed, list_place
from segmeter.remote import fetch as fetch
from segmeter.remote import unzipped as unzipped
from segmeter.remote import url_of as url_of

Files = dict[str, list[Path]]
Names = dict[str, list[str]]
NO_ENTRY = ("to be a folder whose files may be opened", "one without the x permission", "Run chmod u+x on it.")
_HIDDEN = (".", "__MACOSX")
_ONE = "Move the others elsewhere."
_NO_JSON = "Polygons and run lengths in JSON are not read: write label maps of them; `score` takes a COCO file itself."


def list_files(
    folder: Path, *, role: str, remedy: str = "", volumes: bool = False, zarrs: bool = False, ending: str = ""
) -> Files:
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
    zarrs
        Whether Zarr folders are taken too.
    ending
        What the names of wanted files end in; others are passed over.

    Raises
    ------
    DataError
        The folder is missing or empty, or holds something else.
    """
    found = scan_folder(folder, role=role, remedy=remedy, volumes=volumes, zarrs=zarrs, ending=ending)
    if found.problems:
        raise DataError(found.problems)
    return {stem: [found.folder / name for name in names] for stem, names in found.names.items()}


def list_images(place: Path) -> Files:
    """Find the images of a folder as `list_files` does; a file or Zarr folder is one image."""
    listed = list_place(place)
    if _is_zarr(listed) or not (listed.inside or listed.path.is_dir()):
        return {stem_of(place): [listed.path]}
    return list_files(place, role="images", zarrs=True)


def find_beside(folder: Path, stems: Iterable[str], *, role: str, what: str, remedy: str) -> dict[str, Path]:
    """Find the one file of every stem in a folder, such as the image beside a mask.

    Raises
    ------
    DataError
        A stem has none or two, or the folder can't be read.
    """
    files = list_files(folder, role=role, remedy=remedy, volumes=True)
    chosen = {stem: files.get(stem, []) for stem in stems}
    problems = missing_problem(chosen, files, what=what, remedy=remedy) + twice_problems(chosen, role)
    if problems:
        raise DataError(problems)
    return {stem: paths[0] for stem, paths in chosen.items()}


def class_folders(where: str, folder: Path, role: str, classes: Sequence[str]) -> list[tuple[Path, str]]:
    """Name the folder of each class and its role; the folder itself where there are no classes to tell apart."""
    unsafe = [name for name in classes if Path(name).name != name or name in (".", "..")]
    if unsafe:
        raise DataError(expected(where, "classes", "to be usable as folder names", some(unsafe), "Rename these."))
    return [(folder / name, f"{role} of {name}") for name in classes] or [(folder, role)]


@dataclass(frozen=True)
class Listing:
    """The image files of a folder.

    Parameters
    ----------
    folder
        Where they are.
    names
        Names of files by name without suffix; behind a URL, the paths that they will have here.
    links
        Those names that are links.
    problems
        What is wrong with the folder, one line each.
    """

    folder: Path
    names: Names
    links: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()

    def path(self, stem: str) -> str:
        """The first file of a name, as `str` of its path."""
        name = self.names[stem][0]
        return name if os.path.isabs(name) else self._prefix + name  # noqa: PTH117 - of a hundred thousand files

    @cached_property
    def _prefix(self) -> str:
        return str(self.folder / "_")[:-1]  # nothing for the folder "."


_LISTED: ContextVar[dict[tuple[Path, str, str, bool, bool, str], Listing] | None] = ContextVar("listed", default=None)


@contextmanager
def listed_once() -> Iterator[None]:
    """Inside of the block each folder is listed once, however many splits are taken from it.

    The garbage collector rests meanwhile: names and pairs all stay, and it would walk over all of them again and again,
    for a third of the time.
    """
    token, collecting = _LISTED.set({}), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        _LISTED.reset(token)
        if collecting:
            gc.enable()


def scan_folder(
    folder: Path, *, role: str, remedy: str = "", volumes: bool = False, zarrs: bool = False, ending: str = ""
) -> Listing:
    """Find the image files of a folder as `list_files` does, and give back what is wrong instead of raising it."""
    listed, key = _LISTED.get(), (folder, role, remedy, volumes, zarrs, ending)
    found = listed.get(key) if listed is not None else None
    if found is None:
        found = _scan(folder, role, remedy, volumes, zarrs, ending)
        if listed is not None:
            listed[key] = found
    return found


def _scan(folder: Path, role: str, remedy: str, volumes: bool, zarrs: bool, ending: str) -> Listing:
    try:
        place = list_place(folder)
        folder, behind = (place.path, {}) if place.inside is None else (folder, place.inside)
        if place.inside is None:
            with os.scandir(folder) as scanned:
                entries = sorted((each.name, each.is_symlink()) for each in scanned if each.name.endswith(ending))
        else:
            entries = sorted((name, False) for name in behind if name.endswith(ending))
    except OSError as error:
        tried = f"{error.strerror} at {show(folder.absolute())} (working folder {show(Path.cwd())})"
        return Listing(folder, {}, problems=(expected("data", role, "to be a folder", tried, remedy),))
    except DataError as error:
        return Listing(folder, {}, problems=tuple(error.problems))
    if place.inside is None and not os.access(folder, os.X_OK):
        return Listing(folder, {}, problems=(expected(show(folder), role, *NO_ENTRY),))
    names, foreign = defaultdict[str, list[str]](list), list[str]()
    for name, _ in entries:
        stem, _, suffix = name.rpartition(".")
        if f".{suffix.lower()}" in SUFFIXES and not name.startswith(_HIDDEN):
            names[stem_of(name) if volumes else stem].append(str(behind[name].path) if behind else name)
        elif not is_junk(folder / name):
            entry = behind[name].path if behind else folder / name
            volume = volumes and volume_format(entry) not in (None, "zarr")
            if volume or ((volumes or zarrs) and _is_zarr(behind.get(name, Listed(entry)))):
                names[stem_of(name)].append(str(entry) if behind else name)
            else:
                foreign.append(name)
    problems: tuple[str, ...] = ()
    rule = f"to hold {VOLUME_NAMES if volumes else SUFFIX_NAMES} files"
    if foreign:
        advice = f"Convert or move these. {remedy}".strip()
        problems = (expected(show(folder), role, rule, some(foreign), advice),)
    elif not names and ending:
        problems = (expected(show(folder), role, f"to hold files that end in {ending}", "none", remedy),)
    elif not names and any(name.endswith(".json") for name, _ in entries):
        problems = (expected(show(folder), role, rule, "JSON", _NO_JSON),)
    elif not names:
        problems = (expected(show(folder), role, rule, "none", remedy),)
    return Listing(folder, dict(names), frozenset(name for name, is_link in entries if is_link), problems)


def _is_zarr(place: Listed) -> bool:
    """Whether a folder, here or behind a URL, is a Zarr array or group."""
    return is_zarr(place.path) or not place.files.isdisjoint(MARKS)


def check_inside(root: Path, paths: Iterable[Path]) -> list[str]:
    """Name the folders and files that lie outside of the root once links are followed."""
    home = os.path.realpath(root)
    outside = [path for path in paths if os.path.commonpath([home, os.path.realpath(path)]) != home]
    if not outside:
        return []
    remedy = "Set data.allow_links=true if these links are yours."
    return [
        expected("data", "files", f"to lie under {show(root)}", f"links out of it ({some(map(str, outside))})", remedy)
    ]


def twice_problems(files: Mapping[str, Sequence[str | Path]], role: str) -> list[str]:
    """Name what has two files, and names that differ only in case."""
    twice = {stem: paths for stem, paths in files.items() if len(paths) > 1}
    if not twice and len(set(map(_fold, files))) == len(files):
        return []
    alike: dict[str, list[str]] = defaultdict(list)
    for stem in files:
        alike[_fold(stem)].append(stem)
    found = [
        expected("data", role, f"to have one file per name, as for {stem!r}", some(Path(p).name for p in paths), _ONE)
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
        one, other = (ascii(name) for name in close)  # of two Unicode forms a terminal shows one
        remedy = f"{one} and {other} differ only in upper and lower case or Unicode form. Rename one."
    return [expected("data", what, "for every name", f"none for {some(missing)}", remedy)]


def only_alike(wanted: Iterable[str], present: Iterable[str]) -> list[str]:
    """Those wanted names that are present in another case or Unicode form only."""
    names = set(present)
    folded = {_fold(name) for name in names}
    return [name for name in wanted if name not in names and _fold(name) in folded]


def _fold(name: str) -> str:
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", name).casefold()
