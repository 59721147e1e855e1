"""Typed columns of the measures of one case, and their names in files."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

_SUM = "sum:"  # starts the names of columns that are added up over cases

ColumnKey = tuple[str, str, bool]


class MeasureColumn(NamedTuple):
    """One number that a measure gives for a case.

    Parameters
    ----------
    metric
        Such as "hd95" or "nsd@2"; no "/".
    region
        The class, or group of classes, that was measured.
    value
        NaN is undefined, inf a failure; finite where it is summed.
    summed
        False: a value of the case, of which means are taken. True: a number that is added up over the cases, from which
        the measure computes a score of the whole data set.
    """

    metric: str
    region: str
    value: float
    summed: bool = False

    @property
    def key(self) -> ColumnKey:
        """What distinguishes the column: metric, region, summed."""
        return self.metric, self.region, self.summed


def columns_of(region: str, values: Mapping[str, float], sums: Mapping[str, float]) -> Iterator[MeasureColumn]:
    """Columns of a region, from its values and its sums by metric."""
    for metric, value in values.items():
        yield MeasureColumn(metric, region, float(value))
    for metric, value in sums.items():
        yield MeasureColumn(metric, region, float(value), summed=True)


@cache
def encode_key(key: ColumnKey) -> str:
    """Name of a column in a file.

    Examples
    --------
    >>> encode_key(("hd95", "car", False)), encode_key(("sizes_tp@small", "car", True))
    ('hd95/car', 'sum:sizes_tp@small/car')
    """
    metric, region, summed = key
    return f"{_SUM if summed else ''}{metric}/{region}"


@cache
def decode_key(name: str) -> ColumnKey | None:
    """Key of the column with this name in a file; None for a score that no measure gives.

    Examples
    --------
    >>> decode_key("sum:tp/a/b"), decode_key("missing")
    (('tp', 'a/b', True), None)
    """
    metric, slash, region = name.removeprefix(_SUM).partition("/")
    return (metric, region, name.startswith(_SUM)) if slash else None


def split_scores(scores: Mapping[str, float]) -> tuple[tuple[MeasureColumn, ...], dict[str, float]]:
    """Turn the scores of a case in a file, by name, into the columns of measures and the other scores."""
    keys = {name: decode_key(name) for name in scores}
    measured = (MeasureColumn(key[0], key[1], scores[name], key[2]) for name, key in keys.items() if key)
    return tuple(measured), {name: scores[name] for name, key in keys.items() if not key}
