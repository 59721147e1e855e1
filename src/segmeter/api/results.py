"""Holds the result of `segmeter.evaluate`: it displays itself, draws cases and charts, and writes files."""

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL.Image import Image, fromarray

from segmeter.api.comparison import Comparison, compare
from segmeter.checks import expected, nearest, require_file, require_folder, require_kind, shown, some
from segmeter.classes import ClassSpec
from segmeter.data.masks.label_mapping import split_objects
from segmeter.errors import InputError
from segmeter.evaluation.drive import SUMMARY
from segmeter.files import write_json
from segmeter.metrics.cases.nnunet import write_summary
from segmeter.metrics.cases.stored import case_table, write_cases
from segmeter.metrics.cases.table import CaseRow, order_rows
from segmeter.metrics.config.metrics import MetricsConfig, mean_classes
from segmeter.metrics.summary.scoreboard import Scoreboard, build_scoreboard, settle_headline
from segmeter.report.drawing import Histogram
from segmeter.report.figures import aggregates, title
from segmeter.report.html import write_report
from segmeter.report.pictures.flatten import draw_overlay
from segmeter.report.pictures.objects import Objects, measured_objects
from segmeter.report.summary import print_summary, render_summary

Case = tuple[str, NDArray[Any], NDArray[Any]]
"""The id of a case, its target, and its prediction."""

_FLATTENED = ("dataset", "per_class", "per_group", "per_case", "measures", "calibration", "loss")
_LEFT_OUT = ("reliability", "curve", "ci95", "classes")  # These are no single numbers, or become low and high.
_REFUSED = re.compile(r"[^A-Za-z0-9_\-. /]")  # MLflow refuses these characters in a name.


@dataclass(repr=False, eq=False)
class Evaluation:
    """The result of `evaluate`; a notebook shows its tables.

    Parameters
    ----------
    rows
        One per case.
    spec
        The classes.
    metrics
        The settings of the measures.
    summary
        The content of metrics.json.
    pairs
        The arrays of the cases, if they are available to be shown.
    numbered
        Whether the arrays hold object numbers.
    """

    rows: Sequence[CaseRow]
    _: KW_ONLY
    spec: ClassSpec
    metrics: MetricsConfig
    summary: dict[str, Any]
    pairs: Sequence[Case] = ()
    numbered: bool = False

    @property
    def cases(self) -> pa.Table:
        """The table of cases.parquet: one row per case in the order of the ids, with checksums and counts last."""
        table = case_table(self.rows, self.spec, mean_classes(self.metrics, self.spec))
        return table.select(sorted(table.column_names, key=lambda name: name.endswith("crc32") or name == "confusion"))

    def worst(self, count: int = 5) -> dict[str, float]:
        """Return the headline of the worst cases by case id, the worst first."""
        board = self._board()
        values = board.values(board.headline)
        return {board.run.case_ids[i]: float(values[i]) for i in board.worst_first()[:count]}

    def show(self, case_id: str, image: NDArray[Any] | None = None) -> Image:
        """Draw a case: image, target, prediction and errors, with a legend; a notebook shows the picture.

        Parameters
        ----------
        case_id
            One of the cases.
        image : (H, W) or (H, W, C)
            The segmented image; None draws the maps over black.

        Raises
        ------
        InputError
            There is no such case, it is a volume, or its maps were not kept because they came from a generator.
        """
        maps = next((pair[1:] for pair in self.pairs if pair[0] == case_id), None)
        if maps is None:
            case_ids = [row.case_id for row in self.rows]
            give_list = "Give `evaluate` a list of pairs, not a generator, so that their arrays are kept."
            remedy = give_list if case_id in case_ids else nearest(case_id, case_ids)
            rule = "to be a case whose maps are kept"
            raise InputError(expected("Evaluation.show", "case_id", rule, repr(case_id), remedy))
        target, labels = map(np.asarray, maps)
        if target.ndim - self.spec.is_multilabel != 2:
            remedy = "Evaluate one of its planes to see it."
            raise InputError(
                expected("Evaluation.show", "case_id", "to have maps of two axes", f"{case_id!r}, a volume", remedy)
            )
        objects = Objects()
        if self.numbered:
            target, target_objects = split_objects(Path(case_id), target, self.spec)
            labels, predicted_objects = split_objects(Path(case_id), labels, self.spec)
            objects = measured_objects(self.metrics, target_objects, predicted_objects)
        board = self._board()
        score = float(board.values(board.headline)[board.run.case_ids.index(case_id)])
        image = np.zeros(target.shape[-2:], np.uint8) if image is None else image
        image = image[..., None] if image.ndim == 2 else image
        headline = board.headline
        overlay = draw_overlay(
            image, target, labels, self.spec, title=case_id, headline=headline, score=score, objects=objects
        )
        return fromarray(overlay)

    def plot(self, score: str | None = None) -> Histogram:
        """Draw the distribution of a score, such as "iou/car", over the cases; None is the headline.

        Raises
        ------
        ConfigError
            The cases have no such score.
        """
        metrics = settle_headline(self.metrics.replace(headline=score) if score else self.metrics, self.spec)
        board = self._board(metrics)
        return Histogram.of(title(board.headline), board.values(board.headline))

    def _board(self, metrics: MetricsConfig | None = None) -> Scoreboard:
        return build_scoreboard(order_rows("Evaluation", self.rows, self.spec), self.spec, metrics or self.metrics)

    def to_pandas(self) -> Any:
        """Convert `cases` to a pandas.DataFrame, if pandas is installed."""
        return self.cases.to_pandas()

    def to_polars(self) -> Any:
        """Convert `cases` to a polars.DataFrame, if polars is installed."""
        return import_module("polars").from_arrow(self.cases)

    def table(self) -> str:
        """Return the tables that the command line prints."""
        text = io.StringIO()
        print_summary(self.summary, file=text)
        return text.getvalue()

    def flat(self) -> dict[str, float]:
        """Return every score by a flat name, such as "per_class/car/iou", for W&B and MLflow."""
        return flatten(self.summary)

    def write_nnunet(self, path: str | Path, **options: Any) -> None:
        """Write nnU-Net's summary.json; options are those of `segmeter.metrics.cases.nnunet.write_summary`."""
        write_summary(path, self.rows, self.spec, **options)

    def write_grand_challenge(self, path: str | Path) -> None:
        """Write the metrics.json of an evaluation container of grand-challenge.org.

        Its ``results`` are the cases with the columns of cases.csv. Its ``aggregates`` are the numbers of `flat`,
        nested at each "/", so that a leaderboard takes "aggregates.dataset.mean_iou". Undefined is null, and infinity
        the text "inf".
        """
        rows = self.cases.drop_columns(["confusion"]).to_pylist()
        results = [{name: _plain(value) for name, value in row.items()} for row in rows]
        aggregates = dict[str, Any]()
        for name, value in self.flat().items():
            *parents, leaf = name.split("/")
            node = aggregates
            for parent in parents:
                node = node.setdefault(parent, {})
            node[leaf] = _plain(value)
        file = require_file("Evaluation.write_grand_challenge", "path", path)
        write_json(file, {"results": results, "aggregates": aggregates})

    def compare(
        self, other: Self, *, names: tuple[str, str] = ("base", "new"), require: Sequence[str] = ()
    ) -> Comparison:
        """Compare another evaluation of the same cases with this one, the base: differences, intervals, tests.

        Every difference is the other evaluation's score minus this one's. With `require`, such as
        ``["mean_iou >= base - 0.005"]``, ``gate`` of the result says whether the other one is good enough.

        Returns
        -------
        Comparison
            The result of `segmeter.compare`; `names` are the names of this evaluation and of the other one.

        Raises
        ------
        InputError
            The cases, classes or measures differ, or the names are the same.
        """
        require_kind("Evaluation.compare", "other", other, Evaluation)
        is_list = isinstance(names, Sequence) and not isinstance(names, str)
        if not is_list or len({name for name in names if isinstance(name, str) and name}) != 2 or len(names) != 2:
            raise InputError(expected("Evaluation.compare", "names", "to be two different names", shown(names)))
        for name, rule in {"spec": "to have the same classes", "metrics": "to be measured alike"}.items():
            if getattr(self, name) != getattr(other, name):
                raise InputError(expected("Evaluation.compare", "other", rule, getattr(other, name)))
        return compare({names[0]: self.rows, names[1]: other.rows}, self.spec, self.metrics, require=require)

    def write(self, folder: str | Path, *, report: bool = True) -> Path:
        """Write metrics.json, cases.parquet, cases.csv and report.html into a new or empty folder; return it.

        Raises
        ------
        InputError
            The folder is not empty, or lies below a file.
        """
        path = require_folder("Evaluation.write", "folder", folder)
        path.mkdir(parents=True, exist_ok=True)
        write_cases(path, self.rows, self.spec, mean_classes(self.metrics, self.spec))
        write_json(path / SUMMARY, self.summary)
        if report:
            write_report(path)
        return path

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        first = aggregates(self.summary)[0]
        value = "undefined" if first["dataset"] is None else f"{first['dataset']:.4f}"
        return f"Evaluation of {len(self)} cases: {first['name']} {value}"

    def _repr_html_(self) -> str:
        return render_summary(self.summary)


