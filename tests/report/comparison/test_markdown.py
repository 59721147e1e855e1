"""The summary for a pull request: new minus base, infinities, and many classes."""

from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.compare import compare_runs
from segmeter.report.comparison.markdown import markdown_summary
from segmeter.report.comparison.texts import shown_metrics
from tests.metrics.build import case_row, class_spec, random_rows
from tests.metrics.summary.test_compare import spoil

QUICK = MetricsConfig(bootstrap=200)
REST = {
    "convention": "segmeter",
    "rank_by": "mean_iou",
    "bootstrap": {"interval": "expanded", "resamples": 200, "cluster": None, "warning": None},
}


def compared(one, other, **options):
    return compare_runs({"base": one, "new": other}, class_spec(), QUICK, **options) | REST


def line_of(text, name):
    return next(line for line in text.splitlines() if line.startswith(f"| {name} |"))


def test_changes_are_new_minus_base():
    rows = random_rows(12)
    result = compared(rows, spoil(rows, 0.5))
    (pair,) = result["metrics"]["mean_iou"]["pairs"]
    low, high = pair["dataset_ci95"]
    assert pair["dataset_difference"] < 0
    cells = line_of(markdown_summary(result), "mean IoU").split(" | ")
    assert cells[3] == f"{pair['dataset_difference']:+.4f} worse"
    assert cells[4] == f"[{low:.4f}, {high:.4f}]"


def test_infinite_changes_have_their_sign_too():
    rows = [case_row(row.case_id, row.counts, scores={"hd95/car": 2.0}) for row in random_rows(12)]
    lost = [case_row(row.case_id, row.counts, scores={"hd95/car": float("inf")}) for row in rows]
    line = line_of(markdown_summary(compared(rows, lost)), "mean HD95")
    assert "| 2.0000 | inf in 12 | +inf worse | [inf, inf] |" in line
    back = line_of(markdown_summary(compared(lost, rows)), "mean HD95")
    assert "| inf in 12 | 2.0000 | -inf better | [-inf, -inf] |" in back


def test_of_many_classes_those_that_differ_are_shown():
    rows = random_rows(40)
    metrics, left_out = shown_metrics(compared(rows, rows), 3)
    assert (metrics, left_out) == (["mean_iou", "mean_dice", "pixel_accuracy"], 12)
    many = compare_runs({"base": rows, "new": spoil(rows, 0.6)}, class_spec(), MetricsConfig(bootstrap=2000)) | REST
    metrics, left_out = shown_metrics(many, 3)
    assert "iou/car" in metrics
    assert len(metrics) + left_out == 15
