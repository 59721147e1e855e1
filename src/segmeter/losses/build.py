"""config -> loss module, with everything checked that only the data set's classes can tell."""

from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from segmeter.checks import Problems, collecting
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.losses.config import LOSSES, LossConfig
from segmeter.losses.weights import class_weights


def build_loss(config: Any, spec: ClassSpec, class_counts: npt.NDArray[np.int64] | None = None) -> nn.Module:
    """Build the loss that a configuration names.

    Parameters
    ----------
    config
        One of the dataclasses of `segmeter.losses.config`, or a registered one.
    spec
        The data set's task, classes and ignore_index.
    class_counts : (K,) int64
        Pixels per class in the training set; needed where ``class_weights`` names a scheme.

    Returns
    -------
    A module: forward(logits (B, num_channels, H, W) of any float dtype, target integer (B, H, W), or (B, K, H, W) for
    multilabel) -> 0-d float32 tensor. It is an `AdditiveLoss`, or what a registered builder gives: any other module is
    taken to be a mean over the pixels that are not ignored.

    Raises
    ------
    ConfigError
        An option does not go with the task or the number of classes.
    """
    module = LOSSES.build(config, spec=spec, class_counts=class_counts)
    if not isinstance(module, nn.Module):
        raise ConfigError(f"loss: expected the builder of {config.name!r} to give a torch module, got {type(module)}.")
    return module


def fix_weights(config: LossConfig, spec: ClassSpec, class_counts: npt.NDArray[np.int64] | None) -> LossConfig:
    """Put numbers in place of a scheme in ``class_weights``, in the parts of a sum too; arguments as `build_loss`."""
    parts = {name: part for name, part in dict(config).items() if isinstance(part, LossConfig)}
    changes: dict[str, Any] = {name: fix_weights(part, spec, class_counts) for name, part in parts.items()}
    if isinstance(getattr(config, "class_weights", None), str):
        changes["class_weights"] = resolve_weights(config, spec, class_counts)
    return config.replace(**changes)


def resolve_weights(
    config: Any, spec: ClassSpec, class_counts: npt.NDArray[np.int64] | None
) -> tuple[float, ...] | None:
    """Turn ``config.class_weights`` into numbers, or refuse what does not fit the classes."""
    given = config.class_weights
    if given is None:
        return None
    with collecting("loss") as problems:
        _check_fit(problems, given, spec, class_counts)
    if isinstance(given, str):
        return tuple(float(weight) for weight in class_weights(np.asarray(class_counts), given))
    return tuple(given)


def _check_fit(problems: Problems, given: Any, spec: ClassSpec, class_counts: npt.NDArray[np.int64] | None) -> None:
    remedy = "Use `loss.alpha` to weigh target 1 against target 0."
    problems.expect(spec.task == "multiclass", "class_weights", f"to be null for {spec.task}", given, remedy)
    if isinstance(given, str):
        rule = "to be numbers where the pixels per class of the training set are not known"
        remedy = "`segmeter check` suggests one per class."
        problems.expect(class_counts is not None, "class_weights", rule, given, remedy)
        return
    names = ", ".join(spec.names)
    rule = f"to have {spec.num_classes} values, one for each of {names}"
    problems.expect(len(given) == spec.num_classes, "class_weights", rule, tuple(given))
