"""Bad configurations: each gets its one line, and nothing is done; the numbered list is in tests/faults."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hydra.core.config_store import ConfigStore

from segmeter.cli.app import check
from segmeter.cli.config.compose import Request, compose_jobs
from segmeter.cli.config.groups import load_plugins
from segmeter.errors import EXIT_BAD_INPUT, ConfigError


def problems_of(
    *overrides: str, command: str = "train", sweep: bool = False, config_name: str | None = None
) -> list[str]:
    request = Request(config_name or command, overrides, None, sweep)
    with pytest.raises(ConfigError) as caught:
        check(command, request)
    assert caught.value.exit_code == EXIT_BAD_INPUT
    assert not any("\n" in line for line in caught.value.problems)
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        pytest.param(["+model.dpth=3"], "unknown key 'model.dpth'. Did you mean 'model.depth'?", id="added key"),
        pytest.param(["lr=1"], "unknown key 'lr'. Did you mean 'optimizer.lr'?", id="key of a group"),
        pytest.param(["training.monitor=mean_uoi"], "got 'mean_uoi'. Did you mean 'mean_iou'?", id="monitor"),
        pytest.param(["run.name=${oc.env:SEGMETER_X}"], "environment variable SEGMETER_X is not set", id="not set"),
        pytest.param(["+_target_=os.system"], "_target_' is not allowed", id="names code"),
        pytest.param(["hydra.searchpath=[file:///tmp]"], "can't be set here", id="search path"),
        pytest.param(["hydra/job_logging=stdout"], "can't be set here", id="logging"),
        pytest.param(["data.classes=[a,b,c,false]"], "`data.classes[3]` to be text, got false. Quote it", id="bool"),
        pytest.param(["data.classes=[a,b,c,10]"], "`data.classes[3]` to be text, got 10. Quote it", id="number"),
        pytest.param(["seed=-1"], "config: expected `seed` to be an integer >= 0", id="seed"),
        pytest.param(["run.name=a/b"], "`run.name` to be a plain name without slashes", id="run name"),
        pytest.param(["experiment=demoo"], "got 'demoo'. Did you mean 'demo'?", id="experiment"),
        pytest.param(["modle=unet"], "unknown key 'modle'. Did you mean 'model'?", id="group name"),
    ],
)
def test_one_line_says_what_is_wrong(overrides: Sequence[str], message: str) -> None:
    (problem,) = problems_of(*overrides)
    assert message in problem


def test_all_problems_are_said_at_once() -> None:
    problems = problems_of(
        "model.dpth=3", "loss.gamma=-1", "training.batch_size=0", "nosuch=1", "model.depth=x", "training.seed=-1"
    )
    assert len(problems) == 6


def test_37_an_empty_sweep_is_refused() -> None:
    (problem,) = problems_of("loss.gamma=choice()", sweep=True)
    assert "loss.gamma" in problem


def test_a_sweep_is_checked_whole_before_its_first_job() -> None:
    problems = problems_of("loss.gamma=1,2,-3", "optimizer.lr=0.1,0", sweep=True)
    assert len(problems) == 2


@pytest.mark.parametrize("way", ["hydra/launcher=elsewhere", "experiment=mine"])
def test_a_launcher_whose_failures_would_not_be_seen_is_refused(way: str, tmp_path: Path) -> None:
    """Jobs in other processes end with code 0 whatever happens in them; chosen on the command line or in a file."""
    ConfigStore.instance().store(group="hydra/launcher", name="elsewhere", node={"_target_": "never.imported"})
    (tmp_path / "experiment").mkdir(parents=True)
    text = "# @package _global_\ndefaults:\n  - override /hydra/launcher: elsewhere\n"
    (tmp_path / "experiment" / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        check("train", Request("train", [way, "loss.gamma=1,2"], str(tmp_path), sweep=True))
    (problem,) = caught.value.problems
    assert problem.startswith("config: expected `hydra/launcher` to be one of basic, joblib, submitit_local")


def test_commas_without_multirun_are_refused() -> None:
    (problem,) = problems_of("loss.gamma=1,2")
    assert "--multirun" in problem


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "training:\n  epochz: 3\n",
            "unknown key 'training.epochz'. Did you",
            id="unknown key",
        ),
    ],
)
def test_a_bad_file_of_the_users_own_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\n" + text)
    with pytest.raises(ConfigError) as caught:
        check("train", Request("train", ["experiment=mine"], str(tmp_path)))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("loss: {gamma: -1}\n", "`loss.gamma` to be a number >= 0, got -1 ({path}:2).", id="range"),
    ],
)
def test_a_bad_value_in_a_file_of_the_users_own_is_one_line_with_its_place(
    text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "experiment" / "mine.yaml"
    path.parent.mkdir()
    path.write_text("# @package _global_\n" + text)
    with pytest.raises(ConfigError) as caught:
        check("train", Request("train", ["experiment=mine"], str(tmp_path)))
    (line,) = caught.value.problems
    assert line.endswith(message.format(path=path))


def test_a_value_of_the_command_line_is_not_blamed_on_a_file(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\nloss: {gamma: -1}\n")
    with pytest.raises(ConfigError) as caught:
        check("train", Request("train", ["experiment=mine", "loss.gamma=-2"], str(tmp_path)))
    assert caught.value.problems == ("config: expected `loss.gamma` to be a number >= 0, got -2.",)


@pytest.mark.parametrize(
    "text",
    [
        "# @package _global_\nhydra: {callbacks: {x: {_target_: torch.load, f: evil.pt, weights_only: false}}}\n",
        "# @package hydra.callbacks\nx: {_target_: os.system}\n",
        "# @package hydra.launcher\n_target_: os.system\n",
    ],
)
def test_a_file_of_the_users_own_sets_nothing_of_hydra(text: str, tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"config: 'hydra\..*' (can't be set here|is not allowed)"):
        check("train", Request("train", ["experiment=mine"], str(tmp_path)))


def test_a_file_of_the_users_own_may_set_the_values_of_a_sweep(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\nhydra: {sweeper: {params: {loss.gamma: '0,1'}}}\n"
    )
    assert check("train", Request("train", ["experiment=mine"], str(tmp_path)))


def test_a_folder_of_the_users_own_configurations_is_found(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\nseed: 7\n")
    (job,) = compose_jobs(Request("train", ["experiment=mine"], str(tmp_path)), [])
    assert job.values["seed"] == 7


def test_a_missing_folder_of_configurations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--config-dir: .*/no is not a folder"):
        compose_jobs(Request("train", [], str(tmp_path / "no")), [])


def test_only_our_own_environment_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGMETER_NAME", "mine")
    (job,) = compose_jobs(Request("train", ["run.name=${oc.env:SEGMETER_NAME}"]), [])
    assert job.values["run"]["name"] == "mine"
    assert "HOME" in os.environ
    assert "only variables" in problems_of("run.name=${oc.env:HOME}")[0]


@pytest.mark.parametrize(
    ("overrides", "messages"),
    [
        (
            ["loss=dice", "loss.gamma=2"],
            ["loss=dice has no gamma. Those that have it: focal, focal_tversky. See: segmeter train --help loss."],
        ),
        (["loss=focal,dice", "loss.gamma=0,2"], ["'loss.gamma': loss=dice has no gamma. Those that have it: focal"]),
        (["optimizer=adam,sgd"], ["expected `optimizer` to be one of adamw, sgd, got 'adam'. Did you mean 'adamw'?"]),
        (["model.depth=banana", "model.decoder_channels=[1,2]"], ["`model.depth` to be an integer >= 3 and <= 5, got"]),
        (["training.epochs=3.5"], ["`training.epochs` to be an integer >= 1 or null, got 3.5"]),
        (["hydra/launcher=nowhere"], ["Could not find 'hydra/launcher/nowhere'"]),
        (["hydra.sweeper._target_=os.system"], ["'hydra.sweeper._target_' is not allowed"]),
        (["seed.x=1"], ["`seed` to be an integer"]),
    ],
)
def test_a_line_names_what_there_is_instead(overrides: list[str], messages: list[str]) -> None:
    problems = problems_of(*overrides, sweep=True)
    assert len(problems) == len(messages)
    assert all(message in problem for message, problem in zip(messages, problems, strict=True))


def test_a_whole_float_is_a_count() -> None:
    ((_, config),) = check("train", Request("train", ["training.steps=1e4"]))
    assert config.training.steps == 10_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise RuntimeError('no\\nluck')", "the plugin 'failing_plugin' can't be loaded: RuntimeError: no luck"),
        ("import nothing_like_it", "can't import the plugin 'failing_plugin': No module named 'nothing_like_it'"),
        (
            "from segmeter.losses.config import LOSSES\nLOSSES.register('mine', builder='x:y')(dict)",
            "can't be loaded: loss: the schema of 'mine' must derive from segmeter.schema.Config",
        ),
    ],
)
def test_a_plugin_that_fails_is_named(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing_plugin.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load_plugins(["failing_plugin"])
    assert message in str(caught.value)


@pytest.mark.parametrize("name", [".x", "a.", "a-b", "a b", "/tmp/x.py"])
def test_a_plugin_that_is_no_module_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="expected `plugins` to name modules"):
        load_plugins([name])


def test_a_plugin_that_can_not_be_imported_is_named() -> None:
    with pytest.raises(ConfigError, match="can't import the plugin 'no_such_module'"):
        load_plugins(["no_such_module"])
