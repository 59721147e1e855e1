"""Tab completion: what each word may become, how fast, and through a real shell."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from segmeter.cli import completion
from segmeter.cli.commands import COMMANDS
from segmeter.cli.completion import complete, completion_index, suggestions
from segmeter.cli.config.groups import ROOTS, schemas_of
from segmeter.errors import ConfigError
from segmeter.models.config import ENCODERS
from tests.data.crafted import put


@pytest.mark.parametrize(("line", "expected"), [
    ("segmeter ", list(COMMANDS)),
    ("segmeter tr", ["train"]),
    ("segmeter train mod", ["model=", "model."]),
    ("segmeter train model=une", ["model=unet", "model=unetplusplus"]),
    ("segmeter train loss=dice loss.", ["loss.over=", "loss.smooth="]),
    ("segmeter train loss=sum loss.we", ["loss.weights."]),
    ("segmeter train loss=sum loss.weights.d", ["loss.weights.dice="]),
    ("segmeter train training.compile=t", ["training.compile=true"]),
    ("segmeter eval export.probs=", ["export.probs=true", "export.probs=false"]),
    ("segmeter train model.encoder=", [f"model.encoder={name}" for name in ENCODERS]),
    ("segmeter train --help aug", ["augment"]),
    ("segmeter train --mult", ["--multirun"]),
    ("segmeter train run.", ["run.root=", "run.name=", "run.copy_to="]),
    ("segmeter schema optim", ["optimizer"]),
    ("segmeter nosuch x", []),
    ("segmeter doctor x", []),
])  # fmt: skip
def test_a_word_is_completed(line, expected):
    assert suggestions(line) == expected


@pytest.mark.parametrize("line", ["train ", "train loss=", "score ", "compare m"])
def test_nothing_internal_is_offered(line):
    found = suggestions(f"segmeter {line}")
    assert found
    assert not [word for word in found if "schema" in word or "hydra" in word]


@pytest.mark.usefixtures("in_tmp")
def test_run_folders_are_offered_newest_first():
    for folder in ("train/2026-01-01_100000_a", "train/2026-01-02_100000_b", "eval/2026-01-03_100000_b"):
        put(Path("runs", folder, "run.json"), "{}")
    assert suggestions("segmeter eval checkpoint=") == [
        "checkpoint=runs/eval/2026-01-03_100000_b",
        "checkpoint=runs/train/2026-01-02_100000_b",
        "checkpoint=runs/train/2026-01-01_100000_a",
    ]
    assert suggestions("segmeter train resume=")[-1] == "resume=auto"
    assert suggestions("segmeter compare runs=[x,runs/e") == ["runs=[x,runs/eval/2026-01-03_100000_b"]
    assert suggestions("segmeter report runs/t")[0] == "runs/train/2026-01-02_100000_b/"
    assert suggestions("segmeter score predictions=") == [], "the shell completes files"


@pytest.mark.parametrize("arguments", [["bogus"], [], ["install=tcsh"], ["query"], ["install=bash", "x"]], ids=str)
def test_what_can_not_be_answered_is_refused(arguments):
    with pytest.raises(ConfigError, match="completion: expected `-sc install=SHELL` with one of bash, zsh, fish"):
        complete(arguments)


@pytest.fixture(scope="module", autouse=True)
def index(tmp_path_factory: pytest.TempPathFactory):
    """The index of a wheel: it is read instead of the schemas."""
    path = tmp_path_factory.mktemp("wheel") / "completion.json"
    path.write_text(json.dumps(completion_index()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(completion, "INDEX", path)
        yield path


def test_the_index_has_every_command_and_is_plain_json(index):
    found = json.loads(index.read_text())
    assert found == completion_index()
    assert list(found) == list(ROOTS)
    loss = found["train"]["groups"]["loss"]
    assert loss["default"] in loss["options"]
    assert set(loss["keys"]) == set(schemas_of("loss"))
    assert list(found["train"]["groups"]["training"]["keys"]) == ["default"], "the schema; other options are files"
    assert found["train"]["groups"]["experiment"]["keys"] == {}


def test_without_an_index_the_schemas_are_read(monkeypatch, tmp_path):
    monkeypatch.setattr(completion, "INDEX", tmp_path / "absent.json")
    assert suggestions("segmeter train loss.ga") == ["loss.gamma="]


def test_help_and_completion_import_nothing_heavy(index):
    heavy = "{'pydantic', 'hydra', 'omegaconf', 'yaml', 'numpy', 'torch'}"
    code = (
        "import sys, pathlib; from segmeter.cli import completion, main\n"
        f"completion.INDEX = pathlib.Path({str(index)!r})\n"
        "for line in (['--help'], ['-sc', 'query=bash']): main.main(line)\n"
        f"assert not {heavy} & set(sys.modules)"
    )
    environment = {**os.environ, "COMP_LINE": "segmeter train loss.ga"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loss.gamma="


LINE = "segmeter train model=unetp"
SHELLS = {  # bash breaks words at "="
    "bash": f"""COMP_LINE={LINE!r} COMP_POINT={len(LINE)} COMP_WORDBREAKS=$' =:'
_segmeter segmeter
printf "%s\\n" "${{COMPREPLY[@]}}"
""",
    "fish": f'complete -C "{LINE}"\n',
}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell_completes_by_the_real_script(shell, tmp_path, capsys):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    segmeter = tmp_path / "segmeter"  # this interpreter's
    segmeter.write_text(f'#!/bin/sh\nexec {sys.executable} -m segmeter "$@"\n')
    segmeter.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    complete([f"install={shell}"])
    program = f"{capsys.readouterr().out}\n{SHELLS[shell]}"
    done = subprocess.run([shell, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split()[-1].removeprefix("model=") == "unetplusplus"
