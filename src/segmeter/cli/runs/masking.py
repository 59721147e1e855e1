"""Replaces the values of keys that look like secrets by [REDACTED] in everything that a run writes."""

import re
from collections.abc import Mapping
from typing import Any

from segmeter.errors import ConfigError
from segmeter.records import flatten

MASK = "[REDACTED]"
_SECRET = re.compile(
    r"(^|_)(secret|token|credentials?|pat|auth|authorization|cookie|dsn|webhook(_ur[il])?"
    r"|(api|access|private|secret|account|ssh|encryption|signing)_?key)s?$"
    r"|pass(word|wd|phrase|code)?s?$",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_INNER = re.compile(r"[\w-]+(?=['\"]?\s*[:=])")  # keys inside a value
_LOGIN = re.compile(r"(?<=://)[^/\s@]+(?=@)")  # user:password of an address


def is_secret(key: str) -> bool:
    """Tell whether the name of a key or variable suggests a secret value.

    Examples
    --------
    >>> [name for name in ("GITHUB_PAT", "PGPASS", "apiKey", "path", "key", "tokenizer") if is_secret(name)]
    ['GITHUB_PAT', 'PGPASS', 'apiKey']
    """
    return _SECRET.search(_CAMEL.sub("_", key).replace("-", "_")) is not None


def mask(values: Any, key: str = "") -> Any:
    """Replace secrets at any depth: values of secret-looking keys, and overrides and logins in texts."""
    if isinstance(values, dict):
        return {name: mask(value, str(name)) for name, value in values.items()}
    if isinstance(values, list):
        return [mask(value, key) for value in values]
    if values is not None and is_secret(key):
        return MASK
    return mask_override(values) if isinstance(values, str) else values


def mask_override(line: str) -> str:
    """Replace the value of an override if its key, or a key within its value, looks like a secret.

    Examples
    --------
    >>> mask_override("+logger.api_key=abc"), mask_override("loss.gamma=2")
    ('+logger.api_key=[REDACTED]', 'loss.gamma=2')
    """
    key, equals, value = line.partition("=")
    name = key.rpartition(".")[2].lstrip("+-")
    if equals and (is_secret(name) or any(map(is_secret, _INNER.findall(value)))):
        return f"{key}={MASK}"
    return _LOGIN.sub(MASK, line)


def refuse_masked(values: Mapping[str, Any]) -> None:
    """Refuse a configuration that was copied from a run folder, where its secrets are masked."""
    for key, value in flatten(values).items():
        if MASK in str(value):
            raise ConfigError(f"config: `{key}` is {MASK}, as run folders keep no secrets. Set it again.")
