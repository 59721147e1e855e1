import pytest

from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.models.foreign.config import PLUGINS, ForeignConfig, SizeConfig, overlay, register_model
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


def test_each_class_is_mapped_by_name_number_or_the_rest():
    config = ForeignConfig(
        classes=("sky", "bus", "lane", "human"), class_map={"1": "Road", "human": "Pedestrian", "*": "Road"}
    )
    assert class_numbers(config, DATA) == ((0, 1, 1, 2), [])


def test_every_gap_of_a_class_map_is_named():
    config = ForeignConfig(classes=("sky", "bus"), class_map={"car": "Road", "sky": "Cloud"})
    assert class_numbers(config, DATA)[1] == [
        "names classes that the model lacks car",
        "names classes that the data lacks Cloud",
        "says nothing of the model's classes bus",
        "gives no source of the data's classes Sky, Pedestrian",
    ]


def test_a_class_that_is_mapped_by_name_and_by_number_speaks_of_both_targets():
    """`check` adds what the user says by number to what it proposes by name."""
    config = ForeignConfig(classes=("sky", "road"), class_map={"road": "Road", "1": "Pedestrian"})
    assert class_numbers(config, DATA) == ((0, 2), [])


def test_an_unknown_size_is_refused():
    with pytest.raises(ConfigError, match="to be any, multiple:32"):
        SizeConfig(fit="half")


def test_a_card_of_a_plugin_is_checked_when_it_is_registered(monkeypatch):
    monkeypatch.setattr("segmeter.models.foreign.config.PLUGINS", {})
    with pytest.raises(ConfigError, match="klasses"):
        register_model("mine", klasses=["a"])(lambda images: images)


def test_a_plugin_is_found_by_its_name_and_keeps_its_callable(monkeypatch):
    monkeypatch.setattr("segmeter.models.foreign.config.PLUGINS", {})

    def mine(images):
        return images

    assert register_model("mine", classes=["a", "b"])(mine) is mine
    assert "mine" not in PLUGINS
