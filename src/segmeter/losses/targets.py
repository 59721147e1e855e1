"""Checks the tensors of every loss once, at its public door, and reads targets safely.

Letters: B batch, K channels, N... the spatial axes.
"""

from itertools import pairwise

import torch

from segmeter.checks import expected
from segmeter.classes import Task
from segmeter.errors import InputError

LABEL_DTYPES = (torch.uint8, torch.int16, torch.int32, torch.int64)
SHARE_SLACK = 1e-5  # a soft target that was interpolated in float32 may leave 0 to 1 by this much


def check_tensors(
    where: str,
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    task: Task,
    ignore_index: int | None,
    class_weights: torch.Tensor | None = None,
    soft: bool = True,
) -> torch.Tensor:
    """Refuse shapes, dtypes and devices that do not fit, without reading a value, and align target and logits.

    Returns
    -------
    (B, N...) for multiclass, (B, 1, N...) for binary, (B, K, N...) for multilabel and soft multiclass; uint8 for bool.

    Raises
    ------
    InputError
        Something does not fit. A floating target fits only if `soft`.
    """
    for name, value in (("logits", logits), ("target", target)):
        if not isinstance(value, torch.Tensor):
            raise InputError(expected(where, name, "to be a torch.Tensor", type(value).__qualname__))
    binary, multiclass, floating = task == "binary", task == "multiclass", target.is_floating_point()
    channels = logits.shape[1] if logits.ndim > 1 else 0
    if not logits.is_floating_point() or not (channels == 1 if binary else channels > multiclass):
        least = "K = 1" if binary else f"K >= {1 + multiclass}"
        rule = f"to be floating (B, K, N...) with {least} for {task}"
        raise InputError(expected(where, "logits", rule, f"{logits.dtype} {tuple(logits.shape)}"))
    hard = target.dtype in LABEL_DTYPES or (target.dtype == torch.bool and not multiclass)
    if not hard and not (floating and soft):
        also = ("" if multiclass else ", bool") + (", or floating for a soft target" if soft else "")
        rule = f"of dtype uint8, int16, int32 or int64{also}"
        raise InputError(expected(where, "target", rule, target.dtype, "Pass target.long() for class numbers."))
    full = task == "multilabel" or (floating and multiclass)
    shape = tuple(logits.shape) if full else (logits.shape[0], *logits.shape[2:])
    aligned = tuple(target.shape) == shape or (binary and target.shape == logits.shape)
    if not aligned or target.device != logits.device:
        remedy = "Squeeze its channel axis." if not full and tuple(target.shape[:2]) == (logits.shape[0], 1) else ""
        if floating and multiclass and target.ndim == logits.ndim - 1:
            remedy = "A floating target holds probabilities of all classes; for class numbers pass target.long()."
        rule = f"of shape {shape} on {logits.device} for {task} logits {tuple(logits.shape)}"
        raise InputError(expected(where, "target", rule, f"{tuple(target.shape)} on {target.device}", remedy))
    if floating and ignore_index is not None:
        raise InputError(expected(where, "ignore_index", "to be None with a soft target", ignore_index))
    if class_weights is not None and (class_weights.shape != (channels,) or class_weights.device != logits.device):
        rule = f"to be ({channels},) on {logits.device}, one per class of the logits"
        got = f"{tuple(class_weights.shape)} on {class_weights.device}"
        remedy = "" if class_weights.device == logits.device else "Move the loss there: loss.to(device)."
        raise InputError(expected(where, "class_weights", rule, got, remedy))
    target = target.view(torch.uint8) if target.dtype == torch.bool else target
    return target.unsqueeze(1) if binary and target.ndim < logits.ndim else target


def refuse_bad_labels(
    bad: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    softmax: bool,
    ignore_index: int | None,
    where: str,
) -> None:
    """Raise InputError with the first bad labels and positions, unless reading their number would stall a device."""
    if logits.device.type != "cpu" or torch.compiler.is_compiling() or bad == 0:
        return
    positions = read_labels(logits, target, softmax=softmax, ignore_index=ignore_index)[2].nonzero()
    first = [tuple(int(i) for i in position) for position in positions[:5]]
    values = [target[position].item() for position in first]
    kind, rule = "values", "to hold 0 to 1, being a soft target"
    if not target.is_floating_point():
        ignored = "" if ignore_index is None else f" and ignore_index={ignore_index}"
        kind, rule = "labels", f"to hold 0 to {logits.shape[1] - 1 if softmax else 1}{ignored}"
    got = f"{len(positions)} other {kind}, the first {values} at {first}"
    hint = "A mask of 0 and 255 has to be divided by 255." if 255 in values else ""
    raise InputError(expected(where, "target", rule, got, hint))


def read_labels(
    logits: torch.Tensor, target: torch.Tensor, *, softmax: bool, ignore_index: int | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return int64 classes that are safe to index with, a mask of the elements that count, and a mask of bad ones.

    All elements of a soft target count.
    """
    if target.is_floating_point():
        shape = logits[:, 0].shape if softmax else logits.shape
        classes = torch.zeros(shape, dtype=torch.int64, device=logits.device)
        in_range = (target >= -SHARE_SLACK) & (target <= 1 + SHARE_SLACK)  # false for NaN
        return classes, torch.ones_like(classes, dtype=torch.bool), ~in_range
    known = is_class(target, logits.shape[1] if softmax else 2)
    valid = valid_mask(target, ignore_index)
    counted = known & valid
    return torch.where(counted, target, 0).long(), counted, valid & ~known


def one_hot(classes: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Mask the channel of each element's class, in the shape of the logits."""
    kinds = torch.arange(logits.shape[1], device=logits.device)
    return classes.unsqueeze(1) == kinds.view(1, -1, *[1] * (logits.ndim - 2))


def is_class(target: torch.Tensor, count: int) -> torch.Tensor:
    """Mask the labels 0 to count - 1."""
    return (target >= 0) & (target < count) if _holds(target.dtype, count) else target >= 0


def valid_mask(target: torch.Tensor, ignore_index: int | None) -> torch.Tensor:
    """Mask the elements that are not ignored: all of a soft target."""
    if ignore_index is None or target.is_floating_point() or not _holds(target.dtype, ignore_index):
        return torch.ones_like(target, dtype=torch.bool)
    return target != ignore_index


def _holds(dtype: torch.dtype, label: int) -> bool:
    """Tell whether the dtype can hold the label; torch would wrap the label to fit, and compare with that."""
    if dtype == torch.bool:
        return label in (0, 1)
    limits = torch.iinfo(dtype)
    return limits.min <= label <= limits.max


def widest_float(device: torch.device) -> torch.dtype:
    """Return float64 for sums over many pixels, or float32 on an Apple GPU, which has no wider one."""
    return torch.float32 if device.type == "mps" else torch.float64


def widened(logits: torch.Tensor) -> torch.Tensor:
    """Return the logits as float32, or unchanged if float64: in half precision confident pixels would have loss 0."""
    return logits if logits.dtype == torch.float64 else logits.float()


def with_pixel_stride(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return the tensor (B, K, N...) and its stride from pixel to pixel, or a dense copy if no single stride exists."""
    axes = [axis for axis in zip(tensor.shape[2:], tensor.stride()[2:], strict=True) if axis[0] > 1]
    if any(outer != size * inner for (_, outer), (size, inner) in pairwise(axes)):
        return tensor.contiguous(), 1
    return tensor, axes[-1][1] if axes else 1
