"""The settings that `segmeter tune` tries, and the counts of one case under all of them. No torch.

A probability matters only by which thresholds it exceeds, so one byte per pixel keeps all that is needed. Components
are found once per threshold, and every least size is then a sum over components.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from segmeter.checks import expected, nearest
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.metrics.arrays import IntArray
from segmeter.metrics.measures.protocol import CaseMaps
from segmeter.metrics.measures.row import make_row
from segmeter.postprocess.config import INSTANCE_STEPS, STEPS, RemoveSmallObjectsConfig
from segmeter.postprocess.pipeline import build_steps, needs_probs, run_steps

THRESHOLD = "threshold"
USUAL = 0.5
MOST_SETTINGS = 10_000
_MOST_THRESHOLDS = 255  # a byte tells how many of them a probability exceeds
_ALIASES = {"min_size": "remove_small_objects.min_pixels"}
_RULE = "to be threshold=FIRST:LAST:STEP, or a post-processing step's option with values A|B|C"
_OFF, _ON = ("0", "no", "none", "off"), ("yes", "on")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One combination of the values that are tried."""

    values: Mapping[str, Any]
    threshold: float | None
    steps: tuple[Any, ...]

    @property
    def simplicity(self) -> tuple[float, ...]:
        """A key to sort settings: fewer steps first, then a threshold near 0.5, then small values."""
        sizes = (float(value) for key, value in self.values.items() if key != THRESHOLD and _is_number(value))
        return (len(self.steps), round(abs((self.threshold or USUAL) - USUAL), 9), sum(sizes))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings, each a combination of one value per key."""

    every: tuple[Setting, ...]
    usual: int

    @cached_property
    def thresholds(self) -> NDArray[np.float64]:
        """The distinct thresholds, ascending; empty for a multiclass task."""
        return np.array(sorted({one.threshold for one in self.every if one.threshold is not None}))

    @property
    def need_probs(self) -> bool:
        """Whether probabilities are needed, and not labels alone."""
        return len(self.thresholds) > 0 or any(needs_probs(one.steps) for one in self.every)

    def levels(self, probs: NDArray[Any]) -> NDArray[np.uint8]:
        """How many thresholds each probability (C, H, W) exceeds."""
        return np.searchsorted(self.thresholds, probs.astype(np.float64, copy=False)).astype(np.uint8)


def parse_over(
    over: Sequence[str], spec: ClassSpec, *, threshold: float = USUAL, steps: Sequence[Any] = ()
) -> Settings:
    """Read what to try.

    Parameters
    ----------
    over
        Such as "threshold=0.3:0.7:0.05", "postprocess.opening.radius=0|1|2", "postprocess.largest_component=no|yes",
        and "postprocess.min_size=0|64", short for "postprocess.remove_small_objects.min_pixels". 0 or "no" leaves the
        step out. Steps run in the order of their keys.
    spec
        The classes.
    threshold, steps
        The usual setting, that others are compared with. Its steps run before those that are tried, but for one that
        makes instances, which stays last.

    Raises
    ------
    ConfigError
        With every problem, one line each.
    """
    problems, axes = list[str](), dict[str, list[Any]]()
    for line in over:
        key, _, text = line.replace(" ", "").partition("=")
        values = _values(text)
        fault = _fault(key, values, spec)
        if fault or key in axes:
            given = fault or "the key twice"
            problems.append(expected("tune", "over", _RULE, f"{line!r} ({given})"))
        axes[key] = values
    count = math.prod(map(len, axes.values()))
    if not over or count > MOST_SETTINGS:
        problems.append(expected("tune", "over", f"to give 1 to {MOST_SETTINGS} settings", count if over else "none"))
    if problems:
        raise ConfigError(problems)
    takes = spec.task != "multiclass"
    standing = {key: threshold if key == THRESHOLD else "0" for key in axes}
    usual = Setting(values=standing, threshold=threshold if takes else None, steps=tuple(steps))
    found = [
        _setting(dict(zip(axes, chosen, strict=True)), usual, takes=takes)
        for chosen in itertools.product(*axes.values())
    ]
    _check_steps(found, spec)
    same = [i for i, one in enumerate(found) if (one.threshold, one.steps) == (usual.threshold, usual.steps)]
    return Settings(every=(*found, *([] if same else [usual])), usual=same[0] if same else len(found))


def _setting(values: dict[str, Any], usual: Setting, *, takes: bool) -> Setting:
    threshold = float(values[THRESHOLD]) if THRESHOLD in values else usual.threshold
    tried = [_step(key, value) for key, value in values.items() if key != THRESHOLD]
    count = len(usual.steps)
    first = count - 1 if count and usual.steps[-1].name in INSTANCE_STEPS else count
    steps = (*usual.steps[:first], *(step for step in tried if step is not None), *usual.steps[first:])
    return Setting(values=values, threshold=threshold if takes else None, steps=steps)


def _check_steps(settings: Sequence[Setting], spec: ClassSpec) -> None:
    """Refuse steps that can't follow each other, or don't fit the task, before the network runs."""
    for steps in {str(one.steps): one.steps for one in settings}.values():
        for step in steps[:-1]:
            if step.name in INSTANCE_STEPS:
                given, remedy = " then ".join(each.name for each in steps), "Steps run in the order of their keys."
                raise ConfigError(expected("tune", "over", f"to have {step.name} only as the last step", given, remedy))
        build_steps(steps, spec)


def _step(key: str, value: str) -> Any:
    """The step of a key with a value; None where it is left out."""
    if value in _OFF:
        return None
    name, _, option = _name(key).partition(".")
    return STEPS.schema(name)(**({option: float(value) if "." in value else int(value)} if option else {}))


def _name(key: str) -> str:
    rest = key.removeprefix("postprocess.")
    return _ALIASES.get(rest, rest)


def _values(text: str) -> list[Any]:
    """The values of a range, rounded to the digits of its step, or of a list."""
    if text.count(":") != 2:
        return text.split("|") if text else []
    try:
        first, last, step = map(float, text.split(":"))
        count = math.floor((last - first) / step + 1e-9) + 1
    except (ValueError, ZeroDivisionError):
        return []
    return [f"{first + i * step:.10g}" for i in range(count)] if 0 < count <= MOST_SETTINGS else []


def _fault(key: str, values: Sequence[str], spec: ClassSpec) -> str | None:
    """Name a problem of one line."""
    if not values or len(set(values)) < len(values):
        return "no values, or one twice"
    if key == THRESHOLD:
        if spec.task == "multiclass":
            return "a multiclass task has no threshold: the largest probability wins"
        inside = all(_is_number(value) and 0 <= float(value) <= 1 for value in values)
        return None if inside and len(values) <= _MOST_THRESHOLDS else "at most 255 numbers from 0 to 1"
    name, _, option = _name(key).partition(".")
    if not key.startswith("postprocess.") or name not in STEPS.names():
        return f"no such key. {nearest(key.removeprefix('postprocess.'), [*STEPS.names(), *_ALIASES])}"
    if option and option not in STEPS.schema(name).model_fields:
        return f"no such option. {nearest(option, STEPS.schema(name).model_fields)}"
    try:
        for value in values:
            if value not in _OFF and bool(option) == (value in _ON):
                return "numbers, or for a step alone yes and no"
            _step(key, value)
    except ValueError as error:
        return " ".join(str(error).split())
    return None


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def count_settings(
    levels: NDArray[Any],
    target: NDArray[Any],
    settings: Settings,
    spec: ClassSpec,
    *,
    probs: NDArray[Any] | None = None,
) -> IntArray:
    """Count one case under every setting.

    Parameters
    ----------
    levels
        From `Settings.levels`, (1, H, W) for binary, (K, H, W) for multilabel; for multiclass the labels (H, W).
    target
        (H, W), or (K, H, W) for multilabel.
    probs
        As for `run_steps`.

    Returns
    -------
    (S, ...), int64
        Of each setting, as `ClassSpec.counts_shape`.
    """
    counts = np.empty((len(settings.every), *spec.counts_shape), np.int64)
    for group in _groups(settings, spec):
        first = settings.every[group[0]]
        labels = labels_at(levels, first, settings, spec)
        if len(group) == 1 or spec.task != "binary":
            for s in group:
                counts[s] = _count(labels, target, settings.every[s].steps, spec, probs)
        else:
            before, _ = _without_size(first)
            cleaned = run_steps(labels, before, spec, probs).labels if before else labels
            least = [_without_size(settings.every[s])[1] for s in group]
            counts[group] = _count_sizes(cleaned == 1, target, least, spec)
    return counts


def labels_at(levels: NDArray[Any], setting: Setting, settings: Settings, spec: ClassSpec) -> NDArray[Any]:
    """The labels of a case at a setting's threshold, before its steps."""
    if setting.threshold is None:
        return levels
    above = levels > int(np.searchsorted(settings.thresholds, setting.threshold))
    return (above if spec.is_multilabel else above[0]).astype(spec.label_dtype)


