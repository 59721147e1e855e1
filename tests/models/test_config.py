"""Configurations of models, and the card of a checkpoint."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import segmentation_models_pytorch as smp

from segmeter.errors import ConfigError
from segmeter.models import config as models
from segmeter.models.segmenter import build_segmenter
from tests.models.parts import TINY, make_card, make_spec


def test_the_listed_encoders_are_those_of_the_library():
    assert set(models.ENCODERS) == set(smp.encoders.get_encoder_names())


def test_configurations_do_not_import_torch():
    code = "import sys, segmeter.models.config, segmeter.inference.config; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def build(model):
    return build_segmenter(make_card(model=model))


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
        (lambda: build({"name": "unett"}), "Did you mean 'unet'?"),
        (lambda: build({"name": "unet", "dpth": 3}), "unknown key 'dpth'. Did you mean 'depth'?"),
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
    "change",
    [{"mean": (0.5,)}, {"std": (0.0, 0.2, 0.2)}, {"std": (0.2, 0.2, float("nan"))}, {"clip": ((0.1, 0.9),)}],
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
