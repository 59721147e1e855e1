"""segmeter: trains U-Nets with focal loss and measures segmentations exactly.

Public names are listed in ``__init__.pyi`` and loaded on first use, so that ``import segmeter`` imports no torch.
"""

import warnings

import lazy_loader

from segmeter.threads import sleep_while_waiting

sleep_while_waiting()  # here, because every command, worker process and program imports this module first

__version__ = "0.2.0"

_RENAMED = {"Exporter": "HostCopier"}  # until 1.0
_load, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)

__all__ = ["__version__", *_names]


def __getattr__(name: str) -> object:
    if name in _RENAMED:
        warnings.warn(f"segmeter.{name} is called {_RENAMED[name]} now", DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    if name not in _names:
        raise AttributeError(f"module 'segmeter' has no attribute {name!r}")
    return _load(name)
