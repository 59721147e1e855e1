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

_SHORT = 80  # A message repeats a value of at most this many characters.

# Maps values and keys of earlier versions to their present names.
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
_CAUSE_WORDS = 4  # The first words of a rule tell the cause; later ones are mostly values from the file.


class Refusal(str):
    """A message from `expected`, with the parts by which `condense` groups messages."""

    where: str = ""
    given: str = ""
    cause: str = ""


def expected(where: str, argument: str, rule: str, given: object, remedy: str = "") -> str:
    """Word a refusal as one line, whatever text from a file it repeats.

    Examples
    --------
    >>> expected("focal_loss", "gamma", ">= 0", -1.0)
    'focal_loss: expected `gamma` >= 0, got -1.0.'
    """
    text = f"{where}: expected `{argument}` {rule}, got {given}."
    text = f"{text} {remedy}" if remedy else text
    # Escape characters that would end the line or control the terminal.
    line = Refusal("".join(char if char.isprintable() else ascii(char)[1:-1] for char in text))
    line.where, line.given = where, str(given)
    line.cause = re.sub(r"\d+", "0", f"{argument} {' '.join(rule.split()[:_CAUSE_WORDS])} {remedy}")
    return line


def condense(lines: Iterable[str]) -> list[str]:
    """Show each cause once: its first line in full, then the other places, the first ten by name.

    Parameters
    ----------
    lines
        Messages from `expected` are grouped by their cause; other lines are not.

    Examples
    --------
    >>> condense([expected(f"masks/{name}.png", "mask", "to be gray", "RGB") for name in "abc"])
    ['masks/a.png: expected `mask` to be gray, got RGB.', '  the same in 2 more: b.png, c.png']
    """
    groups: dict[str, list[str]] = {}
    for line in dict.fromkeys(lines):
        groups.setdefault(getattr(line, "cause", line), []).append(line)
    condensed = []
    for group in groups.values():
        condensed.append(group[0])
        refusals = [line for line in group if isinstance(line, Refusal)]
        if len(refusals) > 1:
            places = [line.where.replace(os.sep, "/") for line in refusals]
            names = [line.given for line in refusals]
            if len(set(places)) > 1:
                parts = 1 if len({place.rpartition("/")[0] for place in places}) == 1 else 2  # name folders that differ
                names = ["/".join(place.split("/")[-parts:]) for place in places]
            condensed.append(f"  the same in {len(names) - 1} more: {shorten(names[1:])}")
    return condensed


def shorten(names: Sequence[str], *, most: int = 10, separator: str = ", ", rest: str = "more") -> str:
    """List the first names, and how many more there are.

    Examples
    --------
    >>> shorten(list("abcdefghijklm"))
    'a, b, c, d, e, f, g, h, i, j and 3 more'
    """
    listed = separator.join(name if name.isprintable() else ascii(name) for name in names[:most])
    return listed + (f" and {len(names) - most} {rest}" if len(names) > most else "")


def some(names: Iterable[str]) -> str:
    """Count the names, and list the first ones in alphabetical order.

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
    """Suggest the closest known name, ignoring case; "" if none is close."""
    names = sorted(known)
    new_name = RENAMED.get(str(name).rpartition(".")[2])
    renamed = [candidate for candidate in names if candidate.rpartition(".")[2] == new_name]
    if renamed:
        return f"It is called {renamed[0]!r} now."
    by_lower_case = {candidate.lower(): candidate for candidate in names}
    close = difflib.get_close_matches(str(name).lower(), by_lower_case, n=1, cutoff=0.6)
    return f"Did you mean {by_lower_case[close[0]]!r}?" if close else ""


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


def require_name(where: str, argument: str, given: Any, allowed: Sequence[str]) -> None:
    """Raise an InputError unless `given` is one of the allowed names."""
    if not (isinstance(given, str) and given in allowed):
        remedy = close_name(given, allowed) if isinstance(given, str) else ""
        raise InputError(expected(where, argument, f"to be one of {', '.join(allowed)}", shown(given), remedy))


def require_kind(where: str, argument: str, given: Any, kind: type) -> None:
    """Raise an InputError unless `given` is an instance of a class."""
    if not isinstance(given, kind):
        raise InputError(expected(where, argument, f"to be a {kind.__name__}", shown(given)))


def require_path(where: str, argument: str, given: Any) -> Path:
    """Return a path, also from a string; InputError for anything else."""
    if isinstance(given, str | os.PathLike) and given:
        return Path(given)
    raise InputError(expected(where, argument, "to be a path", shown(given)))


def require_file(where: str, argument: str, given: Any) -> Path:
    """Return the path of a file to write, in an existing folder; InputError for anything else."""
    path = require_path(where, argument, given)
    if not path.parent.is_dir():
        raise InputError(expected(where, argument, "to lie in an existing folder", shown(str(given))))
    return path


def require_folder(where: str, argument: str, given: Any) -> Path:
    """Return the path of a folder to fill, which is new or empty; InputError for anything else."""
    path = require_path(where, argument, given)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(expected(where, argument, "to be new or empty", str(path), "Nothing is overwritten."))
    existing = next(parent for parent in path.absolute().parents if parent.exists())
    if not existing.is_dir():
        raise InputError(expected(where, argument, "to lie in a folder", f"{path}, below the file {existing}"))
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
        # Search for the nearest name only after a mistake: the search is slow, and torch.compile can't trace it.
        if not (isinstance(value, str) and value in names):
            remedy = nearest(value, names) if isinstance(value, str) else ""
            self.expect(False, argument, f"to be one of {', '.join(names)}", value, remedy)


@contextmanager
def collecting(where: str) -> Iterator[Problems]:
    """Raise one ConfigError with all problems that the block recorded."""
    problems = Problems(where)
    yield problems
    if problems.lines:
        raise ConfigError(problems.lines)
