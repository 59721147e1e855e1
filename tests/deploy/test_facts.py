import json

import pytest

from segmeter.deploy.facts import describe
from segmeter.models.checkpoints.checkpoint import Checkpoints
from tests.models.parts import make_card, make_spec


@pytest.mark.parametrize(
    ("task", "classes", "axes", "threshold", "dtype"),
    [
        ("multiclass", 3, ["batch", "height", "width"], None, "uint8"),
        ("multiclass", 300, ["batch", "height", "width"], None, "uint16"),
        ("binary", 2, ["batch", "height", "width"], 0.4, "uint8"),
        ("multilabel", 3, ["batch", "class", "height", "width"], 0.4, "uint8"),
    ],
)
def test_a_file_says_what_goes_in_and_what_comes_out(checkpoint_of, task, classes, axes, threshold, dtype):
    checkpoint = Checkpoints((checkpoint_of(make_card(make_spec(classes, task))),))
    facts = describe(checkpoint, threshold=0.4, dtype="uint8", least=17)
    json.dumps(facts)
    assert facts["input"] == {
        "name": "images",
        "axes": ["batch", "height", "width", "channel"],
        "dtype": "uint8",
        "least_size": 17,
    }
    assert facts["output"] == {"name": "labels", "axes": axes, "dtype": dtype}
    assert facts["threshold"] == threshold
    assert facts["checkpoint_sha256"] == checkpoint.sha256
    assert facts["averaged"] is None
    assert facts["card"] == checkpoint.card.to_dict()
