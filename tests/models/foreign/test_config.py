import pytest

from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.models.foreign.config import ForeignConfig, SizeConfig, overlay, register_model
from segmeter.models.foreign.opened import class_numbers, propose

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


@pytest.mark.parametrize(
    ("classes", "class_map", "numbers"),
    [
        (("sky", "bus", "lane", "human"), {"1": "Road", "human": "Pedestrian", "*": "Road"}, (0, 1, 1, 2)),
        # `check` adds numbers to proposed names
        (("sky", "road", "lane"), {"road": "Road", "1": "Pedestrian", "lane": "Road"}, (0, 2, 1)),
    ],
)
def test_each_class_is_mapped_by_name_number_or_the_rest(classes, class_map, numbers):
    assert class_numbers(ForeignConfig(classes=classes, class_map=class_map), DATA) == (numbers, [])


def test_every_gap_of_a_class_map_is_named():
    config = ForeignConfig(classes=("sky", "bus"), class_map={"car": "Road", "sky": "Cloud"})
    assert class_numbers(config, DATA)[1] == [
        "names classes that the model lacks car",
        "names classes that the data lacks Cloud",
        "says nothing of the model's classes bus",
        "gives no source of the data's classes Sky, Road, Pedestrian",
    ]


@pytest.mark.parametrize(("kind", "lacking"), [("logits", "Road, Pedestrian"), ("instances", "Road")])
def test_only_a_class_of_the_model_or_the_background_of_objects_is_a_source(kind, lacking):
    """A class that "*" names for nothing, or a background of a model without objects, would have no channel."""
    told = {"class_map": {"sky": "Sky", "*": "Road"}, "output": {"kind": kind, "background": "Pedestrian"}}
    problems = class_numbers(ForeignConfig(classes=("sky",), **told), DATA)[1]
    assert problems == [f"gives no source of the data's classes {lacking}"]


def test_an_unknown_size_is_refused():
    with pytest.raises(ConfigError, match="to be any, multiple:32"):
        SizeConfig(fit="half")


def test_a_plugin_keeps_its_callable_and_its_card_is_checked_when_it_is_registered(monkeypatch):
    monkeypatch.setattr("segmeter.models.foreign.config.PLUGINS", {})
    assert register_model("mine", classes=["a", "b"])(overlay) is overlay
    with pytest.raises(ConfigError, match="klasses"):
        register_model("mine", klasses=["a"])(overlay)
