"""Decodes logits into labels or probabilities where the logits are. Labels up to 255 cross as one byte per pixel."""

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal, localcontext
from functools import cache
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from segmeter.bridge import argmax
from segmeter.bridge.transfer import TORCH, Transfer, check_tensor, fetch, measure, packed
from segmeter.checks import expected, real_number, require_name, whole_number
from segmeter.classes import TASKS, Task, label_dtype
from segmeter.errors import InputError

ProbsDtype = Literal["float32", "float16", "uint8"]
_FINITE = "Non-finite logits have no winner: look for an overflow (float16?) or a diverged model."


class Decoding(NamedTuple):
    """The way logits become labels; the fields are arguments of `labels_to_numpy`."""

    task: Task
    num_classes: int
    ignore_index: int | None
    threshold: float


def labels_to_numpy(
    logits_or_labels: Tensor, *, task: Task, num_classes: int, ignore_index: int | None = None, threshold: float = 0.5
) -> np.ndarray:
    """Bring logits or labels to the host as label maps, one or two bytes per pixel.

    Parameters
    ----------
    logits_or_labels
        Floating: logits (B, K, H, W), binary (B, 1, H, W), decoded on their device.
        Integer or bool: labels of any shape, which are only checked.
    task, threshold
        multiclass: the largest channel wins, the first among equals. binary and multilabel: 1 where
        sigmoid(logit) > threshold, 0 to 1, decided exactly, on the logit.
    num_classes
        K, background included; binary 2.
    ignore_index
        A label value that is no class but allowed in labels, up to 65535, or None.

    Returns
    -------
    (B, H, W), multilabel (B, K, H, W), fresh and owned by the caller. uint8 if all classes and `ignore_index` fit, else
    uint16, whatever the values are, so all maps of a run are alike.

    Raises
    ------
    InputError
        A logit is NaN or infinite, or a label is neither a class nor `ignore_index` (with min, max and the first bad
        index); `ignore_index` is a class; the shape does not fit the task.

    Examples
    --------
    >>> import torch
    >>> from segmeter import labels_to_numpy
    >>> logits = torch.tensor([[[[0.5, -1.0]], [[0.25, 2.0]]]])
    >>> labels_to_numpy(logits, task="multiclass", num_classes=2)
    array([[[0, 1]]], dtype=uint8)
    """
    decoding = Decoding(task, num_classes, ignore_index, threshold)
    transfer = pack_labels("labels_to_numpy", logits_or_labels, decoding)
    array: np.ndarray = fetch(transfer).numpy()
    return array if transfer.private else array.copy()


def probs_to_numpy(logits: Tensor, *, task: Task, dtype: ProbsDtype = "float32") -> np.ndarray:
    """Bring the probabilities of all channels to the host.

    Parameters
    ----------
    logits
        (B, K, H, W), floating; binary (B, 1, H, W).
    task
        multiclass: softmax over the channels; binary and multilabel: sigmoid. Computed in float32.
    dtype
        "float32"; "float16" rounds to nearest (error up to 2.4e-4); "uint8" is round-half-even of 255 p, saturating
        (error up to 0.00196).

    Returns
    -------
    The shape of `logits`, fresh and owned by the caller.

    Raises
    ------
    InputError
        A logit is NaN or infinite, or the shape or dtype does not fit the task.

    Examples
    --------
    >>> import torch
    >>> from segmeter import probs_to_numpy
    >>> probs_to_numpy(torch.zeros(1, 1, 1, 2), task="binary")
    array([[[[0.5, 0.5]]]], dtype=float32)
    """
    array: np.ndarray = fetch(pack_probs("probs_to_numpy", logits, task=task, dtype=dtype)).numpy()
    return array


def pack_labels(where: str, logits_or_labels: Tensor, decoding: Decoding, class_map: Tensor | None = None) -> Transfer:
    """Pack label maps on the device; see `labels_to_numpy`.

    With a `class_map`, the logits or labels are of other classes, and it holds the label of each: the winner among
    those classes is decided first, and then mapped.
    """
    task, num_classes, ignore_index, threshold = decoding
    require_name(where, "task", task, TASKS)
    num_classes = whole_number(where, "num_classes", num_classes)
    ignore_index = None if ignore_index is None else whole_number(where, "ignore_index", ignore_index)
    for argument, value, least in (("num_classes", num_classes, 1), ("ignore_index", ignore_index, 0)):
        if value is not None and not least <= value <= 65535 + least:
            rule = f">= {least} and <= {65535 + least}, as labels are unsigned and of 16 bits at most"
            raise InputError(expected(where, argument, rule, value))
    wanted = TORCH[label_dtype(max(num_classes - 1, -1 if ignore_index is None else ignore_index))]
    if class_map is not None:
        transfer = pack_labels(where, logits_or_labels, Decoding("multiclass", len(class_map), None, threshold))
        classes = transfer.payload.long().clamp_(max=len(class_map) - 1)  # the record reports any larger one
        return replace(transfer, payload=class_map[classes].to(wanted), private=True)
    tensor = check_tensor(where, "logits_or_labels", logits_or_labels)
    if task == "binary" and num_classes != 2:
        raise InputError(expected(where, "num_classes", "to be 2 for binary (background, object)", num_classes))
    num_values = 2 if task == "multilabel" else num_classes
    if ignore_index is not None and ignore_index < num_values:
        remedy = "Predicted pixels of that class could not be told from ignored ones."
        raise InputError(expected(where, "ignore_index", f"to be no class, >= {num_values}", ignore_index, remedy))
    if not tensor.is_floating_point():  # labels that are decoded already
        if tensor.dtype == torch.uint64 or tensor.is_complex():
            raise InputError(expected(where, "logits_or_labels", "to be integer, bool or floating", tensor.dtype))
        numbers = tensor.to(torch.int64 if tensor.dtype in (torch.int64, torch.uint32) else torch.int32)
        bad = (numbers < 0) | (numbers >= num_values)
        rule = f"to hold classes 0 to {num_values - 1}"
        if ignore_index is not None:
            bad &= numbers != ignore_index
            rule += f" or ignore_index {ignore_index}"
        return packed(tensor, tensor.to(wanted), bad, numbers, (where, "labels", rule, ""))
    channels = 1 if task == "binary" else num_classes
    if tensor.ndim < 2 or tensor.shape[1] != channels:
        rule = f"to be logits (B, {channels}, H, W) for {task} with {num_classes} classes"
        raise InputError(expected(where, "logits_or_labels", rule, f"shape {tuple(tensor.shape)}"))
    return _pack_logits(where, tensor.resolve_neg(), task=task, threshold=threshold, dtype=wanted)


