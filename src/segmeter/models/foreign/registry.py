"""Models that a plugin brings: any callable, registered under a name with what its card says; torch is not needed."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from segmeter.errors import ConfigError
from segmeter.models.foreign.config import ForeignConfig

Model = TypeVar("Model", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A registered callable, its card, and the file that defines it."""

    call: Callable[..., Any]
    card: ForeignConfig
    file: Path


PLUGINS: dict[str, Plugin] = {}


def register_model(name: str, **card: Any) -> Callable[[Model], Model]:
    """Register the decorated callable as a model: ``checkpoint=NAME plugins=[MODULE]`` runs it.

    Parameters
    ----------
    name
        What the command line says.
    card
        Keys of the group `model`, such as ``classes=["background", "cell"]``; a card file and the command line
        override them. Without ``input``, the callable gets images as they are stored.

    Returns
    -------
    A decorator for a callable from a tensor (B, C, H, W) to what ``output={"kind": ...}`` says: "logits" or "probs"
    (B, K, H, W), "labels" (B, H, W), or "instances": for each image a tuple of scores (N,), classes (N,) and
    masks (N, H, W).

    Raises
    ------
    ConfigError
        The name is taken, or the card has an unknown key or value.

    Examples
    --------
    >>> from segmeter.models import register_model
    >>> @register_model("dark-is-cell", classes=["background", "cell"], output={"kind": "labels"})
    ... def dark_is_cell(images):
    ...     return (images.float().mean(1) < 100).int()
    """

    def add(call: Model) -> Model:
        file = Path(inspect.getsourcefile(inspect.unwrap(call)) or "")
        known = PLUGINS.get(name)
        if known is not None and known.file != file:
            raise ConfigError(f"model: expected a new name, got {name!r}, which {known.file} registered already.")
        PLUGINS[name] = Plugin(call=call, card=ForeignConfig(**card), file=file)
        return call

    return add
