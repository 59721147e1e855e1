import subprocess
import sys

import pytest
import segmentation_models_pytorch as smp

from segmeter.errors import ConfigError
from segmeter.models import config as models
from segmeter.models.config import ENCODERS, MODELS, UnetConfig, model_config


def test_the_listed_encoders_are_those_of_the_library():
    assert set(ENCODERS) == set(smp.encoders.get_encoder_names())


def test_configurations_do_not_import_torch():
    code = "import sys, segmeter.models.config, segmeter.inference.config; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UnetConfig(depth=6), "model: expected `depth` to be an integer >= 3 and <= 5, got 6"),
        (lambda: UnetConfig(depth=2), "got 2"),
        (lambda: UnetConfig(encoder="resnet43"), "got 'resnet43'. Did you mean 'resnet34'?"),
        (lambda: UnetConfig(encoder=""), "for example resnet34"),
        (lambda: UnetConfig(weights=""), "`weights` to be text of length >= 1 or null"),
        (lambda: UnetConfig(depth=3, decoder_channels=(8, 8, 0)), "`decoder_channels[2]` to be an integer >= 1, got 0"),
        (lambda: models.FpnConfig(decoder_dropout=1.0), "`decoder_dropout` to be a number >= 0 and <= 0.9"),
        (lambda: models.Deeplabv3Config(encoder_output_stride=4), "to be one of 8, 16, 32, got 4"),
        (
            lambda: models.Deeplabv3plusConfig(decoder_atrous_rates=(6, 12)),
            "to be a list of 3, each an integer, got [6, 12]",
        ),
        (lambda: model_config({"name": "unett"}), "Did you mean 'unet'?"),
        (lambda: model_config({"name": "unet", "dpth": 3}), "unknown key 'dpth'. Did you mean 'depth'?"),
        (lambda: model_config({}), "expected a registered name, got 'None'"),
    ],
)
def test_a_bad_value_is_refused(make, message):
    with pytest.raises(ConfigError) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize("name", MODELS.names())
def test_every_default_is_valid_and_comes_back_from_its_fields(name):
    config = MODELS.schema(name)()
    assert config.name == name
    values = {key: list(value) if isinstance(value, tuple) else value for key, value in config}
    assert model_config(values) == config
