"""A batch of images or tiles on the device -> its logits: in evaluation mode, within memory, on the clock."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from segmeter.inference.config import InferenceConfig
from segmeter.inference.memory import MemoryPlan
from segmeter.inference.oom_fallback import RunSizes, is_out_of_memory
from segmeter.inference.precision import autocast
from segmeter.inference.tta import averaged_logits, choose_views
from segmeter.models.ensemble import Ensemble
from segmeter.models.segmenter import Segmenter
from segmeter.progress import Stages


class Passes:
    """Forward passes of a segmenter, with test-time augmentation, as an `InferenceConfig` says.

    Parameters
    ----------
    segmenter
        On `device`.
    sizes
        How much is run at once; it shrinks where memory runs out.
    stages
        Where the time of the passes is added up; on a GPU it is the device's own.

    `memory` bounds the batches from the beginning, where it is set.
    """

    def __init__(
        self,
        segmenter: Segmenter | Ensemble,
        config: InferenceConfig,
        device: torch.device,
        *,
        sizes: RunSizes,
        stages: Stages,
    ) -> None:
        self.sizes = sizes
        self._segmenter, self._config, self._device, self._stages = segmenter, config, device, stages
        self._views = choose_views(flips=config.flips, rotations=config.rotations)
        self.memory: MemoryPlan | None = None
        self._marks: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put the segmenter into evaluation mode, and leave it in the mode it was in."""
        learning = [module for module in self._segmenter.modules() if module.training]
        self._segmenter.eval()
        try:
            yield
        finally:
            for module in learning:  # not train(): that would wake modules that were frozen
                module.training = True

    def settle(self) -> None:
        """Add up the time of all passes, after their results have been taken."""
        self._settle(wait=True)

    def run(self, batch: Tensor, *, tile: int | None = None) -> Tensor:
        """Logits of images, or of tiles of `tile` pixels, in as many passes as memory asks for.

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
        height, width = batch.shape[-2:]
        most = len(batch) if self.memory is None else self.memory.most(height, width, tile=tile)
        while True:
            try:
                with self._timed(), torch.inference_mode(), autocast(self._device, self._config.precision):
                    size = min(most, self.sizes.batch_size if tile is None else self.sizes.tile_batch)
                    parts = [self._forward(batch[start : start + size]) for start in range(0, len(batch), size)]
                    return torch.cat(parts) if len(parts) > 1 else parts[0]
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                fault = error.with_traceback(None)  # its frames hold the tensors that did not fit
            self.sizes.shrink(fault, count=min(most, len(batch)), tile=tile, height=height, width=width)

    def _forward(self, images: Tensor) -> Tensor:
        return averaged_logits(images, self._network, views=self._views, task=self._segmenter.card.spec.task)

    def _network(self, image: Tensor) -> Tensor:
        logits: Tensor = self._segmenter(image)
        return logits.float()

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
        self._settle()

    def _settle(self, *, wait: bool = False) -> None:
        """Add up the passes that the device has done."""
        while self._marks:
            before, after = self._marks[0]
            if wait:
                after.synchronize()  # the results of the last ones have been taken anyway
            elif not after.query():  # type: ignore[no-untyped-call]
                return
            self._stages.add("forward", before.elapsed_time(after) / 1000)
            self._marks.pop(0)
