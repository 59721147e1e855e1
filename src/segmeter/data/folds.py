"""Decides which cases belong to which split: by lists, by fractions, or by the folds of a cross-validation.

It also compares how two configurations assign cases, so that nobody evaluates on the training cases by mistake.
"""

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from segmeter.checks import expected, some
from segmeter.data.config import DATA
from segmeter.data.files.formats import SUFFIXES, VOLUME_SUFFIXES, stem_of
from segmeter.data.files.refusals import file_error, show
from segmeter.errors import ConfigError, DataError
from segmeter.schema import as_plain, defaults

# Forms of data.group_by and metrics.cluster
PREFIX = "prefix:"
PAIR = "pair"
_SIDE = re.compile(r"(?:(?<=\d)|[_-])(?:l|r|left|right|od|os)$", re.IGNORECASE)
_FOLDS = ("fold", "strata")  # keys that decide only between training and validation
_SHARES = ("split_seed", "group_until", "group_by", "val_fraction", "test_fraction", "lists", "list_files")
_ANY = ""  # the class that stands for every case
_EMPTY = (
    "Write one file name per line, with or without suffix; or leave data.lists and data.list_files out, and the cases "
    "are divided by data.val_fraction and data.test_fraction."
)


def read_list(path: Path, *, remedy: str = "") -> list[str]:
    """Read a list of image names, one per line, with or without suffix.

    Any line ending, a byte order mark and blank lines are accepted.

    Parameters
    ----------
    path
        The list.
    remedy
        What to do if there is no such file.

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
        raise file_error(path, "list", "to be UTF-8 text", f"other bytes at {error.start}") from error
    names = []
    for name in filter(None, map(str.strip, lines)):
        suffix = Path(name).suffix
        if suffix.lower() in SUFFIXES:
            names.append(name[: -len(suffix)])
        else:
            names.append(stem_of(name) if name.lower().endswith(tuple(VOLUME_SUFFIXES)) else name)
    outside = [name for name in names if "/" in name or "\\" in name or name in (".", "..")]
    if outside:
        remedy = "Write file names only; folders are set by data.images and data.masks."
        raise file_error(path, "list", "to hold names without a folder", some(outside), remedy)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise file_error(path, "list", "to name each case once", f"repeated names ({some(twice)})")
    if not names:
        raise file_error(path, "list", "to name at least one case", "no names", _EMPTY)
    return names


def split_names(
    stems: Iterable[str],
    *,
    seed: int,
    val_fraction: float,
    test_fraction: float,
    group_until: str = "",
    group_by: str | None = None,
) -> dict[str, str]:
    """Return the split of each case, which depends only on its name and the seed.

    Adding or removing other cases does not move a case, except in small data sets: if no case falls into validation or
    testing, the nearest group of the training split goes there, as long as one group is left.
    """
    names = list(stems)
    positions = {stem: split_place(group_of(stem, group_until, group_by), seed=seed) for stem in names}
    ends = (("test", test_fraction), ("val", test_fraction + val_fraction), ("train", math.inf))
    splits = {stem: next(split for split, end in ends if position < end) for stem, position in positions.items()}
    train_positions = sorted({positions[stem] for stem, split in splits.items() if split == "train"})
    for wanted, fraction in (("val", val_fraction), ("test", test_fraction)):
        if fraction > 0 and wanted not in splits.values() and len(train_positions) > 1:
            nearest = train_positions.pop(0)
            splits |= {stem: wanted for stem, position in positions.items() if position == nearest}
    return splits


def group_of(stem: str, until: str = "", by: str | None = None) -> str:
    """Return the group of a case by its name; a case whose name does not fit the rule is a group of its own.

    Parameters
    ----------
    until
        The name up to the first time that this text occurs; "" if every case is a group. Ignored if `by` is given.
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


def count_left_right(stems: Iterable[str]) -> int:
    """Count the names that have both a left and a right side, such as Image_01L and Image_01R."""
    groups = Counter(group_of(stem, by=PAIR) for stem in set(stems) if _SIDE.search(stem))
    return sum(count == 2 for count in groups.values())


def split_place(group: str, *, seed: int) -> float:
    """Return the position of a group of cases between 0 and 1, uniformly distributed."""
    digest = hashlib.sha256(f"{seed}:{group}".encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:8]) / 2**64


