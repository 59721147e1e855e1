"""Validates arguments, and words every refusal alike: what was expected, what was given, what to do."""

import difflib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from segmeter.errors import ConfigError, InputError

_SHORT = 80  # characters of a value that a message repeats

# Values and keys of earlier versions, and their names now
RENAMED = {
    "compiled": "numba",
    "closed": "torch",
    "school": "surface",
    "A": "border_pixels",
    "B": "marching_cubes",
    "touching": "connectivity",
    "corners": "8",
    "sides": "4",
}
_CAUSE_WORDS = 4  # of a rule; the rest are mostly values of the file


class Refusal(str):
    """A line of `expected` that keeps its place, given value and cause, so that equal problems are grouped."""

    where: str = ""
    given: str = ""
    cause: str = ""


def expected(where: str, argument: str, rule: str, given: object, remedy: str = "") -> str:
    """Word a refusal: always one line, whatever text of a file it repeats.

    Examples
    --------
    >>> expected("focal_loss", "gamma", ">= 0", -1.0)
    'focal_loss: expected `gamma` >= 0, got -1.0.'
    """
    text = f"{where}: expected `{argument}` {rule}, got {given}."
    text = f"{text} {remedy}" if remedy else text
    # what would end the line or control the terminal is escaped
    line = Refusal("".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text))
    line.where, line.given = where, str(given)
    line.cause = re.sub(r"\d+", "0", f"{argument} {' '.join(rule.split()[:_CAUSE_WORDS])} {remedy}")
    return line


def condense(lines: Iterable[str]) -> list[str]:
    """Show each cause once: its first line in full, then the other places, the first ten by name.

    Parameters
    ----------
    lines
        Those of `expected` are grouped by their cause; others are not.

    Examples
    --------
    >>> condense([expected(f"masks/{name}.png", "mask", "to be gray", "RGB") for name in "abc"])
    ['masks/a.png: expected `mask` to be gray, got RGB.', '  the same in 2 more: b.png, c.png']
    """
    groups: dict[str, list[str]] = {}
    for line in dict.fromkeys(lines):
        groups.setdefault(getattr(line, "cause", line), []).append(line)
    shown = []
    for group in groups.values():
        shown.append(group[0])
        alike = [line for line in group if isinstance(line, Refusal)]
        if len(alike) > 1:
            places = [line.where.replace(os.sep, "/") for line in alike]
            kept = 1 if len({place.rpartition("/")[0] for place in places}) == 1 else 2  # with folders if these differ
            named = [line.given for line in alike]
            if len(set(places)) > 1:
                named = ["/".join(place.split("/")[-kept:]) for place in places]
            shown.append(f"  the same in {len(named) - 1} more: {shorten(named[1:])}")
    return shown


def shorten(names: Sequence[str], *, most: int = 10, separator: str = ", ", rest: str = "more") -> str:
    """List the first names, and how many more there are.

    Examples
    --------
    >>> shorten(list("abcdefghijklm"))
    'a, b, c, d, e, f, g, h, i, j and 3 more'
    """
    shown = separator.join(name if name.isprintable() else ascii(name) for name in names[:most])
    return shown + (f" and {len(names) - most} {rest}" if len(names) > most else "")


