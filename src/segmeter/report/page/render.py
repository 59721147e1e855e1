"""Fills the templates of pages: each is one file, with every name escaped and a content policy by hashes."""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from segmeter.records import flatten
from segmeter.report import figures

Read = TypeVar("Read")
_HERE = Path(__file__).parent
_FOLDER, _UPLOT = _HERE / "scripts", _HERE / "uplot"
_LIBRARY = ("uPlot.iife.min.js", "uPlot.min.css", "LICENSE")
_EXPLORER = (
    *("dom", "numbers", "state", "cases", "sorting", "charts", "table", "toolbar"),
    *("explore", "layers", "gallery", "case", "explorer"),
)
PLAIN = ("dom", "sorting")
SCRIPTS = {
    "report.html": (*_EXPLORER, "confusion", "evaluation"),
    "compare.html": (*_EXPLORER, "comparison"),
    "train.html": (*PLAIN, "charts", "curves"),
}
"""The scripts of a template, in the order in which they run as one script. Other templates have the plain ones."""


def render(template: str, *, scripts: Sequence[str] | None = None, linked: bool = False, **values: Any) -> bytes:
    """Fill a template with values, all of them escaped, and add the style and scripts of the page.

    The content policy of the page allows this style, this script, and pictures in the page or beside it.

    Parameters
    ----------
    template
        The name of a file in templates/.
    scripts
        Names of files in scripts/; None takes those of the template.
    linked
        Whether the page shows pictures in files beside it.
    values
        The variables of the template.
    """
    style = (_HERE / "templates" / "style.css").read_text("utf-8")
    scripts = SCRIPTS.get(template, PLAIN) if scripts is None else scripts
    parts = [(_FOLDER / f"{name}.js").read_text("utf-8") for name in scripts]
    if "charts" in scripts:
        library, its_style, licence = ((_UPLOT / name).read_text("utf-8") for name in _LIBRARY)
        style, parts = its_style + style, [f"/*\n{licence}*/\n{library}", *parts]
    script = "\n".join(['"use strict";', *parts])
    digests = (hashlib.sha256(text.encode()).digest() for text in (style, script))
    own_style, own_script = (f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    beside = " file: 'self'" if linked else ""
    rules = [f"default-src 'none'; img-src data:{beside}", f"style-src {own_style}", f"script-src {own_script}"]
    policy = "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])
    parts_of_page = {"policy": policy, "style": Markup(style), "script": Markup(script)}  # our files, not data
    return _environment().get_template(template).render(**parts_of_page, **values).encode("utf-8", "replace")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {"number": figures.number, "interval": figures.interval, "signed": figures.signed}
    environment.filters |= filters | {"flat": flatten, "plain": plain_text, "when": _when}
    return environment


def _when(record: Mapping[str, Any]) -> str:
    """State when a run began, how long it took, and how it ended.

    Examples
    --------
    >>> _when({"start": "2026-11-22T00:17:52.2+00:00", "end": "2026-11-22T00:19:54.5+00:00", "state": "done"})
    '2026-11-22 00:17 UTC · 0:02:02 · done'
    """
    times = list[datetime | None]()
    for name in ("start", "end"):
        try:  # earlier versions wrote the source of a training's weights as its start
            times.append(datetime.fromisoformat(record.get(name) or ""))
        except ValueError:
            times.append(None)
    start, end = times
    began = f"{start:%Y-%m-%d %H:%M} {start:%Z}".strip() if start else ""
    duration = str(timedelta(seconds=round((end - start).total_seconds()))) if start and end else ""
    return " · ".join(filter(None, [began, duration, record.get("state", "")]))


def plain_text(value: Any) -> str:
    """Write a value of a record: a list on one line, and nothing for None."""
    return ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def if_there(read: Callable[..., Read], path: Path, *options: Any) -> Read | None:
    """Read a file; None if it does not exist."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return read(path, *options)
    return None
