"""Declares the losses that a configuration can name, with their options and ranges, and builds them.

Building checks the options that depend on the data set's classes. Only then is torch imported.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from pydantic import Field

from segmeter.checks import collecting, expected, require_name
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError, InputError
from segmeter.schema import Config, Given, Registry, RuleError, Unit, rule

_LOG_OFFSETS = {"auto": 1.02, "log": 1.02, "mild": 1.1}  # the constant c of ENet, where it is 1.02

LOSSES = Registry("loss")

Backend = Literal["auto", "reference", "torch", "numba", "triton"]
Normalizer = Literal["valid", "elements", "positives"]
Scheme = Literal["auto", "log", "mild", "median", "inverse"]
Over = Literal["batch", "sample"]
ClassWeights = Scheme | Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(min_length=1)] | None
Pixels = Annotated[float, Unit("pixels")]


class LossConfig(Config, title="loss"):
    """The keys of every loss."""

    name: str
    """The registered name of the loss."""


class WeightedLossConfig(LossConfig):
    """A loss over pixels, whose classes can weigh differently."""

    class_weights: ClassWeights = None
    """Weight of each class: one number per class, or a scheme that computes them from the training set; null weighs all
    classes alike. The scheme "auto" is "log"; for eval, it is that of the checkpoint. Multiclass only."""
    label_smoothing: float = Field(0.0, ge=0, le=1)
    """Share of the target that is spread evenly over all classes."""


@LOSSES.register("focal", builder="segmeter.losses.focal:build_focal")
class FocalConfig(WeightedLossConfig):
    """Focal loss (Lin et al. 2017), softmax for multiclass and sigmoid otherwise, averaged over the valid pixels."""

    name: str = "focal"
    gamma: float = Field(2.0, ge=0)
    """Focusing exponent; 0 is cross-entropy."""
    alpha: float | None = Field(None, ge=0, le=1)
    """Weight of target 1, while 1 - alpha weighs target 0; null weighs both alike. Binary and multilabel only."""
    normalizer: Normalizer | Annotated[float, Field(gt=0)] = "valid"
    """The divisor of the sum over pixels: "valid" pixels, "elements" (valid pixels times channels), "positives"
    (not multiclass), or a number."""
    backend: Backend = "auto"
    """The implementation; all agree. "numba" runs on the CPU only, "triton" on CUDA only, and neither takes label
    smoothing; "reference" is an older name of "torch"."""


@LOSSES.register("cross_entropy", builder="segmeter.losses.focal:build_focal")
class CrossEntropyConfig(WeightedLossConfig):
    """Cross-entropy, which is focal loss at gamma 0: softmax for multiclass, sigmoid otherwise."""

    name: str = "cross_entropy"


class RegionLossConfig(LossConfig):
    """A loss over regions: it compares sums over the pixels of each class."""

    over: Over = "batch"
    """The pixels that form a region. With "batch", they are those of all images of a forward pass together. So with
    `training.accumulate`, the loss is the mean over the forward passes. With "sample", they are those of each image.
    The loss is then the mean over the images that have a class, the same however they are split into forward passes."""


@LOSSES.register("dice", builder="segmeter.losses.region:build_region_loss")
class DiceConfig(RegionLossConfig):
    """Soft Dice, averaged over the classes that the target has."""

    name: str = "dice"
    smooth: Pixels = Field(1.0, gt=0)
    """Added above and below the fraction."""


@LOSSES.register("tversky", builder="segmeter.losses.region:build_region_loss")
class TverskyConfig(RegionLossConfig):
    """Tversky loss (Salehi et al. 2017): Dice with separate prices for false positives and false negatives."""

    name: str = "tversky"
    alpha: float = Field(0.3, ge=0)
    """Price of a false positive; alpha = beta = 0.5 is Dice."""
    beta: float = Field(0.7, ge=0)
    """Price of a false negative."""
    smooth: Pixels = Field(1.0, gt=0)
    """Added above and below the fraction."""


@LOSSES.register("focal_tversky", builder="segmeter.losses.region:build_region_loss")
class FocalTverskyConfig(TverskyConfig):
    """Focal Tversky loss (Abraham and Khan 2019): each class's Tversky loss to the power `gamma`."""

    name: str = "focal_tversky"
    gamma: float = Field(0.75, gt=0)
    """The exponent itself, where the paper writes 1/gamma and uses 3/4; below 1 lifts classes that are nearly right."""


