"""The drivers: a model on data, files on files, runs on runs -> a run folder."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
