"""Panels, captions, title and legend -> one picture."""

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import cast

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from segmeter.classes import Colour
from segmeter.report.pictures.paint import RGB

INK: Colour = (236, 239, 244)
FAINT: Colour = (150, 158, 171)
PAPER: Colour = (22, 25, 31)
MARGIN = 14
GAP = 8  # between panels
NARROWEST = 120  # a panel's column, so that its caption and the legend fit
_TITLE, _CAPTION = 17, 13  # font sizes, pixels
_LINE = 22  # height of a legend line
_SWATCH = 13
_LIKENESS = {0x2013: "-", 0x2014: "-", 0xD7: "x", 0xDF: "ss", 0x3BC: "u"}  # dashes, times, sharp s, mu

Entry = tuple[str, Colour | None]  # a legend entry; None is hatched


def compose(panels: Sequence[tuple[str, RGB]], *, title: str, figure: str, legend: Sequence[Sequence[Entry]]) -> RGB:
    """Set panels of equal size side by side under a title and above a legend.

    Parameters
    ----------
    panels
        (caption, (H, W, 3) uint8).
    title, figure
        Text at the left and at the right of the top; the title is cut to fit.
    legend
        Groups of (name, colour); each begins a line and takes as many as it needs.
    """
    height, width = panels[0][1].shape[:2]
    column = max(width, NARROWEST)
    inner = len(panels) * column + (len(panels) - 1) * GAP
    lines = [line for group in legend for line in _legend_lines(group, inner)]
    top = MARGIN + 28 + 22
    bottom = top + height + (12 + _LINE * len(lines) if lines else 0)
    picture = Image.new("RGB", (inner + 2 * MARGIN, bottom + MARGIN), PAPER)
    draw = ImageDraw.Draw(picture)
    _draw_title(draw, title, figure, inner)
    for index, (caption, panel) in enumerate(panels):
        left = MARGIN + index * (column + GAP)
        draw.text((left, top - 20), fit(caption, column, _font(_CAPTION)), FAINT, _font(_CAPTION))
        picture.paste(Image.fromarray(panel), (left, top))
    for index, line in enumerate(lines):
        _draw_legend_line(draw, line, top + height + 12 + index * _LINE)
    return np.asarray(picture)


def printable(text: str) -> str:
    """Replace what no font shows (control characters, half surrogates) by the replacement character."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def drawable(text: str) -> str:
    """Write a text in ASCII, the letters that the font has: accents are dropped, what has no likeness becomes "?".

    Examples
    --------
    >>> drawable("Zelle, größer als 3 µm²"), drawable("細胞")
    ('Zelle, grosser als 3 um2', '??')
    """
    plain = unicodedata.normalize("NFKD", text).translate(_LIKENESS)
    letters = (letter for letter in plain if not unicodedata.combining(letter))
    return "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in letters)


def fit(text: str, width: float, font: ImageFont.FreeTypeFont) -> str:
    """Cut `text` with an ellipsis so that it is at most `width` pixels wide."""
    text = drawable(text)
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(f"{text}…") > width:
        text = text[:-1]
    return f"{text}…" if text else ""


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    """Load Pillow's own font, so that pictures are the same on every machine."""
    return cast(ImageFont.FreeTypeFont, ImageFont.load_default(size=size))


def _draw_title(draw: ImageDraw.ImageDraw, title: str, figure: str, inner: int) -> None:
    font = _font(_TITLE)
    taken = font.getlength(figure)
    draw.text((MARGIN, MARGIN), fit(title, inner - taken - 2 * GAP, font), INK, font)
    draw.text((MARGIN + inner - taken, MARGIN), figure, INK, font)


def _entry_width(name: str) -> float:
    return _SWATCH + 6 + _font(_CAPTION).getlength(name) + 18


def _legend_lines(legend: Sequence[Entry], inner: int) -> list[list[Entry]]:
    lines: list[list[Entry]] = []
    used = float(inner)
    for name, colour in legend:
        name = fit(name, inner - _SWATCH - 24, _font(_CAPTION))
        if not lines or used + _entry_width(name) > inner:
            lines.append([])
            used = 0.0
        lines[-1].append((name, colour))
        used += _entry_width(name)
    return lines


def _draw_legend_line(draw: ImageDraw.ImageDraw, line: Sequence[Entry], top: int) -> None:
    left = float(MARGIN)
    for name, colour in line:
        box = (left, top + 3, left + _SWATCH, top + 3 + _SWATCH)
        draw.rectangle(box, fill=colour or (60, 64, 72), outline=(110, 116, 128))
        if colour is None:
            for step in range(3, 2 * _SWATCH, 6):
                start = (left + max(0, step - _SWATCH), top + 3 + min(step, _SWATCH))
                draw.line((*start, left + min(step, _SWATCH), top + 3 + max(0, step - _SWATCH)), (160, 160, 160))
        draw.text((left + _SWATCH + 6, top + 1), name, INK, _font(_CAPTION))
        left += _entry_width(name)
