"""files -> Sample: images and masks, read exactly or refused by name. NumPy arrays out, and no torch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
