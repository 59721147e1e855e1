"""Configurations of models, the networks that are built from them, and the card of a checkpoint."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import segmentation_models_pytorch as smp
import torch
from huggingface_hub import constants

from segmeter.errors import ConfigError
from segmeter.models import config as models
from segmeter.models import networks
from segmeter.models.config import MODELS
from segmeter.models.segmenter import Segmenter, build_segmenter
from tests.models.parts import TINY, make_card, make_spec


def test_the_listed_encoders_are_those_of_the_library():
    assert set(models.ENCODERS) == set(smp.encoders.get_encoder_names())


def test_configurations_do_not_import_torch():
    code = "import sys, segmeter.models.config, segmeter.inference.config; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: models.UnetConfig(depth=6), "model: expected `depth` to be an integer >= 3 and <= 5, got 6"),
        (lambda: models.UnetConfig(depth=2), "got 2"),
        (lambda: models.UnetConfig(encoder="resnet43"), "got 'resnet43'. Did you mean 'resnet34'?"),
        (lambda: models.UnetConfig(encoder=""), "for example resnet34"),
        (lambda: models.UnetConfig(weights=""), "`weights` to be text of length >= 1 or null"),
        (lambda: TINY.replace(decoder_channels=(8, 8, 0)), "`decoder_channels[2]` to be an integer >= 1, got 0"),
        (lambda: models.FpnConfig(decoder_dropout=1.0), "`decoder_dropout` to be a number >= 0 and <= 0.9"),
        (lambda: models.Deeplabv3Config(encoder_output_stride=4), "to be one of 8, 16, 32, got 4"),
        (lambda: models.Deeplabv3plusConfig(decoder_atrous_rates=(6, 12)), "to be a list of 3, each an integer, got"),
        (lambda: build_segmenter(make_card(model={"name": "unett"})), "Did you mean 'unet'?"),
        (
            lambda: build_segmenter(make_card(model={"name": "unet", "dpth": 3})),
            "unknown key 'dpth'. Did you mean 'depth'?",
        ),
    ],
)
def test_a_bad_value_is_refused(make, message):
    with pytest.raises(ConfigError) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize("name", models.MODELS.names())
def test_every_default_is_valid_and_named(name):
    assert models.MODELS.schema(name)().name == name


def test_a_card_survives_json_exactly():
    card = make_card(make_spec(4, "multilabel"), in_channels=2)
    card = replace(card, class_pixels=(2**40, 0, 3, 4), clip=((0.2, 0.6), (0.1, 0.9)))
    assert models.ModelCard.from_dict(json.loads(json.dumps(card.to_dict()))) == card


@pytest.mark.parametrize(
    "change", [{"mean": (0.5,)}, {"std": (0.0, 0.2, 0.2)}, {"std": (0.2, 0.2, float("nan"))}, {"clip": ((0.1, 0.9),)}]
)
def test_a_card_that_does_not_fit_its_channels_is_refused(change):
    with pytest.raises(ConfigError, match=r"`mean, std, clip` to have 3 values, one per channel, and std > 0, got"):
        replace(make_card(), **change)


def test_the_channels_of_a_plane_are_those_without_its_neighbours():
    assert replace(make_card(in_channels=6), data={"context": 1}).plane_channels == 2


def test_the_card_of_an_older_checkpoint_has_no_counts():
    values = make_card().to_dict()
    del values["class_pixels"]
    assert models.ModelCard.from_dict(values).class_pixels == ()


@pytest.mark.parametrize(("channels", "mean"), [(3, (0.485, 0.456, 0.406)), (1, (0.5,)), (4, (0.5,) * 4)])
def test_default_normalisation_has_one_value_per_channel(channels, mean):
    found, std = models.default_normalisation(channels)
    assert found == mean
    assert len(std) == channels


SMALL = {
    "unet": {"decoder_channels": (8, 8, 4)},
    "unetplusplus": {"decoder_channels": (8, 8, 4)},
    "manet": {"decoder_channels": (8, 8, 4), "decoder_pab_channels": 4},
    "fpn": {"decoder_pyramid_channels": 8, "decoder_segmentation_channels": 32},
    "pspnet": {"psp_out_channels": 8},
    "deeplabv3": {"decoder_channels": 8},
    "deeplabv3plus": {"decoder_channels": 8},
    "pan": {"decoder_channels": 8},
    "upernet": {"decoder_channels": 8},
    "segformer": {"decoder_segmentation_channels": 8},
    "dpt": {
        "encoder": "tu-vit_tiny_patch16_224",
        "decoder_intermediate_channels": (8,) * 3,
        "decoder_fusion_channels": 8,
    },
}


def build(config, num_classes=3, in_channels=3):
    """A network of shapes without values, which is quick."""
    with torch.device("meta"):
        return MODELS.build(config, spec=make_spec(num_classes), in_channels=in_channels)


def size_of_logits(network, height, width, in_channels=3):
    return tuple(network.eval()(torch.zeros(1, in_channels, height, width, device="meta")).shape)


@pytest.mark.parametrize(
    "config",
    [
        models.FpnConfig(encoder="tu-mobilenetv3_small_050", depth=4, decoder_pyramid_channels=8),
        models.PspnetConfig(encoder="tu-mobilenetv3_small_050", depth=4, psp_out_channels=8),
        models.UnetConfig(encoder="tu-mobilenetv3_small_050", depth=5),
        models.PanConfig(encoder="tu-mobilenetv3_small_050", depth=4, decoder_channels=8),
    ],
    ids=lambda config: f"{config.name}-{config.depth}",
)
def test_other_depths_and_encoders_give_logits_of_the_images_size(config):
    network = build(config, in_channels=1)
    size = max(2 * network.size_multiple, network.size_least)
    assert size_of_logits(network, size, size, in_channels=1) == (1, 3, size, size)


def test_the_decoder_doubles_from_16_channels_unless_told():
    network = build(TINY.replace(decoder_channels=None))
    assert [block.conv2[0].out_channels for block in network.decoder.blocks] == [64, 32, 16]


@pytest.mark.parametrize(
    ("options", "left_out", "multiple"),
    [
        ({"logits_stride": 2}, ("decoder.blocks.2.",), 8),
        ({"logits_stride": 4}, ("decoder.blocks.1.", "decoder.blocks.2."), 8),
        ({"downsample": 4}, ("nothing",), 32),
    ],
)
def test_a_network_may_end_early_or_see_the_image_smaller_with_the_same_other_weights(options, left_out, multiple):
    whole, short = build(TINY), build(TINY.replace(**options))
    assert size_of_logits(short, 16, 24) == (1, 3, 16, 24)
    assert Segmenter(short, make_card()).size_multiple == multiple
    heads = ("segmentation_head",)
    kept = [name for name in whole.state_dict() if not name.startswith(heads + left_out)]
    assert kept == [name for name in short.state_dict() if not name.startswith(heads)]


def test_logits_of_a_stride_are_those_of_the_last_level_enlarged_about_the_pixels_centres():
    torch.manual_seed(0)
    network = MODELS.build(TINY.replace(logits_stride=2), spec=make_spec(), in_channels=3).eval()
    coarse = []
    network.segmentation_head[0].register_forward_hook(lambda module, taken, given: coarse.append(given[0, 0]))
    with torch.inference_mode():
        logits = network(torch.rand(1, 3, 16, 24))[0, 0]
    (small,) = coarse
    assert small.shape == (8, 12)
    # the weights of an enlargement by two, half a pixel from each centre
    rows = [0.75 * small[3] + 0.25 * small[2], 0.75 * small[3] + 0.25 * small[4]]
    expected = [0.75 * row[5] + 0.25 * row[4] for row in rows]
    torch.testing.assert_close(logits[6:8, 10], torch.stack(expected))


OFFLINE = r"can't be built .*set model.weights=null"
REFUSED = [
    (models.Deeplabv3Config(encoder="densenet121"), "model: deeplabv3 with encoder 'densenet121' at depth"),
    (models.DptConfig(encoder="tu-convnext_atto"), "model: dpt with encoder 'tu-convnext_atto' at depth"),
    (models.DptConfig(depth=3), "model: dpt with encoder 'tu-vit_.*' at depth 3"),
    (models.UnetConfig(depth=3, decoder_channels=(8, 8)), "model: unet with encoder 'resnet34' at depth 3"),
    (models.UnetplusplusConfig(encoder="mit_b0"), "model: unetplusplus with encoder 'mit_b0' at depth"),
    (models.FpnConfig(decoder_segmentation_channels=40), "model: fpn with encoder 'resnet34' at depth"),
    (models.PanConfig(encoder_output_stride=8), "model: pan with encoder 'resnet34' at depth"),
    (TINY.replace(encoder="tu-convnext_tinny"), "Did you mean 'tu-convnext_tiny'.{0,99}$"),
    (TINY.replace(encoder="tu-qqqqqqqq"), "^.{0,99}such as tu-convnext_tiny.{0,99}$"),  # a few of a thousand
    (TINY.replace(encoder="resnet18", weights="imagenet"), OFFLINE),
    (TINY.replace(encoder="tu-resnet10t", weights="imagenet"), OFFLINE),
    (TINY.replace(encoder="resnext101_32x48d", weights="imagenet"), r"Wrong pretrained weights .*32x48d`.*instagram"),
]


@pytest.mark.parametrize(("config", "message"), REFUSED, ids=str)
def test_what_the_library_refuses_is_one_line(config, message, monkeypatch, tmp_path):
    """Here without a network, and without weights in the cache."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=message) as caught:
        build(config)
    assert "\n" not in str(caught.value)


def test_a_combination_with_logits_of_another_size_is_refused(monkeypatch):
    create = networks.smp.create_model
    monkeypatch.setattr(networks.smp, "create_model", lambda name, **given: create(name, **given | {"upsampling": 4}))
    with pytest.raises(ConfigError, match=r"gives logits of \(64, 96\) for an image of \(16, 24\)"):
        build(models.FpnConfig(encoder="resnet18", depth=3))


@pytest.mark.parametrize(
    ("encoder", "weights", "passed"),
    [
        *(("resnet18", None, None), ("resnet18", "imagenet", "imagenet"), ("tu-resnet10t", "imagenet", True)),
        *(("resnext101_32x16d", "instagram", "instagram"), ("tu-resnet10t", None, None)),
    ],
)
def test_the_library_is_asked_for_the_weights_that_are_named(monkeypatch, encoder, weights, passed):
    asked = []

    def construct(name, **options):
        asked.append(options["encoder_weights"])
        raise ValueError("enough")

    monkeypatch.setattr(networks.smp, "create_model", construct)
    with pytest.raises(ConfigError, match=r"can't be built \(ValueError: enough\)"):
        build(TINY.replace(encoder=encoder, weights=weights))
    assert asked == [passed]
