"""Flattens the layers of a case into one picture: panels side by side, with captions, a title and a legend."""

import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from segmeter.classes import ClassSpec, Colour
from segmeter.files import make_folder, safe_id, write_bytes
from segmeter.report.figures import number
from segmeter.report.figures import title as score_title
from segmeter.report.pictures.layers import Layers, draw_layers
from segmeter.report.pictures.maps import RGB, LayerMap, contours, encode, lighten
from segmeter.report.pictures.objects import NO_OBJECTS, Objects
from segmeter.report.tables import printable

OVERLAYS = "overlays"  # The folder of these pictures in a run's folder.
PANEL = 480  # Longest side of a panel, pixels.
_LIKENESS = {0x2013: "-", 0x2014: "-", 0xD7: "x", 0xDF: "ss", 0x3BC: "u"}  # dashes, times, sharp s, mu
INK: Colour = (236, 239, 244)
FAINT: Colour = (150, 158, 171)
PAPER: Colour = (22, 25, 31)
MARGIN = 14
GAP = 8  # Pixels between panels.
NARROWEST = 120  # The column of a panel is at least this wide, so that its caption and the legend fit.
TINT, GREY_TINT = 0.45, 0.85  # Opacity of a pure and of a grey class colour over the grey image.
HATCH = 8  # Pixels from stripe to stripe over ignored pixels.
_GREY_WEIGHTS = (0.299, 0.587, 0.114)  # ITU-R BT.601 luma
_TITLE, _CAPTION = 17, 13  # Font sizes, pixels.
_LINE = 22  # Height of a line of the legend, pixels.
_SWATCH, _EDGE = 13, (110, 116, 128)

Legend = Sequence[tuple[str, Colour]]


def draw_overlay(
    image: NDArray[Any],
    target: NDArray[Any] | None,
    labels: NDArray[Any],
    spec: ClassSpec,
    *,
    title: str = "",
    headline: str = "",
    score: float | None = None,
    panel: int = PANEL,
    objects: Objects = NO_OBJECTS,
) -> RGB:
    """Draw image | target | prediction | errors with a legend; without a target only image | prediction.

    Parameters
    ----------
    image, target, labels, spec, objects
        As `draw_layers` takes them.
    title
        The case id.
    headline, score
        The name of a score, such as "iou/car", and its value for the case; None and NaN are shown as "n/a". Without a
        name, no score is shown.
    panel
        Longest side of a panel, pixels. Smaller images are enlarged by a whole factor. Larger ones are reduced, so that
        no thin structure of a map breaks.

    Returns
    -------
    (height, width, 3) uint8

    Raises
    ------
    InputError
        The shapes do not go together.
    """
    layers = draw_layers(image, target, labels, spec, edge=panel, objects=objects)
    return draw_picture(layers, title=title, headline=headline, score=score, panel=panel)


def draw_picture(
    layers: Layers, *, title: str, headline: str = "", score: float | None = None, panel: int = PANEL
) -> RGB:
    """Set the panels of a case side by side; see `draw_overlay`. Larger layers are reduced to the panel."""
    layers = layers.reduce(panel)
    roles = [role for role in ("target", "prediction", "errors") if any(layer.role == role for layer in layers.maps)]
    panels = [(role, flatten(layers, role, panel=panel)) for role in ("image", *roles)]
    figure = f"{score_title(headline)} {number(score, 3)}" if headline else ""
    entries = [entry for layer in layers.maps if layer.role == "errors" for entry in layer.entries]
    shown = [entry for entry in entries if not (entry.get("hidden") or entry.get("absent"))]
    errors = {entry["name"]: entry["colour"] for entry in shown}
    return compose(panels, title=title, figure=figure, legend=[class_legend([layers]), list(errors.items())])


def class_legend(cases: Sequence[Layers]) -> Legend:
    """List the names and colours of the classes that occur in some cases, in class order."""
    occurring = {int(k): entry for layers in cases for k, entry in layers.notes["classes"].items()}
    return [(occurring[k]["name"], occurring[k]["colour"]) for k in sorted(occurring)]


