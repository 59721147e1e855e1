"""Replaced layers: other norms keep the gains, and the folded decoder is the same function with every encoder."""

import copy

import pytest
import segmentation_models_pytorch as smp
import torch
from segmentation_models_pytorch.decoders.unet.decoder import UnetDecoderBlock
from torch import nn
from torch.nn import functional

from segmeter.errors import ConfigError
from segmeter.models.config import ENCODERS, MODELS, UnetConfig
from segmeter.models.layers import FoldedBlock, convolve_enlarged, fold_upsampling, replace_norms
from segmeter.models.networks import build_network
from segmeter.models.segmenter import Segmenter, build_segmenter
from tests.fuzzing import sampled
from tests.models.parts import TINY, make_card, make_spec
from tests.models.test_networks import SMALL


def folded_blocks(network: nn.Module) -> int:
    return sum(isinstance(module, FoldedBlock) for module in network.modules())


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


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
    ours, theirs = (torch.autograd.grad(each, inputs, arriving) for each in (found, wanted))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_network_is_the_same_function_of_the_same_weights(layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    own = smp.Unet("tu-test_resnet", encoder_weights=None, classes=4, encoder_depth=3, decoder_channels=(16, 8, 8))
    own = own.double().train()
    folded = copy.deepcopy(own)
    fold_upsampling(folded)
    assert folded_blocks(folded) == 3
    assert list(folded.state_dict()) == list(own.state_dict())
    image = draw(2, 3, 64, 96).contiguous(memory_format=layout)
    wanted, found = own(image), folded.to(memory_format=layout)(image)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    arriving = draw(*wanted.shape, seed=1)
    wanted.backward(arriving)
    found.backward(arriving)
    for (name, ours), theirs in zip(folded.named_parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-8, atol=1e-8, msg=name)


@pytest.mark.parametrize(
    "options", [{"decoder_attention_type": "scse"}, {"decoder_interpolation": "bilinear"}, {"decoder_use_norm": False}]
)
def test_other_blocks_stay_as_they_are(options: dict[str, object]) -> None:
    network = smp.Unet("tu-test_resnet", encoder_weights=None, encoder_depth=3, decoder_channels=(16,) * 3, **options)
    fold_upsampling(network)
    assert not any(isinstance(block, FoldedBlock) for block in network.decoder.blocks[:-1])


def test_a_map_that_does_not_double_takes_the_original_way() -> None:
    torch.manual_seed(0)
    block = UnetDecoderBlock(4, 2, 3).double().eval()
    small, skip = draw(1, 4, 3, 3), draw(1, 2, 5, 6, seed=1)
    wanted = block(small, 5, 6, skip)
    block.__class__ = FoldedBlock
    torch.testing.assert_close(block(small, 5, 6, skip), wanted, rtol=0, atol=0)


def built(**options):
    torch.manual_seed(0)
    return build_network(TINY.replace(**options), spec=make_spec(), in_channels=3)


def batch_norms(network):
    return sum(isinstance(module, nn.BatchNorm2d) for module in network.modules())


@pytest.mark.parametrize(
    ("encoder", "norm"),
    [
        *(("tu-test_resnet", "group"), ("tu-efficientnet_b0", "instance"), ("resnet18", "group")),
        *(("mobilenet_v2", "instance"), ("densenet121", "group")),
    ],
)
def test_a_network_without_batch_norm_treats_each_image_on_its_own_in_training(encoder, norm):
    torch.manual_seed(0)
    config = UnetConfig(encoder=encoder, depth=3, decoder_channels=(8, 8, 4), norm=norm)
    network = build_network(config, spec=make_spec(), in_channels=3).train()
    assert batch_norms(network) == 0
    for module in network.modules():  # drawn for the whole batch
        if "drop" in type(module).__name__.lower():
            module.eval()
    image = torch.randn(3, 3, 64, 96)
    torch.testing.assert_close(network(image)[:1], network(image[:1]), rtol=1e-4, atol=1e-4)


def test_names_gains_and_activations_stay():
    plain, grouped = built(), built(norm="group")
    kept = [name for name in plain.state_dict() if "running" not in name and "num_b" not in name]
    assert list(grouped.state_dict()) == kept
    norm = nn.Sequential(nn.BatchNorm2d(8))
    nn.init.constant_(norm[0].weight, 3.0)
    nn.init.constant_(norm[0].bias, 0.5)
    image = torch.randn(2, 8, 5, 6)
    found = replace_norms(norm, "instance")(image)
    torch.testing.assert_close(found.mean((2, 3)), torch.full((2, 8), 0.5))
    torch.testing.assert_close(found.var((2, 3), unbiased=False), torch.full((2, 8), 9.0), rtol=1e-3, atol=0)
    torch.testing.assert_close(found, nn.functional.instance_norm(image, weight=norm[0].weight, bias=norm[0].bias))


def test_sync_is_batch_norm_where_there_is_one_process():
    plain, synced = built(), built(norm="sync")
    image = torch.randn(2, 3, 32, 32)
    assert batch_norms(synced) == 0
    assert synced.training
    torch.testing.assert_close(synced(image), plain(image))


REFUSED = {("deeplabv3", "instance"), ("deeplabv3plus", "instance"), ("upernet", "instance"), ("pan", "group")}


@pytest.mark.parametrize("norm", ["batch", "sync", "group", "instance"])
@pytest.mark.parametrize("name", MODELS.names())
def test_every_network_takes_every_norm_or_refuses_it_before_it_is_built(name, norm):
    """And gives logits of the image's size, at depth three."""
    options = {"encoder": "resnet18", "depth": 3} | SMALL.get(name, {}) | {"norm": norm}
    if (name, norm) in REFUSED | {("pan", "instance")}:
        with pytest.raises(ConfigError, match=rf"`norm` not to be {norm} for {name}, .* Use norm="):
            MODELS.schema(name)(**options)
        return
    with torch.device("meta"):
        network = MODELS.build(MODELS.schema(name)(**options), spec=make_spec(), in_channels=3).train()
    assert norm == "batch" or batch_norms(network) == 0
    side = max(64, network.size_least, 2 * network.size_multiple)
    assert network(torch.zeros(2, 3, side, 2 * side, device="meta")).shape == (2, 3, side, 2 * side)


# The smallest of each family
TIMM = (
    *("caformer_s18", "coatnet_pico_rw_224", "convmixer_768_32", "convnext_tiny", "convnextv2_atto", "cspresnet50"),
    *("darknet53", "davit_tiny", "densenet121", "dla34", "dpn48b", "edgenext_xx_small", "efficientformer_l1"),
    *("efficientnet_b0", "efficientnetv2_rw_t", "efficientvit_b0", "fastvit_t8", "fbnetv3_b", "focalnet_tiny_srf"),
    *("gcvit_xxtiny", "ghostnet_050", "hgnet_tiny", "hiera_tiny_224", "hrnet_w18_small", "inception_next_atto"),
    *("lcnet_050", "levit_128s", "mambaout_femto", "maxvit_tiny_tf_224", "mixnet_s", "mnasnet_small"),
    *("mobilenetv3_small_050", "mobilenetv4_conv_small", "mobileone_s0", "mobilevit_xxs", "mvitv2_tiny"),
    *("nextvit_small", "nf_regnet_b0", "nfnet_l0"),
    *("poolformer_s12", "pvt_v2_b0", "regnety_002", "repvgg_a0", "repvit_m0_9", "res2net50_26w_4s", "resnest14d"),
    *("resnet10t", "rexnet_100", "selecsls42", "seresnet18", "skresnet18", "starnet_s1"),
    *("swin_tiny_patch4_window7_224", "test_resnet", "tiny_vit_5m_224", "tinynet_e", "tresnet_m", "vgg11"),
    *("vit_tiny_patch16_224", "xception41"),
)
QUICK = ("resnet18", "mit_b0", "mobilenet_v2", "tu-convnext_tiny", "tu-test_resnet", "tu-vit_tiny_patch16_224")
# They take images of one size, or have no maps of other sizes to skip from
UNFIT = (
    *("tu-coatnet_pico_rw_224", "tu-convmixer_768_32", "tu-efficientformer_l1", "tu-gcvit_xxtiny", "tu-hiera_tiny_224"),
    *("tu-levit_128s", "tu-maxvit_tiny_tf_224", "tu-swin_tiny_patch4_window7_224", "tu-vit_tiny_patch16_224"),
)
EVERY = (*ENCODERS, *(f"tu-{name}" for name in TIMM))


def cases() -> list[object]:
    others = sampled([name for name in EVERY if name not in QUICK], 8)
    return [*QUICK, *(pytest.param(name, marks=pytest.mark.fuzz) for name in others)]


@torch.inference_mode()
def logits(segmenter: Segmenter) -> torch.Tensor:
    image = torch.randint(0, 256, (2, 3, 61, 90), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return segmenter.eval()(image.contiguous(memory_format=torch.channels_last))


@pytest.mark.parametrize("encoder", cases())
@pytest.mark.filterwarnings("ignore")  # of the library and of timm, about names of theirs
def test_a_unet_runs_on_the_cpu_and_is_the_unfolded_one_or_is_refused(encoder: str) -> None:
    torch.manual_seed(0)
    card = make_card(model=UnetConfig(encoder=encoder))
    if encoder in UNFIT:
        with pytest.raises(ConfigError, match=f"unet with encoder '{encoder}' at depth 5"):
            build_segmenter(card)
        return
    segmenter = build_segmenter(card)
    folded = logits(segmenter)
    blocks = [module for module in segmenter.modules() if isinstance(module, FoldedBlock)]
    assert blocks
    for block in blocks:
        block.__class__ = UnetDecoderBlock
    whole = logits(segmenter)
    assert whole.isfinite().all()
    assert (folded - whole).abs().max() <= 1e-5 * whole.abs().max()
