from pathlib import Path

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from segmeter.cli.app import check, plugins_of, print_schema, run_command, written_out
from segmeter.cli.commands import read_arguments
from segmeter.cli.config.compose import Request
from segmeter.errors import ConfigError, InputError


def test_flags_and_overrides_may_be_mixed():
    args = read_arguments("train", ["loss=dice", "--cfg", "job", "seed=3", "-p", "loss", "--resolve", "-cn", "own"])
    assert args.overrides == ["loss=dice", "seed=3"]
    assert (args.cfg, args.package, args.resolve, args.multirun) == ("job", "loss", True, False)
    assert (args.config_name, args.config_dir) == ("own", None)


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        (["seed=1"], []),
        (["plugins=[a.b]"], ["a.b"]),
        (["+plugins=['a', \"b\"]", "seed=1"], ["a", "b"]),
        (["plugins=a"], ["a"]),
        (["plugins=[]"], []),
    ],
)
def test_plugins_are_read_from_the_command_line_itself(overrides, names):
    assert plugins_of(overrides) == names


def test_every_problem_is_said_at_once_and_once():
    ((job, config),) = check("train", Request("train", ["loss=focal", "loss.gamma=1.5"]))
    assert (job.overrides, config.loss.gamma) == (("loss=focal", "loss.gamma=1.5"), 1.5)
    with pytest.raises(ConfigError) as caught:
        check("train", Request("train", ["loss=focal", "loss.gamma=-1", "seed=1,2", "model.dpth=3"], sweep=True))
    problems = caught.value.problems
    assert len(problems) == len(set(problems)) == 2
    assert any("gamma" in line for line in problems)
    assert any("dpth" in line for line in problems)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("references=${nope}", "config: can't resolve `references`: "),
        ("++predictions=[", "config: can't read the override '++predictions=[' "),
    ],
)
def test_what_only_follows_from_a_value_that_could_not_be_read_is_not_said(override, says):
    needed = ("predictions=a", "references=b", "data.num_classes=2")
    given = [line for line in needed if line.partition("=")[0] not in override]
    with pytest.raises(ConfigError) as refused:
        check("score", Request("score", [*given, override, "nosuch=1"]))
    first, second = refused.value.problems
    assert says in first
    assert "unknown key 'nosuch'" in second


def test_runs_that_a_plan_can_not_read_are_said_to_be_its_own_and_a_schema_has_one_name(tmp_path):
    with pytest.raises(InputError) as caught:
        run_command("plan", [f"run={tmp_path}", "width=0.1"])
    assert caught.value.problems[0].startswith("plan: expected `runs` to hold metrics.json, got ")
    with pytest.raises(ConfigError, match=r"schema: expected one name, got 2. Known: .*train"):
        print_schema(["train", "loss"])


def test_a_tuned_file_stands_for_its_values_and_other_overrides_win(tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    step = {"name": "remove_small_objects", "min_pixels": 64, "classes": ["größe", 'a "b"', "c\\d\\"]}
    tuned = {"inference": {"threshold": 0.4, "flips": True}, "postprocess": {"steps": [step]}}
    path.write_text(yaml.safe_dump(tuned, sort_keys=False), encoding="utf-8")
    given = ["checkpoint=net", f"postprocess={path}", "inference.threshold=0.6"]
    found = written_out(given)
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


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["hydra/launcher=basic"], []),
        (["hydra/launcher=joblib", "hydra.launcher.n_jobs=-1"], ["launch=joblib", "launch.n_jobs=null"]),
        (["hydra/launcher=submitit_slurm", "hydra.launcher.partition=gpu"], ["launch=slurm", "launch.partition=gpu"]),
        (["hydra/launcher=submitit_local"], ["launch=slurm", "launch.cluster=local"]),
        (["hydra/launcher=ray"], ["hydra/launcher=ray"]),  # refused when it is composed
        (["logger=[wandb, tensorboard]", "seed=1"], ["logger=wandb", "logger.also=[tensorboard]", "seed=1"]),
        (["postprocess=cells"], ["postprocess=cells"]),
    ],
)
def test_short_forms_are_written_out(given: list[str], found: list[str]) -> None:
    assert written_out(given) == found


def test_the_shown_configuration_has_the_recipe_that_a_run_chooses(capsys: pytest.CaptureFixture[str]) -> None:
    """Mutation seen to fail: loss and rate as they are before training=auto chooses them."""
    run_command("train", ["data=cells", "training=auto", "--cfg", "job"])
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["loss"]["name"], shown["optimizer"]["lr"]) == ("sum", 0.003)
    run_command("train", ["data=cells", "training=auto", "loss=dice", "--cfg", "job", "-p", "loss"])
    assert yaml.safe_load(capsys.readouterr().out)["name"] == "dice"
