"""Reads the settings that `segmeter tune` tries, and counts a case under all of them. No torch.

Components are found once per threshold, and every least size is then a sum over components.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy import ndimage

from segmeter.checks import expected, nearest
from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError
from segmeter.metrics.arrays import IntArray
from segmeter.metrics.measures.protocol import CaseMaps
from segmeter.metrics.measures.row import make_row
from segmeter.postprocess.config import INSTANCE_STEPS, STEPS, PostprocessConfig, RemoveSmallObjectsConfig
from segmeter.postprocess.pipeline import build_steps, needs_probs, run_steps

THRESHOLD = "threshold"
USUAL = 0.5
MOST_SETTINGS = 10_000
_ALIASES = {"min_size": "remove_small_objects.min_pixels"}
_RULE = "to be threshold=FIRST:LAST:STEP, or a post-processing step's option with values A|B|C"
_OFF, _ON = ("0", "no", "none", "off"), ("yes", "on")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A combination of values to try."""

    values: Mapping[str, Any]
    threshold: float | None
    steps: tuple[Any, ...]

    @property
    def simplicity(self) -> tuple[float, ...]:
        """A sort key: fewer steps first, then a threshold near 0.5, then small values."""
        texts = [str(value) for key, value in self.values.items() if key != THRESHOLD]
        sizes = [float(text) for text in texts if text.replace(".", "", 1).isdecimal()]
        return (len(self.steps), round(abs((self.threshold or USUAL) - USUAL), 9), sum(sizes))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings, each a combination of one value per key."""

    every: tuple[Setting, ...]
    usual: int

    @property
    def need_probs(self) -> bool:
        """Whether probabilities are needed, or labels are enough."""
        return any(setting.threshold is not None or needs_probs(setting.steps) for setting in self.every)


def parse_over(
    over: Sequence[str], spec: ClassSpec, *, threshold: float = USUAL, steps: Sequence[Any] = ()
) -> Settings:
    """Read the settings to try.

    Parameters
    ----------
    over
        Such as "threshold=0.3:0.7:0.05", "postprocess.opening.radius=0|1|2", "postprocess.largest_component=no|yes",
        and "postprocess.min_size=0|64", short for "postprocess.remove_small_objects.min_pixels". 0 or "no" leaves the
        step out. Steps run in the order of their keys.
    spec
        The classes.
    threshold, steps
        The usual setting, with which others are compared. Its steps run before the tried ones, except for a step that
        makes instances, which stays last.

    Raises
    ------
    ConfigError
        With every problem, one line each.
    """
    problems = list[str]()
    axes = dict[str, dict[str, Any]]()
    for line in over:
        key, _, text = line.replace(" ", "").partition("=")
        try:
            if key in axes:
                raise ValueError("the key twice")
            axes[key] = _read_axis(key, text, spec)
        except (ValueError, OverflowError, yaml.YAMLError) as error:
            problems.append(expected("tune", "over", _RULE, f"{line!r} ({' '.join(str(error).split())})"))
    count = math.prod(map(len, axes.values()))
    if not over or count > MOST_SETTINGS:
        problems.append(expected("tune", "over", f"to give 1 to {MOST_SETTINGS} settings", count if over else "none"))
    if problems:
        raise ConfigError(problems)
    usual_threshold = None if spec.task == "multiclass" else threshold
    insert_at = len(steps) - (steps[-1].name in INSTANCE_STEPS) if steps else 0
    settings = list[Setting]()
    for combination in itertools.product(*(axis.items() for axis in axes.values())):
        meanings = {key: meaning for key, (_, meaning) in zip(axes, combination, strict=True)}
        own_threshold = meanings.pop(THRESHOLD, usual_threshold)
        tried = (*steps[:insert_at], *(step for step in meanings.values() if step is not None), *steps[insert_at:])
        values = {key: text for key, (text, _) in zip(axes, combination, strict=True)}
        settings.append(Setting(values=values, threshold=own_threshold, steps=tried))
    for tried in {str(setting.steps): setting.steps for setting in settings}.values():
        build_steps(PostprocessConfig(steps=tried).steps, spec)  # refuses wrong steps before the network runs
    usual_values = {key: threshold if key == THRESHOLD else "0" for key in axes}
    usual = Setting(values=usual_values, threshold=usual_threshold, steps=tuple(steps))
    for i, setting in enumerate(settings):
        if (setting.threshold, setting.steps) == (usual.threshold, usual.steps):
            return Settings(every=tuple(settings), usual=i)
    return Settings(every=(*settings, usual), usual=len(settings))


def _read_axis(key: str, text: str, spec: ClassSpec) -> dict[str, Any]:
    """Read each value of a key with its meaning: a threshold, a step, or None to leave the step out.

    ValueError if there is no value, or a wrong one; OverflowError or YAMLError if one can't be read.
    """
    values = _values(text)
    if not values or len(set(values)) < len(values):
        raise ValueError("no values, or one twice")
    if key == THRESHOLD:
        if spec.task == "multiclass":
            raise ValueError("a multiclass task has no threshold: the largest probability wins")
        if not all(0 <= float(value) <= 1 for value in values):
            raise ValueError("numbers from 0 to 1")
        return {value: float(value) for value in values}
    rest = key.removeprefix("postprocess.")
    name, _, option = _ALIASES.get(rest, rest).partition(".")
    if rest == key or name not in STEPS.names():
        raise ValueError(f"no such key. {nearest(rest, [*STEPS.names(), *_ALIASES])}")
    schema = STEPS.schema(name)
    if option and option not in schema.model_fields:
        raise ValueError(f"no such option. {nearest(option, schema.model_fields)}")
    if any(bool(option) == (value in _ON) for value in values if value not in _OFF):
        raise ValueError("numbers, or for a step alone yes and no")
    options = {value: {option: yaml.safe_load(value)} if option else {} for value in values}
    return {value: None if value in _OFF else schema(**options[value]) for value in values}


def _values(text: str) -> list[str]:
    """List the values of a list, or of a range, rounded to 10 digits."""
    if text.count(":") != 2:
        return text.split("|") if text else []
    try:
        first, last, step = map(float, text.split(":"))
        count = math.floor((last - first) / step + 1e-9) + 1
    except ZeroDivisionError:
        return []
    return [f"{first + i * step:.10g}" for i in range(count)] if 0 < count <= MOST_SETTINGS else []


def count_settings(
    target: NDArray[Any],
    settings: Settings,
    spec: ClassSpec,
    *,
    labels: NDArray[Any] | None = None,
    probs: NDArray[Any] | None = None,
) -> IntArray:
    """Count one case under every setting.

    Parameters
    ----------
    target
        (H, W), or (K, H, W) for multilabel.
    labels
        The predicted classes (H, W) of a multiclass task.
    probs
        (1, H, W) for binary, (K, H, W) for multilabel; for multiclass, as for `run_steps`.

    Returns
    -------
    (S, ...), int64
        Counts of each setting, as `ClassSpec.counts_shape`.
    """
    counts = np.empty((len(settings.every), *spec.counts_shape), np.int64)
    # Settings of a group differ only in the least size of objects, which is their last step
    groups = defaultdict[str, list[int]](list)
    for s, setting in enumerate(settings.every):
        groups[str((setting.threshold, _without_size(setting)[0]))].append(s)
    for group in groups.values():
        first = settings.every[group[0]]
        uncleaned = labels_at(first, spec, labels=labels, probs=probs)
        if len(group) == 1 or spec.task != "binary":
            spacing = (1.0,) * (2 if spec.is_multilabel else target.ndim)
            for s in group:
                cleaned = run_steps(uncleaned, settings.every[s].steps, spec, probs).labels
                maps = CaseMaps(case_id="", target=target, labels=cleaned, spacing=spacing, spec=spec)
                counts[s] = make_row(maps, ()).counts
        else:
            cleaned = run_steps(uncleaned, _without_size(first)[0], spec, probs).labels
            least_sizes = [_without_size(settings.every[s])[1] for s in group]
            counts[group] = _count_sizes(cleaned == 1, target, least_sizes, spec)
    return counts


def labels_at(
    setting: Setting, spec: ClassSpec, *, labels: NDArray[Any] | None, probs: NDArray[Any] | None
) -> NDArray[Any]:
    """Return the labels of a case at a setting's threshold, before its steps."""
    if setting.threshold is None or probs is None:
        return np.asarray(labels)
    above = probs > np.float64(setting.threshold)  # compared as float64, as float32 would round the threshold
    return (above if spec.is_multilabel else above[0]).astype(spec.label_dtype)


