"""logits -> labels or probs, decoded where the logits are, so that one byte per pixel crosses."""

import math
from dataclasses import replace
from decimal import Decimal, localcontext
from functools import cache
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from segmeter.bridge.device_check import Rule, measure, raise_if_bad
from segmeter.bridge.dtypes import SIGNED, TORCH, LabelDtype, wanted_label_dtype
from segmeter.bridge.kernels import fused
from segmeter.bridge.kernels.argmax import winners
from segmeter.bridge.tensor_checks import check_tensor
from segmeter.bridge.transfer import Transfer, fetch
from segmeter.checks import expected, known_name, real_number, whole_number
from segmeter.classes import TASKS, Task
from segmeter.errors import InputError

ProbsDtype = Literal["float32", "float16", "uint8"]
_FINITE = "Non-finite logits have no winner: look for an overflow (float16?) or a diverged model."


def decode_labels(logits: Tensor, *, task: Task, threshold: float = 0.5) -> Tensor:
    """Decode logits on their own device, and wait for the check.

    `HostCopier.submit_labels` does the same without waiting.

    Parameters
    ----------
    logits
        (B, K, H, W), floating; binary (B, 1, H, W).
    task
        multiclass: the largest channel wins, the first among equals. binary and multilabel: 1 where
        sigmoid(logit) > threshold, decided exactly, on the logit.
    threshold
        0 to 1; not used by multiclass.

    Returns
    -------
    (B, H, W), multilabel (B, K, H, W): uint8, or uint16 for more than 256 classes; on the device of `logits`.

    Raises
    ------
    InputError
        A logit is NaN or infinite (with the first position), or the shape or dtype does not fit the task.
    """
    num_classes = logits.shape[1] if task == "multiclass" and logits.ndim > 1 else 2
    wanted = wanted_label_dtype("decode_labels", num_classes=num_classes, ignore_index=None, dtype="auto")
    transfer = _pack_logits("decode_labels", logits, task=task, threshold=threshold, dtype=TORCH[wanted])
    if transfer.record is not None and transfer.rule is not None:
        raise_if_bad(transfer.record.cpu().numpy(), transfer.rule, None)
    return transfer.payload


def labels_to_numpy(
    logits_or_labels: Tensor,
    *,
    task: Task,
    num_classes: int,
    ignore_index: int | None = None,
    threshold: float = 0.5,
    dtype: LabelDtype = "auto",
) -> np.ndarray:
    """Bring logits or labels to the host as label maps, one or two bytes per pixel.

    Parameters
    ----------
    logits_or_labels
        Floating: logits (B, K, H, W), binary (B, 1, H, W), decoded on their device as `decode_labels` does.
        Integer or bool: labels of any shape, which are only checked.
    task, threshold
        As for `decode_labels`.
    num_classes
        K, background included; binary 2.
    ignore_index
        A label value that is no class but allowed in labels, up to 65535, or None.
    dtype
        "auto": uint8 if all classes and `ignore_index` fit, else uint16. It does not depend on the values, so that
        all maps of a run are alike.

    Returns
    -------
    (B, H, W), multilabel (B, K, H, W), uint8 or uint16, fresh and owned by the caller.

    Raises
    ------
    InputError
        A logit is NaN or infinite, or a label is neither a class nor `ignore_index` (with min, max and the first bad
        index); `ignore_index` is a class; the shape does not fit the task; `dtype` is too small.

    Examples
    --------
    >>> import torch
    >>> from segmeter import labels_to_numpy
    >>> logits = torch.tensor([[[[0.5, -1.0]], [[0.25, 2.0]]]])
    >>> labels_to_numpy(logits, task="multiclass", num_classes=2)
    array([[[0, 1]]], dtype=uint8)
    """
    transfer = pack_labels(
        "labels_to_numpy",
        logits_or_labels,
        task=task,
        num_classes=num_classes,
        ignore_index=ignore_index,
        threshold=threshold,
        dtype=dtype,
    )
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


