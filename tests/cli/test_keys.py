"""Keys that messages advise exist where they are printed, one seed rules, and no key is taken that nothing uses."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from segmeter.cli.config.compose import Request, compose_jobs
from segmeter.cli.config.groups import GROUPS, ROOTS
from segmeter.cli.main import main
from segmeter.schema.declared import node_of
from tests.data.crafted import put
from tests.sources import MODULES, SOURCE, nodes

# Which commands can print a message of which module: the first entry that a module's path begins with
PRINTED_BY: dict[str, tuple[str, ...]] = {
    "classes.py": ("train", "eval", "check", "score"),
    "data/images.py": ("train", "eval", "predict", "check"),
    "data/files/geometry.py": ("score",),
    "data/files/": ("train", "eval", "predict", "check", "score"),
    "data/masks/reading.py": ("train", "eval", "check"),
    "data/masks/label_mapping.py": ("train", "eval", "check", "score"),
    "data/masks/": ("train", "eval", "check", "score"),
    "data/labels_config.py": ("score",),
    "parallel.py": ("train", "eval", "score"),
    "data/": ("train", "eval", "check"),
    "models/checkpoint.py": ("eval", "predict"),
    "models/foreign/": ("eval", "predict"),
    "models/": ("train",),
    "losses/": ("train", "eval"),
    "inference/": ("train", "eval", "predict"),
    "export/": ("eval", "predict"),
    "cli/commands/_foreign.py": ("check",),
    "metrics/summary/compare.py": ("compare",),
    "metrics/measures/masks.py": ("score",),  # of volumes, which eval does not have
    "metrics/": ("eval", "score", "compare"),
    "training/": ("train",),
    "evaluation/predicted.py": ("eval", "predict"),
    "evaluation/compare.py": ("compare",),
    "evaluation/manifest.py": ("eval", "score"),
    "evaluation/pieces.py": ("merge",),
    "remote/": ("train", "eval", "predict", "score", "merge"),
    "evaluation/decisions/agree.py": ("agree",),
    "evaluation/decisions/held_out.py": ("eval",),  # what it advises to run first
    "evaluation/decisions/config.py": ("plan",),
    "evaluation/decisions/": ("tune",),
    "report/decisions.py": ("plan", "tune"),
    "evaluation/evaluate.py": ("eval",),  # predict measures nothing, and has the same export keys
    "evaluation/": ("score",),
    "report/": ("eval", "predict", "score"),
    "cli/objective.py": ("eval", "score"),
    "cli/optuna_search.py": ("train",),
    "cli/folders.py": ("train", "eval", "predict", "score"),
    "cli/run_folder.py": ("train", "eval", "predict", "score", "compare"),
    **{f"cli/commands/{name}.py": (name,) for name in ("train", "eval", "check")},
    "distributed/ranks.py": ("train",),
    "cli/launch.py": ("train", "eval", "predict", "score"),
    "cli/engines.py": ("train", "eval", "predict", "score"),
}
ROOT_KEYS = ("device", "resume", "plugins", "probs", "images", "missing", "workers", "seed", "runs", "allow_changes")
GROUP_KEY = re.compile(rf"(?<![\w./])({'|'.join([*GROUPS, 'run'])})\.([a-z]\w*)(?!\w*[.(*])")
ROOT_KEY = re.compile(rf"(?<![\w.])({'|'.join(ROOT_KEYS)})=")
FILES = {"onnx", "json", "html", "js", "safetensors", "yaml", "parquet", "csv"}  # metrics.json is no key
# Advice for another command, which it names: what a model takes is decided when it is trained
ELSEWHERE = {
    ("data/images.py", "data.in_channels", "train with"),
    ("models/checkpoint.py", "model.weights", "Train from"),
    ("evaluation/pairing.py", "export.probs", "as export.probs writes them"),
    ("evaluation/pieces.py", "resume", "Finish it with segmeter"),
    *(("evaluation/pieces.py", key, key) for key in ("data.fold", "data.split")),  # of the merged runs
    ("cli/commands/check.py", "loss.class_weights", "loss.class_weights"),  # what it suggests for training
    ("report/page/evaluation.py", "images", "images= of score"),
    ("metrics/summary/slice_labels.py", "images", "score with images="),
}
NEVER = {
    ("cli/launch.py", "device", "score"),  # which has none, and needs no GPU
    *(("schema/model.py", key, "nobody") for key in ("data.ignore_rim", "data.corners")),  # in tables, in no message
    *((f"data/files/{name}.py", "data.level", "score") for name in ("tiff", "zarr")),  # which reads level 0
    *(("data/files/array.py", "data.key", name) for name in ("train", "eval", "predict", "check")),  # masks have it
    *(("cli/run_folder.py", "resume", command) for command in ("predict", "compare")),  # have none
}
SEVERAL = (  # name commands themselves; the bridge speaks of arguments in Python
    *("bridge/", "cli/app.py", "cli/completion.py", "cli/config/", "cli/app.py", "cli/help.py"),
    *(f"cli/commands/{name}.py" for name in ("__init__", "_folds", "doctor", "finished")),
)


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


def entry(module: str) -> str:
    """The entry of PRINTED_BY that a module's path begins with."""
    return next((start for start in PRINTED_BY if module.startswith(start)), "")


