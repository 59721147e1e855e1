"""Names of lengths, against the numbers of other sources."""

import pytest

from segmeter.data.files.geometry import MILLIMETRES, find_unit

NGFF = {  # what OME-NGFF 0.4 and 0.5 list for space, in metres by their definitions
    "angstrom": 1e-10, "attometer": 1e-18, "centimeter": 1e-2, "decimeter": 1e-1, "exameter": 1e18,
    "femtometer": 1e-15, "foot": 0.3048, "gigameter": 1e9, "hectometer": 1e2, "inch": 0.0254, "kilometer": 1e3,
    "megameter": 1e6, "meter": 1.0, "micrometer": 1e-6, "mile": 1609.344, "millimeter": 1e-3, "nanometer": 1e-9,
    "parsec": 3.0857e16, "petameter": 1e15, "picometer": 1e-12, "terameter": 1e12, "yard": 0.9144,
    "yoctometer": 1e-24, "yottameter": 1e24, "zeptometer": 1e-21, "zettameter": 1e21,
}  # fmt: skip


@pytest.mark.parametrize("name", NGFF)
def test_every_length_of_ome_ngff_is_known_by_its_names(name: str) -> None:
    unit = find_unit(name)
    assert unit is not None
    assert MILLIMETRES[unit] == pytest.approx(1000 * NGFF[name], rel=1e-4)
    plurals = {"foot": "feet", "inch": "inches"}
    spellings = [name.upper(), name.title(), plurals.get(name, f"{name}s"), name.replace("meter", "metre")]
    assert {find_unit(spelling) for spelling in spellings} == {unit}


@pytest.mark.parametrize(
    ("names", "unit"),
    [
        (["um", "\u00b5m", "\u03bcm", "micron", "microns", "Micrometre", " \u00b5m "], "um"),
        (["mm", "millimetres"], "mm"),
        (["nm"], "nm"),
        (["\u00c5", "\u212b", "angstroms"], "angstrom"),
        (["in", "Inches"], "inch"),
        (["ft", "feet"], "foot"),
        (["Mm", "megametre"], "Mm"),
    ],
)
def test_abbreviations_and_spellings_are_one_unit(names: list[str], unit: str) -> None:
    assert {find_unit(name) for name in names} == {unit}


@pytest.mark.parametrize("name", ["MM", "UM", "second", "sec", "furlong", "m/s", "mm2", "pixel", "reference frame", ""])
def test_what_is_no_length_is_not_known(name: str) -> None:
    assert find_unit(name) is None


def test_lengths_are_multiples_of_each_other_as_they_are_defined() -> None:
    """Twelve inches to a foot, three feet to a yard, 1760 yards to a mile, 72 points and 12 lines to an inch."""
    mm = MILLIMETRES
    assert 12 * mm["inch"] == pytest.approx(mm["foot"], rel=1e-15)
    assert (3 * mm["foot"], 1760 * mm["yard"]) == pytest.approx((mm["yard"], mm["mile"]), rel=1e-15)
    assert (72 * mm["point"], 12 * mm["line"], 1000 * mm["thou"]) == pytest.approx((mm["inch"],) * 3, rel=1e-15)
    assert (mm["m"], mm["um"], mm["nm"]) == (1000.0, 0.001, 1e-6)
