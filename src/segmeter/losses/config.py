"""The losses that a configuration can name, with their options and ranges; torch is not imported here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from segmeter.checks import Problems, collecting
from segmeter.registry import Registry

LOSSES = Registry("loss")

Backend = Literal["auto", "reference", "torch", "numba", "triton"]
Normalizer = Literal["valid", "elements", "positives"]
Scheme = Literal["auto", "log", "median", "inverse"]
Over = Literal["batch", "sample"]
ClassWeights = Scheme | tuple[float, ...] | None


def _check_weights(problems: Problems, weights: ClassWeights) -> None:
    if isinstance(weights, str):
        problems.one_of("class_weights", weights, ("auto", "log", "median", "inverse"))
    elif weights is not None:
        ok = len(weights) > 0 and all(math.isfinite(w) and w >= 0 for w in weights) and max(weights) > 0
        problems.expect(ok, "class_weights", "to be finite and >= 0, one of them > 0", tuple(weights))


@LOSSES.register("focal", builder="segmeter.losses.focal.focal:build_focal")
@dataclass(frozen=True, kw_only=True)
class FocalConfig:
    """Focal loss, softmax for multiclass and sigmoid otherwise, averaged over the valid pixels.

    Parameters
    ----------
    gamma
        Focusing, >= 0; 0 is cross-entropy.
    alpha
        Weight of target 1 in 0 to 1 (1 - alpha weighs target 0), or None; not for multiclass.
    class_weights
        One per class, or a scheme that computes them from the training set; multiclass only.
    label_smoothing
        In 0 to 1: the share of the target that is spread over all classes.
    normalizer
        What the sum is divided by: see `segmeter.losses.focal.focal.focal_loss`.
    backend
        Which implementation computes it; they agree, so "auto" is for everyone.
    """

    name: str = "focal"
    gamma: float = 2.0
    alpha: float | None = None
    class_weights: ClassWeights = None
    label_smoothing: float = 0.0
    normalizer: Normalizer | float = "valid"
    backend: Backend = "auto"

    def __post_init__(self) -> None:
        with collecting("loss") as problems:
            problems.in_range("gamma", self.gamma, 0)
            problems.in_range("alpha", self.alpha, 0, 1)
            problems.in_range("label_smoothing", self.label_smoothing, 0, 1)
            problems.one_of("backend", self.backend, get_args(Backend))
            if isinstance(self.normalizer, str):
                problems.one_of("normalizer", self.normalizer, ("valid", "elements", "positives"))
            else:
                problems.in_range("normalizer", self.normalizer, 0, above=True)
            _check_weights(problems, self.class_weights)


@LOSSES.register("cross_entropy", builder="segmeter.losses.focal.focal:build_cross_entropy")
@dataclass(frozen=True, kw_only=True)
class CrossEntropyConfig:
    """Cross-entropy, which is focal loss at gamma 0; sigmoid for binary and multilabel."""

    name: str = "cross_entropy"
    class_weights: ClassWeights = None
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        with collecting("loss") as problems:
            problems.in_range("label_smoothing", self.label_smoothing, 0, 1)
            _check_weights(problems, self.class_weights)


@LOSSES.register("dice", builder="segmeter.losses.region:build_dice")
@dataclass(frozen=True, kw_only=True)
class DiceConfig:
    """Soft Dice, averaged over the classes that the target has.

    Parameters
    ----------
    smooth
        Pixels added above and below the fraction, > 0.
    over
        "batch" counts the pixels of all images of a forward pass together, so that with `training.accumulate` the loss
        is the mean over the forward passes; "sample" counts those of each image, and is the mean over the images that
        have a class, the same however they are split into forward passes.
    """

    name: str = "dice"
    smooth: float = 1.0
    over: Over = "batch"

    def __post_init__(self) -> None:
        with collecting("loss") as problems:
            problems.in_range("smooth", self.smooth, 0, above=True)
            problems.one_of("over", self.over, ("batch", "sample"))


@LOSSES.register("tversky", builder="segmeter.losses.region:build_tversky")
@dataclass(frozen=True, kw_only=True)
class TverskyConfig:
    """Tversky loss (Salehi et al. 2017): Dice with a price each for false positives and false negatives.

    Parameters
    ----------
    alpha, beta
        Price of a false positive and of a false negative, >= 0; 0.5 each is Dice.
    smooth
        Pixels added above and below the fraction, > 0.
    over
        "batch" or "sample", as for Dice.
    """

    name: str = "tversky"
    alpha: float = 0.3
    beta: float = 0.7
    smooth: float = 1.0
    over: Over = "batch"

    def __post_init__(self) -> None:
        with collecting("loss") as problems:
            problems.in_range("alpha", self.alpha, 0)
            problems.in_range("beta", self.beta, 0)
            problems.in_range("smooth", self.smooth, 0, above=True)
            problems.one_of("over", self.over, ("batch", "sample"))


@LOSSES.register("focal_tversky", builder="segmeter.losses.region:build_focal_tversky")
@dataclass(frozen=True, kw_only=True)
class FocalTverskyConfig:
    """Focal Tversky loss (Abraham and Khan 2019): each class's Tversky loss to the power `gamma`.

    Parameters
    ----------
    gamma
        The exponent itself, > 0; the paper writes 1/gamma and uses 3/4.
    alpha, beta, smooth, over
        As in the Tversky loss.
    """

    name: str = "focal_tversky"
    alpha: float = 0.3
    beta: float = 0.7
    gamma: float = 0.75
    smooth: float = 1.0
    over: Over = "batch"

    def __post_init__(self) -> None:
        with collecting("loss") as problems:
            problems.in_range("alpha", self.alpha, 0)
            problems.in_range("beta", self.beta, 0)
            problems.in_range("gamma", self.gamma, 0, above=True)
            problems.in_range("smooth", self.smooth, 0, above=True)
            problems.one_of("over", self.over, ("batch", "sample"))


@LOSSES.register("lovasz", builder="segmeter.losses.lovasz:build_lovasz")
@dataclass(frozen=True, kw_only=True)
class LovaszConfig:
    """Lovasz loss (Berman et al. 2018): softmax for multiclass, hinge for binary and multilabel.

    Parameters
    ----------
    over
        "batch" or "sample", as for Dice.
    """

    name: str = "lovasz"
    over: Over = "batch"

    def __post_init__(self) -> None:
        with collecting("loss") as problems:
            problems.one_of("over", self.over, ("batch", "sample"))


@dataclass(frozen=True, kw_only=True)
class PartWeights:
    """How much each part of a sum weighs, >= 0; 0 leaves it out."""

    focal: float = 1.0
    cross_entropy: float = 0.0
    dice: float = 1.0
    tversky: float = 0.0
    focal_tversky: float = 0.0
    lovasz: float = 0.0


@LOSSES.register("sum", builder="segmeter.losses.sum:build_sum")
@dataclass(frozen=True, kw_only=True)
class SumConfig:
    """A weighted sum of losses: `weights` says how much of each, the other fields hold their options."""

    name: str = "sum"
    weights: PartWeights = field(default_factory=PartWeights)
    focal: FocalConfig = field(default_factory=FocalConfig)
    cross_entropy: CrossEntropyConfig = field(default_factory=CrossEntropyConfig)
    dice: DiceConfig = field(default_factory=DiceConfig)
    tversky: TverskyConfig = field(default_factory=TverskyConfig)
    focal_tversky: FocalTverskyConfig = field(default_factory=FocalTverskyConfig)
    lovasz: LovaszConfig = field(default_factory=LovaszConfig)

    def __post_init__(self) -> None:
        weights: Mapping[str, float] = vars(self.weights)
        with collecting("loss.weights") as problems:
            for name, weight in weights.items():
                problems.in_range(name, weight, 0)
            problems.expect(any(weights.values()), "weights", "to have one that is > 0", dict(weights))
