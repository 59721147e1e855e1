"""The few validators and the one message template: what was expected, what was given, what to do."""

import difflib
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from segmeter.errors import ConfigError


def expected(where: str, argument: str, rule: str, given: object, remedy: str = "") -> str:
    """Write the one message that every refusal uses.

    Examples
    --------
    >>> expected("focal_loss", "gamma", ">= 0", -1.0)
    'focal_loss: expected `gamma` >= 0, got -1.0.'
    """
    text = f"{where}: expected `{argument}` {rule}, got {given}."
    return f"{text} {remedy}" if remedy else text


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
    return close_name(name, names) or f"Known: {', '.join(names)}."


def close_name(name: str, known: Iterable[str]) -> str:
    """Say which known name is meant, or nothing when none is close."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else ""


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
