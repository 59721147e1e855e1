"""Checks the losses' options and tensors, and counts what the focal loss divides by."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple, get_args

import torch

from segmeter.checks import Problems, collecting, expected, shown
from segmeter.classes import TASKS, Task
from segmeter.errors import ConfigError, InputError
from segmeter.losses.config import Backend
from segmeter.losses.targets import LABEL_DTYPES, is_class, read_labels, valid_mask, widest_float


def refuse_bad_labels(
    bad: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    softmax: bool,
    ignore_index: int | None,
    where: str,
) -> None:
    """Raise InputError with the bad labels and the first places, where reading their number waits for no device."""
    if logits.device.type != "cpu" or torch.compiler.is_compiling() or bad == 0:
        return
    places = read_labels(logits, target, softmax=softmax, ignore_index=ignore_index).bad.nonzero()
    first = [tuple(int(i) for i in place) for place in places[:5]]
    values = [target[place].item() for place in first]
    if target.is_floating_point():
        kind, rule = "values", "to hold 0 to 1, being a soft target"
    else:
        most = logits.shape[1] - 1 if softmax else 1
        ignored = "" if ignore_index is None else f" and ignore_index={ignore_index}"
        kind, rule = "labels", f"to hold 0 to {most}{ignored}"
    given = f"{len(places)} other {kind}, the first {values} at {first}"
    hint = "0 and 255 are often a mask that wants dividing by 255." if 255 in values else ""
    raise InputError(expected(where, "target", rule, given, hint))


class FocalOptions(NamedTuple):
    """The options of the focal loss, as `focal_loss` names them."""

    task: Task
    gamma: float
    alpha: float | tuple[float, float] | None
    class_weights: torch.Tensor | None
    ignore_index: int | None
    label_smoothing: float
    reduction: str
    normalizer: str | float
    backend: str


def check_focal_options(where: str, task: Task, gamma: Any, alpha: Any, class_weights: Any, *rest: Any) -> FocalOptions:
    """Read the options in the order of `FocalOptions`.

    Raises
    ------
    ConfigError
        It names every option that is out of range or does not go with the task.
    """
    if not isinstance(task, str):
        raise ConfigError(expected(where, "task", f"to be one of {', '.join(TASKS)}", shown(task)))
    found = FocalOptions(task, gamma, _read_alpha(alpha), read_weights(where, class_weights), *rest)
    found = found._replace(ignore_index=whole_number(found.ignore_index))
    number = found.normalizer
    with collecting(where) as problems:
        check_common(problems, task, found.ignore_index)
        check_numbers(problems, gamma=gamma, label_smoothing=found.label_smoothing, normalizer=number)
        problems.in_range("gamma", gamma, 0)
        _check_alpha(problems, found.alpha, task)
        problems.in_range("label_smoothing", found.label_smoothing, 0, 1)
        problems.one_of("reduction", found.reduction, ("mean", "sum", "none"))
        problems.one_of("backend", found.backend, get_args(Backend))
        _check_class_weights(problems, found.class_weights, task)
        if isinstance(number, str):
            problems.one_of("normalizer", number, ("valid", "elements", "positives"))
            remedy = "It counts the elements with target 1, which a softmax does not have."
            ok = task != "multiclass" or number != "positives"
            problems.expect(ok, "normalizer", "to be valid, elements or a number for multiclass", number, remedy)
        else:
            problems.in_range("normalizer", number, 0, above=True)
    return found


def check_common(problems: Problems, task: str, ignore_index: Any) -> None:
    """Note an unknown task, and an ignore_index that is not a whole number."""
    problems.one_of("task", task, TASKS)
    whole = ignore_index is None or (isinstance(ignore_index, int) and not isinstance(ignore_index, bool))
    problems.expect(whole, "ignore_index", "to be a whole number or None", ignore_index)


def check_numbers(problems: Problems, **values: Any) -> None:
    """Note each value that is None, which a range lets through."""
    for name, value in values.items():
        problems.expect(value is not None, name, "to be given", value)


def whole_number(value: Any) -> Any:
    """Turn 255.0 or a NumPy integer into an int, and leave anything else as it is."""
    real = isinstance(value, Real) and not isinstance(value, bool)
    return int(value) if real and math.isfinite(value) and value == int(value) else value


def _read_alpha(alpha: Any) -> Any:
    """Turn a list, array or tensor into a tuple of floats, and leave a number as it is."""
    if hasattr(alpha, "tolist"):
        alpha = alpha.tolist()
    return tuple(alpha) if isinstance(alpha, Sequence) and not isinstance(alpha, str) else alpha


def read_weights(where: str, weights: Any) -> torch.Tensor | None:
    """Give class weights as a dense float32 tensor, as the kernels read it; ConfigError where they are not numbers."""
    if weights is None:
        return None
    try:
        return torch.as_tensor(weights, dtype=torch.float32).contiguous()
    except (TypeError, ValueError, RuntimeError) as error:
        rule = "to be one number per class"
        raise ConfigError(expected(where, "class_weights", rule, repr(weights))) from error


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
    """Refuse shapes, dtypes and devices that do not fit, reading no value; give the target as the backends take it.

    Returns
    -------
    (B, N...) for multiclass, (B, 1, N...) for binary, (B, K, N...) for multilabel and soft multiclass; uint8 for bool.

    Raises
    ------
    InputError
        Something does not fit; `soft` says whether a floating target may.
    """
    _check_types(where, logits, target, task=task, soft=soft)
    channels = logits.shape[1]
    full = task == "multilabel" or (target.is_floating_point() and task == "multiclass")
    shape = tuple(logits.shape) if full else (logits.shape[0], *logits.shape[2:])
    if tuple(target.shape) != shape and not (task == "binary" and target.shape == logits.shape):
        rule = f"of shape {shape} for {task} logits {tuple(logits.shape)}"
        raise InputError(expected(where, "target", rule, tuple(target.shape), _shape_remedy(target, logits, task)))
    if logits.device != target.device:
        raise InputError(expected(where, "target", f"on {logits.device} with the logits", target.device))
    if target.is_floating_point() and ignore_index is not None:
        raise InputError(expected(where, "ignore_index", "to be None with a soft target", ignore_index))
    if class_weights is not None and class_weights.device != logits.device:
        remedy = "Move the loss there: loss.to(device)."
        rule = f"on {logits.device} with the logits"
        raise InputError(expected(where, "class_weights", rule, class_weights.device, remedy))
    if class_weights is not None and class_weights.shape != (channels,):
        rule = f"to have {channels} values, one per class"
        raise InputError(expected(where, "class_weights", rule, tuple(class_weights.shape)))
    if target.dtype == torch.bool:
        target = target.view(torch.uint8)
    return target.unsqueeze(1) if task == "binary" and target.ndim < logits.ndim else target


def _check_types(where: str, logits: Any, target: Any, *, task: Task, soft: bool) -> None:
    for name, value in (("logits", logits), ("target", target)):
        if not isinstance(value, torch.Tensor):
            remedy = "Use torch.from_numpy(array)." if hasattr(value, "__array__") else ""
            raise InputError(expected(where, name, "to be a torch.Tensor", type(value).__qualname__, remedy))
    given = f"{logits.dtype} {tuple(logits.shape)}"
    if not logits.is_floating_point() or logits.ndim < 2:
        raise InputError(expected(where, "logits", "to be floating (B, K, N...)", given))
    channels = logits.shape[1]
    if (channels != 1 and task == "binary") or (channels < 2 and task == "multiclass") or channels < 1:
        rule = {"binary": "to have 1 channel", "multiclass": "to have 2 channels or more"}.get(task, "to have channels")
        raise InputError(expected(where, "logits", f"{rule} for {task}", given))
    if target.is_floating_point():
        if not soft:
            remedy = "It is defined on sets of pixels: pass target.long(), or take another loss for soft targets."
            raise InputError(expected(where, "target", "to hold integer labels", target.dtype, remedy))
    elif target.dtype not in LABEL_DTYPES and (target.dtype != torch.bool or task == "multiclass"):
        flags = "" if task == "multiclass" else ", or bool"
        shares = ", or floating for a soft target" if soft else ""
        rule = f"of dtype uint8, int16, int32 or int64{flags}{shares}"
        raise InputError(expected(where, "target", rule, target.dtype))


def _shape_remedy(target: torch.Tensor, logits: torch.Tensor, task: Task) -> str:
    if target.ndim == logits.ndim and target.shape[1] == 1:
        return "Squeeze its channel axis."
    if task == "multiclass" and target.is_floating_point() and target.ndim == logits.ndim - 1:
        return "It is floating, so it is read as probabilities of all classes; for class numbers pass target.long()."
    return ""


def _check_alpha(problems: Problems, alpha: float | tuple[float, ...] | None, task: str) -> None:
    if task == "multiclass":
        problems.expect(alpha is None, "alpha", "to be None for multiclass", alpha, "Use class_weights.")
        if not isinstance(alpha, tuple):
            problems.in_range("alpha", alpha, 0, 1)
    elif isinstance(alpha, tuple):
        ok = task == "binary" and len(alpha) == 2
        rule = "to be one number, or for binary a pair: the weights of target 0 and of target 1"
        problems.expect(ok, "alpha", rule, alpha)
        for value in alpha if ok else ():
            check_numbers(problems, alpha=value)
            problems.in_range("alpha", value, 0)
    else:
        problems.in_range("alpha", alpha, 0, 1)


def _check_class_weights(problems: Problems, weights: torch.Tensor | None, task: str) -> None:
    if weights is None:
        return
    alone = task == "multiclass"
    problems.expect(alone, "class_weights", f"to be None for {task}", tuple(weights.shape), "Use alpha.")
    if weights.device.type != "cpu" or torch.compiler.is_compiling():
        return  # reading them would wait for the device
    ok = weights.ndim == 1 and bool((weights.isfinite() & (weights >= 0)).all()) and bool(weights.any())
    problems.expect(ok, "class_weights", "to be (K,), finite and >= 0, one of them > 0", weights.tolist())


def count_normalizer(target: torch.Tensor, options: FocalOptions) -> torch.Tensor:
    """Give what `focal_loss` divides by, from the target alone: 0-d of the widest float, and 0 for a number."""
    wide, normalizer, weights = widest_float(target.device), options.normalizer, options.class_weights
    if not isinstance(normalizer, str):
        return torch.zeros((), dtype=wide, device=target.device)
    soft = target.is_floating_point()
    if normalizer == "positives":
        return (target if soft else target == 1).sum(dtype=wide)
    elements = target[:, 0] if soft and options.task == "multiclass" else target
    if normalizer == "elements":
        return torch.full((), elements.numel(), dtype=wide, device=target.device)
    valid = valid_mask(elements, options.ignore_index)
    if weights is None or soft:
        return valid.sum(dtype=wide)
    valid = valid & is_class(elements, len(weights))  # the loss refuses other labels
    return torch.where(valid, weights.to(wide)[torch.where(valid, elements, 0).long()], 0).sum()
