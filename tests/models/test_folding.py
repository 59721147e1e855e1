"""The folded decoder is the same function, of the same weights, as the library's own."""

import copy
import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import segmentation_models_pytorch as smp
import torch
from packaging.requirements import Requirement
from segmentation_models_pytorch.decoders.unet.decoder import UnetDecoderBlock
from torch import nn
from torch.nn import functional

from segmeter.models.folding import FoldedBlock, convolve_enlarged, fold_upsampling, sum_taps
from segmeter.models.networks import build_network
from tests.models.parts import TINY, make_spec

LIBRARY = "segmentation-models-pytorch"


def folded_blocks(network: nn.Module) -> int:
    return sum(isinstance(module, FoldedBlock) for module in network.modules())


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_taps_of_one_row_by_hand() -> None:
    """Filter (a, b, c) on values p p q q: the outputs around q are a p + (b + c) q and (a + b) q + c r."""
    weight = torch.zeros(1, 1, 3, 3)
    weight[0, 0, 1] = torch.tensor([1.0, 10.0, 100.0])
    row = sum_taps(weight)[0, 0]
    assert row[1].tolist() == [100.0, 110.0, 11.0, 1.0]
    assert row[0].tolist() == [0.0] * 4


@pytest.mark.parametrize("skip_channels", [None, 0, 3])
def test_same_values_and_gradients_as_enlarging_first(skip_channels: int | None) -> None:
    small, skip = draw(2, 5, 4, 7), None if skip_channels is None else draw(2, skip_channels, 8, 14, seed=1)
    weight = draw(6, 5 + (skip_channels or 0), 3, 3, seed=2)
    inputs = [part.requires_grad_() for part in (small, skip, weight) if part is not None]
    large = functional.interpolate(small, scale_factor=2, mode="nearest")
    whole = large if skip is None else torch.cat([large, skip], dim=1)
    wanted, found = functional.conv2d(whole, weight, padding=1), convolve_enlarged(small, weight, skip)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    arriving = draw(*wanted.shape, seed=3)
    inputs = [part for part in inputs if part.numel()]
    for ours, theirs in zip(
        torch.autograd.grad(found, inputs, arriving), torch.autograd.grad(wanted, inputs, arriving), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_network_is_the_same_function_of_the_same_weights(layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    own = smp.Unet("resnet18", encoder_weights=None, classes=4).double().train()
    folded = copy.deepcopy(own)
    fold_upsampling(folded)
    assert folded_blocks(folded) == 5
    assert list(folded.state_dict()) == list(own.state_dict())
    image = draw(2, 3, 64, 96).contiguous(memory_format=layout)
    wanted, found = own(image), folded.to(memory_format=layout)(image)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    arriving = draw(*wanted.shape, seed=1)
    wanted.backward(arriving)
    found.backward(arriving)
    for (name, ours), theirs in zip(folded.named_parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-8, atol=1e-8, msg=name)


def test_a_built_unet_is_folded() -> None:
    network = build_network(TINY, spec=make_spec(), in_channels=3)
    assert folded_blocks(network) == 3


@pytest.mark.parametrize(
    "options", [{"decoder_attention_type": "scse"}, {"decoder_interpolation": "bilinear"}, {"decoder_use_norm": False}]
)
def test_other_blocks_stay_as_they_are(options: dict[str, object]) -> None:
    network = smp.Unet("resnet18", encoder_weights=None, **options)
    fold_upsampling(network)
    assert not any(isinstance(block, FoldedBlock) for block in network.decoder.blocks[:-1])


def test_a_map_that_does_not_double_takes_the_original_way() -> None:
    torch.manual_seed(0)
    block = UnetDecoderBlock(4, 2, 3).double().eval()
    small, skip = draw(1, 4, 3, 3), draw(1, 2, 5, 6, seed=1)
    torch.testing.assert_close(FoldedBlock(block)(small, 5, 6, skip), block(small, 5, 6, skip), rtol=0, atol=0)


def test_the_library_is_of_a_version_whose_private_decoder_block_folding_knows() -> None:
    """`FoldedBlock` takes the block's parts by their private names, so pyproject.toml bounds the version above."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (required,) = (each for each in map(Requirement, project["dependencies"]) if each.name == LIBRARY)
    assert any(bound.operator == "<" for bound in required.specifier), "no upper bound"
    assert version(LIBRARY) in required.specifier
    block = UnetDecoderBlock(4, 2, 3)
    assert [name for name, _ in block.named_children()] == ["conv1", "attention1", "conv2", "attention2"]
    assert list(inspect.signature(UnetDecoderBlock.forward).parameters) == [
        *("self", "feature_map", "target_height", "target_width", "skip_connection")
    ]
    assert list(vars(block).keys() - vars(nn.Module()).keys()) == ["interpolation_mode"]
