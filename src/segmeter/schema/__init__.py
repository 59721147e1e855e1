"""Models of the configuration -> values that are checked, components by name, and each key described in words."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
