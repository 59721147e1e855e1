"""case ids -> independent units: which cases belong together, and how many units effectively decide a score."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.errors import InputError
from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.pixels.overlap import divide
from segmeter.metrics.statistics.case_tables import read_column, take_cases
from segmeter.metrics.statistics.intervals import MIN_UNITS

FEW_UNITS = 50  # below this, intervals may hold the true value less often than they say
FEW_WARNING = "intervals may hold the true value less often than 95 %"

CLUSTER_RULE = "to be prefix:SEPARATOR, TABLE.csv:COLUMN, or a regular expression with a group"

_PREFIX = "prefix:"
_TABLE = re.compile(r"(?P<path>.+\.(?:csv|tsv|parquet)):(?P<column>[^:]+)", re.IGNORECASE)
_SEPARATORS = "/_-."
_LOOKED = 100  # cases that a pattern is tried on first
_LISTED = 8  # cases or classes named in one message


def is_cluster(cluster: str | None) -> bool:
    """Whether `metrics.cluster` is written in one of its three ways, or not given."""
    if cluster is None or _TABLE.fullmatch(cluster):
        return True
    if cluster.startswith(_PREFIX):
        return cluster != _PREFIX
    try:
        return re.compile(cluster).groups > 0
    except re.error:
        return False


def table_of(cluster: str | None) -> str | None:
    """The path of the table that TABLE.csv:COLUMN names; None where no table is named."""
    found = _TABLE.fullmatch(cluster or "")
    return found["path"] if found else None


def cluster_labels(case_ids: Sequence[str], cluster: str | None, *, key: str = "cluster") -> list[str] | None:
    """The cluster of each case; None where `cluster` is None and every case is a unit.

    Parameters
    ----------
    case_ids
        Of the cases, in the order of the labels.
    cluster
        "prefix:_": the text before the last "_" of the case id. "TABLE.csv:COLUMN": that column of a table (CSV, TSV
        with tabs, or Parquet) whose column `case_id` names the cases. Else a regular expression: what its groups
        capture.
    key
        Of the configuration, for messages.

    Raises
    ------
    InputError
        Cases without a label, with the first of them; or a table that can't be read, lacks a column, or gives a case
        two labels.

    Examples
    --------
    >>> cluster_labels(["p01_s_001", "p01_s_002", "p02_s_001"], "prefix:_")
    ['p01_s', 'p01_s', 'p02_s']
    """
    if cluster is None:
        return None
    table = _TABLE.fullmatch(cluster)
    label_of: Callable[[str], str | None]
    if table:
        label_of = read_column(table["path"], table["column"], key=key).get
        rule = f"to have a row for every case ('{cluster}')"
    elif cluster.startswith(_PREFIX):
        label_of = partial(_before_last, cluster.removeprefix(_PREFIX))
        rule = f"to find its separator in every case id ('{cluster}')"
    else:
        label_of = partial(_captured, re.compile(cluster))
        rule = f"to match every case id ('{cluster}')"
    return take_cases(label_of, case_ids, key=key, rule=rule)


def _before_last(separator: str, case_id: str) -> str | None:
    return case_id.rpartition(separator)[0] or None


def _captured(pattern: re.Pattern[str], case_id: str) -> str | None:
    found = pattern.search(case_id)
    return found and "\x1f".join(part or "" for part in found.groups())


def find_grouping(case_ids: Sequence[str]) -> tuple[str, int] | None:
    """A value of `metrics.cluster` that gathers most cases into groups, and how many groups; None where none does.

    Examples
    --------
    >>> find_grouping(["p01_001", "p01_002", "p02_001", "p02_002"])
    ('prefix:_', 2)
    >>> find_grouping(["case_001", "case_002", "case_003"]) is None
    True
    """
    in_all = [separator for separator in _SEPARATORS if all(separator in case_id for case_id in case_ids)]
    patterns = [f"{_PREFIX}{separator}" for separator in in_all]
    patterns += [f"^([^{separator}]+)[{separator}]" for separator in in_all]
    for pattern in patterns:
        try:
            cluster_labels(case_ids[:_LOOKED], pattern)  # most patterns fail at once, and there may be a million cases
            groups = Counter(cluster_labels(case_ids, pattern))
        except InputError:
            continue
        shared = sum(size for size in groups.values() if size > 1)
        if len(groups) > 1 and 2 * shared >= len(case_ids):
            return pattern, len(groups)
    return None


def sum_clusters(columns: NDArray[Any], clusters: Sequence[str] | NDArray[np.int64] | None) -> NDArray[Any]:
    """Sums (U, M) of the rows of each cluster, by ascending label; the columns (N, M) themselves without clusters."""
    if clusters is None:
        return columns
    labels, index = np.unique(np.asarray(clusters), return_inverse=True)
    sums = np.empty((len(labels), columns.shape[1]), np.int64 if columns.dtype.kind in "biu" else np.float64)
    for place, column in enumerate(columns.T):
        sums[:, place] = sum_by(index, len(labels), column)
    return sums


def sum_by(index: NDArray[np.int64], count: int, column: NDArray[Any]) -> NDArray[Any]:
    """Sums (count,) of the numbers (N,) of each cluster."""
    sums = np.bincount(index, weights=column, minlength=count)  # in float64: of integers too, each sum is exact
    return sums.astype(np.int64) if column.dtype.kind in "biu" else sums


def effective_units(sizes: NDArray[Any]) -> FloatArray:
    """Kish's effective number of units (S,) of sizes (N, S): the square of the sum over the sum of squares; NaN for 0.

    Examples
    --------
    >>> effective_units(np.array([[5], [5], [5], [5]])), effective_units(np.array([[90], [5], [5], [0]])).round(2)
    (array([4.]), array([1.23]))
    """
    values = sizes.astype(np.float64)
    return divide(values.sum(axis=0) ** 2, (values**2).sum(axis=0))


def warn_of_few(
    case_ids: Sequence[str], clusters: Sequence[str] | None, effective: Mapping[str, float | None]
) -> str | None:
    """Warning about intervals that are less certain than they look; None where there is no reason.

    Parameters
    ----------
    case_ids, clusters
        Of the cases; no clusters where each case is a unit.
    effective
        Effective units by class, None where it is absent.
    """
    units = len(case_ids) if clusters is None else len(set(clusters))
    lines = []
    if units < FEW_UNITS:
        noun = "unit" if units == 1 else "units"
        lines.append(f"Only {units} independent {noun}: {'no intervals' if units < MIN_UNITS else FEW_WARNING}.")
    bound = FEW_UNITS if units >= FEW_UNITS else units / 2
    few = sorted((value, name) for name, value in effective.items() if value is not None and value < bound)
    if few:
        named = ", ".join(f"{name} {value:.1f}" for value, name in few[:_LISTED])
        lines.append(f"Few effective units, as large cases outweigh the others: {named}.")
    grouping = find_grouping(case_ids) if clusters is None else None
    if grouping:
        pattern, groups = grouping
        remedy = (
            f"set metrics.cluster={pattern}" if pattern.startswith(_PREFIX) else f"set 'metrics.cluster=\"{pattern}\"'"
        )
        lines.append(f"Case ids look grouped ({groups} groups): unless cases of a group are independent, {remedy}.")
    return " ".join(lines) or None
