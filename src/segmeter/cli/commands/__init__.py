"""The commands, one module each. They are loaded when they run: most of them import torch, which takes seconds."""

from importlib import import_module
from typing import Any


def command_module(name: str) -> Any:
    """The module of a command; its `run` runs it."""
    return import_module(f"segmeter.cli.commands.{name}")
