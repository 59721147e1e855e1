import pytest
import yaml

from segmeter.cli.app import check
from segmeter.cli.config.compose import Request
from segmeter.errors import ConfigError
from segmeter.schema import as_plain


def configured(*overrides, command="train"):
    ((_, config),) = check(command, Request(command, overrides))
    return config


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


def test_changes_that_were_allowed_once_are_not_allowed_again(run):
    saved = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(saved | {"allow_changes": ["training.epochs"]}))
    assert configured(f"resume={run}").allow_changes == ()


def test_a_wrong_value_is_said_as_ever_and_no_file_of_a_run_names_code(run):
    with pytest.raises(ConfigError, match=r"expected `optimizer\.lr` to be a number > 0"):
        configured(f"resume={run}", "optimizer.lr=0")
    saved = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(saved | {"plugins": ["os"]}))
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
    saved = yaml.safe_load((run / "config.yaml").read_text())
    saved["training"]["channels_last"] = True
    saved["logger"]["csv"] = False
    (run / "config.yaml").write_text(yaml.safe_dump(saved))
    assert configured(f"resume={run}").optimizer.lr == 2e-5
