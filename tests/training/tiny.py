"""A small job whose every part is known: two classes told apart by colour, a network of two layers."""

import signal
import time
from dataclasses import dataclass, field, fields, replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import torch
from PIL import Image
from torch import nn

from segmeter.classes import ClassSpec
from segmeter.data.files.geometry import NOWHERE
from segmeter.data.sample import Sample
from segmeter.distributed.ranks import ALONE, ParallelModel
from segmeter.errors import DataError
from segmeter.models.config import ModelCard
from segmeter.models.segmenter import Segmenter
from segmeter.training.config import AdamWConfig, CosineConfig, SgdConfig, TrainingConfig
from segmeter.training.data.batches import RandomNumbers, Samples
from segmeter.training.job import TrainData, TrainJob, TrainSettings
from segmeter.training.optimizers import build_sgd
from segmeter.training.step import update_from_batches

SPEC = ClassSpec(
    task="multiclass", names=("ground", "cell", "edge"), colours=((0, 0, 0), (255, 0, 0), (0, 255, 0)), ignore_index=255
)


@dataclass
class TinyCases:
    """Cases made from their index; `broken` ones can't be read, `poisoned` ones are not finite, all take `delay` s."""

    count: int = 10
    size: int = 16
    spec: ClassSpec = SPEC
    broken: tuple[int, ...] = ()
    poisoned: tuple[int, ...] = ()
    salt: int = 0
    delay: float = 0.0
    read: list[int] = field(default_factory=list)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.read.append(index)
        time.sleep(self.delay)
        if index in self.broken:
            raise DataError(f"images/{self.case_ids[index]}.png: is truncated.")
        rng = np.random.default_rng([index, self.salt])
        target = rng.integers(0, 3, (self.size, self.size)).astype(np.uint8)
        image = rng.normal(0.5, 0.1, (self.size, self.size, 3)).astype(np.float32)
        image[..., 0] += 0.3 * target
        target[0, : index + 1] = 255
        if index in self.poisoned:
            image[3, 3] = np.nan
        return Sample(case_id=self.case_ids[index], image=image, target=target)

    @property
    def case_ids(self):
        return tuple(f"case{index:02d}" for index in range(self.count))

    dealt, split = {}, "all"

    def streamed_cases(self):
        return frozenset()

    @property
    def pairs(self):
        return [SimpleNamespace(image=None)] * len(self)

    def header_of(self, path):
        return SimpleNamespace(height=1, width=1)

    def locate(self, case_id):
        return NOWHERE

    def fingerprint(self):
        return f"{self.count}-{self.salt}-" + "0" * 40

    def kinds(self):
        return [(*self[index].image.shape, "float32") for index in range(self.count)]

    def contents(self):
        return {f"images/{name}.png": f"{self.salt}-{name}" for name in self.case_ids}


class ArrayCases(list):
    """Samples in memory as a data set."""

    def __init__(self, spec, samples):
        super().__init__(samples)
        self.spec, self.case_ids = spec, tuple(sample.case_id for sample in samples)


@dataclass
class TinySource:
    """Batches in a new order each epoch."""

    cases: TinyCases
    batch_size: int = 4
    seed: int = 0

    def __len__(self):
        return len(self.cases) // self.batch_size

    def batch(self, epoch, index, progress):
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.cases))
        indices = order[index * self.batch_size : (index + 1) * self.batch_size]
        samples = [self.cases[int(i)] for i in indices]
        return Samples(np.stack([s.image for s in samples]), np.stack([s.target for s in samples]), indices)


@dataclass
class StoppingSource(TinySource):
    """Sends this process a signal when batch number `at` is taken in hand."""

    at: int = 0
    name: str = "SIGTERM"

    def batch(self, epoch, index, progress):
        if epoch * len(self) + index == self.at:
            signal.raise_signal(getattr(signal, self.name))
        return super().batch(epoch, index, progress)


