"""Bad configurations: each gets its one line, and nothing is done; the numbered list is in tests/faults."""

from pathlib import Path

import pytest

from segmeter.cli.app import check
from segmeter.cli.config.compose import Request
from segmeter.errors import EXIT_BAD_INPUT, ConfigError


def problems_of(*overrides: str, sweep: bool = False) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        check("train", Request("train", overrides, None, sweep))
    assert caught.value.exit_code == EXIT_BAD_INPUT
    assert not any("\n" in line for line in caught.value.problems)
    return list(caught.value.problems)


@pytest.mark.parametrize(("overrides", "message"), [
    (["lr=1"], "unknown key 'lr'. Did you mean 'optimizer.lr'?"),
    (["modle=unet"], "unknown key 'modle'. Did you mean 'model'?"),
    (["data.classes=[a,b,c,false]"], "`data.classes[3]` to be text, got false. Write it in quotes. In a shell, write"),
    (["run.name=a/b"], "`run.name` to be a plain name without slashes"),
    (["experiment=demoo"], "got 'demoo'. Did you mean 'demo'?"),
    (["training.epochs=3.5"], "`training.epochs` to be an integer >= 1 or null, got 3.5"),
    (["hydra/sweeper=optun"], "`hydra/sweeper` to be one of basic, optuna, got 'optun'. Did you mean 'optuna'?"),
    (["seed.x=1"], "`seed` to be an integer"),
    (["loss=dice", "loss.gamma=2"], "loss=dice has no gamma. Those that have it: focal, focal_tversky."),
    (["loss=focal,dice", "loss.gamma=0,2"], "'loss.gamma': loss=dice has no gamma. Those that have it: focal"),
], ids=lambda value: value[0] if isinstance(value, list) else None)  # fmt: skip
def test_one_line_says_what_is_wrong_and_what_there_is_instead(overrides: list[str], message: str) -> None:
    (problem,) = problems_of(*overrides, sweep=True)
    assert message in problem
    assert problem == problem.rstrip()


def test_a_sweep_is_checked_whole_before_its_first_job() -> None:
    problems = problems_of("loss.gamma=1,2,-3", "optimizer.lr=0.1,0", sweep=True)
    assert len(problems) == 2


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
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        check("train", Request("train", ["experiment=mine", *overrides], str(tmp_path)))
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
    request = Request("train", ["data=folder", "data.root=x", "data.classes=[a,b]", "data.in_channels=1", *more])
    ((_, config),) = check("train", request)
    assert (config.loss.name, config.optimizer.lr) == (loss, rate)


@pytest.mark.parametrize(("data", "weights"), [(["data=cells"], "mild"), (["data=instances", "data.root=x"], None)])
def test_a_plan_weighs_rare_classes_more_where_there_are_several(data: list[str], weights: str | None) -> None:
    ((_, config),) = check("train", Request("train", [*data, "training=auto"]))
    assert (config.loss.name, config.loss.focal.class_weights) == ("sum", weights)


@pytest.mark.parametrize(("more", "loss"), [(["data.core_depth=null"], "focal"), ([], "sum")])
def test_cores_of_objects_are_trained_with_dice_too_and_a_whole_float_is_a_count(more: list[str], loss: str) -> None:
    ((_, config),) = check("train", Request("train", ["data=instances", "data.root=x", "training.steps=1e4", *more]))
    assert (config.loss.name, config.training.steps) == (loss, 10_000)


def test_a_file_of_the_user_may_have_chosen_the_loss_of_planes(tmp_path: Path) -> None:
    (tmp_path / "loss.yaml").write_text("defaults: [train, {override loss: focal}, _self_]\n")
    given = ["data=folder", "data.root=x", "data.classes=[a,b]", "data.in_channels=1", "data.planes=k"]
    ((_, config),) = check("train", Request("train", given, str(tmp_path)))
    assert config.loss.name == "focal"
