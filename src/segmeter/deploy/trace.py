"""segmenter -> traced program: images as they are stored in, label maps out, for any batch, height and width.

Axes: B batch, H height, W width, C channels of the image, K classes.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._dynamo.exc import UserError
from torch.export import Dim, ExportedProgram, export
from torch.fx.experimental import _config as shapes

from segmeter.bridge.decode import decision_level
from segmeter.classes import label_dtype
from segmeter.errors import ConfigError
from segmeter.models.ensemble import Ensemble, mean_logits
from segmeter.models.segmenter import Segmenter

INPUT, OUTPUT = "images", "labels"
AXES = ("batch", "height", "width")


class LabelModel(nn.Module):
    """A segmenter, or several that are averaged, with decoding; every step can be traced for sizes not known yet.

    Parameters
    ----------
    model
        Gives the networks, their normalisation and padding.
    threshold
        Binary and multilabel: a class is present where its probability is above this.
    """

    def __init__(self, model: Segmenter | Ensemble, *, threshold: float) -> None:
        super().__init__()
        self.members = nn.ModuleList(model.members if isinstance(model, Ensemble) else [model])
        self.spec = model.card.spec
        self.level = decision_level(threshold, double=False)
        self.dtype = getattr(torch, label_dtype(self.spec.num_values - 1).name)

    def forward(self, images: Tensor) -> Tensor:
        """Labels of (B, H, W, C) images: (B, H, W), for multilabel (B, K, H, W)."""
        if len(self.members) == 1:  # labels are cropped, which are fewer bytes than logits
            return _cropped(self._decode(_padded_logits(self.members[0], images)), images)
        logits = (_cropped(_padded_logits(member, images).float(), images) for member in self.members)
        return self._decode(mean_logits(logits, self.spec.task))

    def _decode(self, logits: Tensor) -> Tensor:
        task = self.spec.task
        if task == "multiclass":
            return logits.argmax(dim=1).to(self.dtype)
        return ((logits[:, 0] if task == "binary" else logits) > self.level).to(self.dtype)


@dataclass(frozen=True, kw_only=True)
class Traced:
    """A traced program, and the least height and width of its images."""

    program: ExportedProgram
    least: int


def trace(segmenter: Segmenter | Ensemble, *, threshold: float, dtype: str) -> Traced:
    """Trace a segmenter, or several that are averaged, on the device that it is on.

    Networks that distinguish maps of one pixel are traced for images larger than their stride.

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
        The network can't be traced for sizes that are not known yet.
    """
    model = LabelModel(segmenter, threshold=threshold).eval()
    stride = max(segmenter.size_multiple, segmenter.size_least)
    try:
        return Traced(program=_export(model, stride, least=1, dtype=getattr(torch, dtype)), least=1)
    except UserError:
        pass
    except Exception as error:  # whatever the network's own code raises
        raise _refusal(segmenter, error) from error
    try:
        program = _export(model, stride, least=stride + 1, dtype=getattr(torch, dtype))
        return Traced(program=program, least=stride + 1)
    except Exception as error:
        raise _refusal(segmenter, error) from error


def _export(model: LabelModel, stride: int, *, least: int, dtype: torch.dtype) -> ExportedProgram:
    first = cast(Segmenter, model.members[0])
    shape = (2, 2 * stride + 7, 2 * stride + 13, first.card.in_channels)  # every axis but the last may differ
    example = torch.zeros(shape, dtype=dtype, device=first.gain.device)
    batch, height, width = AXES
    axes = {0: Dim(batch, min=1), 1: Dim(height, min=least), 2: Dim(width, min=least)}
    # oblivious: no axis is taken to be larger than 1 because that of the example is
    with torch.no_grad(), shapes.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
        return export(model, (example,), dynamic_shapes=(axes,))


def _refusal(segmenter: Segmenter | Ensemble, error: Exception) -> ConfigError:
    name, reason = segmenter.card.model.get("name"), " ".join(str(error).split())[:200]
    return ConfigError(
        f"export: the network {name!r} can't be traced for images of any size ({type(error).__name__}: {reason}). "
        "Train one that can, such as model=unet."
    )


def _padded_logits(segmenter: Any, images: Tensor) -> Tensor:
    """Logits of (B, H, W, C) images with the rows and columns that the network's stride adds."""
    # a clone, as strides like those of channels_last would make the tracer tell sizes of 1 from all others
    padded = padded_by_indices(segmenter, images).permute(0, 3, 1, 2).clone(memory_format=torch.contiguous_format)
    logits: Tensor = segmenter.padded_logits(segmenter.normalise(padded))
    return logits


def padded_by_indices(segmenter: Any, images: Tensor) -> Tensor:
    """What `pad_to_multiple` does to (B, H, W, C): which of its two ways is taken is not known when this is traced."""
    height, width = images.shape[1:3]
    tall, wide = (_padded(size, segmenter.size_multiple, segmenter.size_least) for size in (height, width))
    tiny = (_scalar(2 * height, images) <= tall) | (_scalar(2 * width, images) <= wide)
    rows = _mirrored(_count(tall, images), height, tiny)
    columns = _mirrored(_count(wide, images), width, tiny)
    return _take(_take(images, 1, rows), 2, columns)


def _padded(size: int, multiple: int, least: int) -> int:
    wanted: Any = torch.sym_max(size, least) if least > 1 else size
    return cast(int, (wanted + multiple - 1) // multiple * multiple)  # a symbol: int() would fix its value


def _cropped(maps: Tensor, images: Tensor) -> Tensor:
    """The rows and columns of maps (..., h, w) that are those of the images."""
    height, width = images.shape[1:3]
    return _take(_take(maps, -2, _count(height, images)), -1, _count(width, images))


def _count(size: int, like: Tensor) -> Tensor:
    return torch.arange(size, device=like.device)


def _scalar(size: int, like: Tensor) -> Tensor:
    return torch.full((1,), size, device=like.device)


def _take(tensor: Tensor, axis: int, indices: Tensor) -> Tensor:
    return tensor.index_select(axis, indices)


def _mirrored(places: Tensor, size: int, tiny: Tensor) -> Tensor:
    """Where each padded row comes from: mirrored at the last one, or in a tiny image that last one again."""
    return torch.where(tiny, places.clamp(max=size - 1), torch.where(places < size, places, 2 * size - 2 - places))
