"""resume=RUN -> the configuration that the run was started with, changed by what the command line says."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from segmeter.checks import expected
from segmeter.cli.config.compose import Composed
from segmeter.cli.config.groups import GROUPS
from segmeter.cli.config.reference import PRESETS
from segmeter.errors import ConfigError
from segmeter.records import read_yaml
from segmeter.schema import REQUIRED
from segmeter.schema.declared import name_of

_OWN = ("resume", "allow_changes", "plugins")  # said anew each time
AUTO = "auto"


def fill_resumed(job: Composed) -> dict[str, Any]:
    """The values of a job that resumes the run of a given folder: the run's own but for what the job sets.

    Of a preset, which sets many keys at once, all values count; the run's own take the place of those that must be
    given and are not. Without such a folder, or with "auto", which repeats the command line, the values stay.

    Raises
    ------
    ConfigError
        The run's configuration can't be read, or it used plugins that are not named again.
    """
    values = job.values
    resume = values.get("resume")
    if not isinstance(resume, str) or resume == AUTO or not (Path(resume) / "config.yaml").is_file():
        return values
    saved = _read(Path(resume) / "config.yaml")
    _check_plugins(saved, values, resume)
    keys = [line.partition("=")[0].lstrip("+~").partition("@")[0] for line in job.overrides]
    if set(PRESETS) & set(keys):
        return {key: _given(value, saved.get(key)) for key, value in values.items()}
    filled = copy.deepcopy({**values, **saved})
    for key in [*(key for key in keys if key in GROUPS), *_OWN, *keys, *_followers(job.config, keys)]:
        _take(key, values, filled)
    return filled


def _take(key: str, values: Mapping[str, Any], filled: dict[str, Any]) -> None:
    """Set a key as the job has it; a group that the run had chosen already keeps its values."""
    if key in GROUPS and name_of(values.get(key)) and name_of(values[key]) == name_of(filled.get(key)):
        return
    *above, last = key.split(".")
    for part in above:
        values, filled = values.get(part, {}), filled.setdefault(part, {})
        if not isinstance(values, Mapping) or not isinstance(filled, dict):
            return
    if last in values:
        filled[last] = copy.deepcopy(values[last])
    elif above:
        filled.pop(last, None)  # deleted with ~key


def _given(value: Any, saved: Any) -> Any:
    """A value, or the saved one where none was given."""
    if isinstance(value, dict) and isinstance(saved, dict):
        return {key: _given(each, saved.get(key)) for key, each in value.items()}
    return saved if value == REQUIRED else value


def _followers(config: DictConfig | None, keys: Sequence[str]) -> list[str]:
    """The keys that take their value from one of `keys`, such as training.seed from seed."""
    raw = OmegaConf.to_container(config, resolve=False) if config is not None else {}
    return [key for key, value in _leaves(raw) if isinstance(value, str) and value.strip("${}") in keys]


def _leaves(values: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if not isinstance(values, Mapping):
        return [(prefix, values)]
    return [leaf for key, value in values.items() for leaf in _leaves(value, f"{prefix}.{key}" if prefix else str(key))]


def _check_plugins(saved: Mapping[str, Any], values: Mapping[str, Any], resume: str) -> None:
    """Code is named by the command line alone, never by a file in a run's folder."""
    missing = sorted(set(saved.get("plugins") or ()) - set(values.get("plugins") or ()))
    if missing:
        remedy = f"Only the command line may name code: add 'plugins=[{','.join(missing)}]'."
        raise ConfigError(expected("resume", "plugins", f"to name those of {resume}", missing, remedy))


def _read(path: Path) -> dict[str, Any]:
    try:
        values = read_yaml(path)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"resume: {path} can't be read ({reason}). Start a new run (resume=null).") from error
    if not values:
        raise ConfigError(f"resume: {path} holds no configuration. Start a new run (resume=null).")
    return values
