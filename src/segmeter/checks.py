"""The few validators and the one message template: what was expected, what was given, what to do."""

import difflib
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from segmeter.errors import ConfigError

_SHOWN = 10  # names that one line lists
_CAUSE_WORDS = 4  # of a rule; what follows are mostly values of the file


class Refusal(str):
    """A line of `expected` that keeps where it applies, what was given and its cause, so that equals can be grouped."""

    where: str = ""
    given: str = ""
    cause: str = ""


def expected(where: str, argument: str, rule: str, given: object, remedy: str = "") -> str:
    """Write the one message that every refusal uses.

    Examples
    --------
    >>> expected("focal_loss", "gamma", ">= 0", -1.0)
    'focal_loss: expected `gamma` >= 0, got -1.0.'
    """
    text = f"{where}: expected `{argument}` {rule}, got {given}."
    line = Refusal(f"{text} {remedy}" if remedy else text)
    line.where, line.given = where, str(given)
    line.cause = re.sub(r"\d+", "0", f"{argument} {' '.join(rule.split()[:_CAUSE_WORDS])} {remedy}")
    return line


def condense(lines: Iterable[str]) -> list[str]:
    """Say each cause once: its first line in full, then the other places where it was found, the first ten by name.

    Parameters
    ----------
    lines
        Those of `expected` are grouped by their cause; others stand alone.

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
        if len(group) > 1:
            shown.append(f"  the same in {len(group) - 1} more: {shorten(_places(group)[1:])}")
    return shown


def _places(group: list[str]) -> list[str]:
    """Where a problem was found, as names of files, with their folders if these differ; or what was given, if anywhere
    it is in one place.
    """
    lines = [line for line in group if isinstance(line, Refusal)]
    places = [line.where for line in lines]
    if len(set(places)) == 1:
        return [line.given for line in lines]
    kept = 1 if len({place.rpartition("/")[0] for place in places}) == 1 else 2
    return ["/".join(place.split("/")[-kept:]) for place in places]


def shorten(names: list[str]) -> str:
    """List the first ten names, and say how many more there are.

    Examples
    --------
    >>> shorten(list("abcdefghijklm"))
    'a, b, c, d, e, f, g, h, i, j and 3 more'
    """
    shown = ", ".join(name if name.isprintable() else ascii(name) for name in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name is meant, or list them all when none is close.

    Examples
    --------
    >>> nearest("dpth", ["depth", "encoder"])
    "Did you mean 'depth'?"
    >>> nearest("x", ["b", "a"])
    'Known: a, b.'
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(names)}."


class Problems:
    """Collects what is wrong with one configuration, so that all of it is said at once."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.lines: list[str] = []

    def expect(self, ok: bool, argument: str, rule: str, given: object, remedy: str = "") -> None:
        """Note a problem unless `ok`."""
        if not ok:
            self.lines.append(expected(self.where, argument, rule, repr(given), remedy))

    def in_range(
        self, argument: str, value: float | None, low: float, high: float = math.inf, *, above: bool = False
    ) -> None:
        """Note a problem unless `value` is None or finite with low <= value <= high (low < value with `above`)."""
        if value is None:
            return
        ok = math.isfinite(value) and (low < value if above else low <= value) and value <= high
        rule = f"{'>' if above else '>='} {low:g}" + (f" and <= {high:g}" if math.isfinite(high) else " and finite")
        self.expect(ok, argument, rule, value)

    def one_of(self, argument: str, value: str, allowed: Iterable[str]) -> None:
        """Note a problem unless `value` is one of the allowed names."""
        names = list(allowed)
        if value not in names:  # only then: the search for the nearest name is slow, and torch.compile can't trace it
            self.expect(False, argument, f"to be one of {', '.join(names)}", value, nearest(value, names))


@contextmanager
def collecting(where: str) -> Iterator[Problems]:
    """Raise one ConfigError with everything that the block noted."""
    problems = Problems(where)
    yield problems
    if problems.lines:
        raise ConfigError(problems.lines)