def pack_labels(
    where: str,
    logits_or_labels: Tensor,
    *,
    task: Task,
    num_classes: int,
    ignore_index: int | None,
    threshold: float,
    dtype: LabelDtype,
) -> Transfer:
    """Pack label maps on the device; see `labels_to_numpy`."""
    tensor = check_tensor(where, "logits_or_labels", logits_or_labels)
    known_name(where, "task", task, TASKS)
    num_classes = whole_number(where, "num_classes", num_classes)
    ignore_index = None if ignore_index is None else whole_number(where, "ignore_index", ignore_index)
    wanted = TORCH[wanted_label_dtype(where, num_classes=num_classes, ignore_index=ignore_index, dtype=dtype)]
    if task == "binary" and num_classes != 2:
        raise InputError(expected(where, "num_classes", "to be 2 for binary (background, object)", num_classes))
    values = 2 if task == "multilabel" else num_classes
    if ignore_index is not None and ignore_index < values:
        remedy = "Predicted pixels of that class could not be told from ignored ones."
        raise InputError(expected(where, "ignore_index", f"to be no class, >= {values}", ignore_index, remedy))
    if not tensor.is_floating_point():
        return _pack_given(where, tensor, num_classes=values, ignore_index=ignore_index, dtype=wanted)
    channels = 1 if task == "binary" else num_classes
    if tensor.ndim < 2 or tensor.shape[1] != channels:
        rule = f"to be logits (B, {channels}, H, W) for {task} with {num_classes} classes"
        raise InputError(expected(where, "logits_or_labels", rule, f"shape {tuple(tensor.shape)}"))
    return _pack_logits(where, tensor, task=task, threshold=threshold, dtype=wanted)


def pack_probs(where: str, logits: Tensor, *, task: Task, dtype: ProbsDtype) -> Transfer:
    """Pack probabilities on the device; see `probs_to_numpy`."""
    known_name(where, "task", task, TASKS)
    known_name(where, "dtype", dtype, get_args(ProbsDtype))
    tensor = _check_logits(where, logits, task).float()
    probs = tensor.softmax(dim=1) if task == "multiclass" else tensor.sigmoid()
    if dtype == "uint8":
        probs = (probs * 255).round_().clamp_(0, 255)
    wanted = TORCH[np.dtype(dtype)]
    lows, highs = torch.aminmax(tensor.contiguous(), dim=1) if tensor.numel() else (tensor[:, :0], tensor[:, :0])
    return _transfer(where, probs.to(wanted).contiguous(), lows=lows, highs=highs)


def _pack_logits(where: str, logits: Tensor, *, task: Task, threshold: float, dtype: torch.dtype) -> Transfer:
    """Decode logits into a payload of 1 or 2 bytes per pixel, with the record of the check for finite logits."""
    known_name(where, "task", task, TASKS)
    tensor = _check_logits(where, logits, task)
    if task == "multiclass":
        return _pack_argmax(where, tensor, dtype)
    threshold = real_number(where, "threshold", threshold)
    if not 0 <= threshold <= 1:
        raise InputError(expected(where, "threshold", ">= 0 and <= 1", threshold))
    if task == "binary":
        tensor = tensor.squeeze(1)
    level = decision_level(threshold, double=tensor.dtype == torch.float64)
    if fused.takes(tensor):
        return _fused_transfer(where, *fused.threshold_labels(tensor, level, dtype))
    wide = tensor if tensor.dtype == torch.float64 else tensor.float()
    return _transfer(where, (wide > level).to(dtype).contiguous(), lows=tensor, highs=tensor)


