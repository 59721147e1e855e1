"""Draws the distribution of a score over cases as an SVG picture, so that a notebook needs no library for plots."""

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BINS = 20
_SIZE = (480, 170)  # of the picture, width and height
_TALL, _WIDE = 110, 460  # of the bars, all together
_LEFT, _FLOOR = 10, 145
_TICKS = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Histogram:
    """How many cases have which score; a notebook shows it as a picture.

    Parameters
    ----------
    title
        The score, in words.
    counts, edges
        Numbers of cases (N,), and the ends of the bins (N + 1,).
    undefined, infinite
        Numbers of the cases that have no place on the axis.
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
        left = [f"{count} {name}" for name in ("undefined", "infinite") if (count := getattr(self, name))]
        cases = int(self.counts.sum()) + self.undefined + self.infinite
        return f"{self.title}, {', '.join([f'{cases} cases', *left])}"

    def _repr_svg_(self) -> str:
        step, highest = _WIDE / len(self.counts), max(1, int(self.counts.max()))
        bars = []
        for k, count in enumerate(self.counts):
            height = _TALL * count / highest
            place = f'x="{_LEFT + k * step:.1f}" y="{_FLOOR - height:.1f}" width="{step - 1:.1f}" height="{height:.1f}"'
            words = f"{self.edges[k]:.4g} to {self.edges[k + 1]:.4g}: {count}"
            bars.append(f'<rect {place} fill="#4a7fd4"><title>{words}</title></rect>')
        for share in np.linspace(0, 1, _TICKS):
            text = f"{self.edges[0] + share * (self.edges[-1] - self.edges[0]):.4g}"
            anchor = "start" if share == 0 else "end" if share == 1 else "middle"
            bars.append(f'<text x="{_LEFT + share * _WIDE:.0f}" y="{_FLOOR + 17}" text-anchor="{anchor}">{text}</text>')
        style = 'font-family="sans-serif" font-size="12" fill="#808890"'
        title = f'<text x="{_LEFT}" y="16">{escape(repr(self))}; the highest bar is {highest}</text>'
        box = f'width="{_SIZE[0]}" height="{_SIZE[1]}" viewBox="0 0 {_SIZE[0]} {_SIZE[1]}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {box} {style}>{title}{"".join(bars)}</svg>'
