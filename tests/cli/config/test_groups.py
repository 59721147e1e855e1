"""Groups, their options and plugins; keys that messages advise, and those that nothing would use."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from segmeter.cli.config.compose import Request, compose_jobs
from segmeter.cli.config.groups import CONFIGS, GROUPS, ROOTS, groups_of, load_plugins, options, schemas_of
from segmeter.errors import ConfigError
from segmeter.schema.json_schema import node_of
from tests.cli.sharded import latest, run
from tests.data.crafted import put
from tests.sources import MODULES, SOURCE, nodes


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


ROOT_KEYS = ("device", "resume", "plugins", "probs", "images", "missing", "workers", "seed", "runs", "allow_changes")
GROUP_KEY = re.compile(rf"(?<![\w./])({'|'.join([*GROUPS, 'run'])})\.([a-z]\w*)(?!\w*[.(*])")
ROOT_KEY = re.compile(rf"(?<![\w.])({'|'.join(ROOT_KEYS)})=")
FILES = {"onnx", "json", "html", "js", "safetensors", "yaml", "parquet", "csv"}  # metrics.json is no key


def messages(path: Path) -> Iterator[str]:
    """The texts in a module's code, without docstrings and titles of schemas; those of an f-string together."""
    owners = [node for node in nodes(path) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    other = {id(node.value) for owner in owners for node in owner.body if isinstance(node, ast.Expr)}
    other |= {id(word.value) for owner in owners if isinstance(owner, ast.ClassDef) for word in owner.keywords}
    other |= {id(part) for node in nodes(path) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes(path):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in other:
            yield node.value


def keys_of(command: str) -> set[str]:
    """Every key that a command takes, with those of each component that can be chosen."""
    known: set[str] = set()
    for name, node in node_of(ROOTS[command]).keys.items():
        chosen = node.choice.names() if node.choice else [None]
        groups = [node.group(each) for each in chosen]
        known |= {name} | {f"{name}.{key}" for group in groups if group for key in group.keys}
    return known


def test_a_key_that_a_message_advises_is_one_that_a_command_takes() -> None:
    others = {SOURCE / "cli/config/groups.py", *(SOURCE / "bridge").iterdir()}  # name modules, and arguments in Python
    texts = [text for path in MODULES if path not in others for text in messages(path)]
    found = {f"{group}.{key}" for text in texts for group, key in GROUP_KEY.findall(text) if key not in FILES}
    found |= {key for text in texts for key in ROOT_KEY.findall(text)}
    gone = {"data.ignore_rim", "training.channels_last"}  # of earlier versions, in a table
    assert found - gone <= set.union(*map(keys_of, ROOTS))
    assert len(found) > 60


@pytest.mark.parametrize(
    ("command", "given", "group"),
    [("train", (), "training"), ("eval", ("checkpoint=x",), "metrics"), ("score", ("data.num_classes=2",), "metrics")],
)
def test_one_seed_rules_all_that_is_drawn(command: str, given: tuple[str, ...], group: str) -> None:
    problems: list[str] = []
    (job,) = compose_jobs(Request(command, [*given, "seed=7"]), problems)
    assert (job.values[group]["seed"], problems) == (7, [])


@pytest.mark.usefixtures("in_tmp")
@pytest.mark.parametrize(("seeds", "used"), [(["seed=7"], 7), (["seed=7", "metrics.seed=3"], 3)], ids=["one", "own"])
def test_the_seed_in_run_json_is_the_one_that_was_used(seeds: list[str], used: int) -> None:
    for folder in ("a", "b"):
        put(Path(folder, "x.png"), np.eye(8, dtype=np.uint8))
    assert run("score", "predictions=a", "references=b", "data.num_classes=2", "metrics.bootstrap=9", *seeds) == 0
    assert latest("score")["bootstrap"]["seed"] == used
    assert latest("score", "run.json")["seeds"] == {"seed": 7, "metrics.seed": used}


def test_no_key_is_taken_that_nothing_uses() -> None:
    unused = [("device", ("score", "compare", "check")), ("seed", ("check", "predict")), ("run", ("check",))]
    assert not [(key, command) for key, commands in unused for command in commands if key in keys_of(command)]
