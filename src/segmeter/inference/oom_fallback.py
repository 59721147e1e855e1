"""Out of memory -> a smaller batch or tile, which is logged, or an error that says what to set."""

import logging

import torch

from segmeter.errors import RunError
from segmeter.inference.config import InferenceConfig

_LOG = logging.getLogger(__name__)
_LEAST_TILE = 64


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of torch or Python says that memory ran out, on a device or on the host."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)  # torch's CPU allocator


class RunSizes:
    """How much is run at once; it shrinks when memory runs out, and stays smaller for the images that follow.

    Parameters
    ----------
    config
        Gives the batch sizes and the tile to begin with.
    """

    def __init__(self, config: InferenceConfig) -> None:
        self.batch_size = config.batch_size
        self.tile_batch = config.tile_batch
        self.tile = config.tile
        self._tile_halved = False

    def shrink(self, error: BaseException, *, images: int, height: int, width: int) -> None:
        """Halve the batch that is run at a time, or else the tile, and log it.

        Halving a batch leaves the logits as they are; halving the tile does not, so that happens once at most.

        Raises
        ------
        RunError
            Nothing is left to halve.
        """
        tiled = self.tile is not None and max(height, width) > self.tile
        batch = self.tile_batch if tiled else min(self.batch_size, images)
        if batch > 1:
            self._halve_batch(batch // 2, tiled=tiled)
        elif tiled and self.tile is not None and not self._tile_halved and self.tile // 2 >= _LEAST_TILE:
            self._tile_halved = True
            _LOG.warning("out of memory: tiles of %d instead of %d pixels from here on", self.tile // 2, self.tile)
            self.tile //= 2
        else:
            raise RunError(self._advice(height, width, tiled=tiled)) from error
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _halve_batch(self, batch: int, *, tiled: bool) -> None:
        what = "tiles" if tiled else "images"
        _LOG.warning("out of memory: %d %s at a time from here on (the same results)", batch, what)
        if tiled:
            self.tile_batch = batch
        else:
            self.batch_size = batch

    def _advice(self, height: int, width: int, *, tiled: bool) -> str:
        if tiled:
            remedy = f"Set inference.tile below {self.tile} and inference.tile_batch=1"
        else:
            remedy = f"Set inference.tile={max(_LEAST_TILE, max(height, width) // 2)} and inference.tile_batch=1"
        return f"inference: out of memory for one image of {height} x {width}. {remedy}, or run on device=cpu."
