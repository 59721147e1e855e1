"""What a focal loss refuses, and the words it uses."""

import torch

from segmeter.checks import collecting, expected
from segmeter.errors import InputError
from segmeter.losses.backends.terms import Terms, read_labels
from segmeter.vocabulary import TASKS, Task

BACKENDS = ("auto", "reference", "closed", "compiled", "triton")
LABEL_DTYPES = (torch.uint8, torch.int16, torch.int32, torch.int64)


def refuse_bad_labels(
    bad: torch.Tensor, logits: torch.Tensor, target: torch.Tensor, *, terms: Terms, where: str
) -> None:
    """Raise InputError with the bad labels and the first places, where reading their number waits for no device."""
    if logits.device.type != "cpu" or torch.compiler.is_compiling() or bad == 0:
        return
    places = read_labels(logits, target, terms).bad.nonzero()
    first = [tuple(int(i) for i in place) for place in places[:5]]
    values = [int(target[place]) for place in first]
    most = logits.shape[1] - 1 if terms.softmax else 1
    rule = f"to hold 0 to {most}" + ("" if terms.ignore_index is None else f" and ignore_index={terms.ignore_index}")
    given = f"{len(places)} other labels, the first {values} at {first}"
    hint = "0 and 255 are often a mask that wants dividing by 255." if 255 in values else ""
    raise InputError(expected(where, "target", rule, given, hint))


def check_options(
    where: str,
    *,
    task: str,
    gamma: float,
    alpha: float | None,
    class_weights: torch.Tensor | None,
    ignore_index: int | None,
    label_smoothing: float,
    reduction: str,
    normalizer: str | float,
    backend: str,
) -> None:
    """Raise ConfigError with every option that is out of range or does not go with the task."""
    sigmoid = task != "multiclass"
    with collecting(where) as problems:
        problems.one_of("task", task, TASKS)
        problems.in_range("gamma", gamma, 0)
        problems.in_range("alpha", alpha, 0, 1)
        problems.in_range("label_smoothing", label_smoothing, 0, 1)
        problems.one_of("reduction", reduction, ("mean", "sum", "none"))
        problems.one_of("backend", backend, BACKENDS)
        remedy = "Use class_weights." if not sigmoid else "Use alpha."
        problems.expect(sigmoid or alpha is None, "alpha", "to be None for multiclass", alpha, remedy)
        problems.expect(
            not sigmoid or class_weights is None, "class_weights", f"to be None for {task}", class_weights, remedy
        )
        if isinstance(normalizer, str):
            problems.one_of("normalizer", normalizer, ("valid", "elements", "positives"))
            remedy = "It counts the elements with target 1, which a softmax does not have."
            ok = sigmoid or normalizer != "positives"
            problems.expect(ok, "normalizer", "to be another one for multiclass", normalizer, remedy)
        else:
            problems.in_range("normalizer", normalizer, 0, above=True)


def check_tensors(
    logits: torch.Tensor,
    target: torch.Tensor,
    task: Task,
    class_weights: torch.Tensor | None,
    ignore_index: int | None,
) -> None:
    """Raise InputError where shapes, dtypes or devices do not fit; reads no value."""
    given = f"{logits.dtype} {tuple(logits.shape)}"
    if not logits.is_floating_point() or logits.ndim < 2:
        raise InputError(expected("focal_loss", "logits", "to be floating (B, K, N...)", given))
    channels = logits.shape[1]
    if (channels != 1 and task == "binary") or (channels < 2 and task == "multiclass") or channels < 1:
        rule = {"binary": "to have 1 channel", "multiclass": "to have 2 channels or more"}.get(task, "to have channels")
        raise InputError(expected("focal_loss", "logits", f"{rule} for {task}", given))
    soft = target.is_floating_point()
    if not soft and target.dtype not in LABEL_DTYPES:
        rule = "of dtype uint8, int16, int32 or int64, or floating for a soft target"
        raise InputError(expected("focal_loss", "target", rule, target.dtype))
    full = task == "multilabel" or (soft and task == "multiclass")
    shape = tuple(logits.shape) if full else (logits.shape[0], *logits.shape[2:])
    if tuple(target.shape) != shape:
        remedy = "Squeeze its channel axis." if target.ndim == logits.ndim and target.shape[1] == 1 else ""
        rule = f"of shape {shape} for {task} logits {tuple(logits.shape)}"
        raise InputError(expected("focal_loss", "target", rule, tuple(target.shape), remedy))
    if logits.device != target.device:
        raise InputError(expected("focal_loss", "target", f"on {logits.device} with the logits", target.device))
    if soft and ignore_index is not None:
        raise InputError(expected("focal_loss", "ignore_index", "to be None with a soft target", ignore_index))
    if class_weights is not None and class_weights.device != logits.device:
        remedy = "Move the loss there: loss.to(device)."
        rule = f"on {logits.device} with the logits"
        raise InputError(expected("focal_loss", "class_weights", rule, class_weights.device, remedy))
    if class_weights is not None and class_weights.shape != (channels,):
        rule = f"to have {channels} values, one per class"
        raise InputError(expected("focal_loss", "class_weights", rule, tuple(class_weights.shape)))
