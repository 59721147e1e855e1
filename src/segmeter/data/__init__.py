"""Reads images and masks into a `Sample`, exactly, or refuses them by name. Gives NumPy arrays, without torch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
