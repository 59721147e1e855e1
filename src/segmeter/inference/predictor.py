"""Runs a segmenter over any number of images of any size: whole, or in tiles whose results are blended in bands."""

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from segmeter.bridge.arrays import indexable
from segmeter.bridge.decode import ProbsDtype
from segmeter.bridge.host_copier import Uploader
from segmeter.checks import expected
from segmeter.data.dataset import Indexed, read_case
from segmeter.data.files.array import ArrayRows, LazyArray
from segmeter.data.sample import Sample
from segmeter.errors import ConfigError
from segmeter.inference.batches import Passes, same_shape_groups
from segmeter.inference.config import USUAL_TILE, WHOLE_PIXELS, InferenceConfig
from segmeter.inference.device import advised, give_back_freed_memory, pick_dtype
from segmeter.inference.results import Band, BandLoss, Loss, Outbox, Prediction, naming, sums_by_bands
from segmeter.inference.tiling import Grid, build_grid, tiled_bands
from segmeter.losses.additive import AdditiveLoss, loss_terms
from segmeter.models.ensemble import AnyModel, merge_classes
from segmeter.parallel import map_in_threads
from segmeter.progress import Stages

_DECODE_THREADS = 4  # decoders release the GIL, so they run side by side
_PIXELS = 1 << 23  # freed memory is returned to the system after this many pixels, seldom enough to cost little
_REMEDY = "Set inference.batch_size=1 and an inference.tile, or run on device=cpu."


