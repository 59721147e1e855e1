"""name -> nn.Module: segmentation networks that take any image size, and the checkpoints that carry them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
