"""Builds segmentation networks that take any image size, and reads and writes their checkpoints."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
