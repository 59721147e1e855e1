"""Two configurations of a data set -> whether they deal the same cases into a split."""

from collections.abc import Mapping
from typing import Any

from segmeter.checks import expected
from segmeter.data.config import DATA
from segmeter.errors import ConfigError
from segmeter.schema import as_plain, defaults

_FOLDS = ("fold", "strata")  # decide on training and validation alone
_SHARES = ("split_seed", "group_until", "val_fraction", "test_fraction", "lists", "list_files")


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