def some(names: Iterable[str]) -> str:
    """Count the names, and list the first of them in alphabetical order.

    Examples
    --------
    >>> some({"b", "a"})
    '2: a, b'
    """
    listed = sorted(names)
    return f"{len(listed)}: {shorten(listed)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the closest known name, or list all of them if none is close.

    Examples
    --------
    >>> nearest("dpth", ["depth", "encoder"])
    "Did you mean 'depth'?"
    >>> nearest("x", ["b", "a"])
    'Known: a, b.'
    """
    names = sorted(known)
    return close_name(name, names) or f"Known: {', '.join(names)}."


def close_name(name: str, known: Iterable[str]) -> str:
    """Suggest the closest known name, whatever its case; "" if none is close."""
    names = sorted(known)
    renamed = RENAMED.get(str(name).rpartition(".")[2])
    now = [one for one in names if one.rpartition(".")[2] == renamed]
    if now:
        return f"It is called {now[0]!r} now."
    folded = {one.lower(): one for one in names}
    close = difflib.get_close_matches(str(name).lower(), folded, n=1, cutoff=0.6)
    return f"Did you mean {folded[close[0]]!r}?" if close else ""


def shown(given: object) -> str:
    """Show a given value on one line, or its type if it is long."""
    text = " ".join(repr(given).split())
    if len(text) <= _SHORT:
        return text
    shape = getattr(given, "shape", None)
    return type(given).__name__ + (f" of shape {tuple(shape)}" if shape is not None else "")


def whole_number(where: str, argument: str, given: Any) -> int:
    """Return an int, also from a NumPy integer or a whole float; InputError for anything else.

    Examples
    --------
    >>> whole_number("focal_loss", "num_classes", 2.0)
    2
    """
    if isinstance(given, Integral) and not isinstance(given, bool):
        return int(given)
    if isinstance(given, Real) and float(given).is_integer() and not isinstance(given, bool):
        return int(float(given))
    raise InputError(expected(where, argument, "to be a whole number", shown(given)))


def real_number(where: str, argument: str, given: Any) -> float:
    """Return a float, from any real number; InputError for anything else."""
    if isinstance(given, Real) and not isinstance(given, bool):
        return float(given)
    raise InputError(expected(where, argument, "to be a number", shown(given)))


def real_numbers(where: str, argument: str, given: Any) -> tuple[float, ...]:
    """Return floats, from any sequence of real numbers; InputError for anything else."""
    try:
        values = None if isinstance(given, str | bytes | Mapping) else list(given)
    except TypeError:
        values = None
    if values is None or not all(isinstance(value, Real) and not isinstance(value, bool) for value in values):
        raise InputError(expected(where, argument, "to be a sequence of numbers", shown(given)))
    return tuple(float(value) for value in values)


def known_name(where: str, argument: str, given: Any, allowed: Sequence[str]) -> None:
    """Raise an InputError unless one of the allowed names is given."""
    if not (isinstance(given, str) and given in allowed):
        remedy = close_name(given, allowed) if isinstance(given, str) else ""
        raise InputError(expected(where, argument, f"to be one of {', '.join(allowed)}", shown(given), remedy))


def known_kind(where: str, argument: str, given: Any, kind: type) -> None:
    """Raise an InputError unless an instance of a class is given."""
    if not isinstance(given, kind):
        raise InputError(expected(where, argument, f"to be a {kind.__name__}", shown(given)))


def known_path(where: str, argument: str, given: Any) -> Path:
    """Return a path, also from a string; InputError for anything else."""
    if isinstance(given, str | os.PathLike) and given:
        return Path(given)
    raise InputError(expected(where, argument, "to be a path", shown(given)))


def known_file(where: str, argument: str, given: Any) -> Path:
    """Return the path of a file to write, in an existing folder; InputError for anything else."""
    path = known_path(where, argument, given)
    if not path.parent.is_dir():
        raise InputError(expected(where, argument, "to lie in an existing folder", shown(str(given))))
    return path


def known_folder(where: str, argument: str, given: Any) -> Path:
    """Return the path of a folder to fill, which is new or empty; InputError for anything else."""
    path = known_path(where, argument, given)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(expected(where, argument, "to be new or empty", str(path), "Nothing is overwritten."))
    above = next(each for each in path.absolute().parents if each.exists())
    if not above.is_dir():
        raise InputError(expected(where, argument, "to lie in a folder", f"{path}, below the file {above}"))
    return path


class Problems:
    """Collects the problems of one configuration, so that all of them are reported together."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.lines: list[str] = []

    def expect(self, ok: bool, argument: str, rule: str, given: object, remedy: str = "") -> None:
        """Record a problem unless `ok`."""
        if not ok:
            self.lines.append(expected(self.where, argument, rule, repr(given), remedy))

    def in_range(
        self, argument: str, value: float | None, low: float, high: float = math.inf, *, above: bool = False
    ) -> None:
        """Record a problem unless `value` is None, or a number with low <= value <= high (low < value with `above`)."""
        if value is None:
            return
        if not isinstance(value, Real):
            self.expect(False, argument, "to be a number", value)
            return
        ok = math.isfinite(value) and (low < value if above else low <= value) and value <= high
        rule = f"{'>' if above else '>='} {low:g}" + (f" and <= {high:g}" if math.isfinite(high) else " and finite")
        self.expect(ok, argument, rule, value)

    def one_of(self, argument: str, value: str, allowed: Iterable[str]) -> None:
        """Record a problem unless `value` is one of the allowed names."""
        names = list(allowed)
        # only then: the search for the nearest name is slow, and torch.compile can't trace it
        if not (isinstance(value, str) and value in names):
            remedy = nearest(value, names) if isinstance(value, str) else ""
            self.expect(False, argument, f"to be one of {', '.join(names)}", value, remedy)


@contextmanager
def collecting(where: str) -> Iterator[Problems]:
    """Raise one ConfigError with all problems that the block noted."""
    problems = Problems(where)
    yield problems
    if problems.lines:
        raise ConfigError(problems.lines)
