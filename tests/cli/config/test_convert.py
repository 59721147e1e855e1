"""Values that are checked and completed by schemas, a plan or the run that is resumed; a line for each bad one."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from segmeter.cli.app import compose_and_validate
from segmeter.cli.config.command_configs import CompareConfig, RunConfig, ScoreConfig
from segmeter.cli.config.compose import Request
from segmeter.errors import EXIT_BAD_INPUT, ConfigError
from segmeter.schema import Config, as_plain, defaults
from tests.data.crafted import put

PLANES = ["data=folder", "data.root=x", "data.classes=[a,b]", "data.in_channels=1", "data.planes=k"]


def configured(*overrides, command="train"):
    ((_, config),) = compose_and_validate(command, Request(command, overrides))
    return config


def problems_of(*overrides: str, sweep: bool = False) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        compose_and_validate("train", Request("train", overrides, None, sweep))
    assert caught.value.exit_code == EXIT_BAD_INPUT
    assert not any("\n" in line for line in caught.value.problems)
    return list(caught.value.problems)


@pytest.mark.parametrize(("overrides", "message"), [
    (["lr=1"], "unknown key 'lr'. Did you mean 'optimizer.lr'?"),
    (["modle=unet"], "unknown key 'modle'. Did you mean 'model'?"),
    (["data.classes=[a,b,c,false]"], "`data.classes[3]` to be text, got false. Write it in quotes. In a shell, write"),
    (["experiment=demoo"], "got 'demoo'. Did you mean 'demo'?"),
    (["hydra/sweeper=optun"], "`hydra/sweeper` to be one of basic, optuna, got 'optun'. Did you mean 'optuna'?"),
    (["seed.x=1"], "`seed` to be an integer"),
    (["loss=dice", "loss.gamma=2"], "loss=dice has no gamma. Those that have it: focal, focal_tversky."),
    (["loss=focal,dice", "loss.gamma=0,2"], "'loss.gamma': loss=dice has no gamma. Those that have it: focal"),
], ids=lambda value: value[0] if isinstance(value, list) else None)  # fmt: skip
def test_one_line_says_what_is_wrong_and_what_there_is_instead(overrides: list[str], message: str) -> None:
    (problem,) = problems_of(*overrides, sweep=True)
    assert message in problem
    assert problem == problem.rstrip()


@pytest.mark.parametrize(("text", "overrides", "line"), [
    ("loss: {gamma: -1}", [], "config: expected `loss.gamma` to be a number >= 0, got -1."),
    ("loss: {gamma: -1}", ["loss.gamma=-2"], "config: expected `loss.gamma` to be a number >= 0, got -2."),
    ("run: {root: 2024}", [],
     "config: expected `run.root` to be a path, got 2024. "
     "Write it in quotes. In a shell, write two pairs: \"'TEXT'\"."),
    ("training: {epochz: 3}", [],
     "config: unknown key 'training.epochz'. Did you mean 'training.epochs'? See: segmeter train --help training."),
])  # fmt: skip
def test_a_bad_value_in_a_file_of_the_users_own_is_one_line(text, overrides, line, tmp_path):
    put(tmp_path / "experiment/mine.yaml", f"# @package _global_\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        compose_and_validate("train", Request("train", ["experiment=mine", *overrides], str(tmp_path)))
    assert caught.value.problems == (line,)


@pytest.mark.parametrize(("more", "loss", "rate"), [
    ([], "focal", 1e-3),
    (["data.planes=k"], "sum", 1e-3),
    (["data.planes=k", "loss=focal"], "focal", 1e-3),
    (["data.planes=k", "loss.gamma=1"], "focal", 1e-3),
    (["data.planes=k", "resume=auto"], "sum", 1e-3),
    (["training=auto"], "sum", 3e-3),
    (["training=auto", "loss.gamma=2"], "focal", 3e-3),
    (["training=auto", "optimizer=sgd"], "sum", 1e-2),
    (["training=auto", "optimizer.lr=0.001"], "sum", 1e-3),
    (["training=auto", "model.weights=imagenet"], "sum", 1e-3),
])  # fmt: skip
def test_a_plan_and_planes_choose_the_loss_and_the_rate_that_the_user_leaves_open(more, loss, rate):
    config = configured(*PLANES[:-1], *more)
    assert (config.loss.name, config.optimizer.lr) == (loss, rate)


@pytest.mark.parametrize(("data", "weights"), [(["data=cells"], "mild"), (["data=instances", "data.root=x"], None)])
def test_a_plan_weighs_rare_classes_more_where_there_are_several(data: list[str], weights: str | None) -> None:
    config = configured(*data, "training=auto")
    assert (config.loss.name, config.loss.focal.class_weights) == ("sum", weights)


@pytest.mark.parametrize(("more", "loss"), [(["data.core_depth=null"], "focal"), ([], "sum")])
def test_cores_of_objects_are_trained_with_dice_too_and_a_whole_float_is_a_count(more: list[str], loss: str) -> None:
    config = configured("data=instances", "data.root=x", "training.steps=1e4", *more)
    assert (config.loss.name, config.training.steps) == (loss, 10_000)


def test_a_file_of_the_user_may_have_chosen_the_loss_of_planes(tmp_path: Path) -> None:
    (tmp_path / "loss.yaml").write_text("defaults: [train, {override loss: focal}, _self_]\n")
    ((_, config),) = compose_and_validate("train", Request("train", PLANES, str(tmp_path)))
    assert config.loss.name == "focal"


@pytest.fixture
def run(tmp_path):
    """The folder of a run with a configuration unlike the defaults."""
    begun = ["data=camvid", "data.root=/data/camvid", "loss=dice", "optimizer.lr=2e-5", "seed=5", "augment=road"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(as_plain(configured(*begun))))
    return tmp_path


def without(config, *names):
    return {key: value for key, value in as_plain(config).items() if key not in names}


def test_a_resumed_run_keeps_its_own_configuration(run):
    config = configured(f"resume={run}")
    saved = yaml.safe_load((run / "config.yaml").read_text())
    assert without(config, "resume") == {key: value for key, value in saved.items() if key != "resume"}
    assert config.resume == str(run)
    assert config.optimizer.lr == 2e-5


def test_the_command_line_changes_what_it_names_and_nothing_else(run):
    own, changed = configured(f"resume={run}"), configured(f"resume={run}", "optimizer.lr=0.1", "training.epochs=9")
    assert (changed.optimizer.lr, changed.training.epochs) == (0.1, 9)
    assert without(own, "optimizer", "training") == without(changed, "optimizer", "training")


def test_a_default_value_or_a_group_that_is_named_again_changes_that_alone(run):
    assert configured(f"resume={run}", "seed=0").training.seed == 0
    assert configured(f"resume={run}").training.seed == 5
    assert configured(f"resume={run}", "data=camvid").data.root == "/data/camvid"
    assert configured(f"resume={run}", "loss=focal", "loss.gamma=3").loss.gamma == 3
    assert configured(f"resume={run}", "augment=none").augment.flip_horizontal is False


def test_a_preset_or_an_experiment_counts_in_full_beside_what_must_be_given(run):
    training = configured(f"resume={run}", "debug=fast").training
    assert (training.steps, training.validate_cases) == (4, 4)
    config = configured(f"resume={run}", "experiment=camvid")
    assert config.data.root == "/data/camvid"
    assert (config.loss.name, config.training.batch_size) == ("focal", 16)


def resave(run, **changes):
    """Change the configuration that a run kept."""
    saved = yaml.safe_load((run / "config.yaml").read_text())
    groups = {key: saved[key] | value if isinstance(value, dict) else value for key, value in changes.items()}
    (run / "config.yaml").write_text(yaml.safe_dump(saved | groups))


def test_changes_that_were_allowed_once_are_not_allowed_again(run):
    resave(run, allow_changes=["training.epochs"])
    assert configured(f"resume={run}").allow_changes == ()


def test_a_wrong_value_is_said_as_ever_and_no_file_of_a_run_names_code(run):
    with pytest.raises(ConfigError, match=r"expected `optimizer\.lr` to be a number > 0"):
        configured(f"resume={run}", "optimizer.lr=0")
    resave(run, plugins=["os"])
    with pytest.raises(ConfigError, match=r"Only the command line may name code: add 'plugins=\[os\]'"):
        configured(f"resume={run}")


@pytest.mark.parametrize("text", ["a: [1", "- 1\n- 2\n"])
def test_a_damaged_configuration_is_refused(run, text):
    (run / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        configured(f"resume={run}")


def test_scores_resume_with_their_own_configuration_too(tmp_path):
    begun = ["predictions=/a", "references=/b", "data.classes=[x,y]", "metrics.bootstrap=7"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(as_plain(configured(*begun, command="score"))))
    config = configured(f"resume={tmp_path}", "workers=1", command="score")
    assert (str(config.predictions), config.metrics.bootstrap, config.workers) == ("/a", 7, 1)


def test_keys_that_are_gone_are_left_out_of_the_files_of_earlier_versions_where_they_changed_nothing(run):
    resave(run, training={"channels_last": True}, logger={"csv": False})
    assert configured(f"resume={run}").optimizer.lr == 2e-5


SCORE = {"predictions": "p", "references": "r", "data": {"num_classes": 2}}
COMPARE = {"runs": ["a", "b"], "metrics": {"bootstrap": 10}}


def made(schema: type[Config], values: dict[str, Any]) -> Any:
    """The defaults, as Hydra composes them, with these values."""
    found = defaults(schema) | ({"launch": {"name": "local"}} if "launch" in schema.model_fields else {})
    for key, value in values.items():
        found[key] = found[key] | value if isinstance(value, dict) else value
    return schema(**found)


def problem_of(schema: type[Config], values: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as error:
        made(schema, values)
    (line,) = error.value.problems
    return line


@pytest.mark.parametrize("name", ["a/b", "a\\b", "", "a\nb", "a\0"])
def test_a_runs_name_is_one_part_of_a_path(name):
    with pytest.raises(ConfigError, match="`name` to be a plain name without slashes"):
        RunConfig(name=name)
    assert RunConfig(name="a b.c").name == "a b.c"


@pytest.mark.parametrize("shard", ["8/7", "0/7"])
def test_a_shard_is_one_of_so_many(shard):
    assert made(ScoreConfig, SCORE | {"shard": "7/7"}).shard == "7/7"
    line = problem_of(ScoreConfig, SCORE | {"shard": shard})
    assert f"`shard` to be NUMBER/COUNT, the number being at most the count: 2/7, got {shard!r}" in line


def test_labels_carry_no_probabilities_to_calibrate():
    values = SCORE | {"metrics": {"calibration": True}}
    line = problem_of(ScoreConfig, values)
    assert "`probs` to be given for metrics.calibration, got null. Set probs=FOLDER" in line
    assert made(ScoreConfig, values | {"probs": "probs"}).probs == Path("probs")


@pytest.mark.parametrize(("metrics", "line"), [
    ({"bootstrap": 0}, "`metrics.bootstrap` to be an integer >= 1 and <= 1000000"),
    ({"bootstrap": 9, "measures": ["surface"]}, "`metrics.measures` to be empty"),
], ids=["no draws", "measures"])  # fmt: skip
def test_runs_are_compared_by_draws_and_by_the_measures_that_they_have(metrics, line):
    problem = problem_of(CompareConfig, COMPARE | {"metrics": metrics})
    assert line in problem
    assert made(CompareConfig, COMPARE).metrics.bootstrap == 10
