"""Charts: the same shapes in SVG and PNG, with round ticks and nothing outside."""

import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from segmeter.report.drawing import HEIGHT, WIDTH, Chart, Curve, Histogram, _log_ticks, _ticks


def chart(**more: object) -> Chart:
    curve = Curve(
        name="<a>", points=[(1, 0.0), (10, 0.5), (100, 1.0)], dots=[(10, 0.4)], band=[(1, 0, 0.1), (100, 0.9, 5)]
    )
    values = {"curves": [curve, Curve(name="b", points=[(1, 1.0), (100, 1.0)], colour="#ff0000")], **more}
    return Chart(x_label="cases & more", y_label="width", **values)  # type: ignore[arg-type]


def test_texts_are_escaped_and_every_place_lies_on_the_chart() -> None:
    svg = chart(log_x=True, y_range=(0, 1), vertical={"30": 30}, horizontal={"asked": 0.5}).svg()
    root = ElementTree.fromstring(svg)
    assert "cases &amp; more" in svg
    assert "&lt;a&gt;" in svg
    for shape in root:
        for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", shape.get("points", "")):
            assert 0 <= float(x) <= WIDTH
            assert 0 <= float(y) <= HEIGHT


def test_a_logarithmic_axis_places_equal_ratios_at_equal_distances() -> None:
    root = ElementTree.fromstring(chart(log_x=True).svg())
    line = next(shape for shape in root if shape.get("stroke") == "#2f6fde")
    x = [float(pair.split(",")[0]) for pair in line.get("points", "").split()]
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.11)


def test_the_png_shows_the_colours_of_the_curves() -> None:
    drawn = np.asarray(Image.open(io.BytesIO(chart().png())))
    assert drawn.shape == (2 * HEIGHT, 2 * WIDTH, 3)
    assert (drawn == (255, 0, 0)).all(axis=2).sum() > WIDTH


def test_ticks_are_round_and_inside_and_logarithmic_ones_are_one_two_and_five() -> None:
    assert _ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert _ticks(0.32, 0.68) == [0.4, 0.5, 0.6]
    assert _ticks(3, 3) == [3]
    assert _log_ticks(5, 300) == [5, 10, 20, 50, 100, 200]
    assert _log_ticks(1, 1e6) == [1, 10, 100, 1e3, 1e4, 1e5, 1e6]


def test_values_beyond_0_and_1_widen_the_axis_and_others_are_counted_apart():
    wide = Histogram.of("a < b", np.array([np.nan, np.inf, 2, 7]))
    assert repr(wide) == "a < b, 4 cases, 1 undefined, 1 infinite"
    assert (wide.edges[0], wide.edges[-1], wide.counts.sum()) == (2, 7, 2)
    assert "a &lt; b" in wide._repr_svg_()
