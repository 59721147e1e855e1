"""Draws a small chart of curves, points and marks, as SVG for pages and as PNG for everything else.

Both are made of the same lines, shapes and texts, so that they can't differ. Pages of decisions show such charts.
"""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 26, 44
_SCALE = 2  # of the PNG
_INK, _GRID = "#737c88", "#80889040"  # read on light and on dark pages
COLOURS = ("#2f6fde", "#e0662a", "#1a9d74", "#9a56c9")
_MOST_TICKS = 6

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
        pen = _Svg()
        self._draw(pen)
        box = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        label = f'role="img" aria-label="{escape(f"{self.y_label} by {self.x_label}")}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {box} {label}>{"".join(pen.parts)}</svg>'

    def png(self) -> bytes:
        """Draw the chart as a PNG, with twice as many pixels on each side, on white."""
        pen = _Png()
        self._draw(pen)
        content = io.BytesIO()
        pen.image.save(content, "PNG")
        return content.getvalue()

    def _draw(self, pen: "_Svg | _Png") -> None:
        """Draw everything on the chart, the lowest first."""
        places = [place for curve in self.curves for place in (*curve.points, *curve.dots)]
        xs = [x for x, _ in places] + [*self.vertical.values()]
        ys = [y for _, y in places] + [*self.horizontal.values()]
        ys += [end for curve in self.curves for _, *ends in curve.band for end in ends]
        x = _axis(min(xs), max(xs), (_LEFT, WIDTH - _RIGHT), log=self.log_x)
        low, high = self.y_range or (min(ys), max(ys))
        y = _axis(low, high, (HEIGHT - _BOTTOM, _TOP), log=False)
        self._draw_axes(pen, x, y, (min(xs), max(xs)), (low, high))
        for curve in self.curves:
            if curve.band:
                upper = [(x(at), y(min(top, high))) for at, _, top in curve.band]
                lower = [(x(at), y(min(bottom, high))) for at, bottom, _ in reversed(curve.band)]
                pen.line([*upper, *lower], curve.colour, fill=0.18)
            pen.line([(x(a), y(b)) for a, b in curve.points if low <= b <= high], curve.colour, width=2)
            for at, value in (dot for dot in curve.dots if low <= dot[1] <= high):
                left, top = x(at) - 3, y(value) - 3
                square = [(left, top), (left + 6, top), (left + 6, top + 6), (left, top + 6)]
                pen.line(square, curve.colour, fill=1.0)
        for text, at in self.vertical.items():
            pen.line([(x(at), _TOP), (x(at), HEIGHT - _BOTTOM)], COLOURS[1])
            shift, side = (-5, "end") if x(at) > WIDTH * 0.6 else (5, "start")
            pen.text((x(at) + shift, _TOP + 12), text, COLOURS[1], side)
        for text, at in self.horizontal.items():
            pen.line([(_LEFT, y(at)), (WIDTH - _RIGHT, y(at))], _INK)
            pen.text((WIDTH - _RIGHT - 4, y(at) - 4), text, _INK, "end")

    def _draw_axes(
        self, pen: "_Svg | _Png", x: Callable[[float], float], y: Callable[[float], float], xs: XY, ys: XY
    ) -> None:
        bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
        for tick in _ticks(*ys):
            pen.line([(_LEFT, y(tick)), (right, y(tick))], _GRID)
            pen.text((_LEFT - 6, y(tick) + 4), f"{tick:g}", _INK, "end")
        for tick in _log_ticks(*xs) if self.log_x else _ticks(*xs):
            pen.line([(x(tick), bottom), (x(tick), bottom + 4)], _INK)
            pen.text((x(tick), bottom + 17), f"{tick:g}", _INK, "middle")
        pen.line([(_LEFT, bottom), (right, bottom)], _INK)
        pen.text(((_LEFT + right) / 2, HEIGHT - 8), self.x_label, _INK, "middle")
        pen.text((8, 15), self.y_label, _INK, "start")
        at = right
        for curve in reversed(self.curves if len(self.curves) > 1 else ()):
            pen.text((at, 15), curve.name, curve.colour, "end")
            at -= 7 * len(curve.name) + 16


class _Svg:
    """Writes lines, areas (with an opacity `fill`) and texts, whose `anchor` lies at their place."""

    def __init__(self) -> None:
        self.parts = list[str]()

    def line(self, points: Sequence[XY], colour: str, *, width: float = 1, fill: float = 0) -> None:
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        if fill:
            self.parts.append(f'<polygon points="{text}" fill="{colour}" fill-opacity="{fill:g}"/>')
        else:
            self.parts.append(f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>')

    def text(self, at: XY, text: str, colour: str, anchor: str) -> None:
        place = f'x="{at[0]:.1f}" y="{at[1]:.1f}" text-anchor="{anchor}" fill="{colour}"'
        self.parts.append(f'<text {place} font-family="sans-serif" font-size="12">{escape(text)}</text>')


class _Png:
    """Draws the same as `_Svg`."""

    def __init__(self) -> None:
        self.image = Image.new("RGB", (WIDTH * _SCALE, HEIGHT * _SCALE), "white")
        self._draw = ImageDraw.Draw(self.image, "RGBA")

    def line(self, points: Sequence[XY], colour: str, *, width: float = 1, fill: float = 0) -> None:
        scaled = [(x * _SCALE, y * _SCALE) for x, y in points]
        if fill:
            self._draw.polygon(scaled, fill=f"{colour}{round(255 * fill):02x}")
        else:
            self._draw.line(scaled, fill=colour, width=round(width * _SCALE), joint="curve")

    def text(self, at: XY, text: str, colour: str, anchor: str) -> None:
        place, side = (at[0] * _SCALE, at[1] * _SCALE), {"start": "ls", "middle": "ms", "end": "rs"}[anchor]
        self._draw.text(place, text, fill=colour, font=ImageFont.load_default(12 * _SCALE), anchor=side)


def _axis(low: float, high: float, ends: tuple[float, float], *, log: bool) -> Callable[[float], float]:
    """Return a function from values to places between two ends."""
    scale = math.log if log else float
    first, span = scale(low), scale(high) - scale(low)

    def place(value: float) -> float:
        share = (scale(value) - first) / span if span else 0.5
        return ends[0] + share * (ends[1] - ends[0])

    return place


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
