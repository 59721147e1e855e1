"""Finds the slice of each case from a table of facts, from its id, or from the content of its reference."""

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from segmeter.checks import expected, nearest
from segmeter.classes import ClassSpec
from segmeter.errors import DataError, InputError
from segmeter.files import sha256_file
from segmeter.metrics.arrays import FloatArray, divide
from segmeter.metrics.cases.run_columns import RunColumns
from segmeter.metrics.cases.table import encode_key
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.scores import BRIGHTNESS, CONTENT, OF_A_CLASS
from segmeter.metrics.statistics.clusters import (
    TABLE,
    cluster_labels,
    column_names,
    is_cluster,
    read_column,
    take_cases,
)
from segmeter.metrics.summary.scoreboard import Scoreboard

SHARE = "share"
NOTHING = "none"  # the label of a case without a value

_MOST_DISTINCT = 3  # if a column has more distinct numbers, they are cut into parts
_PARTS = 3  # the number of these parts, which have equally many cases
_MOST_SLICES = 100  # the most slices by one column of texts
_MEASURE = "Add content to metrics.measures. For brightness, use segmeter eval, or score with images=FOLDER."
_THIRDS = re.compile(r"thirds\((.+)\)")


def check_case_ids(config: MetricsConfig, spec: ClassSpec, case_ids: Sequence[str], *, images: bool = False) -> None:
    """Refuse cases that have no cluster or no slice. Call this before the first case is measured.

    With `images`, the brightness of images will be measured too.

    Raises
    ------
    InputError
        As `cluster_labels` and `slice_labels`.
    """
    cluster_labels(case_ids, config.cluster)
    has_content = any(measure.name == "content" for measure in config.measures)
    for by in config.slice_by:
        if not _is_content(by, config, spec):
            _labels_by_facts(by, config, case_ids)
        elif by.partition("/")[0] in CONTENT and not (has_content and (images or by != BRIGHTNESS[0])):
            raise InputError(expected("metrics", "slice_by", "to name what is measured", repr(by), _MEASURE))


def slice_labels(board: Scoreboard) -> dict[str, list[str]]:
    """Find the slice of each case of a run, by each of ``config.slice_by``.

    Raises
    ------
    InputError
        A table can't be read, or lacks a case or a column. Or the cases lack the measure of a slice.
    """
    config, case_ids = board.config, board.run.case_ids
    labels = dict[str, list[str]]()
    for by in config.slice_by:
        by_content = _is_content(by, config, board.spec)
        labels[by] = cut(_content(by, board.run)) if by_content else _labels_by_facts(by, config, case_ids)
    return labels


def hash_labels(case_ids: Sequence[str], labels: Sequence[str]) -> str:
    """Hash which case is in which slice, so that later runs notice a change. The order of the cases doesn't matter."""
    pairs = sorted(zip(case_ids, labels, strict=True))
    return sha256(json.dumps(pairs).encode()).hexdigest()


def hash_tables(config: MetricsConfig) -> dict[str, str]:
    """Return path and hash of every table of clusters and slices, because metrics depend on their content too."""
    tables = [TABLE.fullmatch(text) for text in (config.cluster or "", *config.slice_by)]
    paths = (config.slices, *(table["path"] for table in tables if table))
    return {path: sha256_file(Path(path)) for path in dict.fromkeys(paths) if path and Path(path).is_file()}


def check_tables(config: MetricsConfig, identity: Mapping[str, Any]) -> None:
    """Refuse tables that have changed since a run's flat identity was taken. Call this once they have been used.

    Raises
    ------
    DataError
        A table has changed.
    """
    for path, digest in hash_tables(config).items():
        if identity.get(f"tables.{path}", digest) != digest:
            given = "a change while it was used"
            raise DataError(expected(path, "table", "to stay as it is", given, "Run again."))


