"""A template and values -> a page: one file, every name escaped, a content policy by hashes."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from segmeter.report import figures

_HERE = Path(__file__).parent
_SCRIPTS = _HERE / "scripts"


def render(template: str, *, scripts: Sequence[str] = ("sorting",), linked: bool = False, **values: Any) -> bytes:
    """Fill a template of the folder templates/ with values, all of them escaped; it gets our style and scripts.

    Parameters
    ----------
    template
        Its file's name.
    scripts
        Modules of the folder scripts/ in the order in which they run, as one script.
    linked
        Whether the page shows pictures that lie beside it.
    values
        What the template names.
    """
    style = (_HERE / "templates" / "style.css").read_text("utf-8")
    script = '"use strict";\n' + "\n".join((_SCRIPTS / f"{name}.js").read_text("utf-8") for name in scripts)
    policy = content_policy(style, script, linked=linked)
    own = {"policy": policy, "style": Markup(style), "script": Markup(script)}  # our files, not data
    return _environment().get_template(template).render(**own, **values).encode("utf-8", "replace")


def content_policy(style: str, script: str, *, linked: bool = False) -> str:
    """What a page may load: its one style and one script, by their hashes, and pictures in it or beside it."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    style_hash, script_hash = hashes
    return (
        f"default-src 'none'; img-src data:{' file: ' + repr('self') if linked else ''}; "
        f"style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; base-uri 'none'; form-action 'none'"
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=figures.number,
        quantity=figures.quantity,
        interval=figures.interval,
        facts=_facts,
        probability=figures.probability,
        signed=figures.signed,
    )
    return environment


def _facts(record: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Names and texts of a nested record, in order; lists on one line."""
    found: list[tuple[str, str]] = []
    for name, value in record.items():
        if isinstance(value, Mapping):
            found += _facts(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            found.append((f"{prefix}{name}", ", ".join(map(str, value))))
        else:
            found.append((f"{prefix}{name}", "" if value is None else str(value)))
    return found
