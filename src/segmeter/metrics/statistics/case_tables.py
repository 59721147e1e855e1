"""a table of facts about cases (CSV, TSV, Parquet) -> the value of each case."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from segmeter.checks import expected, nearest, shorten
from segmeter.errors import InputError

TABLES = (".csv", ".tsv", ".parquet")
CASE_ID = "case_id"

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
        The table can't be read, lacks a column, or gives a case two values.
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
        if path.suffix.lower() == ".parquet":
            return _read_parquet(path)
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
            return list(reader.fieldnames or ()), list(reader)
    except (OSError, ValueError, csv.Error) as error:  # ArrowInvalid is a ValueError
        reason = " ".join(str(error).split())
        raise InputError(expected("metrics", key, "to name a table", f"{path} ({reason})")) from error


def _read_parquet(path: Path) -> tuple[list[str], list[dict[str, Any]]]:
    from pyarrow.parquet import read_table

    table = read_table(path)
    return list(table.column_names), table.to_pylist()


def _text(value: Any) -> str:
    return "" if value is None or value != value else str(value)
