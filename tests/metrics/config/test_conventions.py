"""The choices of conventions: their hash, and how they differ from ours in words."""

from dataclasses import fields, replace

from segmeter.metrics.config.conventions import CONVENTIONS, OURS, Convention, differences


def test_every_choice_is_in_the_hash():
    assert len({convention.hash for convention in CONVENTIONS.values()}) == len(CONVENTIONS)
    for field in fields(Convention):
        assert replace(OURS, **{field.name: "other"}).hash != OURS.hash, field.name
    assert replace(OURS).hash == OURS.hash


def test_what_differs_is_said_of_every_other_convention():
    assert differences(OURS, background=False) == []
    assert differences(CONVENTIONS["mmseg"], background=False) == ["with background"]
    assert differences(CONVENTIONS["brats"], surfaces=False, groups=False) == [
        "mean per class, then over classes",
        "without background",
        "both sides empty: Dice 1",
    ]
    for name in CONVENTIONS.keys() - {"segmeter", "mmseg", "cityscapes", "torchmetrics-jaccard", "hf-evaluate"}:
        assert differences(CONVENTIONS[name]), name
