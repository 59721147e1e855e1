"""Turns composed values into the checked configuration of a command, or into one line per problem.

Three sources complete the values first: the run that a job resumes, the recipe of `training=auto` (loss and learning
rate), and what a checkpoint says about its data.
"""

import copy
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from segmeter.checks import expected
from segmeter.cli.config.compose import Composed
from segmeter.cli.config.groups import GROUPS, PRESETS, TRAINED, WITH_TRAINED_DATA
from segmeter.errors import ConfigError, InputError
from segmeter.records import flatten, read_yaml
from segmeter.schema import REQUIRED, Config
from segmeter.schema.invalid import problems_by_key
from segmeter.schema.registry import name_of

_NEW_KEYS = ("resume", "allow_changes", "plugins")  # a resumed run takes these from the command line, never its own
AUTO = "auto"
_UNREAD = re.compile(r"config: can't (?:resolve `|read the override ['\"]\+*)([\w.]+)")


def convert(
    root: type[Config], composed: Composed, *, command: str, problems: list[str], fill: bool = True
) -> Config | None:
    """Check the values of a job.

    Parameters
    ----------
    root
        The schema of the command.
    composed
        The job as Hydra composed it.
    command
        The name of the command, for lines that point to its help.
    problems
        Gets one line per problem; the result is then None.
    fill
        Whether to complete the values first.
    """
    values = composed.values
    fill_problems: tuple[str, ...] = ()
    try:
        if fill:
            values = fill_resumed(composed)
        if fill and command in (*WITH_TRAINED_DATA, "predict"):
            from segmeter.cli.config.trained_data import fill_trained

            values = fill_trained(command, values, composed.overrides, data=command in WITH_TRAINED_DATA)
        if fill and command == "train":
            values = fill_recipe(values, composed)
    except InputError as error:
        fill_problems = error.problems
    # without a checkpoint, its data is unknown
    lacks_data = command in WITH_TRAINED_DATA and name_of(values.get("data")) == TRAINED
    unreported = {"data"} if lacks_data or fill_problems else set()
    values = {key: value for key, value in values.items() if key not in unreported}

    def advice(key: str) -> str:
        group = key.partition(".")[0]
        page = f" {group}" if "." in key and group in root.model_fields else ""
        return f"See: segmeter {command} --help{page}."

    problems.extend(fill_problems)
    try:
        config = root.model_validate(values)
    except ValidationError as error:
        by_key = problems_by_key(error, root, values, advice=advice)
        unreported |= set(_followers(composed, by_key))  # a line on the followed key is enough
        unreported |= set(_UNREAD.findall("\n".join(problems)))  # these have a line already
        problems.extend(line for key, lines in by_key.items() if key not in unreported for line in lines)
        return None
    return None if fill_problems else config


def fill_resumed(composed: Composed) -> dict[str, Any]:
    """Return the values of a job that resumes a run: the run's own, except for those that the job sets.

    A preset sets many keys at once. With one, the job's values count, and the run's own only fill in required values
    that are missing. Without the folder of a run, or with "auto", which repeats the command line, the values stay.

    Raises
    ------
    ConfigError
        The run's configuration can't be read, or it used plugins that are not named again.
    """
    values = composed.values
    resume = values.get("resume")
    if not isinstance(resume, str) or resume == AUTO or not (Path(resume) / "config.yaml").exists():
        return values
    saved = read_yaml(Path(resume) / "config.yaml")
    missing = sorted(set(saved.get("plugins") or ()) - set(values.get("plugins") or ()))
    if missing:
        remedy = f"Only the command line may name code: add 'plugins=[{','.join(missing)}]'."
        raise ConfigError(expected("resume", "plugins", f"to name those of {resume}", missing, remedy))
    keys = [line.partition("=")[0].lstrip("+~").partition("@")[0] for line in composed.overrides]
    if set(PRESETS) & set(keys):
        return {key: _fill_required(value, saved.get(key)) for key, value in values.items()}
    filled = copy.deepcopy({**values, **saved})
    for key in [*(key for key in keys if key in GROUPS), *_NEW_KEYS, *keys, *_followers(composed, keys)]:
        _copy_key(key, values, filled)
    return filled


def _copy_key(key: str, values: Mapping[str, Any], filled: dict[str, Any]) -> None:
    """Set a key to the job's value. A group whose option is the run's own keeps the run's values."""
    if key in GROUPS and name_of(values.get(key)) and name_of(values[key]) == name_of(filled.get(key)):
        return
    *groups, last = key.split(".")
    for group in groups:
        values, filled = values.get(group, {}), filled.setdefault(group, {})
        if not isinstance(values, Mapping) or not isinstance(filled, dict):
            return
    if last in values:
        filled[last] = copy.deepcopy(values[last])
    elif groups:
        filled.pop(last, None)  # deleted with ~key


def _fill_required(value: Any, saved: Any) -> Any:
    """Return a value, with saved ones wherever a required one is missing."""
    if isinstance(value, dict) and isinstance(saved, dict):
        return {key: _fill_required(inner, saved.get(key)) for key, inner in value.items()}
    return saved if value == REQUIRED else value


def fill_recipe(values: dict[str, Any], composed: Composed) -> dict[str, Any]:
    """Choose the loss and the learning rate of a training that leaves them open, see `fill_loss_and_rate`.

    With a user's own folder of configurations both stay, as a file there may have chosen them. A resumed run has its
    own.
    """
    from segmeter.training.plan import fill_loss_and_rate

    if composed.own_files or values.get("resume") not in (None, AUTO):
        return values
    chosen = {line.lstrip("+~").partition("=")[0].partition(".")[0] for line in composed.overrides}
    return fill_loss_and_rate(values, chosen)


def _followers(composed: Composed, keys: Iterable[str]) -> list[str]:
    """Return the keys that take their value from one of `keys`, such as training.seed from seed."""
    followed = {f"${{{key}}}" for key in keys}
    return [key for key, value in flatten(composed.raw).items() if isinstance(value, str) and value in followed]
