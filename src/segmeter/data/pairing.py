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
from segmeter.data.files.formats import HIDDEN, SUFFIXES, VOLUME_NAMES, is_junk, stem_of, volume_format
from segmeter.data.files.refusals import show
from segmeter.data.files.zarr import MARKS, is_zarr
from segmeter.data.sample import Pair
from segmeter.errors import DataError
from segmeter.files import safe_id
from segmeter.remote import Listed, list_place

Files = dict[str, list[Path]]
Names = dict[str, list[str]]
NO_ENTRY = ("to be a folder whose files may be opened", "one without the x permission", "Run chmod u+x on it.")
_YOLO = ".txt"  # the suffix of YOLO label files
_YOLO_NAMES = "classes.txt"  # Tools write the list of class names beside the label files.
_NO_JSON = "Name a COCO file itself, as in data.masks=annotations.json; write label maps of other JSON."


@dataclass(frozen=True)
class Listing:
    """The image files of a folder.

    Parameters
    ----------
    folder
        Where they are.
    names
        File names by name without suffix. Behind a URL, these are the paths that the files will have on this machine.
    links
        The names that are symbolic links.
    problems
        What is wrong with the folder, one line each.
    channels
        The files of further channels.
    """

    folder: Path
    names: Names
    links: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    channels: tuple["Listing", ...] = ()

    def by_channel(self, ends: Sequence[str]) -> "Listing":
        """List the first channel, under names without `ends`, and the others in `channels`; [] changes nothing."""
        if not ends:
            return self
        by_end = [
            {stem[: -len(end)]: names for stem, names in self.names.items() if stem.endswith(end)} for end in ends
        ]
        rule = f"to end in {', '.join(ends)}"
        without = [stem for stem in self.names if not stem.endswith(tuple(ends))]
        problems = list(self.problems)
        if without:
            problems.append(expected(show(self.folder), "images", rule, some(without), "Move others elsewhere."))
        stems = dict.fromkeys(stem for names in by_end for stem in names)
        for end, names in zip(ends, by_end, strict=True):
            problems += missing_problem(stems, names, what=f"channel {end}", remedy="Every case needs every channel.")
        first, *others = (Listing(self.folder, names, self.links) for names in by_end)
        return replace(first, problems=tuple(problems), channels=tuple(others))

    def path(self, stem: str) -> str:
        """Return the path of the first file of a name, as text: a `Path` for each of 100,000 files is slower."""
        return os.path.join(self.folder, self.names[stem][0])  # noqa: PTH118

    def pair(self, stem: str, masks: Sequence[str] = ()) -> Pair:
        """Return the case of a name, with its masks."""
        channels = [channel.path(stem) for channel in self.channels]
        paths = (self.path(stem), *masks, *channels)
        return Pair(case_id=safe_id(stem), paths=paths, n_channel_files=len(channels))


def scan_folder(folder: Path, *, role: str, remedy: str = "", whole_suffix: bool = False, ending: str = "") -> Listing:
    """Find the image files of a folder by name without suffix, and collect what is wrong instead of raising it.

    Hidden files, system files and notes (.txt, .json, ...) are skipped. Any other file or folder is a problem. In a
    folder of masks that holds neither images nor label maps, .txt files are YOLO labels.

    Parameters
    ----------
    folder
        Where to look; its sub-folders are not searched.
    role
        "images" or "masks", for messages.
    remedy
        What to do if the folder is missing or empty, for example the expected layout.
    whole_suffix
        Whether to use the names of `stem_of`, so that ``a.ome.tif`` is ``a``. Otherwise a picture's name is everything
        before its last dot.
    ending
        File names must end in this text; others are skipped.
    """
    try:
        place = list_place(folder)
        remote = place.inside or {}
        if place.inside is None:
            folder = place.path
            with os.scandir(folder) as entries:
                is_link = {entry.name: entry.is_symlink() for entry in entries if entry.name.endswith(ending)}
        else:
            is_link = dict.fromkeys((name for name in remote if name.endswith(ending)), False)
    except OSError as error:
        tried = f"{error.strerror} at {show(folder.absolute())} (working folder {show(Path.cwd())})"
        return Listing(folder, {}, problems=(expected("data", role, "to be a folder", tried, remedy),))
    except DataError as error:
        return Listing(folder, {}, problems=tuple(error.problems))
    if place.inside is None and not os.access(folder, os.X_OK):
        return Listing(folder, {}, problems=(expected(show(folder), role, *NO_ENTRY),))
    names: Names = defaultdict(list)
    foreign: list[str] = []
    for name in sorted(is_link):
        stem, _, suffix = name.rpartition(".")
        file = str(remote[name].path) if remote else name
        if f".{suffix.lower()}" in SUFFIXES and not name.startswith(HIDDEN):
            names[stem_of(name) if whole_suffix else stem].append(file)
        elif not is_junk(folder / name):
            listed = remote[name] if remote else Listed(folder / name)
            if volume_format(listed.path) not in (None, "zarr") or _is_zarr(listed):
                names[stem_of(name)].append(file)
            else:
                foreign.append(name)
    if not names and not foreign and role not in ("images", "probs"):
        labels = [name for name in sorted(is_link) if name.lower().endswith(_YOLO) and name.lower() != _YOLO_NAMES]
        names |= {stem_of(name): [str(remote[name].path) if remote else name] for name in labels}
    links = frozenset(name for name in is_link if is_link[name])
    if names and not foreign:
        return Listing(folder, dict(names), links)
    rule = f"to hold {VOLUME_NAMES} files"
    content = "none"
    if foreign:
        content, remedy = some(foreign), f"Convert or move these. {remedy}".strip()
    elif ending:
        rule = f"to hold files that end in {ending}"
    elif any(name.endswith(".json") for name in is_link):
        content, remedy = "JSON", _NO_JSON
    return Listing(folder, dict(names), links, problems=(expected(show(folder), role, rule, content, remedy),))