def _without_size(setting: Setting) -> tuple[tuple[Any, ...], int]:
    """Split the least size of objects off the steps, if it is the last step: the other steps, and the size or 0."""
    *before, last = setting.steps or (None,)
    if isinstance(last, RemoveSmallObjectsConfig) and last.connectivity == 8 and not (last.classes or last.fill):
        return tuple(before), last.min_pixels
    return setting.steps, 0


def _count_sizes(
    mask: NDArray[np.bool_], target: NDArray[Any], least_sizes: Sequence[int], spec: ClassSpec
) -> IntArray:
    """Count (L, 2, 2) a binary map without objects below each of L sizes, by sums over its components."""
    components, count = ndimage.label(mask, np.ones((3, 3)))
    flat = components.reshape(-1)
    valid = spec.valid(target).reshape(-1)
    truth = (target == 1).reshape(-1)
    sizes = np.bincount(flat, minlength=count + 1)
    predicted = np.bincount(flat[valid], minlength=count + 1)
    hits = np.bincount(flat[truth], minlength=count + 1)
    stays = sizes >= np.array(least_sizes)[:, None]
    stays |= mask.all()  # an object that covers the image leaves no value to replace it by
    stays[:, 0] = False
    tp = stays @ hits
    labelled = stays @ predicted
    positive = hits.sum()
    total = predicted.sum()
    cells = [total - positive - labelled + tp, labelled - tp, positive - tp, tp]
    return np.stack(cells, axis=1).reshape(-1, 2, 2).astype(np.int64)
