"""Divides a job among processes and machines: shards of cases, and the ranks of a training."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
