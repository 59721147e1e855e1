"""What a training split holds, and the device -> patch, batch, epoch and limits that suit them, without torch.

As nnU-Net does (Isensee et al. 2021), what a run needs follows from the data set's own measures; every value can be set
by hand instead.
"""

from dataclasses import dataclass, field

from segmeter.data.config import DataConfig
from segmeter.data.verification.report import DataReport
from segmeter.training.config import AUTO, TrainingConfig
from segmeter.training.data.augment_config import AugmentConfig, choose_crop

# What a step takes: on two CPU cores a U-Net with ResNet-34 needs about a second for this many pixels
STEP_PIXELS = {"cpu": 4 * 256 * 256, "cuda": 8 * 512 * 512}
LARGEST_SIDE = {"cpu": 256, "cuda": 512}
LEAST_BATCH, MOST_BATCH = 2, 32  # images; batch norm needs more than one
EPOCH_BATCHES = 250  # nnU-Net's: how often to validate should not depend on how many files there are
BALANCE = 1 / 3  # of the samples, where crops leave out most of an image; nnU-Net's oversampling of the foreground
CPU_BUDGET = "10m"


@dataclass(frozen=True, kw_only=True)
class TrainPlan:
    """The configuration of a run with nothing left open.

    Parameters
    ----------
    training, data, augment
        As configured, with what was left open filled in.
    chosen
        What was filled in, as "group.key" -> plain value.
    """

    training: TrainingConfig
    data: DataConfig
    augment: AugmentConfig
    chosen: dict[str, object] = field(default_factory=dict)

    @property
    def overrides(self) -> list[str]:
        """What was filled in, as it is written on the command line."""
        return [f"{key}={_written(value)}" for key, value in self.chosen.items()]


def plan_training(
    training: TrainingConfig, data: DataConfig, augment: AugmentConfig, *, seen: DataReport, device: str
) -> TrainPlan:
    """Fill in what the configuration leaves to the data.

    A crop of "auto" and a batch size of "auto" are always chosen. With ``training.plan`` so are the normalisation
    (measured), the length of an epoch, the share of samples around a class and, on a CPU, the time, where they are
    null.

    Parameters
    ----------
    seen
        The training split.
    device
        "cuda", or any other, which may take as much in a step as a CPU.
    """
    device = device if device in STEP_PIXELS else "cpu"
    small = training.plan or training.batch_size == AUTO
    crop = choose_crop(augment, seen.sizes, side=LARGEST_SIDE[device] if small else LARGEST_SIDE["cuda"])
    changes: dict[str, dict[str, object]] = {"training": {}, "data": {}, "augment": {}}
    if crop.crop != augment.crop:
        changes["augment"]["crop"] = crop.crop
    batch = training.batch_size
    if batch == AUTO:
        batch = changes["training"]["batch_size"] = _batch(crop, seen, STEP_PIXELS[device])
    if training.plan:
        changes["data"] |= {key: AUTO for key in ("mean", "std") if getattr(data, key) is None}
        if data.samples_per_epoch is None and crop.can_repeat:
            changes["data"]["samples_per_epoch"] = EPOCH_BATCHES * int(batch)
        if augment.balance is None and crop.crop is not None:
            changes["augment"]["balance"] = BALANCE
        if device == "cpu" and training.unlimited:
            changes["training"]["time_budget"] = CPU_BUDGET
    return TrainPlan(
        training=training.replace(**changes["training"]),
        data=data.replace(**changes["data"]),
        augment=augment.replace(**changes["augment"]),
        chosen={f"{group}.{key}": value for group, keys in changes.items() for key, value in keys.items()},
    )


def _batch(augment: AugmentConfig, seen: DataReport, pixels: int) -> int:
    """As many samples as a step may take, but no more than there are where they can't be drawn twice."""
    height, width = augment.crop if isinstance(augment.crop, tuple) else max(seen.sizes, default=(1, 1))
    most = MOST_BATCH if augment.can_repeat else max(LEAST_BATCH, min(MOST_BATCH, seen.n_cases))
    return max(LEAST_BATCH, min(most, round(pixels / (height * width))))


def _written(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(map(_written, value))}]"
    return "null" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