def _pack_argmax(where: str, tensor: Tensor, dtype: torch.dtype) -> Transfer:
    shape = tuple(tensor.shape[:1] + tensor.shape[2:])
    flat = tensor.flatten(2) if tensor.ndim > 2 else tensor[..., None]
    if fused.takes(flat, channels=flat.shape[1]):
        found, record = fused.argmax_labels(flat, dtype)
        return _fused_transfer(where, found.view(shape), record)
    found, extremes = winners(flat, dtype)
    if extremes is None:
        return _transfer(where, found.view(shape))
    return _transfer(where, found.view(shape), lows=extremes[0].view(shape), highs=extremes[1].view(shape))


def _pack_given(
    where: str, tensor: Tensor, *, num_classes: int, ignore_index: int | None, dtype: torch.dtype
) -> Transfer:
    """Labels that were decoded before: each value must be a class or the ignore value."""
    if tensor.dtype == torch.uint64 or tensor.is_complex():
        raise InputError(expected(where, "logits_or_labels", "to be integer, bool or floating", tensor.dtype))
    values = tensor.to(SIGNED.get(tensor.dtype, tensor.dtype))
    values = values if values.dtype == torch.int64 else values.to(torch.int32)
    bad = (values < 0) | (values >= num_classes)
    text = f"to hold classes 0 to {num_classes - 1}"
    if ignore_index is not None:
        bad &= values != ignore_index
        text += f" or ignore_index {ignore_index}"
    packed = tensor.to(dtype).contiguous()
    record = measure(bad, values, values) if values.numel() else None
    shape = tuple(tensor.shape)
    rule = Rule(where=where, argument="labels", text=text, remedy="", shape=shape, values=values.dtype)
    private = packed.numel() > 0 and packed.data_ptr() != tensor.data_ptr()
    return Transfer(payload=packed, arrives=dtype, record=record, rule=rule, private=private)


def _transfer(where: str, payload: Tensor, *, lows: Tensor | None = None, highs: Tensor | None = None) -> Transfer:
    """A payload computed from logits, and the record of whether those were finite where that is not known."""
    if lows is None or highs is None or not lows.numel():
        return Transfer(payload=payload, arrives=payload.dtype, record=None, rule=None, private=True)
    bad = ~(lows.isfinite() & highs.isfinite())
    rule = _finite_rule(where, tuple(bad.shape), lows.dtype)
    return Transfer(payload=payload, arrives=payload.dtype, record=measure(bad, lows, highs), rule=rule, private=True)


def _fused_transfer(where: str, payload: Tensor, record: Tensor) -> Transfer:
    """A payload whose record was written by the kernel that decoded it."""
    rule = replace(_finite_rule(where, tuple(payload.shape), torch.float32), sortable=True)
    return Transfer(payload=payload, arrives=payload.dtype, record=record, rule=rule, private=True)


def _finite_rule(where: str, shape: tuple[int, ...], values: torch.dtype) -> Rule:
    return Rule(where=where, argument="logits", text="to be finite", remedy=_FINITE, shape=shape, values=values)


def _check_logits(where: str, logits: Tensor, task: Task) -> Tensor:
    tensor = check_tensor(where, "logits", logits).resolve_neg()
    fits = tensor.is_floating_point() and tensor.ndim >= 2 and tensor.shape[1] > 0
    if not fits or (task == "binary" and tensor.shape[1] != 1):
        channels = 1 if task == "binary" else "K"
        given = f"{tensor.dtype} of shape {tuple(tensor.shape)}"
        raise InputError(expected(where, "logits", f"to be floating (B, {channels}, H, W) for {task}", given))
    return tensor


@cache
def decision_level(threshold: float, *, double: bool) -> float:
    """The largest float32 or float64 c that is not above ln(t / (1 - t)): x > c decides sigmoid(x) > t for such x."""
    if threshold in (0.0, 1.0):
        return math.inf if threshold else -math.inf
    with localcontext(prec=50):
        level = (Decimal(threshold) / (1 - Decimal(threshold))).ln()
        wide = np.float64 if double else np.float32
        nearest = wide(level)
        return float(nearest if Decimal(float(nearest)) <= level else np.nextafter(nearest, wide(-math.inf)))
