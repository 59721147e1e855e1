"""Fetches files behind URLs into a cache of bounded size, and copies run folders to a URL."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
