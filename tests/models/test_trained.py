from dataclasses import replace
from pathlib import Path

import pytest

from segmeter.errors import ConfigError
from segmeter.models.checkpoint import Checkpoint
from segmeter.models.trained import Checkpoints, read_checkpoints
from tests.models.parts import make_card


@pytest.mark.parametrize(
    ("counts", "known"),
    [
        ([(1, 2, 3)], True),
        ([(1, 2, 3), (1, 2, 3)], True),
        ([(1, 2, 3), (1, 2, 4)], False),
        ([(1, 2, 3), ()], False),
        ([()], False),
    ],
)
def test_pixels_per_class_are_those_of_all_members_or_not_known(counts, known):
    cards = [replace(make_card(), class_pixels=pixels) for pixels in counts]
    members = [Checkpoint(folder=Path(), card=card, progress={}, sha256="", files={}) for card in cards]
    found = Checkpoints(tuple(members)).class_pixels
    assert (found is not None) == known
    assert found is None or tuple(found) == counts[0]


def test_models_of_others_are_not_averaged():
    with pytest.raises(ConfigError, match="single model"):
        read_checkpoints([Path("model.onnx"), Path("hf:x/y")])
