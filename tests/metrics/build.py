"""Rows to test with."""

import numpy as np

from segmeter.classes import ClassSpec
from segmeter.metrics.cases.run_columns import sum_regions
from segmeter.metrics.cases.table import CaseRow, MeasureColumn, decode_key, encode_key
from segmeter.metrics.config.conventions import CONVENTIONS
from segmeter.metrics.config.metrics import DEFAULT, MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, build_measures, measure_case
from segmeter.metrics.summary.conventions import figures_under
from segmeter.metrics.summary.scoreboard import build_scoreboard

NAMES = ("sky", "road", "car", "tree", "pole")


def class_spec(num_classes=3, task="multiclass", ignore_index=255):
    colours = tuple((k, k, k) for k in range(num_classes))
    return ClassSpec(task=task, names=NAMES[:num_classes], colours=colours, ignore_index=ignore_index)


def case_row(case_id, counts, *, scores=None, **fields):
    """A row; `scores` by the names that files give them, such as "hd95/car" and "sum:tp/car"."""
    if scores is not None:
        keys = {name: decode_key(name) for name in scores}
        fields["measured"] = tuple(MeasureColumn(k[0], k[1], scores[name], k[2]) for name, k in keys.items() if k)
        fields["extra"] = {name: value for name, value in scores.items() if not keys[name]}
    return CaseRow(case_id=case_id, height=4, width=5, counts=np.asarray(counts, np.int64), **fields)


def boxes(shape, *places):
    """A map of 0 with boxes of 1, each by its first row and column and the ones after its last."""
    mask = np.zeros(shape, np.uint8)
    for top, left, bottom, right in places:
        mask[top:bottom, left:right] = 1
    return mask


def named(columns):
    """Columns of measures by the names that files give them."""
    return {encode_key(column.key): column.value for column in columns}


BINARY = class_spec(2, "binary")


def maps_of(target, labels, spec=BINARY, **fields):
    """A case with pixels of edge 1, unless `fields` have another spacing; lists are read as uint8."""
    target, labels = (one if isinstance(one, np.ndarray) else np.array(one, np.uint8) for one in (target, labels))
    fields = {"case_id": "c", "spacing": (1.0,) * (target.ndim - spec.is_multilabel)} | fields
    return CaseMaps(target=target, labels=labels, spec=spec, **fields)


def measured(measures, maps, **settings):
    """Columns of a case by their names in files."""
    return named(measure_case(maps, build_measures(MetricsConfig(measures=measures, **settings), maps.spec)))


def score_under(convention, rows, spec, config=DEFAULT):
    """The headline under a convention."""
    return figures_under(CONVENTIONS[convention], build_scoreboard(rows, spec, config))[0]


def random_rows(n_cases, num_classes=3, *, seed=0, task="multiclass", **fields):
    """Rows of cases in which classes are sometimes absent."""
    rng = np.random.default_rng(seed)
    shape = (num_classes, 2, 2) if task == "multilabel" else (num_classes, num_classes)
    rows = []
    for i in range(n_cases):
        counts = rng.integers(0, 40, shape) * (rng.random(shape) < 0.6)
        rows.append(case_row(f"case-{i:03d}", counts, **fields))
    return rows


def stack_totals(rows, spec, members=None):
    """Margins (N, R) of the classes, or of regions with these members, from all rows at once."""
    members = [[k] for k in range(spec.num_classes)] if members is None else members
    counts = np.array([row.counts for row in rows], np.int64).reshape(-1, *spec.counts_shape)
    return sum_regions(counts, spec, members)
