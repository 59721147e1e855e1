"""Evaluates arrays in memory: the same metrics, tables and report as `segmeter score` gives for files."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import EllipsisType
from typing import Any

import numpy as np

from segmeter.api.results import Case, Evaluation
from segmeter.checks import expected, require_kind, require_name, shown, whole_number
from segmeter.classes import TASKS, ClassSpec, Task
from segmeter.data.classes_config import ClassesConfig
from segmeter.data.masks.label_mapping import doubt_object_numbers, split_objects
from segmeter.errors import ConfigError, InputError
from segmeter.evaluation.spacings import CaseSpacing, Spacings
from segmeter.metrics.arrays import check_maps
from segmeter.metrics.cases.table import CaseRow, order_rows
from segmeter.metrics.config.metrics import MetricsConfig, check_metrics, with_objects
from segmeter.metrics.measures.protocol import CaseMaps, build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.summary.scoreboard import settle_headline
from segmeter.metrics.summary.slice_labels import check_case_ids
from segmeter.metrics.summary.summarise import summarise

WHERE = "evaluate"


def evaluate(
    pairs: Iterable[Case],
    *,
    classes: Sequence[str] | ClassSpec,
    task: Task | None = None,
    ignore_index: int | EllipsisType | None = ...,
    count_invalid: bool | None = None,
    instances: bool = False,
    measures: Sequence[Any] = (),
    convention: str | None = None,
    metrics: MetricsConfig | None = None,
) -> Evaluation:
    """Score label maps in memory: the same numbers, to the byte, as `segmeter score` on files that hold them.

    Parameters
    ----------
    pairs
        The id, target and prediction of each case: integer or bool arrays (H, W) or (D, H, W), multilabel (K, H, W) or
        (K, D, H, W). They are read once, so a generator need not hold all of them. `Evaluation.show` draws the cases of
        a list only.
    classes
        Names, background included, or a ClassSpec, which also has the task and the ignored value.
    task
        binary (two names, values 0 and 1), multiclass, or multilabel. By default the task of the ClassSpec, or
        multiclass for names.
    ignore_index
        The value of target pixels to leave out, or None. By default that of the ClassSpec, or None for names.
    count_invalid
        Whether predicted values that are no class are counted as missed, in a column of their own, instead of refused.
        By default as in the ClassSpec. Not with `instances`.
    instances
        Whether both maps of a binary task hold object numbers, with 0 for none, instead of labels. Objects are then
        measured by these numbers.
    measures
        Measures in addition to the counts, such as ``["surface", "instances"]`` or ``[{"name": "surface", "tolerances":
        [2]}]``.
    convention
        The convention that the headline follows; "all" shows all of them.
    metrics
        All further options, except `calibration`. `measures` and `convention` replace those in it.

    Returns
    -------
    Evaluation

    Raises
    ------
    InputError
        A case comes twice, its maps do not go together, or a value is no class; the message names the case. Or `task`
        or `ignore_index` is not that of the ClassSpec.
    ConfigError
        An option is wrong.

    Examples
    --------
    >>> import numpy as np, segmeter
    >>> target = np.array([[0, 0, 1, 1]])
    >>> pairs = [("a", target, target), ("b", target, np.array([[0, 1, 1, 1]]))]
    >>> evaluation = segmeter.evaluate(pairs, classes=["background", "cell"], task="binary")
    >>> evaluation
    Evaluation of 2 cases: IoU of cell 0.8000
    >>> evaluation.cases["iou_cell"].to_pylist()
    [1.0, 0.6666666666666666]
    """
    spec = read_classes(classes, task, ignore_index)
    require_kind(WHERE, "instances", instances, bool)
    if count_invalid is not None:
        spec = spec.replace(count_invalid=count_invalid)
    if metrics is not None:
        require_kind(WHERE, "metrics", metrics, MetricsConfig)
    if not isinstance(measures, Sequence) or isinstance(measures, str | bytes):
        raise InputError(expected(WHERE, "measures", 'to be a list such as ["surface"]', shown(measures)))
    config = metrics or MetricsConfig()
    changes: dict[str, Any] = {"measures": tuple(measures)} if measures else {}
    changes |= {"convention": convention} if convention is not None else {}
    config = config.replace(**changes)
    if instances:
        if spec.task != "binary":
            raise InputError(expected(WHERE, "instances", "to be False but for a binary task", spec.task))
        if spec.count_invalid:
            rule, remedy = "to be False for numbers of objects", "Every number >= 0 is valid."
            raise InputError(expected(WHERE, "count_invalid", rule, True, remedy))
        config = with_objects(config)
    if config.calibration:
        raise ConfigError(expected(WHERE, "metrics.calibration", "to be False, as labels carry no probabilities", True))
    check_metrics(config, spec)
    config = settle_headline(config, spec)
    rows, spacings = measure_pairs(pairs, spec, config, instances)
    check_case_ids(config, spec, [row.case_id for row in rows])
    summary = summarise(rows, spec, config) | spacings.summary(missing=[], extra=0)
    kept_pairs: Sequence[Case] = pairs if isinstance(pairs, Sequence) else ()
    table = order_rows(WHERE, rows, spec)
    return Evaluation(table, spec=spec, metrics=config, summary=summary, pairs=kept_pairs, numbered=instances)


def measure_pairs(
    pairs: Iterable[Case], spec: ClassSpec, config: MetricsConfig, instances: bool
) -> tuple[list[CaseRow], Spacings]:
    """Measure case by case, without keeping any map."""
    measures = build_measures(config, spec)
    rows, spacings = dict[str, CaseRow](), Spacings()
    spacing = CaseSpacing()
    if config.spacing is not None:
        spacing = CaseSpacing(spacing=config.spacing, unit="", source="config")
    rule = "to give (case_id, target, prediction), each id a text"
    if not isinstance(pairs, Iterable):
        raise InputError(expected(WHERE, "pairs", rule, shown(pairs)))
    for number, case in enumerate(pairs):
        if not isinstance(case, tuple | list) or len(case) != 3 or not isinstance(case[0], str) or not case[0]:
            raise InputError(expected(WHERE, "pairs", rule, f"{shown(case)} at place {number}"))
        case_id = case[0]
        if case_id in rows:
            raise InputError(expected(WHERE, "pairs", "to have each case once", f"{case_id!r} twice"))
        for name, array in zip(("target", "prediction"), case[1:], strict=True):
            if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
                remedy = "Bring a tensor to NumPy with segmeter.to_numpy."
                given = f"{type(array).__name__} as {name} of case {case_id!r}"
                raise InputError(expected(WHERE, "pairs", "to hold NumPy arrays", given, remedy))
        try:
            maps, warnings = _read(case, spacing, spec, instances)
            row = make_row(maps, measures)
        except InputError as error:
            prefixes = (f"{case_id}: ", f"case {case_id}: ")
            problems = [line if line.startswith(prefixes) else f"{case_id}: {line}" for line in error.problems]
            raise InputError(problems) from None
        rows[case_id] = replace(row, spacing=spacing.spacing, unit=spacing.unit) if spacing.spacing else row
        spacings.add(case_id, vars(replace(spacing, warnings=warnings)))
    if not rows:
        raise InputError(expected(WHERE, "pairs", "to hold at least one case", "none"))
    return [*rows.values()], spacings


def _read(case: Case, spacing: CaseSpacing, spec: ClassSpec, instances: bool) -> tuple[CaseMaps, tuple[str, ...]]:
    """Make the maps of a case; also return warnings of object numbers that look like labels."""
    case_id, target, labels = case
    target_instances = predicted_instances = None
    warnings: tuple[str | None, ...] = ()
    if instances:
        check_maps(WHERE, target, labels, "prediction", kinds="iu", axes=(2, 3))
        ours, theirs = Path(f"{case_id} (target)"), Path(f"{case_id} (prediction)")
        target, target_instances = split_objects(ours, target, spec)
        labels, predicted_instances = split_objects(theirs, labels, spec)
        undecided = int((spec.is_ignored(labels) & spec.valid(target)).sum())
        if undecided:
            rule, remedy = "to have no object with the ignored value", "Give that object another number."
            given = f"{undecided} pixels of {spec.ignore_index}"
            raise InputError(expected(WHERE, "prediction", rule, given, remedy))
        warnings = (
            doubt_object_numbers(ours, target_instances, predicted_instances, "references"),
            doubt_object_numbers(theirs, predicted_instances, target_instances),
        )
    maps = CaseMaps(
        case_id=case_id,
        target=target,
        labels=labels,
        spacing=spacing.spacing or (1.0,) * (target.ndim - spec.is_multilabel),
        spec=spec,
        target_instances=target_instances,
        instances=predicted_instances,
    )
    return maps, tuple(filter(None, warnings))


def read_classes(
    classes: Sequence[str] | ClassSpec, task: Task | None, ignore_index: int | EllipsisType | None
) -> ClassSpec:
    """Make a ClassSpec from names, or check that the other arguments agree with a given ClassSpec."""
    if task is not None:
        require_name(WHERE, "task", task, TASKS)
    if isinstance(classes, ClassSpec):
        if ignore_index is not ... and ignore_index is not None:
            ignore_index = whole_number(WHERE, "ignore_index", ignore_index)
        if task not in (None, classes.task) or ignore_index not in (..., classes.ignore_index):
            rule = "to have the given `task` and `ignore_index`"
            remedy = "Leave these out, or change it with classes.replace(...)."
            raise InputError(expected(WHERE, "classes", rule, f"{classes.task!r} and {classes.ignore_index}", remedy))
        return classes
    if not isinstance(classes, Sequence) or isinstance(classes, str | bytes):
        raise InputError(expected(WHERE, "classes", "to be a list of names", shown(classes)))
    ignored = None if ignore_index is ... else ignore_index
    return ClassesConfig(classes=tuple(classes), task=task or "multiclass", ignore_index=ignored).spec()
