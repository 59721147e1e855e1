"""Builds a loss from its configuration, and checks the options that depend on the data set's classes."""

from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import numpy.typing as npt

from segmeter.checks import collecting, expected, nearest
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError, InputError
from segmeter.losses.config import LOSSES, LossConfig, Scheme, SumConfig

if TYPE_CHECKING:  # `segmeter check` suggests class weights where torch isn't installed
    from torch import nn

_LOG_OFFSETS = {"auto": 1.02, "log": 1.02, "mild": 1.1}  # ENet's c, which is 1.02 there


def build_loss(config: Any, spec: ClassSpec, class_counts: npt.NDArray[np.int64] | None = None) -> "nn.Module":
    """Build the loss that a configuration names.

    Parameters
    ----------
    config
        One of the models of `segmeter.losses.config`, or a registered one.
    spec
        The data set's task, classes and ignored value.
    class_counts : (K,) int64
        Pixels per class in the training set; needed where ``class_weights`` names a scheme.

    Returns
    -------
    A module: forward(logits (B, num_channels, H, W) of any float dtype, target integer (B, H, W), or (B, K, H, W) for
    multilabel) -> 0-d float32 tensor. It is an `AdditiveLoss`, or the module of a registered builder, which is assumed
    to be a mean over the pixels that are not ignored.

    Raises
    ------
    ConfigError
        An option does not go with the task or the number of classes.
    """
    module = LOSSES.build(config, spec=spec, class_counts=class_counts)
    from torch import nn

    if not isinstance(module, nn.Module):
        raise ConfigError(f"loss: expected the builder of {config.name!r} to give a torch module, got {type(module)}.")
    return module


def fix_weights(config: LossConfig, spec: ClassSpec, class_counts: npt.NDArray[np.int64] | None) -> LossConfig:
    """Replace a scheme in ``class_weights`` by numbers, also in the parts of a sum; arguments as for `build_loss`."""
    parts = {name: part for name, part in dict(config).items() if isinstance(part, LossConfig)}
    changes: dict[str, Any] = {name: fix_weights(part, spec, class_counts) for name, part in parts.items()}
    if isinstance(getattr(config, "class_weights", None), str):
        changes["class_weights"] = resolve_weights(config, spec, class_counts)
    return config.replace(**changes)


def resolve_weights(
    config: Any, spec: ClassSpec, class_counts: npt.NDArray[np.int64] | None
) -> tuple[float, ...] | None:
    """Turn ``config.class_weights`` into numbers; ConfigError if they do not fit the classes."""
    given = config.class_weights
    if given is None:
        return None
    with collecting("loss") as problems:
        remedy = "Use `loss.alpha` to weigh target 1 against target 0."
        problems.expect(spec.task == "multiclass", "class_weights", f"to be null for {spec.task}", given, remedy)
        if isinstance(given, str):
            rule = "to be numbers where the pixels per class of the training set are not known"
            remedy = "`segmeter check` suggests one per class."
            problems.expect(class_counts is not None, "class_weights", rule, given, remedy)
        else:
            rule = f"to have {spec.num_classes} values, one for each of {', '.join(spec.names)}"
            problems.expect(len(given) == spec.num_classes, "class_weights", rule, tuple(given))
    if isinstance(given, str):
        return tuple(float(weight) for weight in class_weights(np.asarray(class_counts), given))
    return tuple(given)


def build_sum(config: SumConfig, *, spec: ClassSpec, class_counts: npt.NDArray[np.int64] | None) -> "nn.Module":
    """Build the sum of every part whose weight is above 0."""
    from segmeter.losses.additive import SumLoss, additive

    weights = {name: weight for name, weight in config.weights if weight > 0}
    parts = {name: additive(build_loss(getattr(config, name), spec, class_counts), spec) for name in weights}
    return SumLoss(parts, weights)


def class_weights(counts: npt.NDArray[np.int64], scheme: str = "auto") -> npt.NDArray[np.float64]:
    """Compute weights that lift rare classes, from the pixels of each class in the training set.

    With f the share of a class among all counted pixels:

    * "log": ``1 / log(1.02 + f)``: bounded (1.42 to 50.5), so a class that is nearly absent can't take over.
      "auto" means this one.
    * "mild": ``1 / log(1.1 + f)``: bounded (1.35 to 10.5).
    * "median": ``median(f) / f``, the median over the classes that occur; unbounded.
    * "inverse": ``1 / (K f)``: every class has the same total weight; unbounded.

    Parameters
    ----------
    counts : (K,) integer
        Pixels per class, >= 0, ignored pixels left out.
    scheme
        "auto", "log", "mild", "median" or "inverse".

    Returns
    -------
    (K,) float64. A class without pixels gets the largest value of "log" and "mild", and 0 from "median" and "inverse".

    Raises
    ------
    InputError
        Counts are negative, all zero, not integers or not (K,); or the scheme is unknown.

    References
    ----------
    Paszke et al. 2016, arXiv:1606.02147, section 5.2 ("log", and with another constant "mild"); Eigen and Fergus 2015,
    arXiv:1411.4734, section 6.3.2 ("median"; theirs counts only images that contain the class, ours all of them).

    Examples
    --------
    >>> print(class_weights(np.array([900, 90, 10]), "median").round(3))
    [0.1 1.  9. ]
    """
    if scheme not in get_args(Scheme):
        rule = f"to be one of {', '.join(get_args(Scheme))}"
        raise InputError(expected("class_weights", "scheme", rule, repr(scheme), nearest(scheme, get_args(Scheme))))
    array: npt.NDArray[Any] = np.asarray(counts)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        given = f"{array.dtype} {array.shape}"
        raise InputError(expected("class_weights", "counts", "to be integers (K,)", given))
    if array.min() < 0 or array.max() == 0:
        rule = "to be >= 0 with one above 0"
        raise InputError(expected("class_weights", "counts", rule, [int(count) for count in array]))
    share: npt.NDArray[np.float64] = array / array.sum(dtype=np.float64)
    if scheme in _LOG_OFFSETS:
        return np.asarray(1 / np.log(_LOG_OFFSETS[scheme] + share))
    top = float(np.median(share[share > 0])) if scheme == "median" else 1 / array.size
    weights: npt.NDArray[np.float64] = np.divide(top, share, out=np.zeros_like(share), where=share > 0)
    return weights