def flatten(layers: Layers, role: str, *, panel: int = PANEL) -> RGB:
    """Paint the maps of one role over the image; the role "image" is the image alone, stretched if it would look black.

    Labels tint a grey image and have a contour, errors cover a dimmed one, and ignored pixels are hatched. Black
    classes and class 0 of a binary task leave the image untinted. Small images are enlarged by a whole factor.
    """
    factor = max(1, panel // max(layers.image.shape[:2]))
    image = lighten(layers.image).repeat(factor, axis=0).repeat(factor, axis=1)
    if role == "image":
        return image
    luma = (image @ np.array(_GREY_WEIGHTS))[..., None]
    painted = np.repeat(luma * 0.45 if role == "errors" else luma * 0.75 + 32, 3, axis=-1)
    stripes = np.add.outer(np.arange(image.shape[0]), np.arange(image.shape[1])) % HATCH < HATCH // 4
    flat = np.where(stripes[..., None], 150.0, 40 + 0.3 * luma)
    for layer in (layer for layer in layers.maps if layer.role == role):
        index = layer.index.repeat(factor, axis=0).repeat(factor, axis=1)
        colours, opacities = _looks(layer, layers.spec)
        colour, opacity = colours[index], opacities[index][..., None]
        if any("class" in entry for entry in layer.entries):
            edge = contours(index)[..., None] & (opacity > 0)
            colour, opacity = np.where(edge, 0.75 * colour + 64, colour), np.where(edge, 1.0, opacity)
        painted = painted * (1 - opacity) + colour * opacity
        hatched = [number for number, entry in enumerate(layer.entries) if entry.get("hatched")]
        painted = np.where(np.isin(index, hatched)[..., None], flat, painted)
    return np.asarray(np.rint(painted), np.uint8)


def _looks(layer: LayerMap, spec: ClassSpec) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Find the colours (n, 3) and the opacities (n,), in [0, 1], of the n entries of a map."""
    colours, opacities = np.zeros((len(layer.entries), 3)), np.zeros(len(layer.entries))
    for i, entry in enumerate(layer.entries):
        if entry.get("hidden") or entry.get("hatched"):
            continue
        if "class" not in entry:
            usual = 0.85 if layer.role == "errors" else TINT
            colours[i] = entry["colour"]
            opacities[i] = TINT if entry.get("faint") else 1.0 if entry.get("strong") else usual
            continue
        k, colour = entry["class"], spec.colours[entry["class"]]
        if any(colour) and not (k == 0 and spec.task == "binary"):
            colours[i] = colour
            opacities[i] = TINT + (GREY_TINT - TINT) * min(colour) / max(colour)  # a greyer colour must be more opaque
    return colours, opacities


def compose(panels: Sequence[tuple[str, RGB]], *, title: str, figure: str, legend: Sequence[Legend]) -> RGB:
    """Set panels of equal size side by side, with a title above and a legend below.

    Parameters
    ----------
    panels
        (caption, (H, W, 3) uint8).
    title, figure
        Texts at the top left and top right; the title is cut to fit.
    legend
        Groups of (name, colour); each group begins on a new line.
    """
    height, width = panels[0][1].shape[:2]
    column = max(width, NARROWEST)
    inner = len(panels) * column + (len(panels) - 1) * GAP
    lines = [line for group in legend for line in _legend_lines(group, inner)]
    top = MARGIN + 28 + 22
    bottom = top + height + (12 + _LINE * len(lines) if lines else 0)
    picture = Image.new("RGB", (inner + 2 * MARGIN, bottom + MARGIN), PAPER)
    draw, font = ImageDraw.Draw(picture), _font(_TITLE)
    figure_width = font.getlength(figure)
    draw.text((MARGIN, MARGIN), fit(title, inner - figure_width - 2 * GAP, font), INK, font)
    draw.text((MARGIN + inner - figure_width, MARGIN), figure, INK, font)
    for index, (caption, panel) in enumerate(panels):
        left = MARGIN + index * (column + GAP)
        draw.text((left, top - 20), fit(caption, column, _font(_CAPTION)), FAINT, _font(_CAPTION))
        picture.paste(Image.fromarray(panel), (left, top))
    for index, line in enumerate(lines):
        for left, name, colour in line:
            x, y = MARGIN + left, top + height + 15 + index * _LINE
            draw.rectangle((x, y, x + _SWATCH, y + _SWATCH), fill=colour, outline=_EDGE)
            draw.text((x + _SWATCH + 6, y - 2), name, INK, _font(_CAPTION))
    return np.asarray(picture)


def write_overlay(folder: Path, case_id: str, picture: RGB) -> Path:
    """Write a picture as <case>.png, complete or not at all; return its path."""
    path = picture_path(folder, case_id)
    make_folder(folder)
    write_bytes(path, encode(picture, "PNG", compress_level=3))  # as small as with 6, in less than half the time
    return path


def picture_path(folder: Path, case_id: str) -> Path:
    """Return the path of a case's picture."""
    return folder / f"{safe_id(case_id)}.png"


def fit(text: str, width: float, font: ImageFont.FreeTypeFont) -> str:
    """Cut `text` with an ellipsis so that it is at most `width` pixels wide."""
    text = drawable(text)
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(f"{text}…") > width:
        text = text[:-1]
    return f"{text}…" if text else ""


def drawable(text: str) -> str:
    """Write a text in ASCII, as the font has no other characters: accents are dropped, and other letters become "?".

    Examples
    --------
    >>> drawable("Zelle, größer als 3 µm²"), drawable("細胞")
    ('Zelle, grosser als 3 um2', '??')
    """
    plain = unicodedata.normalize("NFKD", printable(text)).translate(_LIKENESS)
    letters = (letter for letter in plain if not unicodedata.combining(letter))
    return "".join(letters).encode("ascii", "replace").decode()


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    """Load Pillow's own font, so that pictures look the same on every machine."""
    return cast(ImageFont.FreeTypeFont, ImageFont.load_default(size=size))


def _legend_lines(legend: Legend, inner: int) -> list[list[tuple[float, str, Colour]]]:
    """Break a legend into lines of entries, each with its distance from the left."""
    lines = list[list[tuple[float, str, Colour]]]()
    font = _font(_CAPTION)
    left = float(inner)
    for name, colour in legend:
        name = fit(name, inner - _SWATCH - 24, font)
        width = _SWATCH + 6 + font.getlength(name) + 18
        if not lines or left + width > inner:
            lines.append([])
            left = 0.0
        lines[-1].append((left, name, colour))
        left += width
    return lines
