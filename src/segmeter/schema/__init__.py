"""Declares the configuration as models: checks values, finds components by name, and describes each key in words."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
