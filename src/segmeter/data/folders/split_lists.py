"""list files -> names: which cases belong to a split."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from segmeter.checks import expected, some
from segmeter.data.files.sniff import SUFFIXES, VOLUME_SUFFIXES, show, stem_of
from segmeter.errors import DataError

PREFIX, PAIR = "prefix:", "pair"  # forms of data.group_by and metrics.cluster
_SIDE = re.compile(r"(?:(?<=\d)|[_-])(?:l|r|left|right|od|os)$", re.IGNORECASE)

_EMPTY = (
    "Write one file name per line, with or without suffix; or leave data.lists and data.list_files out, and the cases "
    "are shared out by data.val_fraction and data.test_fraction."
)


def read_list(path: Path, *, remedy: str = "") -> list[str]:
    """Read a list of image names, one per line, with or without a suffix; any line ends, a BOM and blank lines do.

    Parameters
    ----------
    path
        The list.
    remedy
        What to do where there is no such file.

    Returns
    -------
    Names without suffix, in the order of the file.

    Raises
    ------
    DataError
        The file is missing, empty or not UTF-8; a name is given twice or leads to another folder.
    """
    if not path.is_file():
        rule = "to be a text file with one name per line"
        raise DataError(expected("data", "list", rule, f"no file {show(path.absolute())}", remedy))
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(expected(show(path), "list", "to be UTF-8 text", f"other bytes at {error.start}")) from error
    names = [_without_suffix(line.strip()) for line in lines if line.strip()]
    outside = [name for name in names if "/" in name or "\\" in name or name in (".", "..")]
    if outside:
        remedy = "Write file names only; folders are set by data.images and data.masks."
        raise DataError(expected(show(path), "list", "to hold names without a folder", some(outside), remedy))
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(expected(show(path), "list", "to name each case once", f"repeated names ({some(twice)})"))
    if not names:
        raise DataError(expected(show(path), "list", "to name at least one case", "no names", _EMPTY))
    return names


def _without_suffix(name: str) -> str:
    suffix = Path(name).suffix
    if suffix.lower() in SUFFIXES:
        return name[: -len(suffix)]
    return stem_of(name) if name.lower().endswith(tuple(VOLUME_SUFFIXES)) else name


def split_names(
    stems: Iterable[str],
    *,
    seed: int,
    val_fraction: float,
    test_fraction: float,
    group_until: str = "",
    group_by: str | None = None,
) -> dict[str, str]:
    """The split that each case falls into, decided by its name and the seed alone.

    Adding or removing other cases never moves it, but of few: where no case falls into validation or testing, the group
    of cases of the training split that is nearest goes there, as long as one is left.
    """
    names = list(stems)
    places = {stem: split_place(group_of(stem, group_until, group_by), seed=seed) for stem in names}
    splits = {stem: _split_at(place, val_fraction, test_fraction) for stem, place in places.items()}
    rest = sorted({places[stem] for stem, split in splits.items() if split == "train"})
    for wanted, fraction in (("val", val_fraction), ("test", test_fraction)):
        if fraction > 0 and wanted not in splits.values() and len(rest) > 1:
            nearest = rest.pop(0)
            splits |= {stem: wanted for stem, place in places.items() if place == nearest}
    return splits


def group_of(stem: str, until: str = "", by: str | None = None) -> str:
    """The group of a case by its name; a case whose name does not fit the rule is a group of its own.

    Parameters
    ----------
    until
        The name up to the first time that this text occurs; "" if every case is a group. Ignored where `by` is given.
    by
        "prefix:8" is the first 8 characters, "prefix:_" the text before the last "_", and "pair" the name without its
        side at the end: L and R, left and right, or OD and OS.

    Examples
    --------
    >>> group_of("p07_1", "_"), group_of("p07_a_1", by="prefix:_"), group_of("p0712", by="prefix:3")
    ('p07', 'p07_a', 'p07')
    >>> group_of("Image_01L", by="pair"), group_of("eye-3_right", by="pair"), group_of("Image_01", by="pair")
    ('Image_01', 'eye-3', 'Image_01')
    """
    if by is None:
        return stem.split(until, 1)[0] if until else stem
    if by == PAIR:
        return _SIDE.sub("", stem)
    start = by.removeprefix(PREFIX)
    return stem[: int(start)] if start.isdecimal() else stem.rpartition(start)[0] or stem


def find_pairs(stems: Iterable[str]) -> int:
    """How many names stand there with both a left and a right side, such as Image_01L and Image_01R."""
    groups = Counter(group_of(stem, by=PAIR) for stem in set(stems) if _SIDE.search(stem))
    return sum(count == 2 for count in groups.values())


def split_place(group: str, *, seed: int) -> float:
    """Where a group of cases stands between 0 and 1, evenly spread."""
    digest = hashlib.sha256(f"{seed}:{group}".encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:8]) / 2**64


def _split_at(place: float, val_fraction: float, test_fraction: float) -> str:
    if place < test_fraction:
        return "test"
    return "val" if place < test_fraction + val_fraction else "train"
