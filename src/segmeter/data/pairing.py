"""Lists the files of folders, here or behind a URL, and pairs images with masks by name."""

import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from segmeter.checks import expected, some
from segmeter.data.config import FolderConfig
from segmeter.data.files.sniff import HIDDEN, SUFFIXES, VOLUME_NAMES, is_junk, show, stem_of, volume_format
from segmeter.data.files.zarr import MARKS, is_zarr
from segmeter.data.sample import Pair
from segmeter.errors import DataError
from segmeter.files import safe_id
from segmeter.remote import Listed, list_place

Files = dict[str, list[Path]]
Names = dict[str, list[str]]
NO_ENTRY = ("to be a folder whose files may be opened", "one without the x permission", "Run chmod u+x on it.")
_YOLO, _YOLO_NAMES = ".txt", "classes.txt"  # label files, and the list of class names that tools write beside them
_NO_JSON = "Name a COCO file itself, as in data.masks=annotations.json; write label maps of other JSON."


@dataclass(frozen=True)
class Listing:
    """The image files of a folder.

    Parameters
    ----------
    folder
        Where they are.
    names
        File names by name without suffix; behind a URL, the paths that the files will have on this machine.
    links
        The names that are links.
    problems
        What is wrong with the folder, one line each.
    more
        The files of further channels.
    """

    folder: Path
    names: Names
    links: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    more: tuple["Listing", ...] = ()

    def by_channel(self, ends: Sequence[str]) -> "Listing":
        """List the first channel, under names without `ends`, with the further ones in `more`; [] changes nothing."""
        if not ends:
            return self
        parts = [{stem[: -len(end)]: n for stem, n in self.names.items() if stem.endswith(end)} for end in ends]
        rule = f"to end in {', '.join(ends)}"
        others = [stem for stem in self.names if not stem.endswith(tuple(ends))]
        problems = list(self.problems)
        if others:
            problems.append(expected(show(self.folder), "images", rule, some(others), "Move others elsewhere."))
        every = dict.fromkeys(stem for part in parts for stem in part)
        for end, part in zip(ends, parts, strict=True):
            problems += missing_problem(every, part, what=f"channel {end}", remedy="Every case needs every channel.")
        first, *more = (Listing(self.folder, part, self.links) for part in parts)
        return replace(first, problems=tuple(problems), more=tuple(more))

    def path(self, stem: str) -> str:
        """Return the path of the first file of a name, as text: a `Path` for each of 100,000 files is slower."""
        return os.path.join(self.folder, self.names[stem][0])  # noqa: PTH118

    def pair(self, stem: str, masks: Sequence[str] = ()) -> Pair:
        """Return the case of a name, with its masks."""
        others = [one.path(stem) for one in self.more]
        return Pair(case_id=safe_id(stem), paths=(self.path(stem), *masks, *others), more=len(others))


