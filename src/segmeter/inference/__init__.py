"""Runs models over images, whole or in blended tiles, within memory, and passes labels on through `bridge`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
