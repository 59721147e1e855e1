"""The help of commands and groups, and what stands beside the keys of --cfg job."""

import json
import re
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from docs.reference_page import reference

from segmeter.cli.app import compose_and_validate
from segmeter.cli.commands import COMMANDS
from segmeter.cli.config.compose import Request
from segmeter.cli.config.groups import GROUPS, ROOTS, groups_of, load_plugins, schemas_of
from segmeter.cli.config.reference import json_schema, keys_of, parts_of
from segmeter.cli.help import help_text
from segmeter.cli.main import main
from segmeter.errors import ConfigError
from segmeter.losses.config import LOSSES, build_loss
from segmeter.models.config import MODELS
from segmeter.postprocess.config import STEPS
from segmeter.postprocess.pipeline import run_steps
from segmeter.schema.json_schema import node_of
from tests.data.crafted import BINARY

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
            unbounded = {"mean", "split_seed", "label_map", "time_budget"} | {"decoder_atrous_rates"}  # SMP checks it
            assert last in unbounded or any(sign in key.node.describe() for sign in "<>"), key
            assert key.node.unit or last in _PURE, key


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_its_groups_and_fits_80_columns(command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    text, groups = help_text(command), []
    if command in ROOTS:
        groups = [*groups_of(command), "plugins"]
        assert "\n  plugins = []\n      Modules that register your own components; only" in text
        assert all(f"\n  {group} " in text for group in groups)
        assert "schema_" not in text
        assert ("  data.label_map = {}\n" in text) == (command in ("score", "agree")), "keys that are empty too"
    for part in (text, *(help_text(command, [group]) for group in groups)):
        assert max(map(len, part.splitlines())) <= 80


def test_the_help_of_a_group_has_every_key_of_the_chosen_option():
    text = help_text("train", ["loss=dice", "loss"])
    assert "loss=dice: Soft Dice, averaged over the classes" in text
    assert "  loss.smooth = 1.0\n      Added above and below the fraction.\n      [a number > 0; pixels]\n" in text
    assert "gamma" not in text
    assert "segmeter train data=OPTION --help data" in help_text("train", ["data"])
    assert "OPTION" not in help_text("train", ["data", "data=folder"])
    steps = help_text("eval", ["postprocess"])
    assert all(f"in postprocess.steps, {{name: {step}, ...}}: " in steps for step in STEPS.names())
    assert "  margin = 0\n      Width of the zone along the edge" in steps, "a key of a step in the list"


def test_own_options_are_listed(tmp_path: Path):
    (tmp_path / "augment").mkdir()
    (tmp_path / "augment" / "gentle.yaml").write_text("defaults: [default, _self_]\nrotate: 10\n")
    flags = ["--config-dir", str(tmp_path)]
    assert "gentle" in help_text("train", flags)
    assert "  augment.rotate = 10\n" in help_text("train", [*flags, "augment", "augment=gentle"])


@pytest.mark.parametrize(("arguments", "message"), [
    (["augmnt"], "train has no group 'augmnt'. Did you mean 'augment'?"),
    (["loss", "loss=dise"], "got 'dise'. Did you mean 'dice'?"),
])  # fmt: skip
def test_help_for_what_there_is_not(arguments, message):
    with pytest.raises(ConfigError) as caught:
        help_text("train", arguments)
    assert message in str(caught.value)


def test_the_json_schema_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["schema", "train"])
    assert json.loads(capsys.readouterr().out) == json_schema("train")


def test_cfg_job_is_yaml_with_the_meaning_of_each_key(capsys: pytest.CaptureFixture[str]):
    main(["train", "loss.gamma=3", "--cfg", "job"])
    text = capsys.readouterr().out
    assert "\n  gamma: 3  # Focusing exponent; 0 is cross-entropy [a number >= 0]\n" in text
    values = yaml.safe_load(text)
    assert values["loss"]["gamma"] == 3
    assert values["training"]["seed"] == "${seed}"
    main(["train", "seed=7", "--cfg", "job", "-p", "training.seed", "--resolve"])
    assert capsys.readouterr().out == "7\n"


@pytest.mark.parametrize("command", ["train", "eval", "compare"])
def test_cfg_job_can_be_read_back(command, capsys: pytest.CaptureFixture[str]):
    main([command, "--cfg", "job"])
    values = yaml.safe_load(capsys.readouterr().out)
    assert set(values) == set(ROOTS[command].model_fields)


def test_the_reference_has_a_heading_for_each_command_and_group_and_whole_tables():
    text = reference()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings == [*(f"segmeter {command}" for command in ROOTS), *GROUPS]
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 200
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}  # a bar inside of a cell is escaped
    cells = [cell for row in rows for cell in row.split(" | ")[2:]]
    assert not [cell for cell in cells if re.search(r"<[a-z]", cell)], "placeholders taken for HTML"


PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Load an example of a plugin as a user does, from a file of the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for registry in (LOSSES, MODELS, STEPS):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))

    def load(name: str, example: str) -> None:
        Path(f"{name}.py").write_text(textwrap.dedent(example))
        load_plugins([name])

    return load


def test_the_example_of_a_plugin_in_the_help_runs(own):
    text = help_text("train", ["plugins"])
    own("my_losses", text[text.index("  import torch") : text.index("and name it")])
    ((_, config),) = compose_and_validate("train", Request("train", ["data=cells", "loss=brier", "loss.power=1"]))
    loss = build_loss(config.loss, spec=config.data.spec())
    target = torch.tensor([[[0, 1, 255]]], dtype=torch.uint8)
    assert loss(torch.zeros(1, 2, 1, 3), target) == pytest.approx(1)  # |0.5 - 1| + |0.5 - 0|


def test_the_network_and_the_step_of_the_page_run(own):
    own("mine", PAGE[PAGE.index("    import numpy") : PAGE.index("Name the module")])
    network = MODELS.build(MODELS.schema("plain")(width=4), spec=BINARY, in_channels=3)
    assert network(torch.zeros(1, 3, 8, 8)).shape == (1, 1, 8, 8)
    labels = np.zeros((8, 8), np.uint8)
    labels[0, :3] = 1
    kept = [run_steps(labels, [STEPS.schema("no_tiny_maps")(least=n)], BINARY).labels.sum() for n in (3, 4)]
    assert kept == [3, 0]
