"""Finds which cases belong together, by their ids or by a table, and how many units effectively decide a score."""

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, nearest, shorten
from segmeter.data.folds import PAIR, PREFIX, count_left_right, group_of
from segmeter.errors import InputError
from segmeter.metrics.arrays import divide

MIN_UNITS = 5  # With 4 units, all lie on one side of the true median in 12 % of samples (2 / 2**4).
FEW_UNITS = 50  # With fewer units, intervals may contain the true value less often than they should.

CLUSTER_RULE = "to be prefix:SEPARATOR, prefix:NUMBER, pair, TABLE.csv:COLUMN, or a regular expression with a group"

TABLE = re.compile(r"(?P<path>.+\.(?:csv|tsv|parquet)):(?P<column>[^:]+)", re.IGNORECASE)
_SEPARATORS = "/_-."
_LISTED = 8  # A warning names at most this many classes.
CASE_ID = "case_id"


def is_cluster(cluster: str | None) -> bool:
    """Tell whether `metrics.cluster` has one of its forms, or is None."""
    if cluster in (None, PAIR) or TABLE.fullmatch(cluster):
        return True
    if cluster.startswith(PREFIX):
        return cluster != PREFIX
    try:
        return re.compile(cluster).groups > 0
    except re.error:
        return False


def cluster_labels(case_ids: Sequence[str], cluster: str | None, *, key: str = "cluster") -> list[str] | None:
    """Find the cluster of each case; None if `cluster` is None, so that every case is a unit.

    Parameters
    ----------
    case_ids
        The ids of the cases, in the order of the labels.
    cluster
        "prefix:_": the text before the last "_" of the case id. "prefix:8": its first 8 characters. "pair": the id
        without its side (Image_01L, Image_01R). "TABLE.csv:COLUMN": that column of a table (CSV, TSV
        with tabs, or Parquet) whose column `case_id` names the cases. Anything else is a regular expression, whose
        groups capture the label.
    key
        The key of the configuration that messages name.

    Raises
    ------
    InputError
        Cases have no label (the message names the first of them), or the table can't be read, lacks a column, or gives
        a case two labels.

    Examples
    --------
    >>> cluster_labels(["p01_s_001", "p01_s_002", "p02_s_001"], "prefix:_")
    ['p01_s', 'p01_s', 'p02_s']
    """
    if cluster is None:
        return None
    table = TABLE.fullmatch(cluster)
    labels: Iterable[str | None]
    if table:
        labels = map(read_column(table["path"], table["column"], key=key).get, case_ids)
        rule = f"to have a row for every case ('{cluster}')"
    elif cluster == PAIR:
        labels, rule = (group_of(case_id, by=PAIR) for case_id in case_ids), ""
    elif cluster.startswith(PREFIX):
        separator = cluster.removeprefix(PREFIX)
        if separator.isdecimal():
            labels = (case_id[: int(separator)] or None for case_id in case_ids)
        else:
            labels = (case_id.rpartition(separator)[0] or None for case_id in case_ids)
        rule = f"to find its separator in every case id ('{cluster}')"
    else:
        matches = map(re.compile(cluster).search, case_ids)
        labels = (match and "\x1f".join(group or "" for group in match.groups()) for match in matches)
        rule = f"to match every case id ('{cluster}')"
    return take_cases(labels, case_ids, key=key, rule=rule)


def find_grouping(case_ids: Sequence[str]) -> tuple[str, int] | None:
    """Suggest a value of `metrics.cluster` that groups most cases, with the number of groups; None if there is none.

    Examples
    --------
    >>> find_grouping(["p01_001", "p01_002", "p02_001", "p02_002"])
    ('prefix:_', 2)
    >>> find_grouping(["case_001", "case_002", "case_003"]) is None
    True
    """
    in_all = [separator for separator in _SEPARATORS if all(separator in case_id for case_id in case_ids)]
    patterns = [PAIR] if count_left_right(case_ids) else []
    patterns += [f"{PREFIX}{separator}" for separator in in_all]
    patterns += [f"^([^{separator}]+)[{separator}]" for separator in in_all]
    for pattern in patterns:
        try:
            groups = Counter(cluster_labels(case_ids, pattern))
        except InputError:
            continue
        shared = sum(size for size in groups.values() if size > 1)
        if len(groups) > 1 and 2 * shared >= len(case_ids):
            return pattern, len(groups)
    return None


def sum_by(index: NDArray[np.int64], count: int, column: NDArray[Any]) -> NDArray[Any]:
    """Sum the numbers (N,) of each cluster, (count,)."""
    sums = np.bincount(index, weights=column, minlength=count)  # sums in float64, which is exact for integers too
    return sums.astype(np.int64) if column.dtype.kind in "biu" else sums


