"""Names -> the folds of a cross-validation: groups stay whole, sizes are even, and so is the share of each stratum."""

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from segmeter.checks import expected, some
from segmeter.data.files.sniff import show
from segmeter.data.folders.split_lists import split_place
from segmeter.errors import DataError
from segmeter.remote.trees import present


def deal_folds(
    stems: Iterable[str], count: int, *, seed: int, group_until: str = "", strata: Mapping[str, str] | None = None
) -> dict[str, int]:
    """The fold, from 1, of each case.

    Large groups are dealt first, to the fold that has the fewest cases of their strata, then the fewest cases; names
    and seed decide the order among equals. One more case may move others, so all folds are dealt from the same cases.

    Parameters
    ----------
    stems
        Names of the cases.
    count
        Folds, >= 2.
    seed, group_until
        As in `split_lists.split_names`: cases whose names agree up to that text stay in one fold.
    strata
        Name of a case -> what each fold should have its share of; None deals by size alone.

    Raises
    ------
    DataError
        There are fewer groups than folds, or a case has no stratum.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for stem in sorted(stems):
        groups[stem.split(group_until, 1)[0] if group_until else stem].append(stem)
    if len(groups) < count:
        what = "groups of cases" if group_until else "cases"
        raise DataError(
            expected("data", "fold", f"to ask for at most as many folds as {what}", f"{len(groups)} {what}")
        )
    missing = [] if strata is None else [stem for group in groups.values() for stem in group if stem not in strata]
    if missing:
        raise DataError(expected("data", "strata", "to have a line for every case", f"none for {some(missing)}"))
    kinds = {name: Counter((strata or {}).get(stem, "") for stem in group) for name, group in groups.items()}
    shares = sum(kinds.values(), Counter())

    def rank(name: str) -> tuple[int, int, float, str]:
        rarest = min(shares[kind] for kind in kinds[name])
        return -len(groups[name]), rarest, split_place(groups[name][0], seed=seed), name

    held = [Counter[str]() for _ in range(count)]
    folds: dict[str, int] = {}
    for name in sorted(groups, key=rank):
        fold = min(range(count), key=lambda k: (sum(held[k][kind] for kind in kinds[name]), held[k].total(), k))
        held[fold] += kinds[name]
        folds |= dict.fromkeys(groups[name], fold + 1)
    return folds


def read_strata(path: Path) -> dict[str, str]:
    """Read a table of two columns, case and stratum, with a header line; DataError where it is none."""
    present(path)
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
    return dict(rows[1:])
