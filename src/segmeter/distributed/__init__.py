"""One job -> its parts for several processes or machines: shards, ranks, and the engines that start them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