def effective_units(sizes: NDArray[Any]) -> float:
    """Compute Kish's effective number of units with sizes (N,): the squared sum over the sum of squares; NaN if all are
    0.

    Examples
    --------
    >>> effective_units(np.array([5, 5, 5, 5])), round(effective_units(np.array([90, 5, 5, 0])), 2)
    (4.0, 1.23)
    """
    values = sizes.astype(np.float64)
    total, squares = np.add.accumulate(values)[-1], np.add.accumulate(values**2)[-1]  # in the order of the cases
    return float(divide(total * total, squares))


def warn_of_few(
    case_ids: Sequence[str], units: int, effective: Mapping[str, float | None], cluster: str | None
) -> str | None:
    """Write a warning about intervals that are less certain than they look, or return None.

    Parameters
    ----------
    case_ids, cluster
        The ids of the cases, and `metrics.cluster`.
    units
        Number of independent cases or clusters.
    effective
        Effective units by class; None for a class that is absent.
    """
    lines = []
    if units < FEW_UNITS:
        noun = "unit" if units == 1 else "units"
        meaning = "intervals may hold the true value less often than 95 %" if units >= MIN_UNITS else "no intervals"
        lines.append(f"Only {units} independent {noun}: {meaning}.")
    bound = FEW_UNITS if units >= FEW_UNITS else units / 2
    few = sorted((value, name) for name, value in effective.items() if value is not None and value < bound)
    if few:
        named = ", ".join(f"{name} {value:.1f}" for value, name in few[:_LISTED])
        lines.append(f"Few effective units, as large cases outweigh the others: {named}.")
    grouping = find_grouping(case_ids) if cluster is None else None
    if grouping:
        pattern, groups = grouping
        is_regex = not pattern.startswith((PREFIX, PAIR))
        remedy = f"set 'metrics.cluster=\"{pattern}\"'" if is_regex else f"set metrics.cluster={pattern}"
        lines.append(f"Case ids look grouped ({groups} groups): unless cases of a group are independent, {remedy}.")
    return " ".join(lines) or None


def read_column(path: str | Path, column: str, *, key: str) -> dict[str, str]:
    """Read the value of a column for each case id, as text; empty cells are left out.

    Parameters
    ----------
    path
        A table whose column `case_id` names the cases: CSV with commas, TSV with tabs, Parquet.
    column
        One of its other columns.
    key
        The key of the configuration that messages name, such as "cluster".

    Raises
    ------
    InputError
        The table can't be read, lacks a column, has two columns with the same name, has a row that is longer or shorter
        than its header, or gives a case two values.
    """
    names, rows = _read(Path(path), key, (CASE_ID, column))
    lacking = [name for name in (CASE_ID, column) if name not in names]
    if lacking:
        rule, remedy = f"to name a table with the columns {CASE_ID} and {column}", nearest(lacking[-1], names)
        given = f"{path} with {shorten(names) or 'none'}"
        raise InputError(expected("metrics", key, rule, given, remedy if names else ""))
    values: dict[str, str] = {}
    for case_id, value in rows:
        if value and values.setdefault(case_id, value) != value:
            rule = "to give each case one value"
            raise InputError(expected("metrics", key, rule, f"two for {case_id!r} in {path}"))
    return values


def take_cases(found: Iterable[str | None], case_ids: Sequence[str], *, key: str, rule: str) -> list[str]:
    """List the value found for each case. Equal values share one object, as a million cases may have a few values.

    Raises
    ------
    InputError
        Cases have no value; the message names the first of them.
    """
    values = list(found)
    if missed := [repr(case_id) for case_id, value in zip(case_ids, values, strict=True) if value is None]:
        given = f"{len(missed)} without: {shorten(missed)}"
        raise InputError(expected("metrics", key, rule, given))
    return [sys.intern(value) for value in values if value is not None]


def column_names(path: str | Path) -> list[str]:
    """List the columns of the table of slices except `case_id`, with the errors of `read_column`."""
    return [name for name in _read(Path(path), "slices", ())[0] if name != CASE_ID]


def _read(path: Path, key: str, wanted: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return the names of all columns, and the rows of the wanted ones as text."""
    from pyarrow import parquet

    rows: list[list[str]] = []
    try:
        if path.suffix.lower() == ".parquet":
            names = parquet.read_schema(path).names
            table = parquet.read_table(path, columns=[name for name in wanted if names.count(name) == 1])
            columns = [column.to_pylist() for column in table.columns]
            texts = [["" if cell is None or cell != cell else str(cell) for cell in column] for column in columns]
            rows += map(list, zip(*texts, strict=True))
        else:
            with path.open(newline="", encoding="utf-8-sig") as file:
                lines = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
                names = next(lines, [])
                indices = [names.index(name) for name in wanted if name in names]
                for line in filter(None, lines):
                    if len(line) != len(names):
                        raise ValueError(f"line {lines.line_num} has {len(line)} cells, and the header {len(names)}")
                    rows.append([line[index] for index in indices])
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{shorten([repr(name) for name in twice])} twice")
    except (OSError, ValueError, csv.Error) as error:  # ArrowInvalid is a ValueError
        reason = " ".join(str(error).split())
        raise InputError(expected("metrics", key, "to name a table", f"{path} ({reason})")) from error
    return names, rows