def deal_folds(
    stems: Iterable[str],
    count: int,
    *,
    seed: int,
    group_until: str = "",
    group_by: str | None = None,
    strata: Mapping[str, Collection[str]] | None = None,
) -> dict[str, int]:
    """Return the fold of each case, from 1. Groups stay together, and sizes and strata (classes) are balanced.

    Groups with the largest share of a stratum are dealt first. Each goes to the fold that has the least of the group's
    strata: the products of shares are summed, so that rare strata count more than common ones. Ties go to the fold
    with the fewest cases. Names and the seed decide the order of equal groups. An additional case may move others, so
    all folds must be dealt from the same cases.

    Parameters
    ----------
    stems
        Names of the cases.
    count
        The number of folds, >= 2.
    seed, group_until, group_by
        As in `split_names`. Cases of one group stay in one fold.
    strata
        The strata of each case by name, such as the classes in it; None balances sizes only.

    Raises
    ------
    DataError
        There are fewer groups than folds.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for stem in sorted(stems):
        groups[group_of(stem, group_until, group_by)].append(stem)
    if len(groups) < count:
        what = "groups of cases" if group_until or group_by else "cases"
        raise DataError(
            expected("data", "fold", f"to ask for at most as many folds as {what}", f"{len(groups)} {what}")
        )
    strata = strata or {}
    group_counts = {  # the number of a group's cases, in all and per stratum
        name: Counter(stratum for stem in group for stratum in (_ANY, *set(strata.get(stem, ()))))
        for name, group in groups.items()
    }
    totals = sum(group_counts.values(), Counter[str]())
    largest = {
        name: max(counts[stratum] / totals[stratum] for stratum in counts) for name, counts in group_counts.items()
    }
    ranked = sorted((-largest[name], split_place(groups[name][0], seed=seed), name) for name in groups)
    folds: dict[str, int] = {}
    fold_counts = [Counter[str]() for _ in range(count)]
    for _, _, name in ranked:
        counts = group_counts[name]
        loads = []
        for k, in_fold in enumerate(fold_counts):
            shares = (Fraction(in_fold[stratum] * counts[stratum], totals[stratum] ** 2) for stratum in counts)
            loads.append((sum(shares, Fraction()), in_fold[_ANY], k))
        *_, fold = min(loads)
        fold_counts[fold] += counts
        folds |= dict.fromkeys(groups[name], fold + 1)
    return folds


def describe_dealing(config: Any) -> dict[str, Any]:
    """Return the kind of a data set and the values that decide how its cases are dealt; empty if they are not dealt."""
    values: dict[str, Any] = as_plain(config)
    return {key: values[key] for key in ("name", *_FOLDS, *_SHARES)} if "fold" in values else {}


def check_dealing(given: Mapping[str, Any], trained: Mapping[str, Any], *, split: str, model: str) -> None:
    """Refuse to evaluate a split that was dealt differently for training, because it may hold training cases.

    Lists name the cases themselves, so they are not compared, except for the validation of folds.

    Parameters
    ----------
    given, trained
        Values of the group `data`, now and in training; missing keys have their defaults. Two different kinds of data
        sets are not compared.
    split
        The split that is evaluated; "all" is never dealt.
    model
        The model's name for the message.

    Raises
    ------
    ConfigError
        The cases were dealt differently. The message names the first key that differs.
    """
    usual = defaults(DATA.schema(given["name"])) if given.get("name") in DATA.names() else {}
    if split == "all" or "fold" not in usual or trained.get("name") != given["name"]:
        return
    now = {key: as_plain(given.get(key, usual[key])) for key in (*_FOLDS, *_SHARES)}
    then = {key: as_plain(trained.get(key, usual[key])) for key in (*_FOLDS, *_SHARES)}
    has_folds = split != "test" and bool(now["fold"] or then["fold"])
    if not has_folds and (now["lists"] is not None or split in now["list_files"]):
        return
    differing = [key for key in (*(_FOLDS if has_folds else ()), *_SHARES) if now[key] != then[key]]
    if differing:
        key = differing[0]
        rule = f"to be {then[key]!r} with data.split={split}, which else may hold cases that {model} was trained on"
        remedy = "Leave it out, or take the checkpoint of that fold; other data needs no split (data.split=all)."
        raise ConfigError(expected("eval", f"data.{key}", rule, repr(now[key]), remedy))
