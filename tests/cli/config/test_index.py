import json

from segmeter.cli.config.groups import schemas_of
from segmeter.cli.config.index import completion_index
from segmeter.cli.config.schema import ROOTS

INDEX = completion_index()


def test_it_has_every_command_and_is_plain_json():
    assert list(INDEX) == list(ROOTS)
    assert json.loads(json.dumps(INDEX)) == INDEX


def test_a_group_offers_its_options_and_the_keys_of_each():
    loss = INDEX["train"]["groups"]["loss"]
    assert loss["default"] in loss["options"]
    assert set(loss["keys"]) == set(schemas_of("loss"))
    assert "gamma" in loss["keys"]["focal"]
    assert "gamma" not in loss["keys"]["dice"]


def test_a_group_with_one_schema_says_its_keys_once():
    assert list(INDEX["train"]["groups"]["training"]["keys"]) == ["*"]


def test_a_key_says_its_words_or_that_it_is_a_path():
    assert INDEX["train"]["groups"]["data"]["keys"]["folder"]["root"] == "path"
    assert INDEX["train"]["groups"]["training"]["keys"]["*"]["deterministic"] == ["true", "false"]
    assert INDEX["train"]["groups"]["loss"]["keys"]["focal"]["gamma"] == []


def test_presets_have_no_keys_of_their_own():
    assert INDEX["train"]["groups"]["experiment"]["keys"] == {"*": {}}
