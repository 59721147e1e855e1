"""The encoder matrix: with every encoder a U-Net runs on the CPU and is the library's own, or is refused when built.

A few encoders run always, a sample of the others in `make test-all`, and all of them in `make fuzz`.
"""

import pytest
import torch
from segmentation_models_pytorch.decoders.unet.decoder import UnetDecoderBlock

from segmeter.errors import ConfigError
from segmeter.models.config import ENCODERS, UnetConfig
from segmeter.models.layers import FoldedBlock
from segmeter.models.segmenter import Segmenter, build_segmenter
from tests.fuzzing import sampled
from tests.models.parts import make_card

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
REFUSED = (
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
    if encoder in REFUSED:
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
