"""The library of a format, or the command that installs it."""

from importlib import import_module
from types import ModuleType

from segmeter.checks import expected
from segmeter.errors import DataError


def need(module: str, extra: str, what: str) -> ModuleType:
    """Import a library.

    Raises
    ------
    DataError
        It is not installed; with the command that installs it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        remedy = f"Run: pip install 'segmeter[{extra}]'"
        raise DataError(expected("read", module, f"to be installed for {what}", "none", remedy)) from error