@LOSSES.register("lovasz", builder="segmeter.losses.region:build_region_loss")
class LovaszConfig(RegionLossConfig):
    """Lovasz loss (Berman et al. 2018): softmax for multiclass, hinge for binary and multilabel."""

    name: str = "lovasz"


class PartWeights(Config, title="loss.weights"):
    """The weight of each part of a sum; 0 leaves it out."""

    focal: float = Field(1.0, ge=0)
    """Weight of the focal loss."""
    cross_entropy: float = Field(0.0, ge=0)
    """Weight of cross-entropy."""
    dice: float = Field(1.0, ge=0)
    """Weight of soft Dice."""
    tversky: float = Field(0.0, ge=0)
    """Weight of the Tversky loss."""
    focal_tversky: float = Field(0.0, ge=0)
    """Weight of the focal Tversky loss."""
    lovasz: float = Field(0.0, ge=0)
    """Weight of the Lovasz loss."""


@LOSSES.register("sum", builder="segmeter.losses.config:build_sum")
class SumConfig(LossConfig):
    """A weighted sum of losses; the options of each part are those of the loss itself."""

    name: str = "sum"
    weights: PartWeights = PartWeights()
    """How much each part weighs."""
    focal: FocalConfig = FocalConfig()
    """Options of the focal loss."""
    cross_entropy: CrossEntropyConfig = CrossEntropyConfig()
    """Options of cross-entropy."""
    dice: DiceConfig = DiceConfig()
    """Options of soft Dice."""
    tversky: TverskyConfig = TverskyConfig()
    """Options of the Tversky loss."""
    focal_tversky: FocalTverskyConfig = FocalTverskyConfig()
    """Options of the focal Tversky loss."""
    lovasz: LovaszConfig = LovaszConfig()
    """Options of the Lovasz loss."""

    @rule("weights")
    def _some_part(cls, weights: PartWeights, given: Given) -> None:
        if not any(dict(weights).values()):
            raise RuleError("to have one that is > 0")


if TYPE_CHECKING:  # `segmeter check` suggests class weights where torch isn't installed
    from torch import nn


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
        An option does not go with the task or the number of classes, or a plugin's builder gives no module.
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
    weights = config.class_weights
    if weights is None:
        return None
    with collecting("loss") as problems:
        remedy = "Use `loss.alpha` to weigh target 1 against target 0."
        problems.expect(spec.task == "multiclass", "class_weights", f"to be null for {spec.task}", weights, remedy)
        if isinstance(weights, str):
            rule = "to be numbers where the pixels per class of the training set are not known"
            remedy = "`segmeter check` suggests one per class."
            problems.expect(class_counts is not None, "class_weights", rule, weights, remedy)
        else:
            rule = f"to have {spec.num_classes} values, one for each of {', '.join(spec.names)}"
            problems.expect(len(weights) == spec.num_classes, "class_weights", rule, tuple(weights))
    if isinstance(weights, str):
        return tuple(map(float, class_weights(np.asarray(class_counts), weights)))
    return tuple(weights)


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
    require_name("class_weights", "scheme", scheme, get_args(Scheme))
    counts = np.asarray(counts)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or counts.min(initial=0) < 0 or not counts.any():
        raise InputError(
            expected("class_weights", "counts", "to be (K,) integers, >= 0 and not all 0", counts.tolist())
        )
    share: npt.NDArray[np.float64] = counts / counts.sum(dtype=np.float64)
    if scheme in _LOG_OFFSETS:
        return np.asarray(1 / np.log(_LOG_OFFSETS[scheme] + share))
    numerator = float(np.median(share[share > 0])) if scheme == "median" else 1 / counts.size
    return np.asarray(np.divide(numerator, share, out=np.zeros_like(share), where=share > 0))