def cut(values: FloatArray) -> list[str]:
    """Label numbers: each distinct one if there are at most three, else three parts with equally many cases. NaN is
    "none".

    Examples
    --------
    >>> cut(np.array([1.0, 0.0, np.nan]))
    ['1', '0', 'none']
    >>> sorted(set(cut(np.arange(30.0))))
    ['9.667 to 19.33', 'above 19.33', 'below 9.667']
    """
    known = values[~np.isnan(values)]
    if len(distinct := np.unique(known)) <= _MOST_DISTINCT:
        digits = next((n for n in range(6, 17) if len({f"{x:.{n}g}" for x in distinct}) == len(distinct)), 17)
        names = [f"{x + 0.0:.{digits}g}" for x in distinct]  # no negative zero
        indices = np.searchsorted(distinct, values)
    else:
        edges = np.quantile(known, [1 / _PARTS, 2 / _PARTS])
        sizes = [np.count_nonzero(known >= edges[0]), np.count_nonzero(known > edges[1])]
        for digits in range(4, 18):  # show the edges with as few digits as divide the cases equally, at least four
            first, second = (f"{edge:.{digits}g}" for edge in edges)
            if sizes == [np.count_nonzero(known >= float(first)), np.count_nonzero(known > float(second))]:
                break
        names = [f"below {first}", f"{first} to {second}", f"above {second}"]
        indices = (values >= float(first)).astype(np.int64) + (values > float(second))  # divided at the shown edges
    return [*map([*names, NOTHING].__getitem__, np.where(np.isnan(values), len(names), indices).tolist())]


def order_labels(labels: Sequence[str]) -> list[str]:
    """Order distinct labels: numbers and parts of them by size, then texts by the alphabet, then "none".

    Examples
    --------
    >>> order_labels(["above 20", "10 to 20", "below 10", "none"]), order_labels(["b", "10", "9", "a"])
    (['below 10', '10 to 20', 'above 20', 'none'], ['9', '10', 'a', 'b'])
    """

    def rank(label: str) -> tuple[int, float, str]:
        word, *others = label.split() or [""]
        number = _as_number(others[-1] if others and word in _SIDES else word)
        kind = 2 if label == NOTHING else 0 if number is not None else 1
        return kind, number or 0.0, _SIDES.get(word, "1") + label

    return sorted(set(labels), key=rank)


_SIDES = {"below": "0", "above": "2"}


def _is_content(by: str, config: MetricsConfig, spec: ClassSpec) -> bool:
    """Tell whether a slice is by the content of the reference; a column of that name in the table has precedence."""
    if config.slices and by in column_names(config.slices):
        return False
    metric, _, region = by.partition("/")
    known = (*spec.names, *config.groups)
    of_class = metric in (SHARE, *OF_A_CLASS) and bool(region) and not is_cluster(by)
    if of_class and region not in known:
        rule = f"to name a class or group after {metric}/"
        raise InputError(expected("metrics", "slice_by", rule, repr(by), nearest(region, known)))
    return by == BRIGHTNESS[0] or of_class


def _labels_by_facts(by: str, config: MetricsConfig, case_ids: Sequence[str]) -> list[str]:
    """Find labels by a column of the table, in thirds if requested, or by anything that `cluster` accepts."""
    names = column_names(config.slices) if config.slices else []
    thirds = _THIRDS.fullmatch(by) if by not in names else None
    if is_cluster(by) and by not in names and not thirds:
        labels = cluster_labels(case_ids, by, key="slice_by") or []
    elif config.slices:
        column = thirds[1] if thirds else by
        values = map(read_column(config.slices, column, key="slices").get, case_ids)
        labels = take_cases(values, case_ids, key="slices", rule=f"to have a value of {column} for every case")
    else:
        of_content = (*(f"{name}/CLASS" for name in (SHARE, *OF_A_CLASS)), BRIGHTNESS[0])
        rule = f"to be columns of metrics.slices, {', '.join(of_content)}, or what metrics.cluster can be"
        raise InputError(expected("metrics", "slice_by", rule, repr(by), "Set metrics.slices=TABLE.csv."))
    if thirds:
        texts = [label for label in labels if _as_number(label) is None]
        if texts:
            rule = f"to have numbers in the column {thirds[1]}, which is cut in three"
            raise InputError(expected("metrics", "slices", rule, repr(texts[0])))
        return cut(np.array(labels, np.float64))
    if len(set(labels)) > _MOST_SLICES:
        remedy = f"Write thirds({by}) for numbers, which are cut in three parts of as many cases each."
        given = f"{len(set(labels))} of {by}"
        raise InputError(expected("metrics", "slice_by", f"to have {_MOST_SLICES} values or fewer", given, remedy))
    return labels


def _as_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def _content(by: str, run: RunColumns) -> FloatArray:
    """Return each case's share of a class in the counted pixels, or its value of the measure "content"."""
    metric, _, region = by.partition("/")
    if metric == SHARE:
        totals = run.totals(region)
        return divide(totals.target, totals.total)
    by = "/".join(BRIGHTNESS) if by == BRIGHTNESS[0] else by
    measured = {encode_key(key): values for key, values in run.measured.items()}
    if by not in measured:
        raise InputError(expected("metrics", "slice_by", "to name what is measured", repr(by), _MEASURE))
    return measured[by]
