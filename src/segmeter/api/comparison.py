"""Holds the result of `compare`: the dictionary of compare.json, which also prints and displays itself."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from segmeter.classes import ClassSpec
from segmeter.evaluation.compare import order_runs
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig, headline_of
from segmeter.metrics.summary.compare import compare_runs
from segmeter.report.differences import comparison_tables
from segmeter.report.page.comparison import notes, order_lines, print_comparison
from segmeter.report.tables import html_of


class Comparison(dict[str, Any]):
    """The result of `segmeter.metrics.summary.compare.compare_runs`; a notebook shows its tables."""

    def table(self) -> str:
        """Return the tables that `segmeter compare` prints."""
        text = io.StringIO()
        print_comparison(self, file=text)
        return text.getvalue()

    def __repr__(self) -> str:
        return f"Comparison of {' and '.join(self['runs'])} on {self['n_cases']} cases: {order_lines(self)[0]}"

    def _repr_html_(self) -> str:
        return html_of([*comparison_tables(self).values()], [*order_lines(self), *notes(self)])


def compare(
    runs: Mapping[str, Sequence[CaseRow]],
    spec: ClassSpec,
    config: MetricsConfig | None = None,
    *,
    require: Sequence[str] = (),
) -> Comparison:
    """Compare runs on the same cases: each pair's difference with its interval and tests, and the ranking of all.

    Parameters
    ----------
    runs, spec, config, require
        See `segmeter.metrics.summary.compare.compare_runs`; None is the default configuration.

    Returns
    -------
    Comparison
        The result of `compare_runs`, with ``convention``, ``bootstrap`` (the settings of the intervals), ``rank_by``
        (the headline), ``order`` (the runs, best first), and ``other_orders`` (the metrics that order them in another
        way).

    Raises
    ------
    InputError, ConfigError
        See `compare_runs`; or not all runs have the headline.

    Examples
    --------
    >>> import numpy as np
    >>> import segmeter
    >>> spec = segmeter.ClassSpec(task="binary", names=("ground", "cell"), colours=((0, 0, 0), (255, 0, 0)))
    >>> def rows(missed):
    ...     counts = np.array([[60, 0], [missed, 40 - missed]])
    ...     return [segmeter.CaseRow(case_id=f"{n}", height=10, width=10, counts=counts) for n in range(9)]
    >>> segmeter.compare({"base": rows(8), "new": rows(4)}, spec)["order"]
    ['new', 'base']
    """
    config = MetricsConfig() if config is None else config
    result = compare_runs(runs, spec, config, require=require)
    ranking = order_runs(result["metrics"], headline_of(config, spec), key="headline")
    bootstrap = {"interval": config.interval, "resamples": config.bootstrap, "cluster": config.cluster, "warning": None}
    return Comparison(result | ranking | {"convention": config.convention, "bootstrap": bootstrap})
