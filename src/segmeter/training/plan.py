"""Chooses the values that a training run leaves open, by the data, the device and the time of a step. Needs no torch.

`fill_loss_and_rate` chooses when the configuration is composed, before any data is read. `plan_training` decides from
the data set's own measures, as nnU-Net does (Isensee et al. 2021). `fit_budget` then makes a time budget hold enough
steps and validations. `training=auto` leaves most to them; every value can be set by hand instead.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from segmeter.data.config import DataConfig
from segmeter.losses.config import FocalConfig, SumConfig
from segmeter.records import flatten
from segmeter.schema import as_plain, defaults
from segmeter.training.config import AUTO, AdamWConfig, TrainingConfig
from segmeter.training.data.augment_config import CROP_STEP, LARGEST_SIDE, AugmentConfig, choose_crop

if TYPE_CHECKING:  # composing a configuration reads no data
    from segmeter.data.verification.splits import DataReport

PLANNED_RATE = 3e-3  # the learning rate of AdamW with training.plan, from random weights
# Pixels of a step: on two quiet CPU cores a U-Net with ResNet-34 needs about a second for this many
STEP_PIXELS = {"cpu": 4 * 256 * 256, "cuda": 8 * 512 * 512}
LARGEST_CROP = {"cpu": 256, "cuda": LARGEST_SIDE}  # pixels of its edge
LEAST_BATCH, MOST_BATCH = 2, 32  # images; batch norm needs more than one
EPOCH_BATCHES = 250  # as in nnU-Net: how often to validate should not depend on how many files there are
BALANCE = 1 / 3  # share of balanced samples if crops leave out most of an image, as nnU-Net oversamples the foreground
CPU_BUDGET = "10m"

LEAST_STEPS, LEAST_VALIDATIONS = 300, 8  # with fewer in a time budget, a model is chosen by chance
VALIDATION_SHARE = 0.2  # validations take this share of a time budget
LEAST_SIDE = 128  # pixels; to save time, a crop is made no smaller than this
LIGHTER = {"resnet34": ("resnet18", 0.69)}  # a lighter encoder, and the share of a step's time that it takes
FORWARD_SHARE = 1 / 3  # the forward pass takes this share of a step's time
HALVED_SHARE = 0.5  # half the resolution, which loses thin objects, has to bring a step's time down to this share
# Updating the weights takes as long as this many pixels: two cores need .24 s of CPU for ResNet-34's weights, and .30 s
# for 256 x 256 pixels
UPDATE_PIXELS = 52_000


@dataclass(frozen=True, kw_only=True)
class TrainPlan:
    """The configuration of a run with nothing left open.

    Parameters
    ----------
    training, data, augment
        As configured, with open values filled in.
    model
        Keys of the group `model` that a time budget changes.
    chosen
        The values that were filled in, as plain values by "group.key".
    step_s, steps
        The seconds that a step should take, and the number of steps that the time budget holds; 0 if not measured.
    problem
        Why the time budget is too short, and how much would be enough; empty if it is long enough.
    """

    training: TrainingConfig
    data: DataConfig
    augment: AugmentConfig
    model: dict[str, object] = field(default_factory=dict)
    chosen: dict[str, object] = field(default_factory=dict)
    step_s: float = 0.0
    steps: int = 0
    problem: str = ""

    @property
    def overrides(self) -> list[str]:
        """Return the filled-in values as written on the command line."""
        return [f"{key}={_written(value)}" for key, value in self.chosen.items()]

    def filled(self, **groups: dict[str, object]) -> "TrainPlan":
        """Return the plan with more values filled in."""
        chosen = {f"{group}.{key}": value for group, keys in groups.items() for key, value in keys.items()}
        return replace(
            self,
            training=self.training.replace(**groups.get("training", {})),
            data=self.data.replace(**groups.get("data", {})),
            augment=self.augment.replace(**groups.get("augment", {})),
            model={**self.model, **groups.get("model", {})},
            chosen={**self.chosen, **chosen},
        )

    def resumed(self, config: Any, overrides: Collection[str], record: Mapping[str, Any]) -> "TrainPlan":
        """Return the plan with what a resumed run chose, except for keys to which the user now gives other values.

        Parameters
        ----------
        config, overrides
            The configuration of the command, and the part of it that was typed.
        record
            The run's run.json, {} for a new run.
        """
        given = flatten(as_plain(config))
        groups: dict[str, dict[str, object]] = {}
        for key, value in record.get("planned", {}).items():
            if key in given and (given[key] == value or key in self.chosen or left_open(config, overrides, key)):
                group, _, name = key.partition(".")
                groups.setdefault(group, {})[name] = value
        return replace(self.filled(**groups), steps=record.get("planned_steps", 0))


def left_open(config: Any, overrides: Collection[str], key: str) -> bool:
    """Tell whether a key such as "model.encoder" has its default, and none of the overrides sets it."""
    group, _, name = key.partition(".")
    values = getattr(config, group)
    field = type(values).model_fields.get(name)
    is_typed = key in {line.lstrip("+~").partition("=")[0] for line in overrides}
    return field is not None and not is_typed and bool(getattr(values, name) == field.default)


def fill_loss_and_rate(values: Mapping[str, Any], chosen: Collection[str]) -> dict[str, Any]:
    """Choose the loss and the learning rate of a training that leaves them open.

    Planes of volumes, cores of objects and `training.plan` train with the sum of focal loss and Dice loss, because
    focal loss alone misses small objects there. `training.plan` also weighs rare classes a little more, and trains
    random weights at three times the usual rate, so that few steps suffice (docs/results.md).

    Parameters
    ----------
    values
        The plain values of each group, as composed.
    chosen
        The groups in which the user set something. A chosen loss or optimizer stays.
    """
    data, model, training = (values.get(group) or {} for group in ("data", "model", "training"))
    filled = dict(values)
    is_planned = bool(training.get("plan"))
    needs_dice = is_planned or data.get("planes") is not None or data.get("core_depth") is not None
    if needs_dice and "loss" not in chosen and values.get("loss") == defaults(FocalConfig):
        filled["loss"] = defaults(SumConfig)
        if is_planned and data.get("task") == "multiclass":
            filled["loss"]["focal"] = filled["loss"]["focal"] | {"class_weights": "mild"}
    adamw = defaults(AdamWConfig)
    is_open = is_planned and "optimizer" not in chosen and values.get("optimizer") == adamw
    if is_open and model.get("weights") is None:
        filled["optimizer"] = adamw | {"lr": PLANNED_RATE}
    return filled


def plan_training(
    training: TrainingConfig, data: DataConfig, augment: AugmentConfig, *, train_report: "DataReport", device: str
) -> TrainPlan:
    """Fill in the values that the configuration leaves to the data. Every training calls it.

    A crop or batch size of "auto" is always chosen. With ``training.plan`` these are chosen too where they are null:
    the normalisation (measured), the length of an epoch, the share of samples around a class, and on a CPU the time.
    Planes of volumes have such a share without it too.

    Parameters
    ----------
    train_report
        The report on the training split.
    device
        "cuda", or any other device, for which the plan is that of a CPU.
    """
    device = device if device in STEP_PIXELS else "cpu"
    small = training.plan or training.batch_size == AUTO
    crop = choose_crop(augment, train_report.sizes, side=LARGEST_CROP[device] if small else LARGEST_SIDE)
    changes: dict[str, dict[str, object]] = {"training": {}, "data": {}, "augment": {}}
    if crop.crop != augment.crop:
        changes["augment"]["crop"] = crop.crop
    batch_size = training.batch_size
    if batch_size == AUTO:
        height, width = _sample_size(crop, train_report)
        available = max(train_report.n_cases, train_report.n_planes)
        most = MOST_BATCH if crop.can_repeat else max(LEAST_BATCH, min(MOST_BATCH, available))
        batch_size = max(LEAST_BATCH, min(most, round(STEP_PIXELS[device] / (height * width))))
        changes["training"]["batch_size"] = batch_size
    if training.plan:
        changes["data"] |= {key: AUTO for key in ("mean", "std") if getattr(data, key) is None}
        if data.samples_per_epoch is None and crop.can_repeat:
            changes["data"]["samples_per_epoch"] = EPOCH_BATCHES * int(batch_size)
        if device == "cpu" and training.unlimited:
            changes["training"]["time_budget"] = CPU_BUDGET
    volumes = getattr(data, "planes", None) is not None  # few of their planes may contain a rare class
    if augment.balance is None and (volumes or (training.plan and crop.crop is not None)):
        changes["augment"]["balance"] = BALANCE
    return TrainPlan(training=training, data=data, augment=augment).filled(**changes)


def fit_budget(
    plan: TrainPlan,
    model: Any,
    *,
    step_s: float,
    train_report: "DataReport",
    val_cases: int,
    is_open: Callable[[str], bool],
) -> TrainPlan:
    """Make the time budget hold `LEAST_STEPS` steps and `LEAST_VALIDATIONS` validations, or say which budget would.

    While a step takes too long, its cost is lowered in this order: a smaller batch, a lighter encoder and a smaller
    crop. The network sees images at half of their resolution, which loses thin objects, only if the budget then holds
    or a step takes half the time. Values that the user set stay.

    Parameters
    ----------
    model
        The configured model.
    step_s
        Seconds that a step of the plan takes on this machine, as busy as it is.
    train_report
        The report on the training split.
    val_cases
        Number of validation cases.
    is_open
        Whether the user left a key such as "model.encoder" to us.
    """
    budget = plan.training.budget_seconds
    if budget is None:
        return plan
    wanted_s = (1 - VALIDATION_SHARE) * budget / LEAST_STEPS  # for one step
    plan = _lighten(replace(plan, step_s=step_s), model, wanted_s, train_report=train_report, is_open=is_open)
    training = plan.training
    step_s = plan.step_s
    changes: dict[str, object] = {}
    steps = int((1 - VALIDATION_SHARE) * budget / step_s)
    if steps < LEAST_VALIDATIONS * EPOCH_BATCHES and is_open("training.validate_every"):
        every = max(1, steps // (LEAST_VALIDATIONS + 2))  # two to spare, as times vary
        changes |= {"validate_every": every, "validate_unit": "steps"}
    pixels = max(height * width for height, width in train_report.sizes)
    step_pixels = int(training.batch_size) * math.prod(_sample_size(plan.augment, train_report))
    case_s = FORWARD_SHARE * step_s / step_pixels * pixels
    affordable_cases = max(LEAST_BATCH, int(VALIDATION_SHARE * budget / LEAST_VALIDATIONS / case_s))
    if affordable_cases < val_cases and (training.validate_cases is None or "training.validate_cases" in plan.chosen):
        changes["validate_cases"] = affordable_cases
    problem = ""
    if step_s > wanted_s:
        needed_s = math.ceil(step_s * LEAST_STEPS / (1 - VALIDATION_SHARE))
        problem = (
            f"training.time_budget={training.time_budget} holds about {steps} steps of {step_s:.2g} s on this machine "
            f"as busy as it is, fewer than {LEAST_STEPS}; {needed_s} s would be enough."
        )
    return replace(plan.filled(training=changes), steps=steps, problem=problem)


def _lighten(
    plan: TrainPlan, model: Any, wanted_s: float, *, train_report: "DataReport", is_open: Callable[[str], bool]
) -> TrainPlan:
    """Lower the cost of a step to the wanted seconds, as far as open values allow; see `fit_budget`."""
    batch_size = int(plan.training.batch_size)
    sides = _sample_size(plan.augment, train_report)
    step_s = plan.step_s
    changes: dict[str, dict[str, object]] = {"training": {}, "data": {}, "augment": {}, "model": {}}
    area = math.prod(sides)
    if step_s > wanted_s and "training.batch_size" in plan.chosen and batch_size > LEAST_BATCH:
        smaller = max(LEAST_BATCH, int(_pixels_within(batch_size * area, wanted_s / step_s) / area))
        step_s *= _share(batch_size * area, smaller / batch_size)
        batch_size = changes["training"]["batch_size"] = smaller
        if "data.samples_per_epoch" in plan.chosen:
            changes["data"]["samples_per_epoch"] = EPOCH_BATCHES * batch_size
    if step_s > wanted_s and is_open("model.encoder") and model.encoder in LIGHTER:
        changes["model"]["encoder"], share = LIGHTER[model.encoder]
        step_s *= share
    if step_s > wanted_s and isinstance(plan.chosen.get("augment.crop"), tuple):
        factor = math.sqrt(_pixels_within(batch_size * area, wanted_s / step_s) / (batch_size * area))
        # multiples of the networks' stride, and not below LEAST_SIDE
        shrunk = [min(side, max(LEAST_SIDE, int(side * factor) // CROP_STEP * CROP_STEP)) for side in sides]
        step_s *= _share(batch_size * area, math.prod(shrunk) / area)
        sides, area = (shrunk[0], shrunk[1]), math.prod(shrunk)
        changes["augment"]["crop"] = sides
    halved_share = _share(batch_size * area, 1 / 4)
    pays = step_s > wanted_s and (step_s * halved_share <= wanted_s or halved_share <= HALVED_SHARE)
    if pays and is_open("model.downsample") and model.downsample == 1 and min(sides) >= LEAST_SIDE:
        changes["model"]["downsample"] = 2
        step_s *= halved_share
    return replace(plan.filled(**changes), step_s=step_s)


def _share(pixels: int, factor: float) -> float:
    """Return the share of a step's time that remains if its pixels are multiplied by the factor."""
    return (factor * pixels + UPDATE_PIXELS) / (pixels + UPDATE_PIXELS)


def _pixels_within(pixels: int, share: float) -> float:
    """Return how many pixels a step may have to take this share of the time, not below 0."""
    return max(0.0, share * (pixels + UPDATE_PIXELS) - UPDATE_PIXELS)


def _sample_size(augment: AugmentConfig, train_report: "DataReport") -> tuple[int, int]:
    """Return the height and width of a sample, or of the largest image if nothing is cropped."""
    return augment.crop if isinstance(augment.crop, tuple) else max(train_report.sizes, default=(1, 1))


def _written(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"[{','.join(map(_written, value))}]"
    return "null" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