class Predictor:
    """Moves a segmenter to a device, in channels_last, and runs it with the settings of an `InferenceConfig`.

    Parameters
    ----------
    segmenter
        Moved in place. It is run in evaluation mode, and left in the mode it was in.
    config
        Tiles, test-time augmentation, precision, batch.
    device
        Where to run; see `segmeter.inference.device.pick_device`.

    Raises
    ------
    ConfigError
        The device does not support the precision, or the network would pad each tile. For a model that others trained:
        tiles, flips or rotations if it resizes images or gives labels; a threshold if the best class decides.
    """

    def __init__(self, segmenter: AnyModel, config: InferenceConfig, device: torch.device) -> None:
        card, stride = segmenter.card, segmenter.size_multiple
        if card.foreign:
            unsupported = {key: getattr(config, key) for key in ("tile", "flips", "rotations") if getattr(config, key)}
            if unsupported and card.runs_whole:
                why = "resizes images" if card.output == "logits" else f"gives {card.output}"
                rule = f"to be left out for {card.model['name']}, which {why}"
                raise ConfigError(
                    [expected("config", f"inference.{key}", rule, value) for key, value in unsupported.items()]
                )
            if card.class_map and card.spec.task == "binary" and config.threshold != InferenceConfig().threshold:
                rule = f"to be left out for {card.model['name']}, whose best class decides each pixel"
                raise ConfigError(expected("config", "inference.threshold", rule, config.threshold))
            # "auto" is float32, as in the model's tool. A larger batch would only hold more logits: see `ForeignModel`
            precision = "float32" if config.precision == "auto" else config.precision
            config = config.replace(precision=precision, batch_size=1)
        self.precision = str(pick_dtype(device, config.precision)).removeprefix("torch.")
        tile = config.tile
        strides = math.ceil(1 / (1 - config.overlap) - 1e-9)
        least = max(segmenter.size_least, stride * strides)  # tiles begin at multiples of the stride
        if tile is not None and (tile % stride or tile < least):  # the network would pad it at every seam
            rule = f"to be a multiple of {stride}, the network's stride" + (f", and >= {least}" if tile < least else "")
            remedy = f"Set inference.tile={max(-(-tile // stride), -(-least // stride)) * stride}."
            raise ConfigError(expected("config", "inference.tile", rule, tile, remedy))
        # a model that others trained keeps its layout, as in its own tool
        layout = torch.preserve_format if card.foreign else torch.channels_last
        self.segmenter = segmenter.to(device=device, memory_format=layout)  # type: ignore[call-overload]
        self.config = config
        self.device = device
        self.stages = Stages()
        self._uploader = Uploader(device)
        self._passes = Passes(self.segmenter, config, device, stages=self.stages)
        self._report: Callable[[float], None] = lambda images: None

    def watch(self, report: Callable[[float], None]) -> None:
        """Call `report` after each pass over tiles with how many images of the batch are done, such as 0.25."""
        self._report = report

    def logits(self, images: Sequence[np.ndarray]) -> Tensor:
        """Compute the logits of images of one shape.

        Parameters
        ----------
        images
            Each (H, W, C), uint8, uint16 or float32; any H, W >= 1.

        Returns
        -------
        (B, num_channels, H, W), float32, on the device. With flips, rotations or several models, the logits of the mean
        probabilities.

        Raises
        ------
        InputError
            The images do not fit the segmenter.
        RunError
            One image, or one tile of it, needs more memory than there is.
        """
        with self._passes.evaluating():
            if self._tile_of(*images[0].shape[:2]) is None:
                return self._passes.run(self._upload(images).permute(0, 3, 1, 2))
            return torch.stack(
                [torch.cat([band.clone() for band in self._bands(ArrayRows(image))], 1) for image in images]
            )

    def predict(
        self,
        samples: Indexed[Sample],
        *,
        batches: Sequence[int] | None = None,
        probs: bool = False,
        probs_dtype: ProbsDtype = "float32",
        loss: Loss | None = None,
    ) -> Generator[Prediction, None, None]:
        """Predict samples in their order, consecutive ones of one shape together, while the next ones are being read.

        On a GPU, the device computes a batch while the one before it is copied and used by the caller.

        Parameters
        ----------
        samples
            A data set or a list. About three times `batch_size` of its samples are in memory at a time.
        batches
            The number of each sample's batch, so that a part of a run is predicted in the batches of the whole run.
            None groups the samples as they come.
        probs
            Whether probabilities are kept.
        probs_dtype
            The type in which they cross to the host; "float32" takes 4 bytes per pixel and channel.
        loss
            Called for each case that has a target, with logits (1, num_channels, H, W) and the target with a batch
            axis. Returns a tensor of the same shape for every case.

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
        card = self.segmenter.card
        size = self.config.batch_size
        if probs and card.output != "logits":
            remedy = "Write no probabilities or confidence, and leave out calibration."
            raise ConfigError(f"inference: {card.model['name']} gives {card.output}, without probabilities. {remedy}")

        def read(index: int) -> Sample:
            with self.stages.timed("read"):
                return read_case(samples, index)

        samples_read = map_in_threads(read, range(len(samples)), threads=_DECODE_THREADS, ahead=2 * size, name="read")
        groups = same_shape_groups(samples_read, size, batches)
        kept_dtype = probs_dtype if probs else None
        outbox = Outbox(self.device, card, threshold=self.config.threshold, probs=kept_dtype, stages=self.stages)
        for batch in outbox.in_turn(self._send(outbox, group, loss) for group in groups):
            yield from batch
        self._passes.settle()

    def stream(
        self,
        image: LazyArray,
        *,
        case_id: str,
        target: LazyArray | None = None,
        loss: BandLoss | None = None,
        probs: ProbsDtype | None = None,
    ) -> Generator[Band, None, None]:
        """Predict one image in tiles, from top to bottom, in memory that does not grow with its height.

        Parameters
        ----------
        image : (H, W, C)
            Read some lines at a time, in a thread of its own.
        target
            Its reference. Each band contains the reference's lines too.
        loss
            Adds up the loss over the bands.
        probs
            The type in which probabilities are kept, or None to keep none.

        Yields
        ------
        The bands, the same as those of the image in memory to the last bit.

        Raises
        ------
        The errors of `predict`.
        """
        card = self.segmenter.card
        if card.output != "logits":
            why = f"case {case_id!r} is too large to be read whole, and {card.model['name']} gives {card.output}"
            raise ConfigError(f"inference: {why}, which can't be joined. Cut the image into parts.")
        give_back_freed_memory()  # left over from checking the files
        outbox = Outbox(self.device, card, threshold=self.config.threshold, probs=probs, stages=self.stages)
        pixels = 0
        with self._passes.evaluating(), closing(self._bands(image)) as bands:
            for band in outbox.decode(bands, case_id=case_id, target=target, loss=loss):
                yield band
                pixels += band.labels.size
                if pixels >= _PIXELS:
                    give_back_freed_memory()
                    pixels = 0
        self._passes.settle()

    def _tile_of(self, height: int, width: int) -> int | None:
        """Return the edge of the tiles of an image, or None if it is run whole. Only the configuration decides it."""
        tile = self.config.tile or (USUAL_TILE if height * width > WHOLE_PIXELS else None)
        runs_whole = self.segmenter.card.runs_whole or tile is None or max(height, width) <= tile
        return None if runs_whole else tile

    def _send(self, outbox: Outbox, group: Sequence[Sample], loss: Loss | None) -> Iterator[Prediction]:
        if self._tile_of(*group[0].image.shape[:2]) is not None and (loss is None or sums_by_bands(loss)):
            return (self._by_bands(sample, loss, outbox.probs) for sample in group)
        # forward passes have a more precise message of their own
        with advised(f"inference: case {group[0].case_id!r}, {len(group)} at a time", _REMEDY):
            targets = [None if loss is None or sample.target is None else indexable(sample.target) for sample in group]
            uploaded = [None if target is None else self._upload([target]) for target in targets]
            logits = self.logits([sample.image for sample in group])
            losses = list[Tensor | None]()
            for sample, case, target in zip(group, logits, uploaded, strict=True):
                if loss is None or target is None:
                    losses.append(None)
                    continue
                merged = merge_classes(case[None], outbox.card)
                compute = partial(loss_terms, loss) if isinstance(loss, AdditiveLoss) else loss
                # a tensor made in inference mode could not be used by a loss that learns later
                with torch.no_grad(), naming(sample.case_id):
                    losses.append(compute(merged, target))
            arriving = outbox.send([sample.case_id for sample in group], logits, losses)
        return (Prediction(sample=sample, **vars(arrived)) for sample, arrived in zip(group, arriving, strict=True))

    def _by_bands(self, sample: Sample, loss: Loss | None, probs_dtype: ProbsDtype | None) -> Prediction:
        """Predict one image in tiles, and join the bands on the host."""
        target = None if sample.target is None else ArrayRows(sample.target, axis=sample.target.ndim - 2)
        band_loss = BandLoss(loss, self.device) if sums_by_bands(loss) and target is not None else None
        with advised(f"inference: case {sample.case_id!r}", _REMEDY):
            image = ArrayRows(sample.image)
            bands = self.stream(image, case_id=sample.case_id, target=target, loss=band_loss, probs=probs_dtype)
            first = next(bands)
            shape = *first.labels.shape[:-2], *sample.image.shape[:2]
            labels = np.empty(shape, first.labels.dtype)
            probs = None if first.probs is None else np.empty((len(first.probs), *shape[-2:]), first.probs.dtype)
            for band in chain([first], bands):  # each is dropped when it has been copied
                rows = slice(band.top, band.top + band.labels.shape[-2])
                labels[..., rows, :] = band.labels
                if probs is not None:
                    probs[:, rows] = band.probs
        terms = None if band_loss is None else band_loss.terms()
        return Prediction(sample=sample, labels=labels, probs=probs, loss=terms)

    def _bands(self, image: LazyArray) -> Generator[Tensor, None, None]:
        """Yield logits (num_channels, h, W) of an image from top to bottom, on the device."""
        height, width = image.shape[:2]
        tile = self._tile_of(height, width) or max(height, width)
        stride = self.segmenter.size_multiple
        grid = build_grid(height, width, tile=tile, overlap=self.config.overlap, blend=self.config.blend, stride=stride)
        run = partial(self._passes.run, tile=tile)
        with closing(self._strips(image, grid)) as strips:
            yield from tiled_bands(strips, run, grid=grid, tile_batch=self.config.tile_batch, on_tiles=self._report)

    def _strips(self, image: LazyArray, grid: Grid) -> Generator[Tensor, None, None]:
        """Yield the lines that each row of tiles adds, (C, h, W) on the device, while the next ones are being read."""

        def read(span: tuple[int, int]) -> np.ndarray:
            with self.stages.timed("read"):
                return grid.read(image, *span)

        in_memory = isinstance(image, ArrayRows)
        spans = grid.rows.spans()
        for block in map(read, spans) if in_memory else map_in_threads(read, spans, threads=1, ahead=1, name="read"):
            yield self._upload([block])[0].permute(2, 0, 1)

    def _upload(self, arrays: Sequence[np.ndarray]) -> Tensor:
        # channels are last in memory, as in the file, so a transposed view is channels_last without a copy
        with self.stages.timed("transfer"):
            self.stages.crossed("to the device", sum(array.nbytes for array in arrays))
            return self._uploader(arrays)