def scan_folder(folder: Path, *, role: str, remedy: str = "", whole_suffix: bool = False, ending: str = "") -> Listing:
    """Find the image files of a folder by name without suffix, and collect what is wrong instead of raising it.

    Hidden files, a system's own files and notes (.txt, .json, ...) are skipped; other files and folders are problems.
    In a folder without images or label maps, .txt files are YOLO labels, unless images are wanted.

    Parameters
    ----------
    folder
        Where to look; its sub-folders are not searched.
    role
        "images" or "masks", for messages.
    remedy
        What to do if the folder is missing or empty, for example the expected layout.
    whole_suffix
        Whether names are those of `stem_of`, so that ``a.ome.tif`` is ``a``; otherwise pictures keep everything before
        their last dot.
    ending
        File names must end in this text; others are skipped.
    """
    try:
        place = list_place(folder)
        behind = place.inside or {}
        if place.inside is None:
            folder = place.path
            with os.scandir(folder) as scanned:
                links = {each.name: each.is_symlink() for each in scanned if each.name.endswith(ending)}
        else:
            links = dict.fromkeys((name for name in behind if name.endswith(ending)), False)
    except OSError as error:
        tried = f"{error.strerror} at {show(folder.absolute())} (working folder {show(Path.cwd())})"
        return Listing(folder, {}, problems=(expected("data", role, "to be a folder", tried, remedy),))
    except DataError as error:
        return Listing(folder, {}, problems=tuple(error.problems))
    if place.inside is None and not os.access(folder, os.X_OK):
        return Listing(folder, {}, problems=(expected(show(folder), role, *NO_ENTRY),))
    names, foreign = defaultdict[str, list[str]](list), list[str]()
    for name in sorted(links):
        stem, _, suffix = name.rpartition(".")
        kept = str(behind[name].path) if behind else name
        if f".{suffix.lower()}" in SUFFIXES and not name.startswith(HIDDEN):
            names[stem_of(name) if whole_suffix else stem].append(kept)
        elif not is_junk(folder / name):
            entry = behind[name] if behind else Listed(folder / name)
            if volume_format(entry.path) not in (None, "zarr") or _is_zarr(entry):
                names[stem_of(name)].append(kept)
            else:
                foreign.append(name)
    if not names and not foreign and role not in ("images", "probs"):
        labels = [name for name in sorted(links) if name.lower().endswith(_YOLO) and name.lower() != _YOLO_NAMES]
        names |= {stem_of(name): [str(behind[name].path) if behind else name] for name in labels}
    rule, found, advice = f"to hold {VOLUME_NAMES} files", "none", remedy
    if foreign:
        found, advice = some(foreign), f"Convert or move these. {remedy}".strip()
    elif ending:
        rule = f"to hold files that end in {ending}"
    elif any(name.endswith(".json") for name in links):
        found, advice = "JSON", _NO_JSON
    problems = () if names and not foreign else (expected(show(folder), role, rule, found, advice),)
    return Listing(folder, dict(names), frozenset(name for name, is_link in links.items() if is_link), problems)


def list_files(folder: Path, *, role: str, remedy: str = "", ending: str = "") -> Files:
    """Return the paths that `scan_folder` finds, by their whole stem; DataError where the folder has problems."""
    found = scan_folder(folder, role=role, remedy=remedy, whole_suffix=True, ending=ending)
    if found.problems:
        raise DataError(found.problems)
    return {stem: [found.folder / name for name in names] for stem, names in found.names.items()}


def list_images(place: Path) -> Listing:
    """Find the images of a folder; a file or Zarr folder is one image. DataError where the folder has problems."""
    listed = list_place(place)
    if _is_zarr(listed) or not (listed.inside or listed.path.is_dir()):
        return Listing(listed.path.parent, {stem_of(place): [listed.path.name]})
    found = scan_folder(place, role="images")
    if found.problems:
        raise DataError(found.problems)
    return found


def find_beside(folder: Path, stems: Iterable[str], *, role: str, what: str, remedy: str) -> dict[str, Path]:
    """Find the one file of every stem in a folder, such as the image beside a mask.

    Raises
    ------
    DataError
        A stem has no file or two, or the folder can't be read.
    """
    files = list_files(folder, role=role, remedy=remedy)
    chosen = {stem: files.get(stem, []) for stem in stems}
    problems = missing_problem(chosen, files, what=what, remedy=remedy) + twice_problems(chosen, role)
    if problems:
        raise DataError(problems)
    return {stem: paths[0] for stem, paths in chosen.items()}


def class_folders(where: str, folder: Path, role: str, classes: Sequence[str]) -> list[tuple[Path, str]]:
    """Return the folder of each class and its role; without classes, the folder itself."""
    unsafe = [name for name in classes if Path(name).name != name or name in (".", "..")]
    if unsafe:
        raise DataError(expected(where, "classes", "to be usable as folder names", some(unsafe), "Rename these."))
    return [(folder / name, f"{role} of {name}") for name in classes] or [(folder, role)]


def _is_zarr(place: Listed) -> bool:
    return is_zarr(place.path) or not place.files.isdisjoint(MARKS)


def twice_problems(files: Mapping[str, Sequence[str | Path]], role: str) -> list[str]:
    """Report names with two files, and names that differ only in case or Unicode form."""
    twice = {stem: paths for stem, paths in files.items() if len(paths) > 1}
    if not twice and len(set(map(_fold, files))) == len(files):
        return []
    alike: dict[str, list[str]] = defaultdict(list)
    for stem in files:
        alike[_fold(stem)].append(stem)
    remedy = "Move the others elsewhere."
    found = [
        expected("data", role, f"to have one file per name, as for {stem!r}", some(Path(p).name for p in paths), remedy)
        for stem, paths in twice.items()
    ]
    rule = "to differ in more than upper and lower case or Unicode form"
    return found + [
        expected("data", role, rule, some(stems), "Rename one.") for stems in alike.values() if len(stems) > 1
    ]


