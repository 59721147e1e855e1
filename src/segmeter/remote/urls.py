"""A path that was given -> the URL that it is, or None where it is a path of this machine."""

import re
from pathlib import Path

from segmeter.checks import expected
from segmeter.errors import ConfigError

SCHEMES = ("s3", "gs", "az", "https", "http", "zip", "memory", "file")

_PART = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/+(?P<rest>.*)", re.DOTALL)
_STORES = ("s3", "gs", "az", "https", "http")
_LOGIN = re.compile(r":.*@", re.DOTALL)  # a password may hold slashes
_PORT = re.compile(r"^([^/:@]+):\d+(?=/|$)")
_CHAIN = "::"  # between a member of an archive and the archive


def url_of(given: str | Path) -> str | None:
    """The URL of a path that was given; None where it is a path of this machine.

    Raises
    ------
    ConfigError
        Its scheme is not one of `SCHEMES`; or it carries a login or a signature, which would end up in records.

    Examples
    --------
    >>> url_of("data/camvid"), url_of("s3://bucket/camvid/"), url_of(Path("s3://bucket/camvid"))
    (None, 's3://bucket/camvid', 's3://bucket/camvid')
    >>> url_of(Path("zip://images::s3://bucket/all.zip"))
    'zip://images::s3://bucket/all.zip'
    """
    text = str(given)
    match = _PART.fullmatch(text)
    if match is None:
        return None
    if match["scheme"].lower() != "zip":
        return _checked(text)
    inner, chain, archive = text.partition(_CHAIN)
    return f"{_checked(inner)}{chain}{url_of(archive) or archive}"  # the archive of a chain may be a path


def known_place(given: str | Path) -> str:
    """What records say of a place, so that it is found again from anywhere: its URL, or its absolute path."""
    return url_of(given) or str(Path(given).absolute())


def file_of(url: str) -> Path | None:
    """The path of a file:// URL; None for others."""
    return Path(url.removeprefix("file://")) if url.startswith("file://") else None


def split_archive(url: str) -> tuple[str, str] | None:
    """The place inside of an archive, and the archive; None where a URL names no archive.

    Examples
    --------
    >>> split_archive("zip://images::s3://bucket/all.zip"), split_archive("s3://bucket/all.zip")
    (('images', 's3://bucket/all.zip'), None)
    """
    if not url.startswith("zip://"):
        return None
    inner, chain, outer = url.removeprefix("zip://").partition(_CHAIN)
    if not chain or not outer:
        remedy = "Write zip://FOLDER::s3://BUCKET/ALL.zip, or zip://FOLDER::PATH/ALL.zip."
        raise ConfigError(expected("config", "path", "to name the archive after ::", url, remedy))
    return inner, outer


def _checked(part: str) -> str:
    match = _PART.fullmatch(part)
    assert match is not None
    scheme, rest = match["scheme"].lower(), match["rest"].rstrip("/")
    if scheme not in SCHEMES:
        rule = f"to be a path, or a URL of {', '.join(SCHEMES)}"
        raise ConfigError(expected("config", "path", rule, f"{scheme}://..."))
    if _may_hold_secret(scheme, rest):
        ways = "AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_CONNECTION_STRING, ..."
        remedy = f"Give credentials by the environment ({ways})."
        rule = "to be without a login or a signature (@ after a colon, ? or #), as records keep paths"
        raise ConfigError(expected("config", "path", rule, f"one in {scheme}://...", remedy))
    if _CHAIN in rest:
        rule, remedy = "to have :: between zip://FOLDER and its archive only", "Rename the object."
        raise ConfigError(expected("config", "path", rule, f"one in {scheme}://...", remedy))
    return f"{scheme}:///{rest}" if scheme == "file" else f"{scheme}://{rest}"


def _may_hold_secret(scheme: str, rest: str) -> bool:
    """Whether what follows the scheme's slashes has the form of a login, a query or a fragment."""
    if "@" in rest.partition("/")[0]:
        return True
    return scheme in _STORES and (_LOGIN.search(_PORT.sub(r"\1", rest)) is not None or bool({"?", "#"} & set(rest)))
