"""Computes the rows and texts of tables and pages from metrics.json. Undefined is "n/a", never 0."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from segmeter.metrics.config.metrics import choose_headline, has_one_object
from segmeter.metrics.config.scores import MEAN

AGGREGATES = {"mean_iou": "mean IoU", "mean_dice": "mean Dice", "pixel_accuracy": "pixel accuracy"}
SCORES = {"iou": "IoU", "dice": "Dice", "precision": "precision", "recall": "recall"}
HEADLINES = {"mean_iou": "mean IoU", "mean_dice": "mean Dice", "hd95": "HD95", "assd": "ASSD", "nsd": "NSD"}
UNDEFINED = "n/a"
OUTSIDE = "pixels predicted outside the classes, counted as missed"
_ACRONYMS = ("pq", "sq", "rq", "hd", "hd95", "assd", "masd", "nsd", "ap", "aji", "are", "voi")
UNLEARNED = 0.01  # A class in the references was not learned if its IoU is below this.

_VISIBLE = 0.001  # An error of average precision from here on shows in the printed digits.


def number(value: float | str | None, digits: int = 4) -> str:
    """Format a score with fixed digits; metrics.json has "inf" for infinity.

    Examples
    --------
    >>> number(0.12345), number(None), number(float("nan")), number(float("-inf")), number("inf")
    ('0.1235', 'n/a', 'n/a', '-inf', 'inf')
    """
    if isinstance(value, str):
        return value
    return UNDEFINED if value is None or value != value else f"{value:.{digits}f}"


def quantity(value: float | str | None, digits: int = 4) -> str:
    """Format any number: counts in full, others with four significant digits, infinity as "inf".

    Examples
    --------
    >>> quantity(1200), quantity(0.51236), quantity(123.456), quantity(94883.0), quantity(None)
    ('1200', '0.5124', '123.5', '94883', 'n/a')
    """
    if isinstance(value, int):
        return str(value)
    if value is None or isinstance(value, str) or not abs(value) >= 1:
        return number(value, digits)
    return f"{value:.0f}" if 9999.5 <= abs(value) < 1e15 else f"{value:.4g}"  # A data set's counts are float sums.


def interval(
    ends: Sequence[float | str | None] | None, digits: int = 4, form: Callable[[Any, int], str] = number
) -> str:
    """Format a 95 % interval; "" without one.

    Examples
    --------
    >>> interval([0.25, 0.5]), interval(None), interval([None, None]), interval([0.25, 12.3456], 3, quantity)
    ('[0.2500, 0.5000]', '', '', '[0.250, 12.35]')
    """
    return "" if not ends or None in ends else f"[{form(ends[0], digits)}, {form(ends[1], digits)}]"


def clean(text: str) -> str:
    """Replace half surrogates, which UTF-8 can't encode."""
    return text.encode("utf-8", "replace").decode()


def title(score: str) -> str:
    """Name a score in words.

    Examples
    --------
    >>> title("iou/cell"), title("mean_iou"), title("pq/mean"), title("hd95/car"), title("nsd@2/car")
    ('IoU of cell', 'mean IoU', 'mean PQ', 'HD95 of car', 'NSD@2 of car')
    """
    metric, _, region = score.partition("/")
    if not region:
        return AGGREGATES.get(metric, metric)
    return f"mean {metric_title(metric)}" if region == MEAN else f"{metric_title(metric)} of {region}"


def metric_title(metric: str) -> str:
    """Name a metric of a class in words."""
    word, sign, threshold = metric.partition("@")
    return f"{SCORES.get(word) or (word.upper() if word in _ACRONYMS else word)}{sign}{threshold}"


def headline(summary: Mapping[str, Any]) -> str:
    """Return the score that a run is judged by; it is chosen here for runs of older versions, which don't record it."""
    task = summary.get("task", "multiclass")
    names = summary.get("classes", ())
    objects = (names[1] if task == "binary" else MEAN) in summary.get("measures", {}).get("pq", {})
    return choose_headline(task, names, objects=objects, given=summary.get("headline_score"))


def score_row(summary: Mapping[str, Any], score: str) -> dict[str, Any]:
    """Return a score over the data set and as the mean over cases, each with its interval; None if it does not exist.

    Returns
    -------
    dict
        ``score`` (its name), ``name`` (in words), ``dataset, dataset_ci95, mean, mean_ci95, std, n_used, n_undefined``.
    """
    metric, _, region = score.partition("/")
    if not region:
        dataset = summary.get("dataset", {}).get(metric)
        ends = (summary.get("dataset_ci95") or {}).get(metric)
        cases = summary.get("per_case", {}).get(metric, {})
    elif metric in SCORES:
        entry = {**summary.get("per_class", {}), **summary.get("per_group", {})}.get(region, {})
        dataset = entry.get(metric)
        ends = (entry.get("ci95") or {}).get(metric)
        cases = entry.get("per_case", {}).get(metric, {})
    else:
        cases = summary.get("measures", {}).get(metric, {}).get(region, {})
        dataset = cases.get("dataset")
        ends = cases.get("dataset_ci95")
    row = {"score": score, "name": title(score), "dataset": dataset}
    row |= {"dataset_ci95": ends, "mean_ci95": cases.get("ci95")}
    return row | {key: cases.get(key) for key in ("mean", "std", "n_used", "n_undefined")}


