"""a table of facts about cases (CSV, TSV, Parquet) -> the value of each case."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from segmeter.checks import expected, nearest, shorten
from segmeter.errors import InputError

TABLES = (".csv", ".tsv", ".parquet")
CASE_ID = "case_id"

_REMEDY = "Complete the row, or put quotes around a cell that holds the separator."
_LISTED = 8  # cases or columns named in one message


def is_table(path: str) -> bool:
    """Whether a file can be such a table, by its name."""
    return Path(path).suffix.lower() in TABLES


def read_column(path: str | Path, column: str, *, key: str) -> dict[str, str]:
    """Case id -> value of a column, as text; empty cells are left out.

    Parameters
    ----------
    path
        A table whose column `case_id` names the cases: CSV with commas, TSV with tabs, Parquet.
    column
        One of its other columns.
    key
        Of the configuration, such as "cluster", for messages.

    Raises
    ------
    InputError
        The table can't be read, lacks a column, names one twice, has a row with more or fewer cells than its header, or
        gives a case two values.
    """
    names, rows = _read(Path(path), key)
    lacking = [name for name in (CASE_ID, column) if name not in names]
    if lacking:
        rule, remedy = f"to name a table with the columns {CASE_ID} and {column}", nearest(lacking[-1], names)
        given = f"{path} with {shorten(names, most=_LISTED) or 'none'}"
        raise InputError(expected("metrics", key, rule, given, remedy if names else ""))
    values: dict[str, str] = {}
    for row in rows:
        case_id, value = _text(row[CASE_ID]), _text(row[column])
        if value and values.setdefault(case_id, value) != value:
            rule = "to give each case one value"
            raise InputError(expected("metrics", key, rule, f"two for {case_id!r} in {path}"))
    return values


def take_cases(values: Mapping[str, str], case_ids: Sequence[str], *, key: str, rule: str) -> list[str]:
    """The value of each case.

    Raises
    ------
    InputError
        Cases without one, with the first of them.
    """
    missed = [case_id for case_id in case_ids if case_id not in values]
    if missed:
        named = shorten([repr(case_id) for case_id in missed], most=_LISTED)
        raise InputError(expected("metrics", key, rule, f"{len(missed)} without: {named}"))
    return [values[case_id] for case_id in case_ids]


def column_names(path: str | Path, *, key: str) -> list[str]:
    """The columns of a table but `case_id`; raises as `read_column`."""
    return [name for name in _read(Path(path), key)[0] if name != CASE_ID]


def _read(path: Path, key: str) -> tuple[list[str], list[dict[str, Any]]]:
    try:
        return _read_parquet(path, key) if path.suffix.lower() == ".parquet" else _read_text(path, key)
    except (OSError, ValueError, csv.Error) as error:  # ArrowInvalid is a ValueError
        reason = " ".join(str(error).split())
        raise InputError(expected("metrics", key, "to name a table", f"{path} ({reason})")) from error


def _read_text(path: Path, key: str) -> tuple[list[str], list[dict[str, Any]]]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        names = next(reader, [])
        _check_names(names, path, key)
        rows = []
        for cells in reader:
            if cells and len(cells) != len(names):
                rule, remedy = f"to name a table whose rows have {len(names)} cells, as its header", _REMEDY
                given = f"{len(cells)} in line {reader.line_num} of {path}"
                raise InputError(expected("metrics", key, rule, given, remedy))
            if cells:
                rows.append(dict(zip(names, cells, strict=True)))
    return names, rows


def _read_parquet(path: Path, key: str) -> tuple[list[str], list[dict[str, Any]]]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:  # names are checked before they become keys
        names = list(file.schema_arrow.names)
        _check_names(names, path, key)
        return names, file.read().to_pylist()


def _check_names(names: Sequence[str], path: Path, key: str) -> None:
    """Refuse a header that names a column twice: which of them is meant is not known."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        given = f"{shorten([repr(name) for name in twice], most=_LISTED)} twice in {path}"
        raise InputError(expected("metrics", key, "to name a table whose columns differ in name", given, "Rename one."))


def _text(value: Any) -> str:
    return "" if value is None or value != value else str(value)
