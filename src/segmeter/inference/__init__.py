"""image -> logits, in blended tiles and flips, and on to labels through `bridge`: the order and memory of the work."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
