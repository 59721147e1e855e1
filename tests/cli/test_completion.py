"""Tab completion: what each word may become, how fast, and through a real shell."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from segmeter.cli.command_list import COMMANDS
from segmeter.cli.completion import complete, suggestions
from segmeter.errors import ConfigError
from segmeter.models.encoders import ENCODERS


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("segmeter ", list(COMMANDS)),
        ("segmeter tr", ["train"]),
        ("segmeter train mod", ["model=", "model."]),
        ("segmeter train model=une", ["model=unet", "model=unetplusplus"]),
        ("segmeter train loss.ga", ["loss.gamma="]),
        ("segmeter train loss=dice loss.", ["loss.over=", "loss.smooth="]),
        ("segmeter train loss=sum loss.we", ["loss.weights."]),
        ("segmeter train loss=sum loss.weights.d", ["loss.weights.dice="]),
        ("segmeter train loss.normalizer=", [f"loss.normalizer={name}" for name in ("valid", "elements", "positives")]),
        ("segmeter train training.compile=t", ["training.compile=true"]),
        ("segmeter eval export.probs=", ["export.probs=true", "export.probs=false"]),
        ("segmeter train augment=", [f"augment={name}" for name in ("default", "microscopy", "none", "road")]),
        ("segmeter train model.encoder=", [f"model.encoder={name}" for name in ENCODERS]),
        ("segmeter train --help aug", ["augment"]),
        ("segmeter train --mult", ["--multirun"]),
        ("segmeter train run.", ["run.root=", "run.name="]),
        ("segmeter schema optim", ["optimizer"]),
        ("segmeter nosuch x", []),
        ("segmeter doctor x", []),
    ],
)
def test_a_word_is_completed(line, expected):
    assert suggestions(line) == expected


@pytest.mark.parametrize("line", ["segmeter train ", "segmeter train loss=", "segmeter score ", "segmeter compare m"])
def test_nothing_internal_is_offered(line):
    assert suggestions(line)
    assert not [word for word in suggestions(line) if "schema" in word or "hydra" in word]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in ("train/2026-01-01_100000_a", "train/2026-01-02_100000_b", "eval/2026-01-03_100000_b"):
        (tmp_path / "runs" / folder).mkdir(parents=True)
        (tmp_path / "runs" / folder / "run.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_run_folders_are_offered_newest_first(runs):
    assert suggestions("segmeter eval checkpoint=") == [
        "checkpoint=runs/eval/2026-01-03_100000_b",
        "checkpoint=runs/train/2026-01-02_100000_b",
        "checkpoint=runs/train/2026-01-01_100000_a",
    ]
    assert suggestions("segmeter train resume=")[-1] == "resume=auto"
    assert suggestions("segmeter compare runs=[x,runs/e") == ["runs=[x,runs/eval/2026-01-03_100000_b"]
    assert suggestions("segmeter report runs/t")[0] == "runs/train/2026-01-02_100000_b/"


def test_files_are_offered_for_paths(runs):
    (runs / "masks").mkdir()
    (runs / ".hidden").mkdir()
    assert suggestions("segmeter score predictions=") == ["predictions=masks/", "predictions=runs/"]
    assert suggestions(f"segmeter train data.root={runs}/ma") == [f"data.root={runs}/masks/"]


def test_options_of_the_users_own_folder_are_offered(tmp_path):
    (tmp_path / "augment").mkdir()
    (tmp_path / "augment" / "gentle.yaml").write_text("rotate: 1\n")
    line = f"segmeter train --config-dir {tmp_path} augment"
    assert "augment=gentle" in suggestions(f"{line}=")
    assert suggestions(f"{line}=gentle augment.rot") == ["augment.rotate="]


def test_components_of_plugins_are_offered(tmp_path, monkeypatch):
    (tmp_path / "completed_plugin.py").write_text(
        "from segmeter.losses.config import LOSSES\nfrom segmeter.schema import Config\n\n"
        "@LOSSES.register('completed', builder='x:y')\nclass Completed(Config):\n"
        "    name: str = 'completed'\n    margin: float = 1.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    line = "segmeter train plugins=[completed_plugin] loss=completed"
    try:
        assert suggestions(line) == ["loss=completed"]
        assert suggestions(f"{line} loss.m") == ["loss.margin="]
    finally:
        from segmeter.losses.config import LOSSES

        del LOSSES._entries["completed"]


@pytest.mark.parametrize("arguments", [["bogus"], [], ["install=tcsh"], ["query"], ["install=bash", "x"]])
def test_what_can_not_be_answered_is_refused(arguments):
    with pytest.raises(ConfigError, match="completion: expected `-sc install=SHELL` with one of bash, zsh, fish"):
        complete(arguments)


@pytest.mark.parametrize("arguments", [["--help"], ["-sc", "query=bash"]], ids=" ".join)
def test_help_and_completion_import_nothing_heavy(arguments):
    heavy = "{'pydantic', 'hydra', 'omegaconf', 'yaml', 'numpy', 'torch'}"
    code = f"import sys; from segmeter.cli.main import main; main({arguments!r}); assert not {heavy} & set(sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COMP_LINE": "segmeter train loss.ga"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("line", "expected"),
    [("segmeter train loss.norm", "loss.normalizer="), ("segmeter train model=unetp", "unetplusplus")],
)
def test_bash_completes(line, expected, capsys):
    """The real script in a real bash, which breaks words at "="."""
    complete(["install=bash"])
    script = capsys.readouterr().out
    program = f'segmeter() {{ {sys.executable} -m segmeter "$@"; }}\n{script}\n' + (
        f"COMP_LINE={line!r} COMP_POINT={len(line)} COMP_WORDBREAKS=$' =:'\n_segmeter segmeter\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [expected]
