"""What can be chosen in each group: the schemas' options and the YAML files of the given folders, and no others."""

from segmeter.cli.config.groups import CONFIGS, GROUPS, options, schemas_of


def test_options_are_those_of_the_schemas_and_of_the_files(tmp_path):
    (tmp_path / "augment").mkdir()
    (tmp_path / "augment" / "mine.yaml").write_text("")
    found = options((CONFIGS, tmp_path))
    assert {"default", "road", "mine"} <= set(found["augment"])
    assert "mine" not in options()["augment"]
    for group in GROUPS:
        assert set(schemas_of(group)) <= set(found[group])
        assert found[group] == sorted(found[group])


def test_a_group_without_components_has_one_option():
    assert list(schemas_of("inference")) == ["default"]
    assert list(schemas_of("postprocess")) == ["none"]
    assert {"unet", "linknet"} <= set(schemas_of("model"))
