import json
from dataclasses import replace

import pytest

from segmeter.errors import ConfigError
from segmeter.models.config import IMAGENET_MEAN, ModelCard, default_normalisation
from tests.models.parts import make_card, make_spec


def test_a_card_survives_json_exactly():
    card = make_card(make_spec(4, "multilabel"), in_channels=2)
    card = replace(card, class_pixels=(2**40, 0, 3, 4), clip=((0.2, 0.6), (0.1, 0.9)))
    assert ModelCard.from_dict(json.loads(json.dumps(card.to_dict()))) == card


def test_a_card_refuses_all_that_does_not_fit_at_once():
    with pytest.raises(ConfigError) as caught:
        ModelCard(
            model={"name": "unet"},
            spec=make_spec(),
            in_channels=3,
            mean=(0.5,),
            std=(0.0, 0.2, float("nan")),
            class_pixels=(1,),
            clip=((0.2, 0.1),) * 3,
        )
    text = str(caught.value)
    assert "expected `mean` to be 3 values" in text
    assert "expected `std` > 0 and <= 1e+06, got 0.0" in text
    assert "got nan" in text
    assert "expected `class_pixels` to be 3 counts, one per class, got [1]" in text
    assert "`clip` to be 3 pairs of a lower and a higher value" in text
    with pytest.raises(ConfigError, match="`clip` to be 3 pairs"):
        replace(make_card(), clip=((0.1, 0.9),))


def test_a_card_from_a_dict_names_the_key_that_is_missing():
    values = make_card().to_dict()
    del values["class_pixels"]  # older checkpoints have none
    assert ModelCard.from_dict(values).class_pixels == ()
    del values["std"]
    with pytest.raises(KeyError, match="std"):
        ModelCard.from_dict(values)


@pytest.mark.parametrize(("channels", "mean"), [(3, IMAGENET_MEAN), (1, (0.5,)), (4, (0.5,) * 4)])
def test_default_normalisation_has_one_value_per_channel(channels, mean):
    found, std = default_normalisation(channels)
    assert found == mean
    assert len(std) == channels
