"""Names of lengths -> one symbol each, and its millimetres."""

import unicodedata

_PREFIXES = {
    "yotta": ("Y", 24), "zetta": ("Z", 21), "exa": ("E", 18), "peta": ("P", 15), "tera": ("T", 12), "giga": ("G", 9),
    "mega": ("M", 6), "kilo": ("k", 3), "hecto": ("h", 2), "deca": ("da", 1), "": ("", 0), "deci": ("d", -1),
    "centi": ("c", -2), "milli": ("m", -3), "micro": ("u", -6), "nano": ("n", -9), "pico": ("p", -12),
    "femto": ("f", -15), "atto": ("a", -18), "zepto": ("z", -21), "yocto": ("y", -24),
}  # fmt: skip
MILLIMETRES = {f"{symbol}m": float(f"1e{power + 3}") for symbol, power in _PREFIXES.values()} | {
    "angstrom": 1e-7,
    "thou": 0.0254,
    "line": 25.4 / 12,
    "point": 25.4 / 72,
    "inch": 25.4,
    "foot": 304.8,
    "yard": 914.4,
    "mile": 1_609_344.0,
    "astronomical unit": 149_597_870_700e3,
    "light year": 9_460_730_472_580_800e3,
    "parsec": 3.085_677_581_491_367_3e19,
}
PIXEL_NAMES = ("", "pixel", "pixels", "px", "voxel", "voxels")

_SYMBOLS = {symbol: symbol for symbol in MILLIMETRES} | {  # case matters: mm and Mm
    "\u00c5": "angstrom", "in": "inch", "ft": "foot", "yd": "yard", "mi": "mile", "li": "line", "pt": "point",
    "ua": "astronomical unit", "ly": "light year", "pc": "parsec",
}  # fmt: skip
_WORDS = {  # in any case
    **{f"{prefix}met{end}": f"{symbol}m" for prefix, (symbol, _) in _PREFIXES.items() for end in ("er", "re")},
    **{name: name for name in MILLIMETRES if len(name) > 3},
    "micron": "um",
    "dekameter": "dam",
    "dekametre": "dam",
    "angstroem": "angstrom",
    "feet": "foot",
}


def find_unit(name: str) -> str | None:
    """The symbol of a length, a key of `MILLIMETRES`; None where the name is of no known length.

    Known are UDUNITS' names, as OME-NGFF lists them (British spellings and plurals too), OME-XML's symbols, and the
    usual abbreviations. Both code points of the Greek mu are the same.

    Examples
    --------
    >>> find_unit("micrometer"), find_unit("Millimetres"), find_unit("inches"), find_unit("MM")
    ('um', 'mm', 'inch', None)
    """
    plain = unicodedata.normalize("NFKC", name).strip().replace("\N{GREEK SMALL LETTER MU}", "u")
    word = plain.lower()
    singular = word.removesuffix("es") if word.endswith("ches") else word.removesuffix("s")
    return _SYMBOLS.get(plain) or _WORDS.get(word) or _WORDS.get(singular)
