"""Writes terminal help from the schemas, so that it can't disagree with the program."""

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from segmeter.checks import close_name, nearest
from segmeter.cli.app import plugins_of
from segmeter.cli.commands import COMMANDS, FLAGS, PLAIN, USAGE, read_arguments
from segmeter.cli.config.groups import CONFIGS, PRESETS, TRAINED, groups_of, load_plugins
from segmeter.cli.config.hydra_rules import check_files
from segmeter.cli.config.reference import (
    Key,
    keys_of,
    option,
    options_of,
    own_keys,
    parts_of,
    preset_summary,
)
from segmeter.errors import ConfigError
from segmeter.schema.declared import node_of

_WIDTH = 110
TRAINED_SUMMARY = (
    "The data set that the checkpoint was trained on, with its classes and how its files are read; set data.root where "
    "it lies elsewhere. Keys of its kind can be set too: --help data data=folder. All kinds have:"
)


PLUGINS = """\
plugins: components of your own. Write my_losses.py into the folder where you
run segmeter:

  import torch
  from pydantic import Field
  from torch.nn.functional import one_hot
  from segmeter.losses.config import LOSSES
  from segmeter.schema import Config

  @LOSSES.register("brier", builder="my_losses:build")
  class BrierConfig(Config, title="loss"):
      \"\"\"Error of the probabilities.\"\"\"

      name: str = "brier"
      power: float = Field(2.0, gt=0)
      \"\"\"Exponent of the error.\"\"\"

  class Brier(torch.nn.Module):
      def __init__(self, power):
          super().__init__()
          self.power = power

      def forward(self, logits, target):
          classes = logits.shape[1]
          valid = (target >= 0) & (target < classes)  # not ignored
          truth = one_hot(target.long().where(valid, 0), classes).movedim(-1, 1)
          error = (logits.softmax(1) - truth).abs() ** self.power
          return error.sum(1)[valid].mean()

  def build(config, *, spec, class_counts):
      return Brier(config.power)

and name it: segmeter train plugins=[my_losses] loss=brier loss.power=1.5

Registries, and how their builders are called (spec has the task, classes and
ignored value):
  segmeter.losses.config.LOSSES
      build(config, *, spec, class_counts) -> module (logits, target) -> loss
  segmeter.models.config.MODELS
      build(config, *, spec, in_channels) -> module (images) -> logits
  segmeter.training.config.OPTIMIZERS
      build(config, *, model) -> torch optimizer
  segmeter.training.config.SCHEDULES
      build(config) -> function (progress, 0 to 1) -> factor on the rate
  segmeter.training.config.LOGGERS
      build(config, *, folder, step, settings)
          -> segmeter.training.loggers.Logger
  segmeter.postprocess.config.STEPS
      build(config, *, spec) -> function (labels) -> labels
  segmeter.metrics.config.measures.MEASURES
      build(config, *, spec, regions) -> function (maps) -> measure columns
  segmeter.data.config.DATA
      build(config, *, split) -> segmeter.data.Dataset
An installed package can use an entry point whose group starts with
"segmeter." instead of plugins=.
"""


def help_text(command: str, arguments: Sequence[str] = ()) -> str:
    """Write the help of one command, or of the groups named in `arguments`.

    Parameters
    ----------
    command
        "train", "eval" and so on.
    arguments
        Groups whose keys are listed ("augment"), overrides that choose their options ("loss=focal"), and flags.

    Raises
    ------
    ConfigError
        The command has no such group, or the group no such option.
    """
    if command in PLAIN:
        return "\n".join(_head(command)) + "\n"
    args = read_arguments(command, arguments)
    chosen = dict(word.split("=", 1) for word in args.overrides if "=" in word)
    load_plugins(plugins_of(args.overrides))
    folders = [CONFIGS, *([Path(args.config_dir)] if args.config_dir else [])]
    for folder in folders[1:]:
        check_files(folder)
    asked = [word for word in args.overrides if "=" not in word]
    if asked == ["plugins"]:
        return PLUGINS
    lines = [line for name in asked for line in _one_group(command, name, chosen, folders)]
    if not asked:
        keys = [line for key in own_keys(command) for line in _key(key)]
        flags = [each for flag, said in FLAGS.items() for each in _wrapped(said, f"  {flag:<20} ", " " * 23)]
        lines = [*_head(command), *_groups(command, folders), "", "keys:", *keys, "", "flags:", *flags]
    return "\n".join(lines) + "\n"


def _head(command: str) -> list[str]:
    summary = _wrapped(f"segmeter {command}: {COMMANDS[command]}.", "", "  ")
    return [*summary, "", "usage:", *_wrapped(USAGE[command], "  ", "      ")]


def _groups(command: str, folders: Sequence[Path]) -> Iterator[str]:
    groups = groups_of(command)
    if groups:
        how = f"GROUP=OPTION chooses, GROUP.KEY=VALUE sets; segmeter {command} --help GROUP lists keys"
        yield from ("", *_wrapped(f"groups ({how}):", "", "  "))
    for group, default in groups.items():
        named = [f"{name} (default)" if name == default else name for name in options_of(command, group, folders)]
        yield from _wrapped(", ".join(named), f"  {group:<12} ", " " * 15)


def _key(key: Key, indent: str = "  ") -> Iterator[str]:
    yield f"{indent}{key.path} = {key.default}"
    yield from _wrapped(key.node.meaning, f"{indent}    ", f"{indent}    ")
    yield from _wrapped(f"[{key.range}]", f"{indent}    ", f"{indent}    ")


def _one_group(command: str, group: str, chosen: dict[str, str], folders: Sequence[Path]) -> Iterator[str]:
    known = groups_of(command)
    if group not in known:
        raise ConfigError(f"config: {command} has no group {group!r}. {nearest(group, known)}")
    found = options_of(command, group, folders)
    yield from _wrapped(f"{group}: {', '.join(found)}", "", "  ")
    if len(found) > 1 and group not in (*PRESETS, *chosen):
        yield from _wrapped(f"The keys of another option: segmeter {command} {group}=OPTION --help {group}", "", "  ")
    if group in PRESETS:
        for name in found:
            yield from _wrapped(preset_summary(group, name, folders), f"  {name:<12} ", " " * 15)
        how = f"segmeter {command} {group}=NAME --cfg job shows all of them."
        yield from _wrapped(f"Each sets keys of several groups; {how}", "", "  ")
        return
    name = chosen.get(group, known[group])
    if name not in found:
        close = close_name(name, found)
        raise ConfigError(f"config: expected `{group}` to be one of {', '.join(found)}, got {name!r}. {close}".rstrip())
    schema, values = option(group, name, folders)
    said = TRAINED_SUMMARY if name == TRAINED else node_of(schema).meaning
    yield from ("", *_wrapped(f"{group}={name}: {said}", "", "  "), "")
    for key in keys_of(node_of(schema), values, f"{group}."):
        yield from _key(key)
    for key_name, choice in parts_of(schema):
        for member in choice.names():
            if inner := choice.schema_of(member):
                text = f"in {group}.{key_name}, {{name: {member}, ...}}: {node_of(inner).meaning}"
                yield from ("", *_wrapped(text, "", "  "))
                for key in keys_of(node_of(inner), {}):
                    yield from _key(key)


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    width = min(_WIDTH, shutil.get_terminal_size((_WIDTH, 1)).columns)
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
