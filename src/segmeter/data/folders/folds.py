"""Deals cases into the folds of a cross-validation, and compares how two configurations deal theirs.

Groups stay whole, sizes are even, and so is the share of each stratum.
"""

import csv
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from segmeter.checks import expected, some
from segmeter.data.config import DATA
from segmeter.data.files.sniff import show
from segmeter.data.folders.split_lists import group_of, split_place
from segmeter.errors import ConfigError, DataError
from segmeter.schema import as_plain, defaults

BY_CLASS = "classes"  # of data.strata: what the masks hold
_FOLDS = ("fold", "strata")  # decide on training and validation alone
_SHARES = ("split_seed", "group_until", "group_by", "val_fraction", "test_fraction", "lists", "list_files")
_ANY = ""  # what every case is counted as


def deal_folds(
    stems: Iterable[str],
    count: int,
    *,
    seed: int,
    group_until: str = "",
    group_by: str | None = None,
    strata: Mapping[str, Collection[str]] | None = None,
) -> dict[str, int]:
    """The fold, from 1, of each case.

    Groups that have the largest share of a stratum are dealt first, each to the fold that has the least of what the
    group has: shares of each stratum are multiplied and summed, so that a rare stratum counts for more than a common
    one. The fold with the fewest cases comes first among equals, and names and seed decide the order of equal groups.
    One more case may move others, so all folds are dealt from the same cases.

    Parameters
    ----------
    stems
        Names of the cases.
    count
        Folds, >= 2.
    seed, group_until, group_by
        As in `split_lists.split_names` and `group_of`: the cases of a group stay in one fold.
    strata
        Name of a case -> all of which each fold should have its share, such as the classes in it; None deals by size
        alone.

    Raises
    ------
    DataError
        There are fewer groups than folds, or a case has no stratum.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for stem in sorted(stems):
        groups[group_of(stem, group_until, group_by)].append(stem)
    if len(groups) < count:
        what = "groups of cases" if group_until or group_by else "cases"
        raise DataError(
            expected("data", "fold", f"to ask for at most as many folds as {what}", f"{len(groups)} {what}")
        )
    missing = [] if strata is None else [stem for group in groups.values() for stem in group if stem not in strata]
    if missing:
        raise DataError(expected("data", "strata", "to have a line for every case", f"none for {some(missing)}"))
    kinds = {name: _count_kinds(group, strata or {}) for name, group in groups.items()}
    totals = sum(kinds.values(), Counter[str]())

    def rank(name: str) -> tuple[float, float, str]:
        largest = max(held / totals[kind] for kind, held in kinds[name].items())
        return -largest, split_place(groups[name][0], seed=seed), name

    folds: dict[str, int] = {}
    held = [Counter[str]() for _ in range(count)]
    for name in sorted(groups, key=rank):
        own = kinds[name]

        def filled(k: int, own: Counter[str] = own) -> tuple[Fraction, int, int]:
            shares = (Fraction(held[k][kind] * own[kind], totals[kind] ** 2) for kind in own)
            return sum(shares, Fraction()), held[k][_ANY], k

        fold = min(range(count), key=filled)
        held[fold] += own
        folds |= dict.fromkeys(groups[name], fold + 1)
    return folds


def _count_kinds(group: Iterable[str], strata: Mapping[str, Collection[str]]) -> Counter[str]:
    """Cases of a group per stratum, and how many they are."""
    return Counter(kind for stem in group for kind in (_ANY, *set(strata.get(stem, ()))))


def read_strata(path: Path) -> dict[str, tuple[str]]:
    """Read a table of two columns, case and stratum, with a header line; DataError where it is none."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            expected("data", "strata", "to be a CSV table", f"{show(path.absolute())} ({error})")
        ) from error
    if not rows or any(len(row) != 2 for row in rows):
        rule = "to have two columns, case and stratum, below a header"
        raise DataError(expected("data", "strata", rule, show(path.absolute())))
    twice = [name for name, times in Counter(row[0] for row in rows[1:]).items() if times > 1]
    if twice:
        raise DataError(expected("data", "strata", "to name each case once", f"repeated names ({some(twice)})"))
    return {case: (stratum,) for case, stratum in rows[1:]}


def describe_dealing(config: Any) -> dict[str, Any]:
    """The kind of a data set and what deals its cases, as JSON values; empty for one whose cases are not dealt."""
    values: dict[str, Any] = as_plain(config)
    return {key: values[key] for key in ("name", *_FOLDS, *_SHARES)} if "fold" in values else {}


def check_dealing(given: Mapping[str, Any], trained: Mapping[str, Any], *, split: str, model: str) -> None:
    """Refuse to evaluate a split that is dealt otherwise than when the model was trained: it may hold training cases.

    Lists name the cases themselves, so that they are taken as they are, but for the validation of folds.

    Parameters
    ----------
    given, trained
        Values of the group `data`, now and in training; keys that are missing have their defaults. Another kind of data
        set, or none, is not compared.
    split
        Which cases are evaluated; "all" deals none.
    model
        What to call the model.

    Raises
    ------
    ConfigError
        It names the first key that differs.
    """
    usual = defaults(DATA.schema(given["name"])) if given.get("name") in DATA.names() else {}
    if split == "all" or "fold" not in usual or trained.get("name") != given["name"]:
        return
    now, then = ({key: as_plain(each.get(key, usual[key])) for key in (*_FOLDS, *_SHARES)} for each in (given, trained))
    folded = split != "test" and bool(now["fold"] or then["fold"])
    if not folded and (now["lists"] is not None or split in now["list_files"]):
        return
    other = [key for key in (*(_FOLDS if folded else ()), *_SHARES) if now[key] != then[key]]
    if other:
        key = other[0]
        rule = f"to be {then[key]!r} with data.split={split}, which else may hold cases that {model} was trained on"
        remedy = "Leave it out, or take the checkpoint of that fold; other data needs no split (data.split=all)."
        raise ConfigError(expected("eval", f"data.{key}", rule, repr(now[key]), remedy))
