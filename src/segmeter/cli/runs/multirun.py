"""--multirun: composed jobs -> their runs in one folder, by the launcher that was chosen; it fails where a job does."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from segmeter.cli.config.compose import Composed
from segmeter.cli.runs.job import Job, sweep_folder
from segmeter.cli.runs.launchers import Jobs, launch
from segmeter.cli.runs.masking import mask, mask_override
from segmeter.cli.runs.shipped import Outcome
from segmeter.cli.runs.sweep import job_name, settings, summarised, varied
from segmeter.errors import SweepError
from segmeter.files import make_folder, write_bytes

_NUMBER = "${hydra.job.num}"


class Multirun:
    """Where the jobs of a sweep go, and how they are run.

    Parameters
    ----------
    command
        Of all jobs.
    composed
        One of them, whose `hydra` node says what was chosen.
    root
        The folder of all runs.
    argv
        The command line as it was typed.
    """

    def __init__(self, command: str, composed: Composed, *, root: Path, argv: Sequence[str]) -> None:
        node = OmegaConf.create({}) if composed.hydra is None else composed.hydra
        raw: Any = OmegaConf.to_container(node, resolve=False)
        self.command = command
        self.argv = tuple(argv)
        choices = raw.get("runtime", {}).get("choices", {})
        self.launcher, self.sweeper = (str(choices.get(f"hydra/{kind}") or "basic") for kind in ("launcher", "sweeper"))
        sweep = raw.get("sweep") or {}
        own = str(sweep.get("dir", "")) if _is_own(sweep.get("dir")) else ""
        self.folder = Path(own) if own else sweep_folder(root)
        self._subdir = str(sweep.get("subdir") or _NUMBER)
        self._environment = (raw.get("job") or {}).get("env_set") or {}
        self._launcher: Mapping[str, Any] = raw.get("launcher") or {}
        self.options: Mapping[str, Any] = {k: v for k, v in (raw.get("sweeper") or {}).items() if k != "_target_"}

    def job(self, number: int, overrides: Sequence[str], values: Mapping[str, str]) -> Job:
        """How one job is asked for; its folder is named by its number and by what varies, or as the user wants it."""
        name = job_name(number, values) if self._subdir == _NUMBER else self._subdir.replace(_NUMBER, str(number))
        if _NUMBER not in self._subdir and number:
            name = f"{name}-{number}"
        return Job(self.command, tuple(overrides), self.folder / name, self.argv)

    def run(self, jobs: Jobs) -> list[Outcome]:
        """Run jobs, whatever becomes of each of them; outcomes are in the order of the jobs."""
        self._record()
        with _environment(self._environment):
            outcomes = list(launch(jobs, self.launcher, self._filled()))
        places = {job.folder: place for place, (_, job) in enumerate(jobs)}
        return sorted(outcomes, key=lambda outcome: places[outcome.job.folder])

    def _record(self) -> None:
        """Write down how the sweep was asked for, secrets masked."""
        make_folder(self.folder)
        argv = [mask_override(argument) for argument in self.argv]
        content = mask({"launcher": self.launcher, "sweeper": self.sweeper, "argv": argv})
        write_bytes(self.folder / "multirun.yaml", OmegaConf.to_yaml(OmegaConf.create(content)).encode())

    def _filled(self) -> dict[str, Any]:
        """The launcher's values; what Hydra would fill in is filled in here."""
        known = {"${hydra.sweep.dir}": str(self.folder), "${hydra.job.name}": f"segmeter-{self.command}"}
        return {key: _fill(value, known) for key, value in self._launcher.items() if key != "_target_"}


def run_sweep(plan: Multirun, jobs: Sequence[tuple[Composed, Any]]) -> None:
    """Run all jobs of a sweep over listed values.

    Raises
    ------
    SweepError
        Jobs failed; one line for each.
    """
    given = [settings(composed.overrides) for composed, _ in jobs]
    keys = varied(given)
    asked = [
        (config, plan.job(number, composed.overrides, {key: given[number].get(key, "") for key in keys}))
        for number, (composed, config) in enumerate(jobs)
    ]
    with summarised(plan.folder):
        outcomes = plan.run(asked)
    raise_failures(list(enumerate(outcomes)), plan.folder)


def raise_failures(outcomes: Sequence[tuple[int, Outcome]], folder: Path) -> None:
    """End the command as the first failed job did.

    Parameters
    ----------
    outcomes
        Each with its number.

    Raises
    ------
    SweepError
        One line for each failed job.
    """
    failed = [(number, outcome) for number, outcome in outcomes if outcome.exit_code]
    if not failed:
        return
    lines = [
        f"sweep: job {number} ({', '.join(map(mask_override, outcome.job.overrides)) or 'no overrides'}) "
        f"ended with {outcome.exit_code}: {problem}"
        for number, outcome in failed
        for problem in outcome.problems
    ]
    lines.append(f"sweep: {len(failed)} of {len(outcomes)} jobs failed; the results of the others are in {folder}.")
    raise SweepError(lines, exit_code=failed[0][1].exit_code)


def _is_own(folder: Any) -> bool:
    """Whether a folder of sweeps is the user's, not the default that Hydra names by the time."""
    return bool(folder) and "${now:" not in str(folder)


@contextmanager
def _environment(values: Mapping[str, Any]) -> Iterator[None]:
    """Set variables of the environment while jobs run; the processes that they start inherit them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update({name: str(value) for name, value in values.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _fill(value: Any, known: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for name, text in known.items():
            value = value.replace(name, text)
    return value