def flatten(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return every score of a summary under one name, such as "per_class/car/iou" or "measures/hd95/car/mean".

    Undefined scores are left out, as W&B and MLflow have none; infinity stays. An interval becomes "..._low" and
    "..._high". "@" becomes "_at_", and other characters that MLflow refuses become "_".

    Parameters
    ----------
    summary
        The content of metrics.json.

    Raises
    ------
    InputError
        Two classes would get one name.

    Examples
    --------
    >>> summary = {"n_cases": 2, "dataset": {"mean_iou": 0.5, "kappa": None}}
    >>> flatten(summary | {"dataset_ci95": {"mean_iou": [0.25, 0.75]}})
    {'n_cases': 2.0, 'dataset/mean_iou': 0.5, 'dataset/mean_iou_low': 0.25, 'dataset/mean_iou_high': 0.75}
    """
    scores = [("n_cases", float(summary["n_cases"]))]
    for part in _FLATTENED:
        scores += _leaves(part, summary.get(part), summary.get(f"{part}_ci95") or {})
    scores = [(_REFUSED.sub("_", name.replace("@", "_at_")), value) for name, value in scores]
    twice = [name for name, count in Counter(name for name, _ in scores).items() if count > 1]
    if twice:
        raise InputError(expected("flatten", "classes", "to differ in letters and digits", some(twice), "Rename one."))
    return dict(scores)


def _leaves(name: str, value: Any, intervals: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the numbers below a name, each followed by the ends of its interval."""
    if isinstance(value, Mapping):
        ends = value.get("ci95")
        own_intervals = ends if isinstance(ends, Mapping) else {"mean": ends, "dataset": value.get("dataset_ci95")}
        for key, part in value.items():
            if key in _LEFT_OUT:
                continue
            yield from _leaves(f"{name}/{key}", part, {})
            interval = intervals.get(key) or own_intervals.get(key) or (None,)
            if None not in interval:
                for side, end in zip(("low", "high"), interval, strict=True):
                    yield f"{name}/{key}_{side}", float(end)
    elif not isinstance(value, bool) and (isinstance(value, int | float) or value in ("inf", "-inf")):
        yield name, float(value)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and value in (float("inf"), float("-inf")) else value