def list_files(folder: Path, *, role: str, remedy: str = "", ending: str = "") -> Files:
    """Return the paths that `scan_folder` finds, by their whole stem; DataError where the folder has problems."""
    listing = scan_folder(folder, role=role, remedy=remedy, whole_suffix=True, ending=ending)
    if listing.problems:
        raise DataError(listing.problems)
    return {stem: [listing.folder / name for name in names] for stem, names in listing.names.items()}


def list_images(place: Path) -> Listing:
    """Find the images of a folder; a file or Zarr folder is one image. DataError where the folder has problems."""
    listed = list_place(place)
    if _is_zarr(listed) or not (listed.inside or listed.path.is_dir()):
        return Listing(listed.path.parent, {stem_of(place): [listed.path.name]})
    listing = scan_folder(place, role="images")
    if listing.problems:
        raise DataError(listing.problems)
    return listing


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
    """Pair the complete cases by name, and add everything that is wrong with the names to `problems`."""
    problems += missing_problem(stems, images.names, what="an image", remedy="Correct the list, or data.images.")
    chosen = {stem: images.names[stem] for stem in stems if stem in images.names}
    has_lists = config.lists is not None or config.list_files
    problems += twice_problems(chosen if has_lists else images.names, "images")  # without lists, check all splits
    wanted = [stem + config.mask_suffix for stem in chosen]
    strays = dict.fromkeys(stem + config.mask_suffix for stem in images.names)
    for mask in masks:
        problems += missing_problem(wanted, mask.names, what="a mask", remedy=layout(config))
        problems += twice_problems({name: mask.names[name] for name in wanted if name in mask.names}, "masks")
        stray = "Remove these masks, or add their images."
        problems += missing_problem(mask.names, strays, what="an image", remedy=stray)
    if not config.allow_links:
        channels = ((channel, chosen) for channel in (images, *images.channels))
        problems += _links_outside(root, [*channels, *((mask, wanted) for mask in masks)])
    complete = (
        images.pair(stem, [mask.path(name) for mask in masks])
        for stem, name in zip(chosen, wanted, strict=True)
        if all(name in mask.names for mask in masks) and all(stem in channel.names for channel in images.channels)
    )
    return tuple(sorted(complete, key=attrgetter("case_id")))


def _links_outside(root: Path, wanted: list[tuple[Listing, Iterable[str]]]) -> list[str]:
    """Report links that lead out of the root: of the folders, and of the wanted files."""
    paths = [listing.folder for listing, _ in wanted]
    for listing, stems in wanted:
        if listing.links:
            names = (listing.names[stem][0] for stem in stems if stem in listing.names)
            paths += [listing.folder / name for name in names if name in listing.links]
    home = os.path.realpath(root)
    outside = [str(path) for path in paths if not Path(os.path.realpath(path)).is_relative_to(home)]
    if not outside:
        return []
    remedy = "Set data.allow_links=true if these links are yours."
    return [expected("data", "files", f"to lie under {show(root)}", f"links out of it ({some(outside)})", remedy)]
