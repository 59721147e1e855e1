"""Evaluates models and scores files: one driver measures the cases and keeps their rows in the run folder."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
