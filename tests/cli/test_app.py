"""What `run_command` does with a command line: shorthand, plugins, problems, recipe; and the demo, which types some."""

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from segmeter.cli import app
from segmeter.cli.app import compose_and_validate, plugins_of, run_command, run_demo, written_out
from segmeter.cli.commands import read_arguments
from segmeter.cli.config.compose import Request
from segmeter.data.verification import splits
from segmeter.errors import ConfigError, InputError


def test_flags_and_overrides_may_be_mixed():
    args = read_arguments("train", ["loss=dice", "--cfg", "job", "seed=3", "-p", "loss", "--resolve", "-cn", "own"])
    assert args.overrides == ["loss=dice", "seed=3"]
    assert (args.cfg, args.package, args.resolve, args.multirun) == ("job", "loss", True, False)
    assert (args.config_name, args.config_dir) == ("own", None)


@pytest.mark.parametrize(("overrides", "names"), [
    (["seed=1"], []),
    (["plugins=[a.b]"], ["a.b"]),
    (["+plugins=['a', \"b\"]", "seed=1"], ["a", "b"]),
    (["plugins=a"], ["a"]),
    (["plugins=[]"], []),
])  # fmt: skip
def test_plugins_are_read_from_the_command_line_itself(overrides, names):
    assert plugins_of(overrides) == names


def test_every_problem_is_said_at_once_and_once():
    ((job, config),) = compose_and_validate("train", Request("train", ["loss=focal", "loss.gamma=1.5"]))
    assert (job.overrides, config.loss.gamma) == (("loss=focal", "loss.gamma=1.5"), 1.5)
    given = ["loss=focal", "loss.gamma=1,-1", "optimizer.lr=0.1,0", "seed=1,2", "model.dpth=3"]
    with pytest.raises(ConfigError) as caught:
        compose_and_validate("train", Request("train", given, sweep=True))
    problems = caught.value.problems
    assert len(problems) == len(set(problems)) == 3
    for key in ("gamma", "optimizer.lr", "dpth"):
        assert any(key in line for line in problems)


@pytest.mark.parametrize(("override", "says"), [
    ("references=${nope}", "config: can't resolve `references`: "),
    ("++predictions=[", "config: can't read the override '++predictions=[' "),
])  # fmt: skip
def test_what_only_follows_from_a_value_that_could_not_be_read_is_not_said(override, says):
    needed = ("predictions=a", "references=b", "data.num_classes=2")
    given = [line for line in needed if line.partition("=")[0] not in override]
    with pytest.raises(ConfigError) as refused:
        compose_and_validate("score", Request("score", [*given, override, "nosuch=1"]))
    first, second = refused.value.problems
    assert says in first
    assert "unknown key 'nosuch'" in second


def test_a_tuned_file_stands_for_its_values_and_other_overrides_win(tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    step = {"name": "remove_small_objects", "min_pixels": 64, "classes": ["größe", 'a "b"', "c\\d\\"]}
    tuned = {"inference": {"threshold": 0.4, "flips": True}, "postprocess": {"steps": [step]}}
    path.write_text(yaml.safe_dump(tuned, sort_keys=False), encoding="utf-8")
    found = written_out(["checkpoint=net", f"postprocess={path}", "inference.threshold=0.6"])
    assert found[-2:] == ["checkpoint=net", "inference.threshold=0.6"]
    parsed = [one.value() for one in OverridesParser.create().parse_overrides(found)]
    assert parsed == [0.4, True, [step], "net", 0.6]


@pytest.mark.parametrize(
    ("content", "told"), [(None, "No such file"), ("loss: {}", "to hold inference and postprocess"), ("[1]", "mapping")]
)
def test_a_file_that_tune_did_not_write_is_refused(tmp_path: Path, content: str | None, told: str) -> None:
    if content is not None:
        (tmp_path / "x.yaml").write_text(content)
    with pytest.raises(InputError, match=told):
        written_out([f"postprocess={tmp_path}/x.yaml"])


@pytest.mark.parametrize(("given", "found"), [
    (["hydra/launcher=basic"], []),
    (["hydra/launcher=joblib", "hydra.launcher.n_jobs=-1"], ["launch=joblib", "launch.n_jobs=null"]),
    (["hydra/launcher=submitit_slurm", "hydra.launcher.partition=gpu"], ["launch=slurm", "launch.partition=gpu"]),
    (["hydra/launcher=submitit_local"], ["launch=slurm", "launch.cluster=local"]),
    (["hydra/launcher=ray"], ["hydra/launcher=ray"]),  # refused when it is composed
    (["logger=[wandb, tensorboard]", "seed=1"], ["logger=wandb", "logger.also=[tensorboard]", "seed=1"]),
    (["postprocess=cells"], ["postprocess=cells"]),
])  # fmt: skip
def test_short_forms_are_written_out(given: list[str], found: list[str]) -> None:
    assert written_out(given) == found


def test_the_shown_configuration_has_the_recipe_that_a_run_chooses(capsys: pytest.CaptureFixture[str]) -> None:
    """Mutation seen to fail: loss and rate as they are before training=auto chooses them."""
    run_command("train", ["data=cells", "training=auto", "--cfg", "job"])
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["loss"]["name"], shown["optimizer"]["lr"]) == ("sum", 0.003)
    run_command("train", ["data=cells", "training=auto", "loss=dice", "--cfg", "job", "-p", "loss"])
    assert yaml.safe_load(capsys.readouterr().out)["name"] == "dice"


