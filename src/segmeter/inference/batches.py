"""Groups images into batches of one shape, and runs a segmenter over them in several views.

A batch is halved when memory runs out.
"""

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, islice, repeat

import torch
from torch import Tensor

from segmeter.classes import Task
from segmeter.data.sample import Sample
from segmeter.errors import RunError
from segmeter.inference.config import InferenceConfig
from segmeter.inference.device import autocast, is_out_of_memory, pick_dtype
from segmeter.models.ensemble import AnyModel, mean_logits
from segmeter.progress import Stages

_LOG = logging.getLogger(__name__)
_LEAST_TILE = 64
_PLANE = (-2, -1)
_UNTIMED = 8  # the newest passes on a GPU may be unfinished; waiting for an older one takes no time


def same_shape_groups(
    samples: Iterable[Sample], size: int, batches: Sequence[int] | None = None
) -> Iterator[Sequence[Sample]]:
    """Group consecutive samples whose images have one shape and dtype, at most `size` of them.

    If `batches` has a number for each sample, the samples of a group also share this number.
    """
    numbered = zip(samples, repeat(0) if batches is None else batches, strict=False)
    for _, same_shape in groupby(numbered, lambda pair: (pair[0].image.shape, pair[0].image.dtype, pair[1])):
        while group := [sample for sample, _ in islice(same_shape, size)]:
            yield group


class Passes:
    """Forward passes of a segmenter, with the test-time augmentation and precision of an `InferenceConfig`.

    `batch_size` and `tile_batch` are the images and tiles per pass. They are halved when memory runs out, and stay
    smaller for the images that follow. The tile keeps its size, as another one would change the results, which must not
    depend on the load of the machine.

    Parameters
    ----------
    segmenter
        On `device`.
    stages
        Where the time of the passes is added up; on a GPU it is the device's own.
    """

    def __init__(self, segmenter: AnyModel, config: InferenceConfig, device: torch.device, *, stages: Stages) -> None:
        self.batch_size = config.batch_size
        self.tile_batch = config.tile_batch
        self._segmenter = segmenter
        self._device = device
        self._dtype = pick_dtype(device, config.precision)
        self._stages = stages
        mirrors = (False, True) if config.flips else (False,)
        quarters = range(4) if config.rotations else (0, 2) if config.flips else (0,)
        self._views = [(mirrored, turn) for turn in quarters for mirrored in mirrors]  # the image itself first
        self._untimed: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()  # start and end of each pass
        card = segmenter.card  # views are averaged before classes are mapped
        self._task: Task = "multiclass" if card.class_map else card.spec.task

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put the segmenter into evaluation mode within the block."""
        in_training = [module for module in self._segmenter.modules() if module.training]
        self._segmenter.eval()
        try:
            yield
        finally:
            for module in in_training:  # train() would also wake frozen modules
                module.training = True

    def run(self, batch: Tensor, *, tile: int | None = None) -> Tensor:
        """Compute the logits of images, or of tiles of `tile` pixels, in as many passes as memory requires.

        Parameters
        ----------
        batch : (B, C, H, W)
            uint8, uint16 or floating.

        Returns
        -------
        (B, num_channels, H, W), float32.

        Raises
        ------
        RunError
            Memory ran out for a single image or tile.
        """
        while True:
            size = min(len(batch), self.batch_size if tile is None else self.tile_batch)
            try:
                with self._timed(), torch.inference_mode(), autocast(self._device, self._dtype):
                    parts = []
                    for start in range(0, len(batch), size):
                        views = self._run_views(batch[start : start + size])
                        parts.append(next(views) if len(self._views) == 1 else mean_logits(views, self._task))
                    return torch.cat(parts) if len(parts) > 1 else parts[0]
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                fault = error.with_traceback(None)  # its frames hold the tensors that did not fit
            noun = "image" if tile is None else "tile"
            if size == 1:
                height, width = batch.shape[-2:]
                smaller = max(_LEAST_TILE, max(height, width) // 2 // _LEAST_TILE * _LEAST_TILE)
                remedy = f"Set inference.tile{f'={smaller}' if tile is None else f' below {tile}'}"
                raise RunError(
                    f"inference: out of memory for one {noun} of {height} x {width}. {remedy} and "
                    "inference.tile_batch=1, or run on device=cpu."
                ) from fault
            _LOG.warning("out of memory: %d %ss at a time from here on (the same results)", size // 2, noun)
            setattr(self, "batch_size" if tile is None else "tile_batch", size // 2)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def settle(self, *, keep: int = 0) -> None:
        """Add up the time of the passes on a GPU, waiting for all but the last `keep` of them."""
        while len(self._untimed) > keep:
            before, after = self._untimed.popleft()
            after.synchronize()
            self._stages.add("forward", before.elapsed_time(after) / 1000)

    def _run_views(self, images: Tensor) -> Iterator[Tensor]:
        """Run the segmenter on each view of images (B, C, H, W), and turn and mirror its output back."""
        for mirrored, quarters in self._views:
            view = images.flip(-1) if mirrored else images
            output: Tensor = self._segmenter(view.rot90(quarters, _PLANE) if quarters else view)
            output = output.float() if output.is_floating_point() else output  # some models give labels
            output = output.rot90(-quarters, _PLANE) if quarters else output
            yield output.flip(-1) if mirrored else output

    @contextmanager
    def _timed(self) -> Iterator[None]:
        if self._device.type != "cuda":
            with self._stages.timed("forward"):
                yield
            return
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        stream = torch.cuda.current_stream(self._device)
        before.record(stream)
        yield
        after.record(stream)
        self._untimed.append((before, after))
        self.settle(keep=_UNTIMED)
