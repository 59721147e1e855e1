"""The help of commands and groups, and what stands beside the keys of --cfg job."""

import re
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import yaml
from docs.reference_page import reference

from segmeter.cli.app import check
from segmeter.cli.commands import COMMANDS
from segmeter.cli.config.compose import Request
from segmeter.cli.config.groups import GROUPS, ROOTS, groups_of, load_plugins, schemas_of
from segmeter.cli.config.reference import keys_of, parts_of
from segmeter.cli.help import help_text
from segmeter.cli.main import main
from segmeter.errors import ConfigError
from segmeter.losses.config import LOSSES, build_loss
from segmeter.schema.declared import node_of

# Numbers without a unit: seeds, exponents, weights, norms, decays, and what has its unit in another key
_PURE = {
    "seed", "split_seed", "gamma", "alpha", "beta", "label_smoothing", "normalizer", "class_weights", "clip_norm",
    "ema", "sources",
    "lr", "weight_decay", "beta1", "beta2", "eps", "momentum", "power", "validate_every", "time_budget", "mean", "std",
    "colours", "ignore_index", "label_map", "instance_divisor", "decoder_atrous_rates", "connectivity",
    "focal", "cross_entropy", "dice", "tversky", "focal_tversky", "lovasz",
}  # fmt: skip


def every_schema():
    for command, root in ((name, ROOTS[name]) for name in ROOTS):
        yield pytest.param(root, id=command)
    for group in GROUPS:
        for name, schema in schemas_of(group).items():
            yield pytest.param(schema, id=f"{group}={name}")
            for key, choice in parts_of(schema):
                for member in choice.names():
                    yield pytest.param(choice.schema_of(member), id=f"{group}.{key}={member}")


@pytest.mark.parametrize("schema", list(every_schema()))
def test_every_key_has_a_meaning_and_every_number_a_range_and_a_unit(schema):
    assert schema.__doc__
    for key in keys_of(node_of(schema), {}):
        last = key.path.rpartition(".")[2]
        assert key.node.meaning.endswith("."), key
        if "integer" in key.node.describe() or "number" in key.node.describe():
            unbounded = {
                "mean",
                "split_seed",
                "label_map",
                "time_budget",
                "decoder_atrous_rates",
            }  # SMP checks the last
            assert last in unbounded or any(sign in key.node.describe() for sign in "<>"), key
            assert key.node.unit or last in _PURE, key


@pytest.mark.parametrize("command", ROOTS)
def test_the_help_of_a_command_has_its_groups_options_and_keys_with_meaning(command):
    text = help_text(command)
    assert "\n  plugins = []\n      Modules that register your own components; only" in text
    for group in groups_of(command):
        assert f"\n  {group} " in text
    assert "schema_" not in text


@pytest.mark.parametrize("command", COMMANDS)
def test_all_help_fits_80_columns(command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    groups = [*groups_of(command), "plugins"] if command in ROOTS else []
    for text in (help_text(command), *(help_text(command, [group]) for group in groups)):
        assert max(map(len, text.splitlines())) <= 80


def test_the_help_of_a_group_has_every_key_of_the_chosen_option():
    text = help_text("train", ["loss=dice", "loss"])
    assert "loss=dice: Soft Dice, averaged over the classes" in text
    assert "  loss.smooth = 1.0\n      Added above and below the fraction.\n      [a number > 0; pixels]\n" in text
    assert "gamma" not in text


def test_the_help_of_an_option_with_a_file_has_that_files_values():
    assert "  augment.rotate = 4.0\n" in help_text("train", ["augment", "augment=road"])
    assert "  augment.rotate = 0.0\n" in help_text("train", ["augment"])


def test_own_options_are_listed(tmp_path: Path):
    (tmp_path / "augment").mkdir()
    (tmp_path / "augment" / "gentle.yaml").write_text("defaults: [default, _self_]\nrotate: 10\n")
    flags = ["--config-dir", str(tmp_path)]
    assert "gentle" in help_text("train", flags)
    assert "  augment.rotate = 10\n" in help_text("train", [*flags, "augment", "augment=gentle"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["augmnt"], "train has no group 'augmnt'. Did you mean 'augment'?"),
        (["loss", "loss=dise"], "got 'dise'. Did you mean 'dice'?"),
        (["--nosuch"], "unrecognized arguments: --nosuch"),
    ],
)
def test_help_for_what_there_is_not(arguments, message):
    with pytest.raises(ConfigError) as caught:
        help_text("train", arguments)
    assert message in str(caught.value)


def test_cfg_job_is_yaml_with_the_meaning_of_each_key(capsys: pytest.CaptureFixture[str]):
    main(["train", "loss.gamma=3", "--cfg", "job"])
    text = capsys.readouterr().out
    assert "\n  gamma: 3  # Focusing exponent; 0 is cross-entropy [a number >= 0]\n" in text
    values = yaml.safe_load(text)
    assert values["loss"]["gamma"] == 3
    assert values["training"]["seed"] == "${seed}"


def test_cfg_job_shows_a_part_and_resolves_it(capsys: pytest.CaptureFixture[str]):
    main(["train", "seed=7", "--cfg", "job", "-p", "training.seed", "--resolve"])
    assert capsys.readouterr().out == "7\n"


@pytest.mark.parametrize("command", ["train", "eval", "compare"])
def test_cfg_job_can_be_read_back(command, capsys: pytest.CaptureFixture[str]):
    main([command, "--cfg", "job"])
    values = yaml.safe_load(capsys.readouterr().out)
    assert set(values) == set(ROOTS[command].model_fields)


def test_every_command_and_group_has_a_heading():
    headings = re.findall(r"^## (.*)$", reference(), re.MULTILINE)
    assert headings == [*(f"segmeter {command}" for command in ROOTS), *GROUPS]


def test_every_row_of_a_table_has_four_cells():
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert len(rows) > 200
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}  # a bar inside of a cell is escaped


def test_placeholders_are_not_taken_for_html():
    cells = [cell for line in reference().splitlines() if line.startswith("| `") for cell in line.split(" | ")[2:]]
    assert not [cell for cell in cells if re.search(r"<[a-z]", cell)]


def test_the_example_of_a_plugin_runs_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = help_text("train", ["plugins"])
    example = text[text.index("  import torch") : text.index("and name it")]
    (tmp_path / "my_losses.py").write_text(textwrap.dedent(example))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    try:
        load_plugins(["my_losses"])
        ((_, config),) = check("train", Request("train", ["data=cells", "loss=brier", "loss.power=1"]))
        loss = build_loss(config.loss, spec=config.data.spec())
        target = torch.tensor([[[0, 1, 255]]], dtype=torch.uint8)
        assert loss(torch.zeros(1, 2, 1, 3), target) == pytest.approx(1)  # |0.5 - 1| + |0.5 - 0|
    finally:
        LOSSES._entries.pop("brier", None)


def test_the_help_of_a_group_names_the_way_to_other_options():
    assert "segmeter train data=OPTION --help data" in help_text("train", ["data"])
    assert "OPTION" not in help_text("train", ["data", "data=folder"])
