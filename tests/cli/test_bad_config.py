"""Bad configurations: each gets its one line, and nothing is done. The numbers are those of our list of bad inputs."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from segmeter.cli.app import _check, load_plugins
from segmeter.cli.compose import Request, compose_jobs, store_schemas
from segmeter.cli.schema import ROOTS
from segmeter.errors import EXIT_BAD_INPUT, ConfigError


@pytest.fixture(scope="module", autouse=True)
def _schemas() -> None:
    store_schemas(ROOTS)


def problems_of(
    *overrides: str, command: str = "train", sweep: bool = False, config_name: str | None = None
) -> list[str]:
    request = Request(config_name or command, overrides, None, sweep)
    with pytest.raises(ConfigError) as caught:
        _check(request, ROOTS["train"], shown_only=False)
    assert caught.value.exit_code == EXIT_BAD_INPUT
    assert not any("\n" in line for line in caught.value.problems)
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        pytest.param(["model.dpth=3"], "unknown key 'model.dpth'. Did you mean 'model.depth'?", id="1-unknown key"),
        pytest.param(["+model.dpth=3"], "unknown key 'model.dpth'. Did you mean 'model.depth'?", id="1-added key"),
        pytest.param(["model.depth=banana"], "`model.depth` to be an integer, got 'banana'", id="2-not an integer"),
        pytest.param(["model.depth=0"], "expected `depth` >= ", id="3-depth 0"),
        pytest.param(["model.depth=50"], "got 50", id="3-depth 50"),
        pytest.param(["model=unett"], "got 'unett'. Did you mean 'unet'?", id="4-unknown option"),
        pytest.param(["nosuch=x"], "unknown key 'nosuch'. Known: ", id="5-unknown root key"),
        pytest.param(["lr=1"], "unknown key 'lr'. Did you mean 'optimizer.lr'?", id="5-key of a group"),
        pytest.param(["model.encoder=[1,"], "can't read the override 'model.encoder=[1,'", id="6-can't be parsed"),
        pytest.param(["data=camvid", "data.root="], "`root` to be given, got ''. Set data.root=", id="8-empty root"),
        pytest.param(["data=camvid"], "`data.root` is required. Set data.root=VALUE.", id="9-root not set"),
        pytest.param(["loss.gamma=-1"], "loss: expected `gamma` >= 0", id="11-gamma"),
        pytest.param(["loss.gamma=nan"], "expected `gamma`", id="12-gamma nan"),
        pytest.param(["loss.alpha=1.5"], "expected `alpha`", id="13-alpha"),
        pytest.param(["training.batch_size=0"], "training: expected `batch_size` >= 1", id="15-batch size"),
        pytest.param(["optimizer.lr=0"], "optimizer: expected `lr` > 0", id="16-lr 0"),
        pytest.param(["optimizer.lr=inf"], "optimizer: expected `lr` > 0", id="16-lr inf"),
        pytest.param(["optimizer.lr=1e30"], "optimizer: expected `lr` > 0 and <= 10, got 1e+30", id="16-lr 1e30"),
        pytest.param(["data.classes=[bg,bg,x,y]"], "`classes` to be distinct", id="19-duplicate names"),
        pytest.param(["data.classes=[]"], "`classes` to name at least 2, got []", id="20-no class"),
        pytest.param(["data.classes=[one]"], "`classes` to name at least 2, got ['one']", id="20-one class"),
        pytest.param(["data.ignore_index=1"], "it must not be a class, got 1", id="22-ignored class"),
        pytest.param(["training.monitor=mean_uoi"], "got 'mean_uoi'. Did you mean 'mean_iou'?", id="24-monitor"),
        pytest.param(["run.name=${nope}"], "can't resolve `run.name`: Interpolation key 'nope' not found", id="25"),
        pytest.param(["run.name=${oc.env:HOME_X}"], "only variables whose names start with SEGMETER_", id="26-foreign"),
        pytest.param(["run.name=${oc.env:SEGMETER_X}"], "environment variable SEGMETER_X is not set", id="26-not set"),
        pytest.param(["+model._target_=os.system"], "_target_' is not allowed", id="27-names code"),
        pytest.param(["+_target_=os.system"], "_target_' is not allowed", id="28-names code"),
        pytest.param(["+hydra.callbacks.x._target_=os.system"], "can't be set here", id="29-callback"),
        pytest.param(["hydra.searchpath=[file:///tmp]"], "can't be set here", id="29-search path"),
        pytest.param(["hydra/job_logging=stdout"], "can't be set here", id="29-logging"),
        pytest.param(["data.classes=[a,b,c,false]"], "`data.classes[3]` to be text, got False. Quote it", id="34-bool"),
        pytest.param(["data.classes=[a,b,c,10]"], "`data.classes[3]` to be text, got 10. Quote it", id="35-number"),
        pytest.param(["hydra.run.dir=/"], "Outputs go where run.root and run.name say", id="36-run dir"),
        pytest.param(["seed=-1", "training.seed=0"], "config: expected `seed` >= 0", id="seed"),
        pytest.param(["run.name=a/b"], "`name` to be a plain name without slashes", id="run name"),
        pytest.param(["experiment=demoo"], "got 'demoo'. Did you mean 'demo'?", id="experiment"),
        pytest.param(["modle=unet"], "unknown key 'modle'. Did you mean 'model'?", id="group name"),
    ],
)
def test_one_line_says_what_is_wrong(overrides: Sequence[str], message: str) -> None:
    (problem,) = problems_of(*overrides)
    assert message in problem


def test_7_an_unknown_configuration_lists_those_there_are() -> None:
    (problem,) = problems_of(config_name="nope")
    assert "no configuration is named 'nope'" in problem
    assert "train" in problem


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
    for group in ("hydra/launcher", "experiment"):
        (tmp_path / group).mkdir(parents=True)
    (tmp_path / "hydra/launcher/elsewhere.yaml").write_text("_target_: never.imported\n")
    text = "# @package _global_\ndefaults:\n  - override /hydra/launcher: elsewhere\n"
    (tmp_path / "experiment" / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        _check(Request("train", [way, "loss.gamma=1,2"], str(tmp_path), sweep=True), ROOTS["train"], shown_only=False)
    (problem,) = caught.value.problems
    assert problem.startswith("config: expected `hydra/launcher` to be basic, got elsewhere. Leave it out")


def test_commas_without_multirun_are_refused() -> None:
    (problem,) = problems_of("loss.gamma=1,2")
    assert "--multirun" in problem


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("training:\n\tepochs: 3\n", "found character '\\t'", id="30-tab"),
        pytest.param("seed: 1\nseed: 2\n", "duplicate key seed", id="31-duplicate key"),
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
        _check(Request("train", ["experiment=mine"], str(tmp_path)), ROOTS["train"], shown_only=False)
    assert message in str(caught.value)


def test_a_folder_of_the_users_own_configurations_is_found(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\nseed: 7\n")
    (values,) = compose_jobs(Request("train", ["experiment=mine"], str(tmp_path)), [])
    assert values["seed"] == 7


def test_a_missing_folder_of_configurations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--config-dir to be a folder"):
        compose_jobs(Request("train", [], str(tmp_path / "no")), [])


def test_only_our_own_environment_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGMETER_NAME", "mine")
    (values,) = compose_jobs(Request("train", ["run.name=${oc.env:SEGMETER_NAME}"]), [])
    assert values["run"]["name"] == "mine"
    assert "HOME" in os.environ
    assert "only variables" in problems_of("run.name=${oc.env:HOME}")[0]


def test_a_plugin_that_can_not_be_imported_is_named() -> None:
    with pytest.raises(ConfigError, match="can't import the plugin 'no_such_module'"):
        load_plugins(["no_such_module"])
