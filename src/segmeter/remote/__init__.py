"""Files behind URLs: fetched into a cache of bounded size when they are read; and run folders copied to a URL."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