@pytest.fixture
def commands(in_tmp, monkeypatch):
    """The commands that the demo runs; each leaves the folder of a run."""
    first = SimpleNamespace(image=Path("data/my cells/images/0.png"))
    monkeypatch.setattr(splits, "build_dataset", lambda config, split: SimpleNamespace(pairs=[first]))
    found = []

    def run_command(command, overrides):
        found.append((command, *overrides))
        for root in (line.removeprefix("run.root=") for line in overrides if line.startswith("run.root=")):
            for name in ("2026-01-01_000000_cells", "2026-01-01_000000_cells-2"):
                Path(root, command, name).mkdir(parents=True)

    monkeypatch.setattr(app, "run_command", run_command)
    return found


def test_each_step_takes_what_the_one_before_left(commands, capsys):
    run_demo(["mine"])
    (root,) = Path("mine").iterdir()
    assert root.name.startswith("demo-")
    trained, evaluated = root / "train/2026-01-01_000000_cells-2", root / "eval/2026-01-01_000000_cells-2"
    exports = ("postprocess=cells", "export.probs=true", "export.instances=true")
    assert commands == [
        ("check", "data=cells"),
        ("train", "experiment=demo", f"run.root={root}"),
        ("eval", f"checkpoint={trained}", *exports, f"run.root={root}"),
        ("predict", f"checkpoint={trained}", "input=data/my cells/images", f"run.root={root}"),
    ]
    out = capsys.readouterr().out
    assert out.count("\n$ segmeter ") == 4
    assert "'input=data/my cells/images'" in out, "as a shell takes it"
    for name in ("metrics.json", "overlays", "report.html"):
        assert str(evaluated / name) in out


def test_demos_of_the_same_second_share_no_folder_among_the_other_runs(commands, monkeypatch):
    """Or one would evaluate what the other trains. Mutation seen to fail: a folder that is there already."""
    monkeypatch.setattr(app, "datetime", type("Stopped", (), {"now": staticmethod(lambda: datetime(2026, 1, 1))}))
    for _ in range(2):
        run_demo([])
    names = ["demo-2026-01-01_000000", "demo-2026-01-01_000000-2"]
    assert sorted(str(path) for path in Path().glob("*/*")) == [f"runs/{name}" for name in names]


@pytest.mark.parametrize(("arguments", "line"), [
    (["a", "b"], "demo: expected at most a folder, got 'a b'. Use train and eval to set values."),
    (["run.root=x"], "demo: expected at most a folder, got 'run.root=x'. Use train and eval to set values."),
    (["file/below"], "config: expected `run.root` to be a folder that can be written, got "),
])  # fmt: skip
def test_it_takes_a_folder_that_can_be_made_and_nothing_else(commands, arguments, line):
    Path("file").touch()
    with pytest.raises(ConfigError, match=f"^{line}"):
        run_demo(arguments)
    assert commands == []