class TinyNetwork(nn.Module):
    """Two convolutions, a norm with running statistics, and dropout, which draws from the global generator."""

    size_multiple = 1

    def __init__(self, channels=8, classes=3):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Dropout2d(0.1),
            nn.Conv2d(channels, classes, 1),
        )

    def forward(self, image):
        return self.layers(image)


class TinyAugment:
    """Adds noise that depends on the seed, the epoch and the case alone."""

    def draw(self, *, seed, epoch, indices, channels):
        seeds = tuple(seed * 10007 + epoch * 101 + int(index) for index in indices)
        return RandomNumbers(torch.zeros(len(seeds), channels), seeds)

    def __call__(self, image, target, draws):
        sources = [torch.Generator().manual_seed(seed) for seed in draws.seeds]
        noise = [torch.randn(image.shape[1:], generator=source) for source in sources]
        return image + 0.05 * torch.stack(noise), target


class CrossEntropy(nn.Module):
    """torch's own, which takes int64 targets only."""

    def forward(self, logits, target):
        return nn.functional.cross_entropy(logits.float(), target.long(), ignore_index=255)


def draw_red(prediction, folder):
    path = folder / f"{prediction.sample.case_id}.png"
    Image.new("RGB", (5, 4), (255, 0, 0)).save(path)
    return path


def tiny_card(**model):
    return ModelCard(model={"name": "tiny", **model}, spec=SPEC, in_channels=3, mean=(0.5,) * 3, std=(0.25,) * 3)


def tiny_segmenter(seed=1):
    torch.manual_seed(seed)
    return Segmenter(TinyNetwork(), tiny_card())


def tiny_job(folder, *, cases=None, val_cases="tiny", source=None, segmenter=None, **changes):
    """A job; each of `changes` goes to the part that has a field of this name."""
    cases = cases or TinyCases()
    names = TrainingConfig.model_fields
    usual = {"epochs": 4, "batch_size": 4, "log_every": 3, "workers": 0, "precision": "float32"}
    training = TrainingConfig(**usual | {key: value for key, value in changes.items() if key in names})
    job = TrainJob(
        folder=folder,
        settings=TrainSettings(
            training=training, optimizer=AdamWConfig(lr=0.01), schedule=CosineConfig(), device="cpu"
        ),
        data=TrainData(
            source=source or TinySource(cases),
            train_cases=cases,
            val_cases=TinyCases(count=3, salt=9) if val_cases == "tiny" else val_cases,
            augment=TinyAugment(),
        ),
        segmenter=segmenter or tiny_segmenter(),
        loss=CrossEntropy(),
    )
    return changed(job, **{key: value for key, value in changes.items() if key not in names})


def changed(job, **changes):
    """The job with other values, each in the part that has a field of this name."""
    for part in ("settings", "data"):
        names = {field.name for field in fields(getattr(job, part))}
        own = {key: changes.pop(key) for key in names & changes.keys()}
        job = replace(job, **{part: replace(getattr(job, part), **own)})
    return replace(job, **changes)


def assert_same(one, other, where=""):
    """Equal to the last bit, dtypes and containers included."""
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_same(one[key], other[key], f"{where}/{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for index, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_same(a, b, f"{where}[{index}]")
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype, where
        assert torch.equal(one, other), where
    else:
        assert one == other, where


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


PLAIN = TrainingConfig(precision="float32", clip_norm=None)


def stepper(forward, **parts):
    """Return a function that updates the weights once from batches: by plain SGD in float32, unless parts say more."""
    usual = {"scaler": None, "augment": None, "device": torch.device("cpu"), "dtype": torch.float32, "config": PLAIN}
    if "optimizer" not in parts:
        sgd = SgdConfig(lr=parts.pop("lr", 1.0), momentum=0.0, nesterov=False, weight_decay=0.0)
        usual["optimizer"] = build_sgd(sgd, model=forward)
    forward = forward if isinstance(forward, ParallelModel) else ParallelModel(forward, ALONE)
    return partial(update_from_batches, SimpleNamespace(forward=forward, world=forward.world, **usual | parts))
