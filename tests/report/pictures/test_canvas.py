"""Text that fits, and a frame around panels."""

import numpy as np
from PIL import ImageFont

from segmeter.report.pictures.canvas import GAP, INK, MARGIN, NARROWEST, PAPER, compose, drawable, fit, printable

FONT = ImageFont.load_default(size=13)


def test_every_drawable_letter_is_in_the_font():
    """A letter that it lacks would be drawn as the box that stands for a code point nobody uses."""
    box = bytes(FONT.getmask("\U0010ffff"))
    for letter in drawable("".join(map(chr, range(32, 0x3000)))):
        assert letter == " " or bytes(FONT.getmask(letter)) != box, repr(letter)
    assert bytes(FONT.getmask("…")) != box


def test_letters_without_a_likeness_are_question_marks_and_tables_keep_them():
    assert drawable("Große Zelle \N{EN DASH} 3 µm²\n細") == "Grosse Zelle - 3 um2??"
    assert printable("Große 細\n") == "Große 細\N{REPLACEMENT CHARACTER}"


def test_fit_cuts_to_the_width_and_not_more():
    text = "a name that is long"
    assert fit(text, FONT.getlength(text), FONT) == text
    cut = fit(text, FONT.getlength(text) - 1, FONT)
    assert cut.endswith("…")
    assert FONT.getlength(cut) < FONT.getlength(text) <= FONT.getlength(text[: len(cut) + 1] + "…")
    assert fit(text, 1, FONT) == ""


def test_panels_stand_side_by_side_on_paper():
    white = np.full((50, 200, 3), 255, np.uint8)
    picture = compose([("a", white), ("b", white)], title="", figure="", legend=[])
    assert picture.shape == (MARGIN + 50 + 50 + MARGIN, 2 * 200 + GAP + 2 * MARGIN, 3)
    row = picture[MARGIN + 50 + 25]
    assert (row[MARGIN : MARGIN + 200] == 255).all()
    assert (row[MARGIN + 200 : MARGIN + 200 + GAP] == PAPER).all()
    assert (row[MARGIN + 200 + GAP : -MARGIN] == 255).all()


def test_the_legend_takes_as_many_lines_as_it_needs():
    panel = np.zeros((20, 10, 3), np.uint8)
    heights = [
        len(compose([("", panel)], title="", figure="", legend=[[(f"class {k}", INK) for k in range(count)]]))
        for count in (1, 2, 3)
    ]
    assert NARROWEST < 2 * 70, "two entries must not fit side by side here"
    assert np.diff(heights).tolist() == [22, 22]
