"""Evaluates arrays in memory: the same metrics, tables and report as `segmeter score` gives for files."""

import io
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from pathlib import Path
from types import EllipsisType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL.Image import Image, fromarray

from segmeter.api.adapters.flat import flatten, write_metrics
from segmeter.api.comparison import Comparison, compare
from segmeter.api.pairs import WHERE, Case, measure_pairs, read_classes
from segmeter.checks import expected, known_file, known_folder, known_kind, nearest, shown
from segmeter.classes import ClassSpec, Task
from segmeter.errors import InputError
from segmeter.evaluation.drive import SUMMARY
from segmeter.files import write_json
from segmeter.metrics.cases.nnunet import write_summary
from segmeter.metrics.cases.stored import case_table, write_cases
from segmeter.metrics.cases.table import CaseRow, order_rows
from segmeter.metrics.config.metrics import MetricsConfig, check_metrics, mean_classes, with_objects
from segmeter.metrics.summary.scoreboard import Scoreboard, build_scoreboard, settle_headline
from segmeter.metrics.summary.slice_labels import check_case_ids
from segmeter.metrics.summary.summarise import summarise
from segmeter.report.drawing import Histogram
from segmeter.report.figures import aggregates, title
from segmeter.report.html import write_report
from segmeter.report.pictures.flatten import draw_overlay
from segmeter.report.pictures.objects import Objects, measured_objects
from segmeter.report.summary import print_summary, render_summary


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
        Whether they number objects.
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
        """The table of cases.parquet, one row per case in the order of their ids, with checksums and counts last."""
        table = case_table(self.rows, self.spec, mean_classes(self.metrics, self.spec))
        return table.select(sorted(table.column_names, key=lambda name: name.endswith("crc32") or name == "confusion"))

    def worst(self, count: int = 5) -> dict[str, float]:
        """Return the worst cases by the headline, the worst first: its value by case id."""
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
            There is no such case, it is a volume, or its maps were not kept, because they came from a generator.
        """
        maps = next((pair[1:] for pair in self.pairs if pair[0] == case_id), None)
        if maps is None:
            known = [row.case_id for row in self.rows]
            kept = "Give `evaluate` a list of pairs, not a generator, so that their arrays are kept."
            remedy = kept if case_id in known else nearest(case_id, known)
            rule = "to be a case whose maps are kept"
            raise InputError(expected("Evaluation.show", "case_id", rule, repr(case_id), remedy))
        target, labels = (np.asarray(one) for one in maps)
        objects = Objects()
        if self.numbered:
            objects = measured_objects(self.metrics, target, labels)
            target, labels = (target > 0).astype(np.uint8), (labels > 0).astype(np.uint8)
        board = self._board()
        score = float(board.values(board.headline)[board.run.case_ids.index(case_id)])
        shown = np.zeros(target.shape[-2:], np.uint8) if image is None else image
        shown = shown[..., None] if shown.ndim == 2 else shown
        options: dict[str, Any] = {"title": case_id, "headline": board.headline, "score": score, "objects": objects}
        return fromarray(draw_overlay(shown, target, labels, self.spec, **options))

    def plot(self, score: str | None = None) -> Histogram:
        """Draw how many cases have which value of a score, such as "iou/car"; None is the headline.

        Raises
        ------
        ConfigError
            The cases have no such score.
        """
        settled = settle_headline(self.metrics.replace(headline=score) if score else self.metrics, self.spec)
        board = self._board(settled)
        return Histogram.of(title(board.headline), board.values(board.headline))

    def _board(self, metrics: MetricsConfig | None = None) -> Scoreboard:
        return build_scoreboard(order_rows("Evaluation", self.rows, self.spec), self.spec, metrics or self.metrics)

    def to_pandas(self) -> Any:
        """Convert `cases` to a pandas.DataFrame, if pandas is installed."""
        _need("pandas")
        return self.cases.to_pandas()

    def to_polars(self) -> Any:
        """Convert `cases` to a polars.DataFrame, if polars is installed."""
        return _need("polars").from_arrow(self.cases)

    def table(self) -> str:
        """Return the tables that the command line prints."""
        text = io.StringIO()
        print_summary(self.summary, file=text)
        return text.getvalue()

    def flat(self) -> dict[str, float]:
        """Return every score by a flat name, as W&B and MLflow log them: "per_class/car/iou"."""
        return flatten(self.summary)

    def write_nnunet(self, path: str | Path, **options: Any) -> None:
        """Write nnU-Net's summary.json; options are those of `segmeter.metrics.cases.nnunet.write_summary`."""
        write_summary(path, self.rows, self.spec, **options)

    def write_grand_challenge(self, path: str | Path) -> None:
        """Write the metrics.json of an evaluation container of grand-challenge.org."""
        write_metrics(known_file("Evaluation.write_grand_challenge", "path", path), self.cases, self.summary)

    def compare(
        self, other: Self, *, names: tuple[str, str] = ("base", "new"), require: Sequence[str] = ()
    ) -> Comparison:
        """Compare another evaluation of the same cases with this one, the base: differences, intervals, tests.

        Every difference is the other one's score minus this one's. With `require`, such as
        ``["mean_iou >= base - 0.005"]``, it is decided whether the other one is good enough: the result has ``gate``.

        Returns
        -------
        Comparison
            As `segmeter.compare` gives it; `names` are those of this evaluation and of the other one.

        Raises
        ------
        InputError
            The cases, classes or measures differ, or the names are the same.
        """
        known_kind("Evaluation.compare", "other", other, Evaluation)
        several = isinstance(names, Sequence) and not isinstance(names, str)
        if not several or len({name for name in names if isinstance(name, str) and name}) != 2 or len(names) != 2:
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
            The folder holds something already, or lies below a file.
        """
        known_kind("Evaluation.write", "report", report, bool)
        path = known_folder("Evaluation.write", "folder", folder)
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
        Of each case its id, its target and its prediction: integer or bool arrays (H, W) or (D, H, W), multilabel
        (K, H, W) or (K, D, H, W). They are read once, so that a generator need not hold them all; `Evaluation.show`
        draws the cases of a list.
    classes
        Names, background included, or a ClassSpec, which says task and ignored value too.
    task
        binary (two names, values 0 and 1), multiclass, or multilabel. Without it the task of a ClassSpec, or multiclass
        for names.
    ignore_index
        Value of the targets that marks pixels to leave out, or None. Without it that of a ClassSpec, or None for names.
    count_invalid
        Whether predicted values that are no class are counted as missed, in a column of their own, instead of refused.
        Without it as a ClassSpec says.
    instances
        Whether both maps of a binary task number their objects, 0 being none, instead of holding labels; objects are
        then measured by these numbers.
    measures
        Measures in addition to the counts, such as ``["surface", "instances"]`` or ``[{"name": "surface", "tolerances":
        [2]}]``.
    convention
        Whose rules the headline follows; "all" shows all of them.
    metrics
        All further options; `measures` and `convention` replace those in it.

    Returns
    -------
    Evaluation

    Raises
    ------
    InputError
        A case comes twice, its maps do not go together, or a value is no class (the case is named); or `task` or
        `ignore_index` is not that of the ClassSpec.
    ConfigError
        An option is wrong.

    Examples
    --------
    >>> import numpy as np, segmeter
    >>> target = np.array([[0, 0, 1, 1]])
    >>> pairs = [("a", target, target), ("b", target, np.array([[0, 1, 1, 1]]))]
    >>> found = segmeter.evaluate(pairs, classes=["background", "cell"], task="binary")
    >>> found
    Evaluation of 2 cases: IoU of cell 0.8000
    >>> found.cases["iou_cell"].to_pylist()
    [1.0, 0.6666666666666666]
    """
    spec = read_classes(classes, task, ignore_index)
    instances = bool(instances) if isinstance(instances, np.bool_) else instances
    known_kind(WHERE, "instances", instances, bool)
    if count_invalid is not None:
        spec = spec.replace(count_invalid=count_invalid)
    if metrics is not None:
        known_kind(WHERE, "metrics", metrics, MetricsConfig)
    if not isinstance(measures, Sequence) or isinstance(measures, str | bytes):
        raise InputError(expected(WHERE, "measures", 'to be a list such as ["surface"]', shown(measures)))
    given: dict[str, Any] = {"measures": tuple(measures)} if measures else {}
    given |= {"convention": convention} if convention is not None else {}
    config = (metrics or MetricsConfig()).replace(**given) if given else metrics or MetricsConfig()
    if instances:
        if spec.task != "binary":
            raise InputError(expected(WHERE, "instances", "to be False but for a binary task", spec.task))
        config = with_objects(config)
    check_metrics(config, spec)
    config = settle_headline(config, spec)
    rows, places = measure_pairs(pairs, spec, config, instances)
    check_case_ids(config, spec, [row.case_id for row in rows])
    summary = summarise(rows, spec, config) | places.summary(missing=[], extra=0)
    kept: Sequence[Case] = pairs if isinstance(pairs, Sequence) else ()
    table = order_rows(WHERE, rows, spec)
    return Evaluation(table, spec=spec, metrics=config, summary=summary, pairs=kept, numbered=instances)


def _need(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise InputError(f"Evaluation.to_{package}: {package} is not installed. Run: pip install {package}") from None
