"""Slices on the terminal and in report.html."""

import io
from pathlib import Path

import numpy as np

import segmeter
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.report.figures import slices, title
from segmeter.report.html import write_report
from segmeter.report.summary import print_summary


def evaluation() -> segmeter.Evaluation:
    rng = np.random.default_rng(0)
    target = np.kron(rng.integers(0, 2, (4, 4)), np.ones((4, 4), int))
    pairs = [
        (f"<{ward}>-{i}", target, np.where(rng.random(target.shape) < rate, 1 - target, target))
        for ward, rate in (("a", 0.05), ("b", 0.3))
        for i in range(8)
    ]
    config = MetricsConfig(bootstrap=200, slice_by=("^(.+)-",))
    return segmeter.evaluate(pairs, classes=["none", "cell"], task="binary", metrics=config)


def test_slices_are_printed_with_the_worst_marked_and_stand_in_the_report(tmp_path: Path) -> None:
    found = evaluation()
    rows = slices(found.summary)
    assert [(row["slice"], row["n"], row["worst"]) for row in rows] == [("<a>", 8, False), ("<b>", 8, True)]
    assert title(found.summary["slices"]["headline"]) == "IoU of cell"
    text = io.StringIO()
    print_summary(found.summary, file=text)
    assert "<b> (worst)" in text.getvalue()
    assert "IoU of cell by slice" in text.getvalue()
    page = write_report(found.write(tmp_path / "run")).read_text()
    assert '<h2 id="slices">Slices</h2>' in page
    assert "&lt;b&gt; (worst)</a></b>" in page


def test_without_slices_there_is_no_table() -> None:
    assert slices({}) == []
