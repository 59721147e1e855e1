"""images -> logits -> labels: a segmenter run over any number of images of any size."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from segmeter.bridge.to_torch import to_torch
from segmeter.checks import expected
from segmeter.data.sample import Sample
from segmeter.errors import DataError, InputError
from segmeter.inference.async_results import Outbox, Prediction
from segmeter.inference.config import InferenceConfig
from segmeter.inference.oom_fallback import RunSizes, is_out_of_memory
from segmeter.inference.precision import autocast, pick_dtype
from segmeter.inference.prefetch import Indexed, one_behind, read_ahead, same_shape_groups
from segmeter.inference.tiling import build_grid, tiled_logits
from segmeter.inference.tta import flipped_logits
from segmeter.models.segmenter import Segmenter

Loss = Callable[[Tensor, Tensor], Tensor]


class Predictor:
    """Runs a segmenter as an `InferenceConfig` says.

    Parameters
    ----------
    segmenter
        Moved to `device`, in channels_last. It is run in evaluation mode, and left in the mode it was in.
    config
        Tiles, flips, precision, batch.
    device
        Where to run; see `segmeter.inference.device.pick_device`.

    Raises
    ------
    ConfigError
        The device does not support the precision.
    """

    def __init__(self, segmenter: Segmenter, config: InferenceConfig, device: torch.device) -> None:
        pick_dtype(device, config.precision)
        self.segmenter = segmenter.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.config = config
        self.device = device
        self._sizes = RunSizes(config)
        self._report: Callable[[float], None] = lambda images: None

    def watch(self, report: Callable[[float], None]) -> None:
        """Have `report` called after each pass over tiles with the images of the batch that are done, such as 0.25."""
        self._report = report

    def logits(self, images: Sequence[np.ndarray]) -> Tensor:
        """Logits of images of one shape.

        Parameters
        ----------
        images
            Each (H, W, C), uint8, uint16 or float32; any H, W >= 1.

        Returns
        -------
        (B, num_channels, H, W), float32, on the device. With flips, the logits of the mean probabilities.

        Raises
        ------
        InputError
            The shapes differ or are not what the segmenter takes.
        RunError
            One image, or one tile of it, needs more memory than there is.
        """
        image = self._upload(images)
        learning = [module for module in self.segmenter.modules() if module.training]
        self.segmenter.eval()
        try:
            with torch.inference_mode(), autocast(self.device, self.config.precision):
                return self._within_memory(image)
        finally:
            for module in learning:  # not train(): that would wake modules that were frozen
                module.training = True

    def predict(
        self, samples: Iterable[Sample] | Indexed[Sample], *, probs: bool = False, loss: Loss | None = None
    ) -> Iterator[Prediction]:
        """Go through samples in their order, those of one shape together, while the next ones are being read.

        On a GPU the device computes a batch while the one before it crosses and is worked on by the caller.

        Parameters
        ----------
        samples
            A data set, or anything that yields samples. About three times `batch_size` of them are in memory at a time.
        probs
            Whether probabilities are kept, which are 4 bytes per pixel and channel.
        loss
            From logits (1, num_channels, H, W) and a target with a batch axis to a tensor, of the same shape for every
            case; run on each case that has a target.

        Yields
        ------
        One prediction per sample.

        Raises
        ------
        DataError
            The loss does not take the target of a case (the case is named).
        RunError
            The logits of a case are not finite (the case is named), or memory ran out. All cases before it were
            yielded.
        """
        spec, size = self.segmenter.card.spec, self.config.batch_size
        groups = same_shape_groups(read_ahead(samples, 2 * size), size)
        with Outbox(self.device, spec, threshold=self.config.threshold, batch_size=size, probs=probs) as outbox:
            batches = (self._send(outbox, group, loss) for group in groups)
            for batch in one_behind(batches) if outbox.overlaps else batches:
                yield from batch

    def _send(self, outbox: Outbox, group: Sequence[Sample], loss: Loss | None) -> Iterator[Prediction]:
        if loss is None:
            return outbox.send(group, self.logits([sample.image for sample in group]), None)
        # targets first: an upload waits for what the device was given before
        targets = [self._upload_target(sample) for sample in group]
        logits = self.logits([sample.image for sample in group])
        losses = [
            None if target is None else _case_loss(loss, sample, case[None], target)
            for sample, case, target in zip(group, logits, targets, strict=True)
        ]
        return outbox.send(group, logits, losses)

    def _upload_target(self, sample: Sample) -> Tensor | None:
        target = sample.target
        if target is None:
            return None
        return to_torch(target[None], device=self.device, dtype="int32" if target.dtype == np.uint16 else None)

    def _upload(self, images: Sequence[np.ndarray]) -> Tensor:
        shapes = {np.shape(image) for image in images}
        if len(shapes) != 1 or len(next(iter(shapes))) != 3:
            given = ", ".join(str(shape) for shape in sorted(shapes)) or "none"
            raise InputError(expected("Predictor.logits", "images", "to be (H, W, C), all of one shape", given))
        # channels are last in memory as they were in the file: the transposed view is channels_last without a copy
        return to_torch(np.stack(images), device=self.device).permute(0, 3, 1, 2)

    def _within_memory(self, image: Tensor) -> Tensor:
        while True:
            try:
                return self._run(image)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                fault = error.with_traceback(None)  # its frames hold the tensors that did not fit
            self._sizes.shrink(fault, images=len(image), height=image.shape[2], width=image.shape[3])

    def _run(self, image: Tensor) -> Tensor:
        tile = self._sizes.tile
        height, width = image.shape[-2:]
        if tile is None or max(height, width) <= tile:
            size = self._sizes.batch_size
            parts = [self._forward(image[start : start + size]) for start in range(0, len(image), size)]
            return torch.cat(parts) if len(parts) > 1 else parts[0]
        grid = build_grid(height, width, tile=tile, overlap=self.config.overlap, blend=self.config.blend)
        tiles = self._sizes.tile_batch
        return tiled_logits(image, self._forward, grid=grid, tile_batch=tiles, on_tiles=self._report)

    def _forward(self, image: Tensor) -> Tensor:
        if self.config.flips:
            return flipped_logits(image, self._network, task=self.segmenter.card.spec.task)
        return self._network(image)

    def _network(self, image: Tensor) -> Tensor:
        logits: Tensor = self.segmenter(image)
        return logits.float()


@torch.no_grad()  # a tensor made in inference mode could not be used by a loss that learns later
def _case_loss(loss: Loss, sample: Sample, logits: Tensor, target: Tensor) -> Tensor:
    try:
        return loss(logits, target)
    except InputError as error:
        raise DataError(f"case {sample.case_id!r}: {error}") from error
