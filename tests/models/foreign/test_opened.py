"""Models of others are found by name, completed by a card, mapped to the data's classes, or refused in one line."""

from pathlib import Path

import pytest

from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.models.foreign.config import ForeignConfig, SizeConfig, overlay, register_model
from segmeter.models.foreign.opened import class_numbers, describe, find_source, open_foreign, propose


@register_model("tests-dark", classes=["a", "b"], output={"kind": "labels"})
def dark(images):
    return (images.float().mean(1) < 100).int()


def test_families_are_known_by_their_names():
    found = {
        text: find_source(Path(text)) for text in ("hf:a/b", "smp:Unet/resnet18", "x.onnx", "tests-dark", "runs/x")
    }
    assert [each and each.family for each in found.values()] == ["hf", "smp", "onnx", "plugin", None]


def test_the_command_line_overrides_the_card_and_the_card_the_plugin(tmp_path):
    (tmp_path / "card.yaml").write_text("classes: [c, d]\ninput: {order: bgr}\n")
    told = ForeignConfig(card=str(tmp_path / "card.yaml"), classes=("e", "f"))
    found = describe(find_source("tests-dark"), told)
    assert (found.config.classes, found.config.input.order, found.config.output.kind) == (("e", "f"), "bgr", "labels")
    assert "input.order" not in found.guessed
    assert "input.channels" in found.guessed
    assert found.sha256 != describe(find_source("tests-dark"), ForeignConfig()).sha256


@pytest.mark.parametrize(
    ("task", "names", "message"),
    [
        ("multiclass", ("x", "y"), r"says nothing of the model's classes a, b.*\n.*\n.*a, b \| x, y"),
        ("multilabel", ("a", "b"), "to go with the data's task"),
    ],
)
def test_a_missing_class_map_and_a_task_that_the_model_can_t_have_are_refused(task, names, message):
    spec = ClassSpec(task=task, names=names, colours=((0, 0, 0),) * 2)
    with pytest.raises(ConfigError, match=message):
        open_foreign(describe(find_source("tests-dark"), ForeignConfig()), spec)


def test_the_class_of_pixels_without_an_object_is_asked_for():
    told = ForeignConfig(output={"kind": "instances"})
    with pytest.raises(ConfigError, match=r"nothing tells model\.output\.background"):
        describe(find_source("tests-dark"), told)


DATA = ClassSpec(task="multiclass", names=("Sky", "Road", "Pedestrian"), colours=((0, 0, 0),) * 3)


def test_what_is_not_said_hides_nothing():
    below = {"classes": ("a",), "input": {"mean": (1.0,), "order": "rgb"}}
    found = overlay(below, {"classes": None, "input": {"order": "bgr", "mean": None}, "options": {}})
    assert found == {"classes": ("a",), "input": {"mean": (1.0,), "order": "bgr"}, "options": {}}


def test_classes_are_proposed_by_equal_names_and_synonyms():
    assert propose(("sky", "person, individual", "street", "cat"), DATA.names) == {
        "sky": "Sky",
        "person, individual": "Pedestrian",
        "street": "Road",
    }


STAR = {"sky": "Sky", "*": "Road"}  # what "*" names for nothing, and a background without objects, have no channel
GAPS = [
    "names classes that the model lacks car",
    "names classes that the data lacks Cloud",
    "says nothing of the model's classes bus",
    "gives no source of the data's classes Sky, Road, Pedestrian",
]
MAPPED = {  # the model's classes, their map, kind of output, numbers of the data's classes, problems
    "rest": ("sky bus lane human", {"1": "Road", "human": "Pedestrian", "*": "Road"}, "logits", (0, 1, 1, 2), []),
    "numbers": ("sky road lane", {"road": "Road", "1": "Pedestrian", "lane": "Road"}, "logits", (0, 2, 1), []),
    "gaps": ("sky bus", {"car": "Road", "sky": "Cloud"}, "logits", (0, 0), GAPS),
    "pixels": ("sky", STAR, "logits", (0,), ["gives no source of the data's classes Road, Pedestrian"]),
    "objects": ("sky", STAR, "instances", (0,), ["gives no source of the data's classes Road"]),
}


@pytest.mark.parametrize(("classes", "class_map", "kind", "numbers", "problems"), MAPPED.values(), ids=MAPPED)
def test_each_class_is_mapped_by_name_number_or_the_rest_and_every_gap_is_named(
    classes, class_map, kind, numbers, problems
):
    output = {"kind": kind, "background": "Pedestrian"}
    config = ForeignConfig(classes=tuple(classes.split()), class_map=class_map, output=output)
    assert class_numbers(config, DATA) == (numbers, problems)


def test_an_unknown_size_is_refused():
    with pytest.raises(ConfigError, match="to be any, multiple:32"):
        SizeConfig(fit="half")


def test_a_plugin_keeps_its_callable_and_its_card_is_checked_when_it_is_registered(monkeypatch):
    monkeypatch.setattr("segmeter.models.foreign.config.PLUGINS", {})
    assert register_model("mine", classes=["a", "b"])(overlay) is overlay
    with pytest.raises(ConfigError, match="klasses"):
        register_model("mine", klasses=["a"])(overlay)
