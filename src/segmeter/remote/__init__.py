"""URLs -> files of this machine, fetched when they are read into a cache of bounded size; and run folders -> URLs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
