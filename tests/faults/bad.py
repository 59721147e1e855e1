"""What a bad input is: the line that is typed, how the files are spoilt before, and what is said."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.faults import world
from tests.faults.world import CASES, image, put

DATA = "data=folder data.root=data data.task=binary data.classes=[ground,cell]"
NET = "model.encoder=tu-test_resnet model.depth=3 model.decoder_channels=[8,8,4] device=cpu"
TRAIN = f"train {DATA} {NET} data.val_fraction=0.3 training.batch_size=2 training.epochs=1"
OWN = "train --config-dir conf experiment=mine data=folder data.root=data data.task=binary"
CHECK = f"check {DATA} data.val_fraction=0.3 data.test_fraction=0.3"
LISTS = f"check {DATA} data.lists=. splits=[train]"
SCORE = "score predictions=labels references=data/masks data.num_classes=2 metrics.bootstrap=0 report.html=false"
PROBS = f"{SCORE} probs=probs"
PREDICT = "predict checkpoint=model input=data/images device=cpu report.html=false report.overlays=0"
WEIGHTS, IMAGE, MASK = "model/model.safetensors", "data/images/b.png", "data/masks/b.png"
LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(f"a{i}: &a{i} [{f'*a{i - 1},' * 9}]\n" for i in range(1, 9))
FEW = np.zeros((16, 16), np.uint8)
SOFT = np.uint8(np.clip(np.linspace(-1, 2, 256), 0, 1) * 255).reshape(16, 16)
TREE = "The expected layout under {here}/data is images/<name>.png and masks/<name>.png"


@dataclass(frozen=True)
class Bad:
    number: int
    line: str  # what is typed
    says: str  # one of the lines on standard error; with code 0, part of any output
    spoil: Callable[[], object] = lambda: None
    code: int = 2
    lines: int = 1

    def __str__(self) -> str:
        return f"{self.number}-{self.says[:40]}"


def own(text: str, name: str = "mine.yaml") -> Callable[[], object]:
    return lambda: world.own_config(text, name)


def each(make: Callable[[int], np.ndarray]) -> Callable[[], object]:
    return lambda: [image(make(seed), f"data/images/{name}.png") for seed, name in enumerate(CASES)]


def weights(content: bytes | str) -> Callable[[], object]:
    return lambda: put(WEIGHTS, content)
