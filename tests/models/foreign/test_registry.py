import pytest

from segmeter.errors import ConfigError
from segmeter.models.foreign.registry import PLUGINS, register_model


def test_a_card_of_a_plugin_is_checked_when_it_is_registered(monkeypatch):
    monkeypatch.setattr("segmeter.models.foreign.registry.PLUGINS", {})
    with pytest.raises(ConfigError, match="klasses"):
        register_model("mine", klasses=["a"])(lambda images: images)


def test_a_plugin_is_found_by_its_name_and_keeps_its_callable(monkeypatch):
    monkeypatch.setattr("segmeter.models.foreign.registry.PLUGINS", {})

    def mine(images):
        return images

    assert register_model("mine", classes=["a", "b"])(mine) is mine
    assert "mine" not in PLUGINS