def mean_of_cases(row: Mapping[str, Any], digits: int = 3) -> str:
    """Format the mean over cases of a `score_row` with its standard deviation; "" without cases."""
    if row["n_used"] is None:
        return ""
    return number(row["mean"], digits) + (f" ({number(row['std'], digits)})" if row["std"] is not None else "")


def aggregates(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the leading scores as rows of `score_row`: the headline, the object of two classes, then all classes."""
    task = summary.get("task", "multiclass")
    names = summary.get("classes", ())
    of_object = [f"{name}/{names[1]}" for name in ("iou", "dice")] if has_one_object(task, names) else []
    panoptic = [] if of_object or "pq" not in summary.get("measures", {}) else [f"pq/{MEAN}"]
    overall = [name for name in AGGREGATES if name in summary.get("dataset", {}) or name in summary.get("per_case", {})]
    return [score_row(summary, name) for name in dict.fromkeys([headline(summary), *of_object, *panoptic, *overall])]


def classes(summary: Mapping[str, Any], *, groups: bool = False) -> list[dict[str, Any]]:
    """List the classes with their scores, and their share of the target's pixels; for multilabel, of their plane's.

    With `groups`, list the groups of classes that were scored as one region instead. They have no share.
    """
    entries = summary.get("per_group" if groups else "per_class", {})
    matrices = summary.get("confusion_matrices")
    pixels = sum(entry.get("support") or 0 for entry in entries.values())
    rows = []
    for k, (name, entry) in enumerate(entries.items()):
        total = sum(map(sum, matrices[k])) if matrices and not groups else pixels
        row = {score: entry.get(score) for score in (*SCORES, "support")}
        row |= {f"mean_{score}": mean_of_cases(score_row(summary, f"{score}/{name}")) for score in ("iou", "dice")}
        row |= {"name": f"{name} ({', '.join(entry['classes'])})" if groups else name}
        row |= {"ci95": (entry.get("ci95") or {}).get("iou")}
        rows.append(row | {"share": None if groups or not total else (entry.get("support") or 0) / total})
    return rows


def measures(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the results of the measures, one row per metric and class or group; "mean" is over several classes.

    A row has ``metric, label, region, mean, ci95, median, dataset, dataset_ci95, n_used, n_penalised, n_undefined``.
    None is undefined, and "" a value that the metric does not have. ``label`` is the metric with its unit.
    """
    units = summary.get("units", {})
    keys = ("ci95", "dataset_ci95", "n_used", "n_penalised", "n_undefined")
    return [
        {"metric": metric, "label": with_unit(metric_title(metric), units.get(metric)), "region": region}
        | {"dataset": entry.get("dataset", "")}
        | {key: entry.get(key) if entry.get("n_used") is not None else "" for key in ("mean", "median")}
        | {key: entry.get(key) for key in keys}
        for metric, regions in summary.get("measures", {}).items()
        for region, entry in regions.items()
        if region != MEAN or len(regions) != 2  # the mean over one class repeats that class
    ]


def with_unit(name: str, unit: str | None) -> str:
    """Name a score with the unit of its values, if it has one."""
    return f"{name} ({unit})" if unit else name


def calibration(summary: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """List how well probabilities are calibrated: rows ``name, value`` over all classes, and a row for each class.

    Both are empty if calibration was not measured.
    """
    measured = summary.get("calibration")
    if not measured:
        return [], []
    names = {
        "ece": "ECE of the winning class",
        "mce": "MCE of the winning class",
        "classwise_ece": "class-wise ECE",
        "brier": "Brier score",
        "nll": "negative log-likelihood",
        "mean_average_precision": "mean average precision",
    }
    rows = [{"name": text, "value": measured[key]} for key, text in names.items() if measured.get(key) is not None]
    entries = measured["per_class"]
    error = max((entry.get("average_precision_error") or 0 for entry in entries.values()), default=0)
    if error >= _VISIBLE:
        rows.append({"name": "average precision, off by up to", "value": error})
    scores = ("ece", "mce", "average_precision", "best_f1", "best_threshold")
    return rows, [{"name": name} | {key: entry.get(key) for key in scores} for name, entry in entries.items()]


def slices(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the slices of the cases with their headline and its difference to the other cases."""
    recorded = summary.get("slices")
    if not recorded:
        return []
    return [
        {"by": by, "slice": label, "n": entry["n"], "worst": worst, "label": f"{label} (worst)" if worst else label}
        | entry["scores"][recorded["headline"]]
        for by, labels in recorded["by"].items()
        for label, entry in labels.items()
        for worst in [recorded["worst"] == {"by": by, "slice": label}]
    ]


def probability(value: float | None) -> str:
    """Format a p-value; "" without one.

    Examples
    --------
    >>> probability(0.03), probability(1e-9), probability(None)
    ('0.0300', '< 0.0001', '')
    """
    return "" if value is None else "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def signed(value: float | str | None) -> str:
    """Format a difference with its sign, also an infinite one; a difference that rounds to zero has a plus.

    Examples
    --------
    >>> signed(-0.25), signed(-0.00001), signed("inf"), signed(None)
    ('-0.2500', '+0.0000', '+inf', 'n/a')
    """
    if isinstance(value, str):
        return value if value.startswith("-") else f"+{value}"
    return UNDEFINED if value is None else f"{round(value, 4) + 0.0:+.4f}"


def conventions(summary: Mapping[str, Any]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Name the scores by which conventions are compared, in a fixed order, and list the conventions.

    The first result has the words for each score. A row of the second has ``name, figures``, and in words how the
    convention ``differs``, with what its means leave out, and what we ``refused`` to copy; "" is nothing.
    """
    entries = summary.get("conventions", ())
    order = list(HEADLINES)
    rows = list[dict[str, Any]]()
    scores = dict.fromkeys(name for entry in entries for name in entry["figures"])
    ordered = sorted(scores, key=lambda name: order.index(name.partition("@")[0]))
    words = {name: "@".join([HEADLINES[name.partition("@")[0]], *name.split("@")[1:]]) for name in ordered}
    words = {name: with_unit(text, summary.get("units", {}).get(name)) for name, text in words.items()}
    for entry in entries:
        name = entry["name"]
        left_out = entry.get("left_out", {}).items()
        differs = "; ".join([*entry["differs"], *(f"{count} left out of {words[score]}" for score, count in left_out)])
        refused = f"not copied from {name}: {'; '.join(entry['refused'])}" if entry.get("refused") else ""
        rows.append({"name": name, "figures": entry["figures"], "differs": differs, "refused": refused})
    return words, rows


def notes(summary: Mapping[str, Any]) -> list[str]:
    """List the facts that readers need beside the scores: convention, cases, classes left out, and the intervals."""
    ignored = summary.get("ignore_index")
    undefined = summary.get("dataset", {}).get("n_classes_undefined")
    names = summary["classes"]
    entries = summary.get("per_class", {}).items()
    left_out = [name for name in names if name not in summary.get("mean_classes", names)]
    unlearned = [name for name, e in entries if e.get("support") and e.get("iou") is not None and e["iou"] < UNLEARNED]
    units = summary.get("units", {})
    unit = next(iter(units.values()), None) or "the unnamed unit of the spacing"  # all distances have one unit
    resampling = summary.get("bootstrap") or {}
    invalid = sum(summary.get("invalid", {}).values())
    lines = [
        f"convention {summary['convention']}",
        f"{summary['n_cases']:,} cases",
        f"label {ignored} ignored" if ignored is not None else "",
        f"{undefined} of {len(names)} classes undefined, left out of the means" if undefined else "",
        f"means without {', '.join(left_out)}" if left_out else "",
        f"{invalid:,} {OUTSIDE}" if invalid else "",
        f"distances and tolerances in {unit}" if units else "",
        *summary.get("spacing", {}).get("warnings", []),
        "AP is tp / (tp + fp + fn) over objects, not COCO's" if "ap" in summary.get("measures", {}) else "",
        f"IoU below {UNLEARNED}, though the references hold them: {', '.join(unlearned)}" if unlearned else "",
        resampled(resampling) if resampling.get("resamples") else "",
        resampling.get("warning"),
    ]
    return [line for line in lines if line]


def resampled(bootstrap: Mapping[str, Any]) -> str:
    """Name the intervals, and the units that their bootstrap draws."""
    units = "clusters" if bootstrap.get("cluster") else "cases"
    return f"95 % intervals: {bootstrap['interval']} bootstrap, {bootstrap['resamples']} draws of {units}"


def on_lines(facts: Sequence[str]) -> list[str]:
    """Join facts into one line; whole sentences get lines of their own.

    Examples
    --------
    >>> on_lines(["24 cases", "Only 24 independent units.", "means without bg"])
    ['24 cases; means without bg', 'Only 24 independent units.']
    """
    sentences = [fact for fact in facts if fact.endswith(".")]
    return ["; ".join(fact for fact in facts if fact not in sentences), *sentences]
