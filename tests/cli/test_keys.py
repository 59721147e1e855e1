"""Keys that messages advise exist where they are printed, one seed rules, and no key is taken that nothing uses."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from segmeter.cli.config.compose import Request, compose_jobs
from segmeter.cli.config.groups import GROUPS, ROOTS
from segmeter.schema.declared import node_of
from tests.cli.sharded import latest, run
from tests.data.crafted import put
from tests.sources import MODULES, SOURCE, nodes

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
