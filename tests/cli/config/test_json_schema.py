import pytest

from segmeter.cli.config.groups import GROUPS, TRAINED, schemas_of
from segmeter.cli.config.reference import DIALECT, json_schema, names


def required(value):
    """Whether any part of a schema asks for a property."""
    if isinstance(value, dict):
        return "required" in value or any(map(required, value.values()))
    return isinstance(value, list) and any(map(required, value))


def references(value):
    if isinstance(value, dict):
        yield from [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


@pytest.mark.parametrize("name", names())
def test_every_reference_is_defined(name):
    schema = json_schema(name)
    assert schema["$schema"] == DIALECT
    assert {reference.removeprefix("#/$defs/") for reference in references(schema)} <= set(schema["$defs"])


def test_nothing_is_required_as_a_file_holds_a_part():
    assert not required(json_schema("train"))


def test_a_group_of_components_takes_any_of_them():
    schema = json_schema("loss")
    assert {each["$ref"] for each in schema["anyOf"]} == {f"#/$defs/loss.{name}" for name in schemas_of("loss")}
    focal = schema["$defs"]["loss.focal"]["properties"]
    assert focal["name"] == {"const": "focal"}
    assert focal["gamma"]["minimum"] == 0


def test_eval_alone_takes_the_data_of_its_checkpoint():
    assert f"data.{TRAINED}" in json_schema("eval")["$defs"]
    assert f"data.{TRAINED}" not in json_schema("train")["$defs"]


def test_a_command_and_a_group_of_one_name_are_told_apart():
    assert "export" in GROUPS
    assert json_schema("export_command")["title"] == "segmeter export"
    assert json_schema("export")["title"] == "segmeter: an option of export"
