"""images -> logits -> labels: a segmenter run over any number of images of any size."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from segmeter.bridge.decode import labels_to_numpy
from segmeter.bridge.scalars import read_scalars
from segmeter.bridge.to_torch import to_torch
from segmeter.checks import expected
from segmeter.data.sample import Sample
from segmeter.errors import InputError, RunError
from segmeter.inference.config import InferenceConfig
from segmeter.inference.flips import flipped_logits
from segmeter.inference.memory import Budget, is_out_of_memory
from segmeter.inference.precision import autocast, pick_dtype
from segmeter.inference.reading import Indexed, read_ahead, same_shape_groups
from segmeter.inference.tiling import build_grid, tiled_logits
from segmeter.models.segmenter import Segmenter


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One case with what the model says of it.

    `labels` is (H, W), multilabel (K, H, W), uint8 or uint16, on the host; `logits` is (num_channels, H, W) float32,
    still on the device.
    """

    sample: Sample
    labels: np.ndarray
    logits: Tensor


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
        The device does not compute in the precision that is asked for.
    """

    def __init__(self, segmenter: Segmenter, config: InferenceConfig, device: torch.device) -> None:
        pick_dtype(device, config.precision)
        self.segmenter = segmenter.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.config = config
        self.device = device
        self._budget = Budget(config)

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

    def labels(self, logits: Tensor) -> np.ndarray:
        """Decode logits on their device, and bring the labels: (B, H, W), multilabel (B, K, H, W).

        Raises
        ------
        InputError
            A logit is NaN or infinite.
        """
        spec = self.segmenter.card.spec
        return labels_to_numpy(logits, task=spec.task, num_classes=spec.num_classes, threshold=self.config.threshold)

    def predict(self, samples: Iterable[Sample] | Indexed[Sample]) -> Iterator[Prediction]:
        """Go through samples in their order, those of one shape together, while the next ones are being read.

        Parameters
        ----------
        samples
            A data set, or anything that yields samples. About twice `batch_size` of them are in memory at a time.

        Yields
        ------
        One prediction per sample.

        Raises
        ------
        RunError
            The logits of a case are not finite (the case is named), or memory ran out. All cases before it were
            yielded.
        """
        for group in same_shape_groups(read_ahead(samples, 2 * self.config.batch_size), self.config.batch_size):
            logits = self.logits([sample.image for sample in group])
            yield from self._decode(group, logits)

    def _decode(self, group: Sequence[Sample], logits: Tensor) -> Iterator[Prediction]:
        try:
            labels = self.labels(logits)
        except InputError:
            good = self._count_finite(logits)
            if good == len(group):
                raise
            if good:
                yield from self._decode(group[:good], logits[:good])
            raise RunError(
                f"inference: the logits of case {group[good].case_id!r} hold NaN or infinity, so it has no labels. "
                f"Check its image; an overflow goes away with inference.precision=float32."
            ) from None
        for sample, case_labels, case_logits in zip(group, labels, logits, strict=True):
            yield Prediction(sample=sample, labels=case_labels, logits=case_logits)

    def _count_finite(self, logits: Tensor) -> int:
        """How many images come before the first with a logit that is not finite."""
        finite = read_scalars([torch.isfinite(each).all() for each in logits])
        return finite.index(0.0) if 0.0 in finite else len(finite)

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
            self._budget.shrink(fault, images=len(image), height=image.shape[2], width=image.shape[3])

    def _run(self, image: Tensor) -> Tensor:
        tile = self._budget.tile
        height, width = image.shape[-2:]
        if tile is None or max(height, width) <= tile:
            size = self._budget.batch_size
            parts = [self._forward(image[start : start + size]) for start in range(0, len(image), size)]
            return torch.cat(parts) if len(parts) > 1 else parts[0]
        grid = build_grid(height, width, tile=tile, overlap=self.config.overlap, blend=self.config.blend)
        return tiled_logits(image, self._forward, grid=grid, tile_batch=self._budget.tile_batch)

    def _forward(self, image: Tensor) -> Tensor:
        if self.config.flips:
            return flipped_logits(image, self._network, task=self.segmenter.card.spec.task)
        return self._network(image)

    def _network(self, image: Tensor) -> Tensor:
        logits: Tensor = self.segmenter(image)
        return logits.float()
