"""Groups images into batches of one shape, and runs a segmenter over them in several views.

A batch is halved when memory runs out.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from segmeter.data.sample import Sample
from segmeter.errors import RunError
from segmeter.inference.config import InferenceConfig
from segmeter.inference.device import autocast, is_out_of_memory
from segmeter.models.ensemble import AnyModel, mean_logits
from segmeter.progress import Stages

_LOG = logging.getLogger(__name__)
_LEAST_TILE = 64
_PLANE = (-2, -1)


def same_shape_groups(
    samples: Iterable[Sample], size: int, batches: Sequence[int] | None = None
) -> Iterator[Sequence[Sample]]:
    """Group consecutive samples whose images have one shape and dtype, at most `size` of them.

    If `batches` has a number for each sample, those of a group share it too. If reading the next sample fails, the
    samples before it come first, and then the error.
    """
    group, last, fault = list[Sample](), None, None
    try:
        for index, sample in enumerate(samples):
            kind = (sample.image.shape, sample.image.dtype, 0 if batches is None else batches[index])
            if group and (len(group) == size or kind != last):
                yield group
                group = []
            group.append(sample)
            last = kind
    except Exception as error:
        fault = error
    if group:
        yield group
    if fault is not None:
        raise fault


class Passes:
    """Forward passes of a segmenter, with the test-time augmentation and precision of an `InferenceConfig`.

    `batch_size` and `tile_batch` are the images and tiles per pass. They are halved when memory runs out, and stay
    smaller for the images that follow. The tile keeps its size: another one would change the results, which
    must not depend on the load of the machine.

    Parameters
    ----------
    segmenter
        On `device`.
    stages
        Where the time of the passes is added up; on a GPU it is the device's own.
    """

    def __init__(self, segmenter: AnyModel, config: InferenceConfig, device: torch.device, *, stages: Stages) -> None:
        self.batch_size, self.tile_batch = config.batch_size, config.tile_batch
        self._segmenter, self._config, self._device, self._stages = segmenter, config, device, stages
        mirrors, quarters = [False], [0]
        if config.flips:
            mirrors, quarters = [False, True], [0, 2]
        if config.rotations:
            quarters = [0, 1, 2, 3]
        self._views = [(mirrored, turn) for turn in quarters for mirrored in mirrors]  # the image itself first
        self._marks: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put the segmenter into evaluation mode within the block."""
        learning = [module for module in self._segmenter.modules() if module.training]
        self._segmenter.eval()
        try:
            yield
        finally:
            for module in learning:  # not train(): that would wake modules that were frozen
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
            Memory ran out for a single one.
        """
        while True:
            size = min(len(batch), self.batch_size if tile is None else self.tile_batch)
            try:
                with self._timed(), torch.inference_mode(), autocast(self._device, self._config.precision):
                    parts = [self._forward(batch[start : start + size]) for start in range(0, len(batch), size)]
                    return torch.cat(parts) if len(parts) > 1 else parts[0]
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                fault = error.with_traceback(None)  # its frames hold the tensors that did not fit
            what = "image" if tile is None else "tile"
            if size == 1:
                height, width = batch.shape[-2:]
                smaller = max(_LEAST_TILE, max(height, width) // 2 // _LEAST_TILE * _LEAST_TILE)
                remedy = f"Set inference.tile{f'={smaller}' if tile is None else f' below {tile}'}"
                raise RunError(
                    f"inference: out of memory for one {what} of {height} x {width}. {remedy} and "
                    "inference.tile_batch=1, or run on device=cpu."
                ) from fault
            _LOG.warning("out of memory: %d %ss at a time from here on (the same results)", size // 2, what)
            setattr(self, "batch_size" if tile is None else "tile_batch", size // 2)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def settle(self, *, wait: bool = True) -> None:
        """Add up the time of the passes that the device has finished, or of all with `wait`."""
        while self._marks:
            before, after = self._marks[0]
            if wait:
                after.synchronize()
            elif not after.query():  # type: ignore[no-untyped-call]
                return
            self._stages.add("forward", before.elapsed_time(after) / 1000)
            self._marks.pop(0)

    def _forward(self, images: Tensor) -> Tensor:
        """Average the probabilities over the views of images, as logits; a single view's logits are unchanged."""
        card = self._segmenter.card
        task = "multiclass" if card.class_map else card.spec.task  # views are averaged before classes are mapped
        predictions = (self._seen(images, *view) for view in self._views)
        return next(predictions) if len(self._views) == 1 else mean_logits(predictions, task)

    def _seen(self, images: Tensor, mirrored: bool, quarters: int) -> Tensor:
        """Run the segmenter on one view of images (B, C, H, W), and turn and mirror its output back."""
        seen = images.flip(-1) if mirrored else images
        found: Tensor = self._segmenter(seen.rot90(quarters, _PLANE) if quarters else seen)
        found = found.float() if found.is_floating_point() else found  # some give labels
        found = found.rot90(-quarters, _PLANE) if quarters else found
        return found.flip(-1) if mirrored else found

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
        self._marks.append((before, after))
        self.settle(wait=False)
