"""Runs on other targets, and lengths by another spacing, are not compared."""

from dataclasses import replace

import pytest

from segmeter.errors import InputError
from segmeter.metrics.cases.typed import check_same_cases, lay_out_run
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.compare import compare_runs
from tests.metrics.build import case_row, class_spec, random_rows

QUICK = MetricsConfig(bootstrap=300)


def laid_out(runs):
    spec = class_spec()
    return {name: lay_out_run(rows, spec, {}) for name, rows in runs.items()}


@pytest.mark.parametrize("metric", ["hd95/car", "nsd@2/car", "object_masd/car", "autopet_fp_volume/car", "mine/car"])
def test_lengths_by_another_spacing_are_refused(metric):
    rows = [case_row(f"c{i}", r.counts, scores={metric: 1.0}) for i, r in enumerate(random_rows(6))]
    apart = [replace(row, spacing=(0.5, 0.5), unit="mm") for row in rows]
    wider = [replace(row, spacing=(0.5, 0.6), unit="mm") for row in rows]
    metres = [replace(row, spacing=(0.5, 0.5), unit="m") for row in rows]
    for one, other, message in (
        (rows, apart, "as 'a' with pixels in 'c0', got 0.5 x 0.5 mm in 'b' .6 cases differ"),
        (apart, wider, "as 'a' with 0.5 x 0.5 mm in 'c0', got 0.5 x 0.6 mm in 'b'"),
        (apart, metres, "got 0.5 x 0.5 m in 'b'"),
        (apart, [*apart[:5], rows[5]], "0.5 x 0.5 mm in 'c5', got pixels in 'b' .1 cases"),
    ):
        with pytest.raises(InputError, match=message):
            compare_runs({"a": one, "b": other}, class_spec(), QUICK)


def test_scores_that_are_no_lengths_need_no_spacing():
    rows = [case_row(f"c{i}", r.counts, scores={"pq/car": 1.0}) for i, r in enumerate(random_rows(6))]
    apart = [replace(row, spacing=(0.5, 0.5), unit="mm") for row in rows]
    rounded = [replace(row, spacing=(0.5 + 1e-8, 0.5), unit="mm") for row in apart]
    assert compare_runs({"a": rows, "b": apart}, class_spec(), QUICK)["n_cases"] == 6
    both = [[replace(r, measured=case_row("c", r.counts, scores={"hd/car": 1.0}).measured) for r in one]
            for one in (apart, rounded)]  # fmt: skip
    assert compare_runs(dict(zip("ab", both, strict=True)), class_spec(), QUICK)["n_cases"] == 6


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"target_crc32": 9}, "labels"),
        ({"objects_crc32": 9}, "objects"),
        ({"height": 9}, r"shape \d+ x \d+ and 9 x \d+"),
        ({"depth": 1}, None),
        ({"objects_crc32": None}, None),
        ({"depth": 2}, r"shape \d+ x \d+ and 2 x \d+ x \d+"),
    ],
    ids=str,
)
def test_what_targets_differ_in_is_said(changes, difference):
    rows = [replace(row, target_crc32=i, objects_crc32=i) for i, row in enumerate(random_rows(6))]
    runs = {"a": rows, "b": [replace(rows[0], **changes), *rows[1:]]}
    if difference is None:
        check_same_cases(laid_out(runs))
        return
    message = rf"got 1 cases of 'b' with another target: case-000 \({difference}\). Score them again"
    for compare in (lambda: check_same_cases(laid_out(runs)), lambda: compare_runs(runs, class_spec(), QUICK)):
        with pytest.raises(InputError, match=message):
            compare()


def test_references_without_checksums_are_said_to_be_unverified_once(caplog):
    rows = [replace(row, target_crc32=i) for i, row in enumerate(random_rows(6))]
    check_same_cases(laid_out({"a": rows, "b": rows}))
    assert not caplog.records
    unknown = [replace(row, target_crc32=None) for row in rows]
    check_same_cases(laid_out({"a": rows, "b": unknown, "c": rows, "d": unknown}))
    (record,) = caplog.records
    assert "references of 'a' were compared with those of 'b' (6 cases), 'd' (6 cases)" in record.getMessage()
