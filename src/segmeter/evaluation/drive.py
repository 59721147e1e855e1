"""Runs an evaluation: takes the results of cases in their order, shows progress, and appends one row per case.

`score`, `eval` and `predict` differ only in the source of their cases. Each source works on its cases in threads: it
reads or predicts them, measures them with `segmeter.metrics.measures.row.make_row`, and writes their files.
"""

from collections.abc import Callable, Generator
from contextlib import closing

from segmeter.errors import DataError
from segmeter.evaluation.manifest import Entry, Manifest
from segmeter.progress import Report, track

Outcome = Entry | tuple[str, ...]
"""A finished case, or the problems of its files."""


def drive(
    results: Generator[Outcome, None, None],
    manifest: Manifest,
    *,
    what: str,
    total: int,
    parts: Callable[[Report], None] | None = None,
    each: Callable[[Entry], None] = lambda entry: None,
) -> None:
    """Note every finished case in the manifest, in order.

    Parameters
    ----------
    results
        What became of each case that the manifest does not have yet.
    what, total, parts
        As `segmeter.progress.track` shows them.
    each
        Called with each finished case once it is noted.

    Raises
    ------
    DataError
        All problems of all cases, one line each. Sound cases stay in the manifest, so that a later run can resume.
    """
    problems: list[str] = []
    with closing(results):
        for result in track(results, what, total, parts=parts):
            if isinstance(result, Entry):
                manifest.add(result)
                each(result)
            else:
                problems.extend(result)
    if problems:
        raise DataError(problems)
