"""segmenter -> traced program: images as they are stored in, label maps out, for any batch, height and width.

Axes: B batch, H height, W width, C channels of the image, K classes.
"""

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export
from torch.fx.experimental import _config as shapes  # what lets a traced size also be 1; torch.onnx sets it likewise

from segmeter.bridge.decode import decision_level
from segmeter.classes import label_dtype
from segmeter.errors import ConfigError
from segmeter.models.segmenter import Segmenter

INPUT, OUTPUT = "images", "labels"
AXES = ("batch", "height", "width")


class LabelModel(nn.Module):
    """A segmenter with its decoding, whose every step can be traced for sizes that are not known yet.

    Parameters
    ----------
    segmenter
        Gives the network, normalisation and padding.
    threshold
        Binary and multilabel: a class is present where its probability is above this.
    """

    def __init__(self, segmenter: Segmenter, *, threshold: float) -> None:
        super().__init__()
        self.segmenter = segmenter
        self.level = decision_level(threshold, double=False)
        self.dtype = getattr(torch, label_dtype(segmenter.card.spec.num_values - 1).name)

    def forward(self, images: Tensor) -> Tensor:
        """Labels of (B, H, W, C) images: (B, H, W), for multilabel (B, K, H, W)."""
        height, width = images.shape[1:3]
        # a clone, as strides like those of channels_last would make the tracer tell sizes of 1 from all others
        padded = self._pad(images).permute(0, 3, 1, 2).clone(memory_format=torch.contiguous_format)
        logits = self.segmenter.network(self.segmenter.normalise(padded))
        labels = self._decode(logits)
        return _take(_take(labels, -2, _count(height, images)), -1, _count(width, images))

    def _decode(self, logits: Tensor) -> Tensor:
        task = self.segmenter.card.spec.task
        if task == "multiclass":
            return logits.argmax(dim=1).to(self.dtype)
        return ((logits[:, 0] if task == "binary" else logits) > self.level).to(self.dtype)

    def _pad(self, images: Tensor) -> Tensor:
        """What `pad_to_multiple` does, by indices: which of its two ways is taken is not known when this is traced."""
        height, width = images.shape[1:3]
        tall, wide = self._padded(height), self._padded(width)
        tiny = (_scalar(2 * height, images) <= tall) | (_scalar(2 * width, images) <= wide)
        rows = _mirrored(_count(tall, images), height, tiny)
        columns = _mirrored(_count(wide, images), width, tiny)
        return _take(_take(images, 1, rows), 2, columns)

    def _padded(self, size: int) -> int:
        multiple, least = self.segmenter.size_multiple, self.segmenter.size_least
        size = torch.sym_max(size, least) if least > 1 else size
        return (size + multiple - 1) // multiple * multiple


def trace(segmenter: Segmenter, *, threshold: float, dtype: str) -> ExportedProgram:
    """Trace a segmenter, on the device that it is on.

    Parameters
    ----------
    segmenter
        In evaluation mode.
    threshold
        As in `LabelModel`.
    dtype
        Of the images: "uint8", "uint16" or "float32".

    Raises
    ------
    ConfigError
        The network can't be traced for every size.
    """
    model = LabelModel(segmenter, threshold=threshold).eval()
    edge = 2 * max(segmenter.size_multiple, segmenter.size_least)
    shape = (2, edge + 7, edge + 13, segmenter.card.in_channels)  # of no weight: every axis but the last may differ
    example = torch.zeros(shape, dtype=getattr(torch, dtype), device=segmenter.gain.device)
    axes = {axis: Dim(name, min=1) for axis, name in enumerate(AXES)}
    try:
        with torch.no_grad(), shapes.patch(backed_size_oblivious=True):
            return export(model, (example,), dynamic_shapes=(axes,))
    except Exception as error:  # whatever the network's own code raises
        name, reason = segmenter.card.model.get("name"), " ".join(str(error).split())[:200]
        raise ConfigError(
            f"export: the network {name!r} can't be traced for images of any size ({type(error).__name__}: {reason}). "
            "Train one that can, such as model=unet."
        ) from error


def _count(size: int, like: Tensor) -> Tensor:
    return torch.arange(size, device=like.device)


def _scalar(size: int, like: Tensor) -> Tensor:
    return torch.full((1,), size, device=like.device)


def _take(tensor: Tensor, axis: int, indices: Tensor) -> Tensor:
    return tensor.index_select(axis, indices)


def _mirrored(places: Tensor, size: int, tiny: Tensor) -> Tensor:
    """Where each padded row comes from: mirrored at the last one, or in a tiny image that last one again."""
    return torch.where(tiny, places.clamp(max=size - 1), torch.where(places < size, places, 2 * size - 2 - places))