def missing_problem(wanted: Iterable[str], present: Mapping[str, object], *, what: str, remedy: str) -> list[str]:
    """Report wanted names that are not present; the remedy names one that differs only in case or Unicode form."""
    missing = [name for name in wanted if name not in present]
    if not missing:
        return []
    by_fold = {_fold(name): name for name in present}
    close = next(((name, by_fold[_fold(name)]) for name in missing if _fold(name) in by_fold), None)
    if close:
        one, other = (ascii(name) for name in close)  # a terminal shows two Unicode forms alike
        remedy = f"{one} and {other} differ only in upper and lower case or Unicode form. Rename one."
    return [expected("data", what, "for every name", f"none for {some(missing)}", remedy)]


def only_alike(wanted: Iterable[str], present: Iterable[str]) -> list[str]:
    """Return the wanted names that are present only in another case or Unicode form."""
    names = set(present)
    folded = {_fold(name) for name in names}
    return [name for name in wanted if name not in names and _fold(name) in folded]


def _fold(name: str) -> str:
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", name).casefold()


def layout(config: FolderConfig) -> str:
    """Describe in words the files that a data set of this configuration should have."""
    mask = f"<name>{config.mask_suffix}.png"
    inner = f"{config.masks}/<class>/{mask}" if config.task == "multilabel" else f"{config.masks}/{mask}"
    lists = f", {Path(config.lists) / 'train.txt'}, val.txt and test.txt" if config.lists else ""
    return (
        f"The expected layout under {show(Path(config.root).absolute())} is "
        f"{config.images}/<name>.png and {inner}{lists}; data.images and data.masks name other folders."
    )


def pair_cases(
    config: FolderConfig, root: Path, stems: list[str], images: Listing, masks: list[Listing], problems: list[str]
) -> tuple[Pair, ...]:
    """Pair complete cases by name, and report everything that is wrong with the names."""
    problems += missing_problem(stems, images.names, what="an image", remedy="Correct the list, or data.images.")
    chosen = {stem: images.names[stem] for stem in stems if stem in images.names}
    listed = config.lists is not None or config.list_files
    problems += twice_problems(chosen if listed else images.names, "images")  # of all splits, if all are used
    wanted = [stem + config.mask_suffix for stem in chosen]
    strays = dict.fromkeys(stem + config.mask_suffix for stem in images.names)
    for mask in masks:
        problems += missing_problem(wanted, mask.names, what="a mask", remedy=layout(config))
        problems += twice_problems({name: mask.names[name] for name in wanted if name in mask.names}, "masks")
        stray = "Remove these masks, or add their images."
        problems += missing_problem(mask.names, strays, what="an image", remedy=stray)
    if not config.allow_links:
        channels = ((one, chosen) for one in (images, *images.more))
        problems += _links_outside(root, [*channels, *((mask, wanted) for mask in masks)])
    complete = (
        images.pair(stem, [mask.path(name) for mask in masks])
        for stem, name in zip(chosen, wanted, strict=True)
        if all(name in mask.names for mask in masks) and all(stem in one.names for one in images.more)
    )
    return tuple(sorted(complete, key=attrgetter("case_id")))


def _links_outside(root: Path, wanted: list[tuple[Listing, Iterable[str]]]) -> list[str]:
    """Name the folders, and the wanted files, that links lead out of the root."""
    paths = [listing.folder for listing, _ in wanted]
    for listing, stems in wanted:
        if listing.links:
            names = (listing.names[stem][0] for stem in stems if stem in listing.names)
            paths += [listing.folder / name for name in names if name in listing.links]
    home = os.path.realpath(root)
    outside = [str(path) for path in paths if not Path(os.path.realpath(path)).is_relative_to(home)]
    remedy, found = "Set data.allow_links=true if these links are yours.", f"links out of it ({some(outside)})"
    return [expected("data", "files", f"to lie under {show(root)}", found, remedy)] if outside else []
