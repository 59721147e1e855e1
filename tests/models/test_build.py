"""A card -> a segmenter on the CPU, in training mode, with or without the weights that it names."""

import pytest

from segmeter.errors import CheckpointError, ConfigError
from segmeter.models.config import UnetConfig
from segmeter.models.segmenter import build_segmenter
from tests.models.parts import make_card, make_spec


def tiny(**changes):
    return UnetConfig(encoder="tu-test_resnet", depth=3, decoder_channels=(8, 8, 4), **changes)


def test_the_segmenter_has_the_cards_classes_channels_and_normalisation():
    card = make_card(make_spec(5), in_channels=2, model=tiny())
    segmenter = build_segmenter(card)
    assert segmenter.training
    assert segmenter.card is card
    state = segmenter.state_dict()
    assert {value.device.type for value in state.values()} == {"cpu"}
    assert state["network.segmentation_head.0.weight"].shape[0] == 5
    assert state["network.encoder.model.conv1.0.weight"].shape[1] == 2


def test_weights_are_left_aside_where_the_caller_loads_others(tmp_path):
    card = make_card(model=tiny(weights=str(tmp_path / "gone.safetensors")))
    build_segmenter(card, initialise=False)
    with pytest.raises(CheckpointError, match=r"gone\.safetensors: can't be opened"):
        build_segmenter(card)


def test_a_network_that_is_not_registered_is_refused():
    card = make_card(model=tiny())
    object.__setattr__(card, "model", {**card.model, "name": "unett"})
    with pytest.raises(ConfigError, match="Did you mean 'unet'"):
        build_segmenter(card)