def advised() -> list[tuple[str, str, str]]:
    """(module, key, command) for each key in a message."""
    found = set()
    for path in MODULES:
        module = str(path.relative_to(SOURCE))
        if module.startswith(SEVERAL):
            continue
        for text in messages(path):
            keys = {f"{group}.{key}" for group, key in GROUP_KEY.findall(text) if key not in FILES}
            keys |= set(ROOT_KEY.findall(text))
            keys = {key for key in keys if not any((module, key) == e[:2] and e[2] in text for e in ELSEWHERE)}
            found |= {(module, key, command) for key in keys for command in PRINTED_BY.get(entry(module), ("nobody",))}
    return sorted(found - NEVER)


def keys_of(command: str) -> set[str]:
    """Every key that a command takes, with those of each component that can be chosen."""
    known: set[str] = set()
    for name, node in node_of(ROOTS[command]).keys.items():
        chosen = node.choice.names() if node.choice else [None]
        groups = [node.group(each) for each in chosen]
        known |= {name} | {f"{name}.{key}" for group in groups if group for key in group.keys}
    return known


def test_a_key_that_a_message_advises_is_one_that_its_command_takes() -> None:
    found = set(advised())
    assert not [each for each in found if each[2] == "nobody"], "say in PRINTED_BY which commands print it"
    known = {command: keys_of(command) for command in ROOTS}
    assert not [(module, key, command) for module, key, command in found if key not in known[command]]
    assert ("data/images.py", "data.orientation", "predict") in found
    assert ("inference/batches.py", "inference.tile", "train") in found
    assert ("evaluation/pairing.py", "images", "score") in found
    assert len(found) > 60
    assert {entry(module) for module, _, _ in found} == set(PRINTED_BY), (
        "entries of modules that print no key are stale"
    )


@pytest.mark.parametrize(
    ("command", "given", "group"),
    [("train", (), "training"), ("eval", ("checkpoint=x",), "metrics"), ("score", ("data.num_classes=2",), "metrics")],
)
def test_one_seed_rules_all_that_is_drawn(command: str, given: tuple[str, ...], group: str) -> None:
    problems: list[str] = []
    (job,) = compose_jobs(Request(command, [*given, "seed=7"]), problems)
    assert (job.values[group]["seed"], problems) == (7, [])


def test_the_seed_in_run_json_is_the_one_that_was_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        put(tmp_path / folder / "x.png", np.eye(8, dtype=np.uint8))
    for seeds in (["seed=7"], ["seed=7", "metrics.seed=3"]):
        name = f"run.name=n{len(seeds)}"
        main(["score", "predictions=a", "references=b", "data.num_classes=2", "metrics.bootstrap=9", name, *seeds])
        (folder,) = tmp_path.glob(f"runs/score/*n{len(seeds)}")
        used = json.loads((folder / "metrics.json").read_text())["bootstrap"]["seed"]
        record = json.loads((folder / "run.json").read_text())
        assert record["seeds"] == {"seed": 7, "metrics.seed": used}
        assert used == (7 if len(seeds) == 1 else 3)


def test_no_key_is_taken_that_nothing_uses() -> None:
    unused = [("device", ("score", "compare", "check")), ("seed", ("check", "predict")), ("run", ("check",))]
    assert not [(key, command) for key, commands in unused for command in commands if key in keys_of(command)]
