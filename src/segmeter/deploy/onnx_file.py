"""Traces a segmenter from stored images to label maps, for any batch, height and width, and writes it as ONNX.

Axes: B batch, H height, W width, C channels of the image, K classes.
"""

import json
import warnings
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._dynamo.exc import UserError
from torch.export import Dim, ExportedProgram, export
from torch.fx.experimental import _config as shapes

from segmeter.bridge.decode import decision_level
from segmeter.classes import label_dtype
from segmeter.errors import ConfigError, refusing
from segmeter.models.ensemble import Ensemble, mean_logits
from segmeter.models.segmenter import Segmenter

INPUT, OUTPUT = "images", "labels"
AXES = ("batch", "height", "width")
KEY = "segmeter"  # Our facts have this key in ONNX's metadata


class LabelModel(nn.Module):
    """A segmenter, or several that are averaged, with decoding, in steps that can be traced for unknown sizes.

    Parameters
    ----------
    model
        The networks, with their normalisation and padding.
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
        """Predict labels of (B, H, W, C) images: (B, H, W), for multilabel (B, K, H, W)."""
        if len(self.members) == 1:  # cropping labels moves fewer bytes than cropping logits
            return _cropped(self._decode(_padded_logits(self.members[0], images)), images)
        logits = (_cropped(_padded_logits(member, images).float(), images) for member in self.members)
        return self._decode(mean_logits(logits, self.spec.task))

    def _decode(self, logits: Tensor) -> Tensor:
        task = self.spec.task
        if task == "multiclass":
            return logits.argmax(dim=1).to(self.dtype)
        return ((logits[:, 0] if task == "binary" else logits) > self.level).to(self.dtype)


def trace(segmenter: Segmenter | Ensemble, *, threshold: float, dtype: str) -> tuple[ExportedProgram, int]:
    """Trace a segmenter, or several that are averaged, on its own device.

    Networks that distinguish maps of one pixel are traced for images larger than their stride.

    Parameters
    ----------
    segmenter
        In evaluation mode.
    threshold
        As in `LabelModel`.
    dtype
        The images' dtype: "uint8", "uint16" or "float32".

    Returns
    -------
    The program, and the least height and width of its images.

    Raises
    ------
    ConfigError
        The network can't be traced for unknown sizes.
    """
    model = LabelModel(segmenter, threshold=threshold).eval()
    first = cast(Segmenter, model.members[0])
    stride = max(segmenter.size_multiple, segmenter.size_least)
    shape = (2, 2 * stride + 7, 2 * stride + 13, first.card.in_channels)  # every axis but the last may differ
    example = torch.zeros(shape, dtype=getattr(torch, dtype), device=first.gain.device)
    problem: Exception | None = None
    for least in (1, stride + 1):
        axes = {number: Dim(name, min=1 if name == "batch" else least) for number, name in enumerate(AXES)}
        try:
            # Oblivious: the tracer must not conclude from the example that an axis is always larger than 1
            with torch.no_grad(), shapes.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
                return export(model, (example,), dynamic_shapes=(axes,)), least
        except UserError as error:  # the network distinguishes sizes
            problem = error
        except Exception as error:  # whatever the network's own code raises
            problem = error
            break
    name, reason = segmenter.card.model.get("name"), " ".join(str(problem).split())[:200]
    raise ConfigError(
        f"export: the network {name!r} can't be traced for images of any size ({type(problem).__name__}: {reason}). "
        "Train one that can, such as model=unet."
    ) from problem


def _padded_logits(segmenter: Any, images: Tensor) -> Tensor:
    """Compute the logits of (B, H, W, C) images, with the rows and columns that the network's stride adds."""
    # A contiguous clone: with channels_last strides, the tracer would treat sizes of 1 as a special case
    padded = padded_by_indices(segmenter, images).permute(0, 3, 1, 2).clone(memory_format=torch.contiguous_format)
    logits: Tensor = segmenter.padded_logits(segmenter.normalise(padded))
    return logits


def padded_by_indices(segmenter: Any, images: Tensor) -> Tensor:
    """Pad (B, H, W, C) as `pad_to_multiple` does. The traced program itself chooses between mirroring and repeating."""
    sizes = images.shape[1:3]
    multiple, least = segmenter.size_multiple, segmenter.size_least
    large: Any = [torch.sym_max(size, least) if least > 1 else size for size in sizes]
    padded = [(size + multiple - 1) // multiple * multiple for size in large]  # symbols: int() would fix their values
    pairs = zip(sizes, padded, strict=True)
    rows, columns = (
        torch.full((1,), 2 * size, dtype=torch.int64, device=images.device) <= wanted for size, wanted in pairs
    )
    tiny = rows | columns
    for axis, size, wanted in zip((1, 2), sizes, padded, strict=True):
        indices = torch.arange(wanted, device=images.device)
        mirrored = torch.where(indices < size, indices, 2 * size - 2 - indices)
        images = images.index_select(axis, torch.where(tiny, indices.clamp(max=size - 1), mirrored))
    return images


def _cropped(maps: Tensor, images: Tensor) -> Tensor:
    """Cut maps (..., h, w) to the images."""
    rows, columns = (torch.arange(size, device=images.device) for size in images.shape[1:3])
    return maps.index_select(-2, rows).index_select(-1, columns)


def encode(program: ExportedProgram, facts: Mapping[str, Any]) -> bytes:
    """Write a traced program as ONNX with its facts as metadata.

    Raises
    ------
    ConfigError
        An operation of the network is not in ONNX, or the file would be larger than the format allows.
    """
    import torch.onnx

    _check_pools(program)
    what, remedy = "export: this network can't be written as ONNX", "Use a network such as model=unet."
    with refusing(ConfigError, what, remedy), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)  # torch 2.11's own
        exported = torch.onnx.export(
            program, (), dynamo=True, input_names=[INPUT], output_names=[OUTPUT], verbose=False
        )
        assert exported is not None
        model = exported.model_proto
        symbols = [axis.dim_param for axis in model.graph.input[0].type.tensor_type.shape.dim[: len(AXES)]]
        names = dict(zip(symbols, AXES, strict=True))
        for value in (*model.graph.input, *model.graph.output):
            for axis in value.type.tensor_type.shape.dim:
                if axis.dim_param in names:
                    axis.dim_param = names[axis.dim_param]
        del model.graph.value_info[:]  # sizes of inner values, in symbols that no longer exist
        for node in model.graph.node:
            del node.metadata_props[:]  # has the paths of this machine's sources
        model.metadata_props.add(key=KEY, value=json.dumps(facts, ensure_ascii=False))
        content: bytes = model.SerializeToString()
    return content


def _check_pools(program: ExportedProgram) -> None:
    """Refuse pooling to a fixed number of cells: ONNX can't do it for every size, and the file would fail later."""
    for node in program.graph.nodes:
        if "adaptive_avg_pool2d" in str(node.target) and list(node.args[1]) != [1, 1]:
            cells = " x ".join(map(str, node.args[1]))
            raise ConfigError(
                f"export: this network pools to {cells} cells, as pspnet and upernet do, and ONNX can't do so for "
                "images of any size. Use a network such as model=unet."
            )
