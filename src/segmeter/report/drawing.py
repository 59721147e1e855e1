"""Draws a small chart of curves, points and marks, as SVG for pages and as PNG for everything else.

Both are made of the same lines, shapes and texts, so they can't differ. Pages of decisions show these charts, and
notebooks the distribution of a score over cases.
"""

import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, WIDTH - 14, 26, HEIGHT - 44  # The axes end here.
_SCALE = 2  # Pixels of the PNG per unit.
_INK, _GRID = "#737c88", "#80889040"  # Both are legible in light and in dark notebooks.
COLOURS = ("#2f6fde", "#e0662a", "#1a9d74", "#9a56c9")
_MOST_TICKS = 6
_BINS = 20  # Bins of a distribution.

XY = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line of the chart. A band is filled between its lower and upper ends; dots mark single values."""

    name: str
    points: Sequence[XY]
    dots: Sequence[XY] = ()
    band: Sequence[tuple[float, float, float]] = ()
    colour: str = COLOURS[0]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Curves on common axes.

    Parameters
    ----------
    curves
        The lines, with finite values.
    x_label, y_label
        Names of the axes, with units.
    log_x
        Whether x is spaced by its logarithm; then it is above 0.
    y_range
        Lowest and highest y; None takes those of the curves.
    vertical, horizontal
        Marks at values of x or y, by their texts.
    """

    curves: Sequence[Curve]
    x_label: str
    y_label: str
    log_x: bool = False
    y_range: tuple[float, float] | None = None
    vertical: dict[str, float] = field(default_factory=dict)
    horizontal: dict[str, float] = field(default_factory=dict)

    def svg(self) -> str:
        """Write the chart as one SVG element, with every text escaped."""
        parts = []
        for mark in self._marks():
            if isinstance(mark, _Text):
                position = f'x="{mark.at[0]:.1f}" y="{mark.at[1]:.1f}" text-anchor="{mark.anchor}" fill="{mark.colour}"'
                parts.append(f'<text {position} font-family="sans-serif" font-size="12">{escape(mark.text)}</text>')
                continue
            points = f'points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in mark.points)}"'
            if mark.fill:
                parts.append(f'<polygon {points} fill="{mark.colour}" fill-opacity="{mark.fill:g}"/>')
            else:
                parts.append(f'<polyline {points} fill="none" stroke="{mark.colour}" stroke-width="{mark.width}"/>')
        box = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        label = f'role="img" aria-label="{escape(f"{self.y_label} by {self.x_label}")}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {box} {label}>{"".join(parts)}</svg>'

    def png(self) -> bytes:
        """Draw the chart as a PNG on white, with `_SCALE` times as many pixels on each side."""
        image = Image.new("RGB", (WIDTH * _SCALE, HEIGHT * _SCALE), "white")
        pen, font = ImageDraw.Draw(image, "RGBA"), ImageFont.load_default(12 * _SCALE)
        anchors = {"start": "ls", "middle": "ms", "end": "rs"}
        for mark in self._marks():
            if isinstance(mark, _Text):
                position = mark.at[0] * _SCALE, mark.at[1] * _SCALE
                pen.text(position, mark.text, fill=mark.colour, font=font, anchor=anchors[mark.anchor])
                continue
            scaled = [(x * _SCALE, y * _SCALE) for x, y in mark.points]
            if mark.fill:
                pen.polygon(scaled, fill=f"{mark.colour}{round(255 * mark.fill):02x}")
            else:
                pen.line(scaled, fill=mark.colour, width=mark.width * _SCALE, joint="curve")
        content = io.BytesIO()
        image.save(content, "PNG")
        return content.getvalue()

    def _marks(self) -> Iterator["_Line | _Text"]:
        """Yield everything on the chart, the lowest first."""
        points = [point for curve in self.curves for point in (*curve.points, *curve.dots)]
        xs = [x for x, _ in points] + [*self.vertical.values()]
        ys = [y for _, y in points] + [*self.horizontal.values()]
        ys += [end for curve in self.curves for _, *ends in curve.band for end in ends]
        x = _axis(min(xs), max(xs), (_LEFT, _RIGHT), log=self.log_x)
        low, high = self.y_range or (min(ys), max(ys))
        y = _axis(low, high, (_BOTTOM, _TOP), log=False)
        for tick in _ticks(low, high):
            yield _Line([(_LEFT, y(tick)), (_RIGHT, y(tick))], _GRID)
            yield _Text((_LEFT - 6, y(tick) + 4), f"{tick:g}", _INK, "end")
        for tick in _log_ticks(min(xs), max(xs)) if self.log_x else _ticks(min(xs), max(xs)):
            yield _Line([(x(tick), _BOTTOM), (x(tick), _BOTTOM + 4)], _INK)
            yield _Text((x(tick), _BOTTOM + 17), f"{tick:g}", _INK, "middle")
        yield _Line([(_LEFT, _BOTTOM), (_RIGHT, _BOTTOM)], _INK)
        yield _Text(((_LEFT + _RIGHT) / 2, HEIGHT - 8), self.x_label, _INK, "middle")
        yield _Text((8, 15), self.y_label, _INK, "start")
        right = _RIGHT
        for curve in reversed(self.curves if len(self.curves) > 1 else ()):
            yield _Text((right, 15), curve.name, curve.colour, "end")
            right -= 7 * len(curve.name) + 16
        for curve in self.curves:
            if curve.band:
                upper = [(x(at), y(min(top, high))) for at, _, top in curve.band]
                lower = [(x(at), y(min(bottom, high))) for at, bottom, _ in reversed(curve.band)]
                yield _Line([*upper, *lower], curve.colour, fill=0.18)
            yield _Line([(x(a), y(b)) for a, b in curve.points if low <= b <= high], curve.colour, width=2)
            for at, value in (dot for dot in curve.dots if low <= dot[1] <= high):
                left, top = x(at) - 3, y(value) - 3
                yield _Line([(left, top), (left + 6, top), (left + 6, top + 6), (left, top + 6)], curve.colour, fill=1)
        for text, at in self.vertical.items():
            yield _Line([(x(at), _TOP), (x(at), _BOTTOM)], COLOURS[1])
            shift, side = (-5, "end") if x(at) > WIDTH * 0.6 else (5, "start")
            yield _Text((x(at) + shift, _TOP + 12), text, COLOURS[1], side)
        for text, at in self.horizontal.items():
            yield _Line([(_LEFT, y(at)), (_RIGHT, y(at))], _INK)
            yield _Text((_RIGHT - 4, y(at) - 4), text, _INK, "end")


