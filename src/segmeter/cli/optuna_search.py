"""Searches with Optuna (hydra/sweeper=optuna): it chooses values from ranges, and a killed search continues."""

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
from segmeter.cli.objective import better
from segmeter.cli.sweep import Sweep, raise_failures, summarised
from segmeter.errors import EXIT_FAULT, ConfigError, refusing

_FOLDER = "folder"  # where a study that goes on puts its jobs
_DIRECTIONS = {"higher": "maximize", "lower": "minimize"}

Checked = Callable[[Sequence[str]], Any]  # overrides -> the checked configuration of one job


def search(plan: Sweep, config: Any, overrides: Sequence[str], check: Checked) -> None:
    """Let Optuna choose the values of jobs until `n_trials` are done, counting those of earlier processes.

    Parameters
    ----------
    plan
        Where the jobs write and how they are run; ``plan.options`` are Optuna's.
    config
        The checked configuration of one job.
    overrides
        As typed. ``interval(a,b)``, ``range(a,b)`` and ``choice(a,b)`` (or a,b) are searched,
        ``tag(log, interval(a,b))`` on a logarithmic scale. The others hold for every job.
    check
        Composes and checks one job.

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
    what = f"config: hydra.sweeper.storage {options.storage!r} can't be opened"
    with refusing(ConfigError, what, "Write sqlite:///FILE, with a folder that exists."):
        store = options.storage and optuna.storages.RDBStorage(options.storage)
    with ExitStack() as stack:
        if store:
            stack.callback(store.engine.dispose)  # it leaves its connections open
        study = optuna.create_study(
            storage=store,
            study_name=options.study_name,
            direction=direction,
            sampler=optuna.samplers.TPESampler(seed=options.seed),
            load_if_exists=True,
        )
        if study.direction.name.lower() != direction:  # an existing study
            rule = f"to be a study that has its score {direction}d"
            remedy = "Set another study_name."
            name = f"{options.study_name!r}, whose score is {study.direction.name.lower()}d"
            raise ConfigError(expected("config", "hydra.sweeper.study_name", rule, name, remedy))
        plan.folder = Path(study.user_attrs.get(_FOLDER, plan.folder))
        study.set_user_attr(_FOLDER, str(plan.folder))
        failed: list[tuple[int, JobOutcome]] = []
        with summarised(plan.folder):
            # a trial that a killed process began stays RUNNING, so another one takes its place
            while (left := options.n_trials - sum(trial.state.is_finished() for trial in study.trials)) > 0:
                trials = [study.ask(space) for _ in range(min(left, options.n_jobs))]
                failed += [pair for pair in _run(plan, trials, fixed, check, study) if pair[1].exit_code]
        raise_failures(failed, plan.folder)


def _run(
    plan: Sweep, trials: Sequence[Any], fixed: Sequence[str], check: Checked, study: Any
) -> list[tuple[int, JobOutcome]]:
    """Run trials together, and tell the study their outcomes."""
    from optuna.trial import TrialState  # of an extra

    asked: list[tuple[Any, Job]] = []
    for trial in trials:
        chosen = {key: repr(each) if isinstance(each, float) else str(each) for key, each in trial.params.items()}
        lines = (*fixed, *(f"{key}={value}" for key, value in chosen.items()))
        asked.append((check(lines), plan.job(trial.number, lines, chosen)))
    told = []
    for trial, outcome in zip(trials, plan.run(asked), strict=True):
        if not outcome.exit_code and (outcome.value is None or math.isnan(outcome.value)):
            problem = f"it gave no score to optimise, but {outcome.value}."
            outcome = JobOutcome(job=outcome.job, problems=(problem,), exit_code=EXIT_FAULT)
        if outcome.exit_code:
            study.tell(trial, state=TrialState.FAIL)
        else:
            study.tell(trial, outcome.value)
        told.append((trial.number, outcome))
    return told


def _direction(given: str | None, config: Any, space: Mapping[str, Any]) -> str:
    """Return the direction in which the score is better. For a metric that is not ours, the user has to set it."""
    if hasattr(config, "training"):
        key, metric = "training.monitor", config.training.monitor
    else:
        key, metric = "objective", config.objective or config.metrics.headline
    if key in space:
        rule = "to be one metric in all trials, as different metrics can't be compared"
        raise ConfigError(expected("config", key, rule, "several"))
    found = better(metric) or ("higher" if hasattr(config, "training") else None)  # as "auto" of a training is
    wanted = given if found is None else _DIRECTIONS[found]
    if wanted is None or given not in (None, wanted):
        rule = f"to be null or {wanted}" if wanted else "to be maximize or minimize"
        name = "null" if metric is None else metric
        raise ConfigError(expected("config", "hydra.sweeper.direction", f"{rule} for {key}={name}", given))
    return wanted


def _space(overrides: Sequence[str], optuna: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the distribution of each searched key, and the overrides of every job."""
    space, fixed = {}, []
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

    def numbers(*given: Any) -> Any:
        return kinds.IntDistribution if all(isinstance(each, int) for each in given) else kinds.FloatDistribution

    if isinstance(sweep, IntervalSweep):
        return numbers(sweep.start, sweep.end)(sweep.start, sweep.end, log=log)
    if log:
        rule, remedy = "to have log on an interval alone", "Write tag(log, interval(1e-4,1e-1))."
        raise ConfigError(expected("config", "hydra/sweeper", rule, repr(override.input_line), remedy))
    if isinstance(sweep, RangeSweep):
        ends: list[Any] = [sweep.start, _last(sweep)]
        return numbers(sweep.start, sweep.stop, sweep.step)(min(ends), max(ends), step=abs(sweep.step))
    if isinstance(sweep, ChoiceSweep):
        return kinds.CategoricalDistribution([str(text) for text in override.sweep_string_iterator()])
    line = override.input_line
    raise ConfigError(expected("config", "hydra/sweeper", "to search interval, range or choice", repr(line)))


def _last(sweep: Any) -> Any:
    """Return the last value of a range, whose stop is excluded. Computed in decimals, as typed, to avoid rounding."""
    start, stop, step = (Decimal(str(each)) for each in (sweep.start, sweep.stop, sweep.step))
    last = start + (math.ceil((stop - start) / step) - 1) * step
    return int(last) if last == int(last) else float(last)
