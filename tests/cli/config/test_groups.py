"""What can be chosen in each group, by schemas and YAML files, and the plugins that add to it."""

import subprocess
import sys

import pytest

from segmeter.cli.commands import COMMANDS
from segmeter.cli.config.groups import CONFIGS, GROUPS, ROOTS, groups_of, load_plugins, options, schemas_of
from segmeter.errors import ConfigError


def test_each_command_with_a_configuration_has_its_own():
    assert set(ROOTS) < set(COMMANDS)
    assert len({ROOTS[name] for name in ROOTS}) == len(ROOTS)


def test_a_command_loads_only_the_configurations_that_it_uses():
    code = "import sys, segmeter.cli.app as app; app.ROOTS['score']\n"
    code += "print({f'segmeter.{room}.config' for room in ('losses', 'models', 'training')} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "set()\n"


def test_a_group_is_a_command_s_own_only_where_the_key_is_of_its_kind():
    """Some keys are named like a group and hold something else."""
    assert [*groups_of("score")] == ["metrics", "report", "launch"], "data there is what masks hold"
    assert "model" not in groups_of("eval"), "it is the card of a model that others trained"
    assert {"data", "model", "experiment"} < set(groups_of("train"))


def test_options_are_those_of_the_schemas_and_of_the_files(tmp_path):
    (tmp_path / "augment").mkdir()
    (tmp_path / "augment" / "mine.yaml").write_text("")
    found = options((CONFIGS, tmp_path))
    assert {"default", "road", "mine"} <= set(found["augment"])
    assert "mine" not in options()["augment"]
    assert (list(schemas_of("inference")), list(schemas_of("postprocess"))) == (["default"], ["none"])
    assert {"unet", "linknet"} <= set(schemas_of("model"))
    for group in GROUPS:
        assert set(schemas_of(group)) <= set(found[group])
        assert found[group] == sorted(found[group])


@pytest.mark.parametrize(("text", "message"), [
    ("raise RuntimeError('no\\nluck')", "the plugin 'failing_plugin' can't be loaded: RuntimeError: no luck"),
    ("import nothing_like_it", "can't import the plugin 'failing_plugin': No module named 'nothing_like_it'"),
    ("from segmeter.losses.config import LOSSES\nLOSSES.register('mine', builder='x:y')(dict)",
     "can't be loaded: loss: the schema of 'mine' must derive from segmeter.schema.Config"),
])  # fmt: skip
def test_a_plugin_that_fails_is_named(text, message, tmp_path, monkeypatch):
    (tmp_path / "failing_plugin.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load_plugins(["failing_plugin"])
    assert message in str(caught.value)


@pytest.mark.parametrize("name", [".x", "a.", "a-b", "a b", "/tmp/x.py"])
def test_a_plugin_that_is_no_module_is_refused(name):
    with pytest.raises(ConfigError, match="expected `plugins` to name modules"):
        load_plugins([name])
