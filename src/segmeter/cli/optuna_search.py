"""Searches with Optuna (hydra/sweeper=optuna), which chooses values from ranges. A search that was killed continues."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep

from segmeter.checks import expected
from segmeter.cli.engines import JobOutcome, needed
from segmeter.cli.folders import Job
from segmeter.cli.results import better
from segmeter.cli.sweep import Sweep, raise_failures, summarised
from segmeter.errors import EXIT_FAULT, ConfigError, refusing

_FOLDER = "folder"  # the attribute of a study that holds the folder of its jobs, for processes that continue it
_DIRECTIONS = {"higher": "maximize", "lower": "minimize"}

Validate = Callable[[Sequence[str]], Any]  # takes the overrides of one job, and returns its validated configuration


def search(plan: Sweep, config: Any, overrides: Sequence[str], validate: Validate) -> None:
    """Let Optuna choose the values of jobs until `n_trials` are done. Trials of earlier processes count too.

    Parameters
    ----------
    plan
        Where the jobs write and how they are run. ``plan.options`` are Optuna's settings.
    config
        The checked configuration of one job.
    overrides
        As typed. ``interval(a,b)``, ``range(a,b)`` and ``choice(a,b)`` (or a,b) are searched, and
        ``tag(log, interval(a,b))`` on a logarithmic scale. The other overrides hold for every job.
    validate
        Composes and validates one job.

    Raises
    ------
    ConfigError
        There is nothing to search, or an option is wrong.
    SweepError
        One line for each job that failed or gave no score.
    """
    optuna = needed("optuna", extra="optuna")
    options = plan.options
    space, fixed = _space(overrides, optuna)
    direction = _direction(options.direction, config, space)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    problem = f"config: hydra.sweeper.storage {options.storage!r} can't be opened"
    with refusing(ConfigError, problem, "Write sqlite:///FILE, with a folder that exists."):
        storage = options.storage and optuna.storages.RDBStorage(options.storage)
    with ExitStack() as stack:
        if storage:
            stack.callback(storage.engine.dispose)  # Optuna leaves its connections open
        study = optuna.create_study(
            storage=storage,
            study_name=options.study_name,
            direction=direction,
            sampler=optuna.samplers.TPESampler(seed=options.seed),
            load_if_exists=True,
        )
        if study.direction.name.lower() != direction:  # the storage holds an older study of this name
            rule = f"to be a study that has its score {direction}d"
            remedy = "Set another study_name."
            given = f"{options.study_name!r}, whose score is {study.direction.name.lower()}d"
            raise ConfigError(expected("config", "hydra.sweeper.study_name", rule, given, remedy))
        plan.folder = Path(study.user_attrs.get(_FOLDER, plan.folder))
        study.set_user_attr(_FOLDER, str(plan.folder))
        failed: list[tuple[int, JobOutcome]] = []
        with summarised(plan.folder):
            # a trial that a killed process began stays RUNNING, so another trial takes its place
            while (left := options.n_trials - sum(trial.state.is_finished() for trial in study.trials)) > 0:
                trials = [study.ask(space) for _ in range(min(left, options.n_jobs))]
                outcomes = _run(plan, trials, fixed, validate, study)
                failed += [(number, outcome) for number, outcome in outcomes if outcome.exit_code]
        raise_failures(failed, plan.folder)


def _run(
    plan: Sweep, trials: Sequence[Any], fixed: Sequence[str], validate: Validate, study: Any
) -> list[tuple[int, JobOutcome]]:
    """Run trials together, and tell the study their outcomes."""
    from optuna.trial import TrialState  # optuna is an optional dependency

    jobs: list[tuple[Any, Job]] = []
    for trial in trials:
        chosen = {key: repr(value) if isinstance(value, float) else str(value) for key, value in trial.params.items()}
        overrides = (*fixed, *(f"{key}={value}" for key, value in chosen.items()))
        jobs.append((validate(overrides), plan.job(trial.number, overrides, chosen)))
    outcomes = []
    for trial, outcome in zip(trials, plan.run(jobs), strict=True):
        if not outcome.exit_code and (outcome.value is None or math.isnan(outcome.value)):
            problem = f"it gave no score to optimise, but {outcome.value}."
            outcome = JobOutcome(job=outcome.job, problems=(problem,), exit_code=EXIT_FAULT)
        if outcome.exit_code:
            study.tell(trial, state=TrialState.FAIL)
        else:
            study.tell(trial, outcome.value)
        outcomes.append((trial.number, outcome))
    return outcomes


def _direction(given: str | None, config: Any, space: Mapping[str, Any]) -> str:
    """Return the direction in which the score gets better. For a metric of the user's own, the user has to set it."""
    if hasattr(config, "training"):
        key, metric = "training.monitor", config.training.monitor
    else:
        key, metric = "objective", config.objective or config.metrics.headline
    if key in space:
        rule = "to be one metric in all trials, as different metrics can't be compared"
        raise ConfigError(expected("config", key, rule, "several"))
    known = better(metric) or ("higher" if hasattr(config, "training") else None)  # the monitor "auto" is a score
    direction = given if known is None else _DIRECTIONS[known]
    if direction is None or given not in (None, direction):
        rule = f"to be null or {direction}" if direction else "to be maximize or minimize"
        name = "null" if metric is None else metric
        raise ConfigError(expected("config", "hydra.sweeper.direction", f"{rule} for {key}={name}", given))
    return direction


def _space(overrides: Sequence[str], optuna: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the distribution of each searched key, and the overrides that all jobs share."""
    space = {}
    fixed = []
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        if override.is_sweep_override():
            space[override.get_key_element()] = _distribution(override, optuna.distributions)
        elif not override.key_or_group.startswith("hydra"):
            fixed.append(override.input_line or "")
    if not space:
        remedy = "Write 'optimizer.lr=tag(log, interval(1e-4,1e-1))', or loss.gamma=0,1,2."
        raise ConfigError(expected("config", "hydra/sweeper", "to have values to search", "none", remedy))
    return space, fixed


def _distribution(override: Override, kinds: Any) -> Any:
    sweep: Any = override.value()
    log = "log" in getattr(sweep, "tags", ())

    def kind_of(*numbers: Any) -> Any:
        return kinds.IntDistribution if all(isinstance(n, int) for n in numbers) else kinds.FloatDistribution

    if isinstance(sweep, IntervalSweep):
        return kind_of(sweep.start, sweep.end)(sweep.start, sweep.end, log=log)
    if log:
        rule = "to have log on an interval alone"
        remedy = "Write tag(log, interval(1e-4,1e-1))."
        raise ConfigError(expected("config", "hydra/sweeper", rule, repr(override.input_line), remedy))
    if isinstance(sweep, RangeSweep):
        ends: list[Any] = [sweep.start, _last(sweep)]
        return kind_of(sweep.start, sweep.stop, sweep.step)(min(ends), max(ends), step=abs(sweep.step))
    if isinstance(sweep, ChoiceSweep):
        return kinds.CategoricalDistribution([str(text) for text in override.sweep_string_iterator()])
    line = override.input_line
    raise ConfigError(expected("config", "hydra/sweeper", "to search interval, range or choice", repr(line)))


def _last(sweep: Any) -> Any:
    """Return the last value of a range, whose stop is excluded. Decimals avoid the rounding of floats."""
    start, stop, step = (Decimal(str(number)) for number in (sweep.start, sweep.stop, sweep.step))
    last = start + (math.ceil((stop - start) / step) - 1) * step
    return int(last) if last == int(last) else float(last)