def _groups(settings: Settings, spec: ClassSpec) -> Iterator[list[int]]:
    """Settings that differ only in the least size of objects, the last step."""
    found: dict[Any, list[int]] = {}
    for s, one in enumerate(settings.every):
        found.setdefault(str((one.threshold, _without_size(one)[0])), []).append(s)
    yield from found.values()


def _without_size(setting: Setting) -> tuple[tuple[Any, ...], int]:
    """The steps before the least size of objects, and that size; all steps and 0 if the last step is another one."""
    *before, last = setting.steps or (None,)
    if isinstance(last, RemoveSmallObjectsConfig) and last.connectivity == 8 and not (last.classes or last.fill):
        return tuple(before), last.min_pixels
    return setting.steps, 0


def _count(
    labels: NDArray[Any], target: NDArray[Any], steps: Sequence[Any], spec: ClassSpec, probs: NDArray[Any] | None
) -> IntArray:
    cleaned = run_steps(labels, steps, spec, probs).labels if steps else labels
    spacing = (1.0,) * (2 if spec.is_multilabel else target.ndim)
    return make_row(CaseMaps(case_id="", target=target, labels=cleaned, spacing=spacing, spec=spec), ()).counts


def _count_sizes(mask: NDArray[np.bool_], target: NDArray[Any], least: Sequence[int], spec: ClassSpec) -> IntArray:
    """Counts (L, 2, 2) of a binary map without objects below each of L sizes, from sums over its components."""
    components, count = ndimage.label(mask, np.ones((3, 3)))
    flat, valid = components.reshape(-1), spec.valid(target).reshape(-1)
    truth = (target == 1).reshape(-1)
    sizes = np.bincount(flat, minlength=count + 1)
    predicted = np.bincount(flat[valid], minlength=count + 1)
    hits = np.bincount(flat[truth], minlength=count + 1)
    kept = (
        sizes >= np.array(least)[:, None]
    ) | mask.all()  # an object that covers the image leaves nothing to fill with
    kept[:, 0] = False
    tp, labelled, positive, total = kept @ hits, kept @ predicted, hits.sum(), predicted.sum()
    cells = [total - positive - labelled + tp, labelled - tp, positive - tp, tp]
    return np.stack(cells, axis=1).reshape(-1, 2, 2).astype(np.int64)