def pack_probs(where: str, logits: Tensor, *, task: Task, dtype: ProbsDtype) -> Transfer:
    """Pack probabilities on the device; see `probs_to_numpy`."""
    require_name(where, "task", task, TASKS)
    require_name(where, "dtype", dtype, get_args(ProbsDtype))
    tensor = check_tensor(where, "logits", logits).resolve_neg()
    fits = tensor.is_floating_point() and tensor.ndim >= 2 and tensor.shape[1] > 0
    if not fits or (task == "binary" and tensor.shape[1] != 1):
        channels = 1 if task == "binary" else "K"
        got = f"{tensor.dtype} of shape {tuple(tensor.shape)}"
        raise InputError(expected(where, "logits", f"to be floating (B, {channels}, H, W) for {task}", got))
    tensor = tensor.float()
    probs = tensor.softmax(dim=1) if task == "multiclass" else tensor.sigmoid()
    if dtype == "uint8":
        probs = (probs * 255).round_().clamp_(0, 255)
    extremes = torch.aminmax(tensor.contiguous(), dim=1) if tensor.numel() else None
    return _finite(where, probs.to(TORCH[np.dtype(dtype)]).contiguous(), extremes=extremes)


def _pack_logits(where: str, tensor: Tensor, *, task: Task, threshold: float, dtype: torch.dtype) -> Transfer:
    """Decode logits into a payload of 1 or 2 bytes per pixel, with the record of the check for finite logits."""
    if task == "multiclass":
        shape = tuple(tensor.shape[:1] + tensor.shape[2:])
        flat = tensor.flatten(2) if tensor.ndim > 2 else tensor[..., None]
        if argmax.fused_takes(flat):
            labels, record = argmax.argmax_labels(flat, dtype)
            return _finite(where, labels.view(shape), record=record)
        labels, extremes = argmax.winners(flat, dtype)
        limits = None if extremes is None else [limit.view(shape) for limit in extremes]
        return _finite(where, labels.view(shape), extremes=limits)
    threshold = real_number(where, "threshold", threshold)
    if not 0 <= threshold <= 1:
        raise InputError(expected(where, "threshold", ">= 0 and <= 1", threshold))
    tensor = tensor.squeeze(1) if task == "binary" else tensor
    level = decision_level(threshold, double=tensor.dtype == torch.float64)
    wide = tensor if tensor.dtype == torch.float64 else tensor.float()
    return _finite(where, (wide > level).to(dtype).contiguous(), extremes=(tensor, tensor))


def _finite(
    where: str, payload: Tensor, *, extremes: Sequence[Tensor] | None = None, record: Tensor | None = None
) -> Transfer:
    """Return a payload computed from logits, with the record of whether the logits were finite.

    Either the kernel that decoded them wrote `record`, or it is measured on `extremes`, the lowest and highest logits
    of each pixel. If both are None, the logits are known to be finite.
    """
    shape = tuple(payload.shape)
    values = torch.float32
    sortable = record is not None
    if extremes is not None:
        lows, highs = extremes
        shape = tuple(lows.shape)
        values = lows.dtype
        record = measure(~(lows.isfinite() & highs.isfinite()), lows, highs)
    words = (where, "logits", "to be finite", _FINITE)
    return Transfer(
        payload=payload, private=True, record=record, words=words, shape=shape, values=values, sortable=sortable
    )


@cache
def decision_level(threshold: float, *, double: bool) -> float:
    """Find the largest float32 or float64 c not above ln(t / (1 - t)): x > c decides sigmoid(x) > t for such x."""
    if threshold in (0.0, 1.0):
        return math.inf if threshold else -math.inf
    with localcontext(prec=50):
        level = (Decimal(threshold) / (1 - Decimal(threshold))).ln()
        dtype = np.float64 if double else np.float32
        nearest = dtype(level)
        return float(nearest if Decimal(float(nearest)) <= level else np.nextafter(nearest, dtype(-math.inf)))
