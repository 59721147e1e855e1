"""Reads and writes overrides in Hydra's grammar, and adds the quotes that a person is likely to leave out."""

import json
import re
import shlex
from collections.abc import Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

TEXTS = ("require", "over")  # keys whose values contain characters that Hydra wants quoted
_TEXT = r"""\"(?:[^"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"""  # in quotes
_KEY = rf"(?P<key>{_TEXT})(?=\s*:)"  # in quotes, which Hydra allows only for values
_SHARE = r"(?P<start>[=\[,{:]\s*)\\\\(?=[^\\/]+\\[^\\])"  # \\server\share, where Hydra reads \\ as one sign
_SWEEPS = ("choice(", "range(", "interval(")
_PARTS = re.compile(f"{_KEY}|{_TEXT}|{_SHARE}")


def parse_overrides(lines: Sequence[str], problems: list[str]) -> list[Override]:
    """Read overrides; a line that can't be read adds a problem, with the quotes that it lacks."""
    parser = OverridesParser.create()
    overrides = []
    for line in lines:
        try:
            overrides.extend(parser.parse_overrides([_with_quotes(line)]))
        except HydraException as error:
            reason = " ".join(str(error).split("\n")[0].split())
            remedy = "Write key=value, and quote [ ] { } , and spaces for the shell: 'key=[1,2]'."
            key, mark, value = line.partition("=")
            if mark and (not line.isascii() or ("(" in value and not value.startswith(_SWEEPS))):
                remedy = _advise_quotes(key, value)
            problems.append(f"config: can't read the override {line!r} ({reason}). {remedy}")
    return overrides


def _advise_quotes(key: str, value: str) -> str:
    """Write an override with the quotes that it lacks. No quotes help a key beyond ASCII."""
    if not key.isascii() or value.startswith("{"):
        remedy = "A key beyond ASCII needs a YAML file, see --config-dir."
        return f"Each text beyond ASCII or with ( ) in a mapping needs quotes: 'key={{a: \"\u00e4\"}}'. {remedy}"
    items = value[1:-1].split(",") if value.startswith("[") else [value]
    texts = ",".join(quoted(item.strip().strip("'\"")) for item in items)
    fixed = shlex.quote(f"{key}=[{texts}]" if value.startswith("[") else f"{key}={texts}")
    return f"Text beyond ASCII or with ( ) needs quotes that reach the program: {fixed}."


def _with_quotes(line: str) -> str:
    """Quote text with signs that Hydra's grammar lacks, such as "a >= b" or a share of Windows, alone or in a list."""
    key, _, value = line.partition("=")
    if key.lstrip("+") not in TEXTS or not value or value.lstrip("[ ").startswith(("'", '"')):
        return _PARTS.sub(_as_hydra, line)
    if value.startswith("[") and value.endswith("]"):
        items = [quoted(item.strip()) for item in value[1:-1].split(",")]
        return f"{key}=[{','.join(items)}]" if value[1:-1].strip() else line
    return f"{key}={quoted(value.strip())}"


def _as_hydra(part: re.Match[str]) -> str:
    if part["start"]:
        return part["start"] + 4 * "\\"
    return _escaped(part["key"][1:-1]) if part["key"] else part[0]


def quoted(text: str) -> str:
    r"""Quote a text as Hydra's overrides do, where a backslash is doubled only before a quote.

    Examples
    --------
    >>> print(quoted('größe'), quoted(r'C:\data'), quoted('a "b"'))
    "größe" "C:\data" "a \"b\""
    """
    return '"' + re.sub(r'(\\*)("|$)', lambda found: 2 * found[1] + ('\\"' if found[2] else ""), text) + '"'


def written(value: Any) -> str:
    r"""Write a plain value as Hydra's overrides do, which name keys without quotes.

    Examples
    --------
    >>> print(written({"steps": ["größe", None, True], "0,0,0": 0.5}))
    {steps:["größe",null,true],0\,0\,0:0.5}
    """
    if isinstance(value, dict):
        return "{" + ",".join(f"{_escaped(str(key))}:{written(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    return quoted(value) if isinstance(value, str) else json.dumps(value)


def _escaped(key: str) -> str:
    return re.sub(r"([\\()\[\]{}:=,\s])", r"\\\1", key)
