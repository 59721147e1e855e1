"""Out of memory -> a smaller batch, which is logged, or an error that says what to set."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from segmeter.errors import RunError

_LOG = logging.getLogger(__name__)
_LEAST_TILE = 64
# torch's CPU allocator, CUDA and Apple GPUs; cuBLAS and cuDNN, which take memory beside torch's, as RuntimeErrors
_SAYINGS = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of torch or Python says that memory ran out, on a device or on the host."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(saying in str(error) for saying in _SAYINGS)


@contextmanager
def advised(where: str, remedy: str) -> Iterator[None]:
    """Within the block, memory that runs out becomes one line: where, and what to set.

    Raises
    ------
    RunError
        Memory ran out.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise RunError(f"{where}: out of memory. {remedy}") from error


class RunSizes:
    """How much is run at once; it shrinks when memory runs out, and stays smaller for the images that follow.

    The tile stays as it is: another one would change the results, and these must not depend on what else the machine
    does.

    Parameters
    ----------
    batch_size, tile_batch
        Images and tiles per pass to begin with.
    """

    def __init__(self, *, batch_size: int, tile_batch: int) -> None:
        self.batch_size = batch_size
        self.tile_batch = tile_batch

    def shrink(self, error: BaseException, *, count: int, tile: int | None, height: int, width: int) -> None:
        """Halve the batch that is run at a time, and log it.

        Parameters
        ----------
        count
            Images or tiles that are to be run.
        tile
            Edge of the tiles; None where whole images are run.
        height, width
            Of one of them.

        Raises
        ------
        RunError
            Nothing is left to halve.
        """
        batch = min(self.batch_size if tile is None else self.tile_batch, count)
        if batch <= 1:
            raise RunError(advice(height, width, tile=tile)) from error
        what = "images" if tile is None else "tiles"
        _LOG.warning("out of memory: %d %s at a time from here on (the same results)", batch // 2, what)
        if tile is None:
            self.batch_size = batch // 2
        else:
            self.tile_batch = batch // 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def advice(height: int, width: int, *, tile: int | None) -> str:
    """What to set where one image, or one tile of it, is too much."""
    if tile is None:
        smaller = max(_LEAST_TILE, max(height, width) // 2 // _LEAST_TILE * _LEAST_TILE)
        remedy = f"Set inference.tile={smaller} and inference.tile_batch=1"
    else:
        remedy = f"Set inference.tile below {tile} and inference.tile_batch=1"
    what = "one image" if tile is None else "one tile"
    return f"inference: out of memory for {what} of {height} x {width}. {remedy}, or run on device=cpu."
