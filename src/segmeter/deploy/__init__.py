"""Exports a checkpoint as one file that runs without segmeter, once its label maps agree with ours."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
