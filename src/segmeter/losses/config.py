"""Declares the losses that a configuration can name, with their options and ranges, without importing torch."""

from typing import Annotated, Literal

from pydantic import Field

from segmeter.schema import Config, Given, Registry, RuleError, Unit, rule

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

    @rule("class_weights")
    def _some_weight(cls, weights: ClassWeights, given: Given) -> None:
        if isinstance(weights, tuple) and not any(weights):
            raise RuleError("to have one that is > 0")


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


@LOSSES.register("dice", builder="segmeter.losses.region:build_tversky")
class DiceConfig(RegionLossConfig):
    """Soft Dice, averaged over the classes that the target has."""

    name: str = "dice"
    smooth: Pixels = Field(1.0, gt=0)
    """Added above and below the fraction."""


@LOSSES.register("tversky", builder="segmeter.losses.region:build_tversky")
class TverskyConfig(RegionLossConfig):
    """Tversky loss (Salehi et al. 2017): Dice with separate prices for false positives and false negatives."""

    name: str = "tversky"
    alpha: float = Field(0.3, ge=0)
    """Price of a false positive; alpha = beta = 0.5 is Dice."""
    beta: float = Field(0.7, ge=0)
    """Price of a false negative."""
    smooth: Pixels = Field(1.0, gt=0)
    """Added above and below the fraction."""


@LOSSES.register("focal_tversky", builder="segmeter.losses.region:build_tversky")
class FocalTverskyConfig(TverskyConfig):
    """Focal Tversky loss (Abraham and Khan 2019): each class's Tversky loss to the power `gamma`."""

    name: str = "focal_tversky"
    gamma: float = Field(0.75, gt=0)
    """The exponent itself, where the paper writes 1/gamma and uses 3/4; below 1 lifts classes that are nearly right."""


@LOSSES.register("lovasz", builder="segmeter.losses.region:build_lovasz")
class LovaszConfig(RegionLossConfig):
    """Lovasz loss (Berman et al. 2018): softmax for multiclass, hinge for binary and multilabel."""

    name: str = "lovasz"


class PartWeights(Config, title="loss.weights"):
    """How much each part of a sum weighs; 0 leaves it out."""

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


@LOSSES.register("sum", builder="segmeter.losses.build:build_sum")
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
