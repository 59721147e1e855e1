"""Small segmenters for tests."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from segmeter.classes import ClassSpec, Task
from segmeter.models.config import ModelCard, UnetConfig
from segmeter.models.segmenter import Segmenter, build_segmenter

TINY = UnetConfig(encoder="tu-test_resnet", depth=3, decoder_channels=(8, 8, 4))


def make_spec(num_classes: int = 3, task: Task = "multiclass") -> ClassSpec:
    num_classes = 2 if task == "binary" else num_classes
    names = tuple(f"class{index}" for index in range(num_classes))
    ignore_index = 255 if num_classes < 256 else 65535
    return ClassSpec(task=task, names=names, colours=((0, 0, 0),) * num_classes, ignore_index=ignore_index)


def make_card(spec: ClassSpec | None = None, *, in_channels: int = 3, model: object = TINY) -> ModelCard:
    return ModelCard(
        model=dict(model),
        spec=spec or make_spec(),
        in_channels=in_channels,
        mean=tuple(0.4 + 0.1 * index for index in range(in_channels)),
        std=tuple(0.2 + 0.05 * index for index in range(in_channels)),
    )


def make_tiny(seed: int = 0, card: ModelCard | None = None) -> Segmenter:
    """A U-Net with random weights, in evaluation mode."""
    torch.manual_seed(seed)
    return build_segmenter(card or make_card()).eval()


class Pointwise(nn.Module):
    """A 1x1 convolution: what it says of a pixel depends on that pixel alone."""

    size_multiple = 1

    def __init__(self, in_channels: int = 3, num_channels: int = 3, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(num_channels, in_channels, 1, 1, generator=generator))

    def forward(self, image: Tensor) -> Tensor:
        return nn.functional.conv2d(image, self.weight)


class Stub(nn.Module):
    """A network that is any function of the normalised image."""

    size_multiple = 1

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, image: Tensor) -> Tensor:
        return self.function(image)


def make_pointwise(task: Task = "multiclass", num_classes: int = 3, *, downsample: int = 1) -> Segmenter:
    spec = make_spec(num_classes, task)
    network = Pointwise(num_channels=spec.num_channels)
    network.downsample = downsample
    return Segmenter(network, make_card(spec))