@dataclass(frozen=True, kw_only=True, eq=False)
class Histogram:
    """A chart of how many cases have which score; a notebook shows it as a picture.

    Parameters
    ----------
    title
        The score, in words.
    counts, edges
        Numbers of cases (N,), and the ends of the bins (N + 1,).
    undefined, infinite
        Numbers of cases that the axis can't show.
    """

    title: str
    counts: NDArray[Any]
    edges: NDArray[Any]
    undefined: int
    infinite: int

    @classmethod
    def of(cls, title: str, values: NDArray[Any]) -> "Histogram":
        """Count values (N,) in twenty bins from 0 to 1, or between their extremes if some lie outside."""
        finite = values[np.isfinite(values)]
        inside = not finite.size or (finite.min() >= 0 and finite.max() <= 1)
        counts, edges = np.histogram(finite, _BINS, (0, 1) if inside else None)
        undefined = int(np.isnan(values).sum())
        infinite = len(values) - len(finite) - undefined
        return cls(title=title, counts=counts, edges=edges, undefined=undefined, infinite=infinite)

    def __repr__(self) -> str:
        not_shown = [f"{count} {name}" for name in ("undefined", "infinite") if (count := getattr(self, name))]
        cases = int(self.counts.sum()) + self.undefined + self.infinite
        return f"{self.title}, {', '.join([f'{cases} cases', *not_shown])}"

    def _repr_svg_(self) -> str:
        bars = list(zip(self.edges[:-1], self.edges[1:], self.counts.tolist(), strict=True))
        band = [(float(end), 0.0, float(count)) for *ends, count in bars for end in ends]
        curve = Curve(name="", points=[(at, top) for at, _, top in band], band=band)
        highest = max(1.0, float(self.counts.max()))
        return Chart(curves=[curve], x_label=repr(self), y_label="cases", y_range=(0, highest)).svg()


class _Line(NamedTuple):
    """A line, or with an opacity `fill` the area inside it."""

    points: Sequence[XY]
    colour: str
    width: int = 1
    fill: float = 0


class _Text(NamedTuple):
    """A text whose `anchor` (its start, middle or end) lies at the position `at`."""

    at: XY
    text: str
    colour: str
    anchor: str


def _axis(low: float, high: float, ends: tuple[float, float], *, log: bool) -> Callable[[float], float]:
    """Return a function from values to positions between two ends."""
    scale = math.log if log else float
    first, span = scale(low), scale(high) - scale(low)

    def position(value: float) -> float:
        share = (scale(value) - first) / span if span else 0.5
        return ends[0] + share * (ends[1] - ends[0])

    return position


def _ticks(low: float, high: float) -> list[float]:
    """Return round values between two others."""
    if not high > low:
        return [low]
    raw = (high - low) / _MOST_TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    return [round(i * step, 12) for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten between two values, or only the powers if these are many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if len(powers) <= 4 else (1,)
    return [f * 10.0**p for p in powers for f in factors if low <= f * 10.0**p <= high]
