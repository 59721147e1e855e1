"""Checks the arrays and classes that `evaluate` is given, and measures case after case."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, known_name, shown, whole_number
from segmeter.classes import TASKS, ClassSpec, Task
from segmeter.data.config import ClassesConfig
from segmeter.data.masks.label_mapping import doubt_object_numbers, split_objects
from segmeter.errors import InputError
from segmeter.evaluation.spacings import CaseSpacing, Spacings
from segmeter.metrics.arrays import check_maps
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, build_measures
from segmeter.metrics.measures.row import make_row

Case = tuple[str, NDArray[Any], NDArray[Any]]

WHERE = "evaluate"


def measure_pairs(
    pairs: Iterable[Case], spec: ClassSpec, config: MetricsConfig, instances: bool
) -> tuple[list[CaseRow], Spacings]:
    """Measure case by case, without keeping any map."""
    measures, rows, places = build_measures(config, spec), dict[str, CaseRow](), Spacings()
    given: dict[str, Any] = {"spacing": config.spacing, "unit": "", "source": "config"}
    usual = CaseSpacing(**given if config.spacing is not None else {})
    for case in _checked(pairs):
        case_id = case[0]
        if case_id in rows:
            raise InputError(expected(WHERE, "pairs", "to have each case once", f"{case_id!r} twice"))
        try:
            maps = _maps(case, usual, spec, instances)
            place = replace(usual, warnings=_doubts(maps))
            row = make_row(maps, measures)
        except InputError as error:
            known = (f"{case_id}: ", f"case {case_id}: ")
            named = [line if line.startswith(known) else f"{case_id}: {line}" for line in error.problems]
            raise InputError(named) from None
        rows[case_id] = replace(row, spacing=place.spacing, unit=place.unit) if place.spacing else row
        places.add(case_id, vars(place))
    if not rows:
        raise InputError(expected(WHERE, "pairs", "to hold at least one case", "none"))
    return [*rows.values()], places


def _maps(case: Case, place: CaseSpacing, spec: ClassSpec, instances: bool) -> CaseMaps:
    case_id, target, labels = case
    numbers: dict[str, Any] = {}
    if instances:
        check_maps(WHERE, target, labels, "prediction", kinds="iu", axes=(2, 3))
        target, numbers["target_instances"] = split_objects(Path(f"{case_id} (target)"), target, spec)
        labels, numbers["instances"] = split_objects(Path(f"{case_id} (prediction)"), labels, spec)
    spacing = place.spacing or (1.0,) * (target.ndim - spec.is_multilabel)
    return CaseMaps(case_id=case_id, target=target, labels=labels, spacing=spacing, spec=spec, **numbers)


def _doubts(maps: CaseMaps) -> tuple[str, ...]:
    """Warn of maps of object numbers that look like labels."""
    target, prediction = maps.target_instances, maps.instances
    if target is None or prediction is None:
        return ()
    first = doubt_object_numbers(Path(f"{maps.case_id} (target)"), target, prediction, "references")
    return tuple(filter(None, (first, doubt_object_numbers(Path(f"{maps.case_id} (prediction)"), prediction, target))))


def _checked(pairs: Iterable[Case]) -> Iterable[Case]:
    """Check each case before its parts are used."""
    rule = "to give (case_id, target, prediction)"
    try:
        cases = iter(pairs)
    except TypeError:
        raise InputError(expected(WHERE, "pairs", rule, type(pairs).__name__)) from None
    for number, case in enumerate(cases):
        if not isinstance(case, tuple | list) or len(case) != 3:
            raise InputError(expected(WHERE, "pairs", rule, f"{type(case).__name__} at place {number}"))
        case_id, target, prediction = case
        if not isinstance(case_id, str) or not case_id:
            raise InputError(expected(WHERE, "pairs", "to name each case by a text", f"{case_id!r} at place {number}"))
        for name, array in (("target", target), ("prediction", prediction)):
            if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
                remedy = "Bring a tensor to NumPy with segmeter.to_numpy."
                given = f"{type(array).__name__} as {name} of case {case_id!r}"
                raise InputError(expected(WHERE, "pairs", "to hold NumPy arrays", given, remedy))
        yield case_id, target, prediction


def read_classes(
    classes: Sequence[str] | ClassSpec, task: Task | None, ignore_index: int | EllipsisType | None
) -> ClassSpec:
    """Make a ClassSpec from names, or check that the other arguments agree with the given one."""
    if isinstance(classes, ClassSpec):
        if task is not None:
            known_name(WHERE, "task", task, TASKS)
        if ignore_index is not ... and ignore_index is not None:
            ignore_index = whole_number(WHERE, "ignore_index", ignore_index)
        given: dict[str, Any] = {} if task is None else {"task": task}
        given |= {} if ignore_index is ... else {"ignore_index": ignore_index}
        for name, value in given.items():
            own = getattr(classes, name)
            if value != own:
                remedy = f"Leave it out, or give classes.replace({name}=...)."
                raise InputError(expected(WHERE, name, f"to be the ClassSpec's, {own!r}", repr(value), remedy))
        return classes
    if isinstance(classes, np.ndarray):
        classes = classes.tolist()
    if not isinstance(classes, Sequence) or isinstance(classes, str | bytes):
        raise InputError(expected(WHERE, "classes", "to be a list of names", shown(classes)))
    known = "multiclass" if task is None else task
    known_name(WHERE, "task", known, TASKS)
    ignored = None if ignore_index is ... else ignore_index
    return ClassesConfig(classes=tuple(classes), task=known, ignore_index=ignored).spec()
