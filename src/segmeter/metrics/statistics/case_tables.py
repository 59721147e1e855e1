"""a table of facts about cases (CSV, TSV, Parquet) -> the value of each case."""

import csv
from collections.abc import Callable, Sequence
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
    names, cells = _read(Path(path), key, (CASE_ID, column))
    lacking = [name for name in (CASE_ID, column) if name not in names]
    if lacking:
        rule, remedy = f"to name a table with the columns {CASE_ID} and {column}", nearest(lacking[-1], names)
        given = f"{path} with {shorten(names, most=_LISTED) or 'none'}"
        raise InputError(expected("metrics", key, rule, given, remedy if names else ""))
    values: dict[str, str] = {}
    for case_id, value in zip(*cells, strict=True):
        if value and values.setdefault(case_id, value) != value:
            rule = "to give each case one value"
            raise InputError(expected("metrics", key, rule, f"two for {case_id!r} in {path}"))
    return values


def take_cases(value_of: Callable[[str], str | None], case_ids: Sequence[str], *, key: str, rule: str) -> list[str]:
    """The value of each case; equal ones are one object, as there may be a million of a few.

    Raises
    ------
    InputError
        Cases without one, with the first of them.
    """
    known, values, missed = dict[str, str](), list[str](), list[str]()
    for case_id in case_ids:
        value = value_of(case_id)
        if value is None:
            missed.append(case_id)
        else:
            values.append(known.setdefault(value, value))
    if missed:
        named = shorten([repr(case_id) for case_id in missed], most=_LISTED)
        raise InputError(expected("metrics", key, rule, f"{len(missed)} without: {named}"))
    return values


def column_names(path: str | Path, *, key: str) -> list[str]:
    """The columns of a table but `case_id`; raises as `read_column`."""
    return [name for name in _read(Path(path), key, ())[0] if name != CASE_ID]


def _read(path: Path, key: str, wanted: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The names of all columns, and the cells of each wanted one; no cells where one of them is lacking."""
    try:
        if path.exists() and not path.is_file():
            raise ValueError("not a regular file")
        return (_read_parquet if path.suffix.lower() == ".parquet" else _read_text)(path, key, wanted)
    except InputError:
        raise
    except (OSError, ValueError, csv.Error) as error:  # ArrowInvalid is a ValueError
        reason = " ".join(str(error).split())
        raise InputError(expected("metrics", key, "to name a table", f"{path} ({reason})")) from error


def _read_text(path: Path, key: str, wanted: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        names = next(reader, [])
        _check_names(names, path, key)
        if not wanted or set(wanted) - set(names):
            return names, []
        width, found = len(names), [(names.index(name), list[str]()) for name in wanted]
        for cells in reader:
            if len(cells) == width:
                for place, column in found:  # no list of rows: so many would be gone through by the collector
                    column.append(cells[place])
            elif cells:
                rule, remedy = f"to name a table whose rows have {width} cells, as its header", _REMEDY
                given = f"{len(cells)} in line {reader.line_num} of {path}"
                raise InputError(expected("metrics", key, rule, given, remedy))
    return names, [column for _, column in found]


def _read_parquet(path: Path, key: str, wanted: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        names = list(file.schema_arrow.names)
        _check_names(names, path, key)
        if not wanted or set(wanted) - set(names):
            return names, []
        table = file.read(columns=list(wanted))
    return names, [[_text(cell) for cell in table[name].to_pylist()] for name in wanted]


def _check_names(names: Sequence[str], path: Path, key: str) -> None:
    """Refuse a header that names a column twice: which of them is meant is not known."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        given = f"{shorten([repr(name) for name in twice], most=_LISTED)} twice in {path}"
        raise InputError(expected("metrics", key, "to name a table whose columns differ in name", given, "Rename one."))


def _text(value: Any) -> str:
    return "" if value is None or value != value else str(value)
